// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/boxed_tensor.h>
#include <attile/arch/mbarrier.cuh>
#include <attile/arch/shared_memory.cuh>
#include <attile/core/config.h>

#include <cuda.h>

#include <cstdint>

// Copies of boxes of tensors with five dimensions between device and shared memory, which one
// thread begins and a unit of the multiprocessor makes (TMA; compute capability 9.0,
// "cp.async.bulk.tensor" in the PTX ISA). They go by the "async proxy": generic accesses of shared
// memory are ordered with them by `fence_async_proxy`, a wait on an Mbarrier, or
// `bulk_wait_read`.

namespace attile::arch {

/// What a copy has to know of a tensor: made on the host (tensor_map.cuh), a kernel's parameter
/// under ATTILE_GRID_CONSTANT.
using TensorMap = CUtensorMap;

/// Brings a box to `shared`; `barrier` counts its bytes. Scope    one thread.
/// Units    `shared` as `shared_address` gives it, aligned to 128 bytes; to 1024, 512, 256 with a
///          swizzle of 128, 64, 32 bytes. `at.c0` is a multiple of 16 bytes.
ATTILE_DEVICE void bulk_load(std::uint32_t shared, const TensorMap& map, const TmaCoord& at,
                             Mbarrier* barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4, %5, %6}], [%7];" ::"r"(shared),
      "l"(&map), "r"(at.c0), "r"(at.c1), "r"(at.c2), "r"(at.c3), "r"(at.c4),
      "r"(shared_address(barrier))
      : "memory");
#endif
}

/// Brings a box to `shared` in each of `blocks` of the cluster, and reads it once for all. In each
/// of them its bytes count at the barrier that lies where `barrier` does in this one.
/// Scope    one thread, behind a `cluster_barrier` behind `mbarrier_publish` in those blocks.
/// Units    `shared` as for `bulk_load`; blocks: a bit for each by its `cluster_rank`.
/// Hazards  none of those blocks may end, or still read what lies there, when the box comes: an
///          Mbarrier in this block at which all their readers arrive. A barrier there may get its
///          bytes before they are announced to it, as long as an arrival is still to come.
ATTILE_DEVICE void bulk_load_multicast(std::uint32_t shared, const TensorMap& map,
                                       const TmaCoord& at, Mbarrier* barrier,
                                       std::uint16_t blocks) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3, %4, %5, %6}], [%7], %8;" ::"r"(shared),
      "l"(&map), "r"(at.c0), "r"(at.c1), "r"(at.c2), "r"(at.c3), "r"(at.c4),
      "r"(shared_address(barrier)), "h"(blocks)
      : "memory");
#endif
}

/// Has the map itself fetched, which the first copy by it would wait for.
ATTILE_DEVICE void prefetch_map(const TensorMap& map) {
#if __CUDA_ARCH__ >= 900
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
#endif
}

/// Has L2 fetch a box that some thread is to load soon. Nothing waits for it.
ATTILE_DEVICE void bulk_prefetch(const TensorMap& map, const TmaCoord& at) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.tensor.5d.L2.global [%0, {%1, %2, %3, %4, %5}];" ::"l"(&map),
               "r"(at.c0), "r"(at.c1), "r"(at.c2), "r"(at.c3), "r"(at.c4)
               : "memory");
#endif
}

/// `bulk_load` of `bytes` neighbouring bytes. Units    a multiple of 16, from and to such
/// addresses.
ATTILE_DEVICE void bulk_load(std::uint32_t shared, const void* from, int bytes, Mbarrier* barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared),
      "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
#endif
}

/// Takes a box from `shared`; it belongs to this thread's open group of stores. Units    as in
/// `bulk_load`, and none negative: such a box stops an H200 with an illegal instruction.
ATTILE_DEVICE void bulk_store(const TensorMap& map, const TmaCoord& at, std::uint32_t shared) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%1, %2, %3, %4, %5}], "
      "[%6];" ::"l"(&map),
      "r"(at.c0), "r"(at.c1), "r"(at.c2), "r"(at.c3), "r"(at.c4), "r"(shared)
      : "memory");
#endif
}

/// The same for `bytes` neighbouring bytes. Units    a multiple of 16, from and to such addresses.
ATTILE_DEVICE void bulk_store(float* to, std::uint32_t shared, int bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(
                   __cvta_generic_to_global(to)),
               "r"(shared), "r"(bytes)
               : "memory");
#endif
}

/// to[i] += from[i] for `bytes` bytes of floats in `shared`, each as by `atomic_add`; the addition
/// belongs to this thread's open group of stores. Units    a multiple of 16, from and to such
/// addresses.
ATTILE_DEVICE void bulk_add(float* to, std::uint32_t shared, int bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(
                   __cvta_generic_to_global(to)),
               "r"(shared), "r"(bytes)
               : "memory");
#endif
}

/// Closes this thread's group of stores.
ATTILE_DEVICE void bulk_commit() {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
#endif
}

/// Waits until all but kPending of this thread's latest groups have read their shared memory. They
/// are seen in device memory at the end of the kernel.
template <int kPending>
ATTILE_DEVICE void bulk_wait_read() {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
#endif
}

/// Waits until all but kPending of this thread's latest groups are done: whoever acquires what it
/// then releases sees in device memory what they have written.
template <int kPending>
ATTILE_DEVICE void bulk_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
#endif
}

/// This thread's generic accesses of shared memory, and those of others that it is ordered behind,
/// come before all that copies and warpgroup products do there which are ordered behind it: who
/// wrote may call it before a barrier, or who begins the copy or product behind one. (The order
/// that counts runs through the fence, in the block of the copy: Lustig, Cooksey and Giroux,
/// "Mixed-proxy extensions for the NVIDIA PTX memory consistency model", 2022.)
ATTILE_DEVICE void fence_async_proxy() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/// The same for device memory, where a copy adds to what threads have written in this kernel.
ATTILE_DEVICE void fence_async_proxy_global() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.global;" ::: "memory");
#endif
}

}  // namespace attile::arch
