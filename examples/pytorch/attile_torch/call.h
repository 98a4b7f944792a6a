// SPDX-License-Identifier: MIT
#pragma once

// What the calls of all variants have in common: the C interface that PyTorch's side calls by
// ctypes. A generated file names the variant and includes its header, kernel.h or append.h; nvcc
// compiles it to kernels, any other compiler to the CPU executor. No header of PyTorch is used, so
// that a library serves every version of it.
#include <attile/core/cache.h>
#include <attile/core/status.h>
#include <attile/core/tensor.h>

#ifdef __CUDACC__
#include <cuda_runtime.h>
#else
#include <driver_types.h>
#endif

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <type_traits>

extern "C" {

/// Strides of a (batch, head, row, dim) view. Units: elements.
struct AttileTorchStrides {
  std::int64_t batch, head, row;
};

/// Where the keys of a cache are, and the queries, or new rows, beside it; addresses as numbers.
struct AttileTorchCache {
  std::int64_t total_q;  // of packed queries
  std::int64_t pieces;   // caches, or pages: the batch axis of K and V
  std::int64_t page_size, pages_per_sequence, table_stride, tables;  // where there are pages
  std::int64_t cu_seqlens_q, seqused_q, seqused_k, page_table, cache_batch_idx, leftpad_k;
};

}  // extern "C"

namespace {

template <class X>
X* pointer(std::int64_t address) {
  return reinterpret_cast<X*>(static_cast<std::uintptr_t>(address));
}

/// Returns a size as an int; one that is no int becomes one that `check` refuses.
int number(std::int64_t x) {
  return static_cast<int>(std::clamp<std::int64_t>(x, INT_MIN, INT_MAX));
}

template <class X>
void set(attile::Tensor<X>& to, std::int64_t address, const AttileTorchStrides& strides) {
  to = {pointer<X>(address), strides.batch, strides.head, strides.row};
}

void set(attile::PaddedQueries& to, const AttileTorchCache& from) {
  to.seqused_q = pointer<const int>(from.seqused_q);
}
void set(attile::PackedQueries& to, const AttileTorchCache& from) {
  to = {pointer<const int>(from.cu_seqlens_q), number(from.total_q),
        pointer<const int>(from.seqused_q)};
}
template <class Queries>
void set(attile::CachedKeys<Queries>& to, const AttileTorchCache& from) {
  set(to.queries, from);
  to.seqused_k = pointer<const int>(from.seqused_k);
  to.caches = number(from.pieces);
  to.cache_batch_idx = pointer<const int>(from.cache_batch_idx);
  to.leftpad_k = pointer<const int>(from.leftpad_k);
}
template <class Queries>
void set(attile::PagedKeys<Queries>& to, const AttileTorchCache& from) {
  set(to.queries, from);
  to.page_table = pointer<const int>(from.page_table);
  to.table_stride = from.table_stride;
  to.pages_per_sequence = number(from.pages_per_sequence);
  to.page_size = number(from.page_size);
  to.pages = number(from.pieces);
  to.seqused_k = pointer<const int>(from.seqused_k);
  to.cache_batch_idx = pointer<const int>(from.cache_batch_idx);
  to.tables = number(from.tables);
  to.leftpad_k = pointer<const int>(from.leftpad_k);
}

#ifdef __CUDACC__

using Stream = std::remove_pointer_t<cudaStream_t>;

/// Makes the call's device the current one of the runtime that this library is linked with. The
/// caller has made it the current one of its own.
cudaError_t use_device(std::int64_t device) {
  int current = -1;
  const cudaError_t error = cudaGetDevice(&current);
  if (error == cudaSuccess && current == device) return error;
  return cudaSetDevice(static_cast<int>(device));
}

/// Returns a number that no other capture of the process has; 0 where the stream is not captured.
std::uint64_t capture_of(std::int64_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;
  if (cudaStreamGetCaptureInfo(pointer<Stream>(stream), &status, &id) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return 0;
  }
  return status == cudaStreamCaptureStatusActive ? id : 0;
}

const char* name_of(cudaError_t error) { return cudaGetErrorString(error); }

#else

cudaError_t use_device(std::int64_t) { return cudaSuccess; }
std::uint64_t capture_of(std::int64_t) { return 0; }
const char* name_of(cudaError_t) { return "the CPU executor had no memory or no thread"; }

#endif

}  // namespace
