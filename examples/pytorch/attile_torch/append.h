// SPDX-License-Identifier: MIT
#pragma once

// `append` behind the C interface. The generated file says
//   ATTILE_TORCH_TYPE         element type
//   ATTILE_TORCH_SEQUENCES    where the keys of the cache are, and how new rows are laid out
//   ATTILE_TORCH_ROTARY       NoRotary, or Rotary with the element type of its tables
#ifdef __CUDACC__
#include <attile/append.cuh>
#else
#include <attile/host/append.h>
#endif
#include <attile/core/append.h>
#include <attile/core/rotary.h>
#include <attile/core/workspace.h>

#include <call.h>

extern "C" {

/// All that a call needs, in words of eight bytes; addresses as numbers, 0 for what is not there.
/// `_cache.py` writes the same order.
struct AttileTorchAppend {
  std::int64_t device, batch, q_heads, kv_heads, q_len, kv_len, head_dim, head_dim_v;
  std::int64_t rotary_rows, rotary_dims, rotary_stride, interleaved;
  AttileTorchStrides k_new, v_new, k, v, q;
  struct {
    std::int64_t stream, k_new, v_new, k, v, q, cos, sin, rotary_seqlens, dropped;
  } data;
  AttileTorchCache cache;
};

}  // extern "C"

namespace {

using Call = AttileTorchAppend;
constexpr std::int64_t kCallBytes = sizeof(Call);
using Args = attile::AppendArgs<ATTILE_TORCH_TYPE, ATTILE_TORCH_SEQUENCES, ATTILE_TORCH_ROTARY>;

void set(attile::NoRotary&, const Call&) {}
template <class Table>
void set(attile::Rotary<Table>& to, const Call& from) {
  to.cos = pointer<const Table>(from.data.cos), to.sin = pointer<const Table>(from.data.sin);
  to.rows = number(from.rotary_rows), to.dims = number(from.rotary_dims);
  to.row_stride = from.rotary_stride;
  using attile::RotaryLayout;
  to.layout = from.interleaved != 0 ? RotaryLayout::kInterleaved : RotaryLayout::kHalves;
  to.seqlens = pointer<const int>(from.data.rotary_seqlens);
}

Args args_of(const Call& c) {
  const auto& data = c.data;
  Args a;
  set(a.k_new, data.k_new, c.k_new), set(a.v_new, data.v_new, c.v_new);
  set(a.k, data.k, c.k), set(a.v, data.v, c.v);
  set(a.q, data.q, c.q), set(a.q_out, data.q, c.q);  // in place
  a.dropped = pointer<int>(data.dropped);
  a.batch = number(c.batch), a.q_heads = number(c.q_heads), a.kv_heads = number(c.kv_heads);
  a.q_len = number(c.q_len), a.kv_len = number(c.kv_len);
  a.head_dim = number(c.head_dim), a.head_dim_v = number(c.head_dim_v);
  set(a.rotary, c), set(a.sequences, c.cache);
  return a;
}

#ifdef __CUDACC__

attile::Check check(const Args& a) { return attile::check_append(a); }
cudaError_t run(const Call& c, const Args& a, void*, std::size_t) {
  return attile::append(a, pointer<Stream>(c.data.stream));
}

#else

attile::Check check(const Args& a) { return attile::check_arguments(a); }
cudaError_t run(const Call&, const Args& a, void*, std::size_t) {
  return attile::host::append(a).error;
}

#endif

attile::WorkspaceSize size_of(const Args& a) { return {check(a), 0}; }

}  // namespace

#include <exports.h>
