// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/launch.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/args.h>
#include <attile/core/check.h>
#include <attile/core/math.h>
#include <attile/core/schedule.h>
#include <attile/tile/copy.cuh>
#include <attile/tile/online_softmax.h>

#include <cstdint>

// What all families of forward kernels have in common: their parameter, grid and shell.

namespace attile {

/// What the kernel gets: the arguments with everything resolved that the host knows.
template <class Traits>
struct ForwardParams {
  using T = typename Traits::ElementType;

  tile::TensorParam<const T> q, k, v;
  tile::TensorParam<T> o;
  float* lse;
  int q_heads, kv_heads;
  Extent extent;
  int head_dim, head_dim_v;
  int q_tiles;
  float scale;
  typename Traits::MaskType mask;
  typename Traits::ScoreModType score_mod;
  typename Traits::DropoutType dropout;
};

/// The kernel's one parameter, for arguments that passed `check`.
template <class Traits>
ForwardParams<Traits> forward_params(const typename Traits::Args& args) {
  const auto [qk, v] = head_dims(args, Traits::kD, Traits::kDv);
  return {tile::tensor_param(args.q, qk),
          tile::tensor_param(args.k, qk),
          tile::tensor_param(args.v, v),
          tile::tensor_param(args.o, v),
          args.lse,
          args.q_heads,
          args.kv_heads,
          {args.q_len, args.kv_len},
          qk,
          v,
          ceil_div(args.q_len, Traits::kBr),
          scale_of(args, qk),
          args.mask,
          args.score_mod,
          args.dropout};
}

/// One block for each tile of query rows of each batch and head.
template <class Traits>
std::int64_t forward_block_count(const typename Traits::Args& args) {
  return std::int64_t{args.batch} * args.q_heads * ceil_div(args.q_len, Traits::kBr);
}

/// The tiles of Bc columns that any of the `count` rows from `first` on sees.
template <class Traits>
ATTILE_DEVICE TileRange tiles_seen(const ForwardParams<Traits>& p, int batch, int head, int first,
                                   int count) {
  const Interval rows{first, min(first + count, p.extent.q_len)};
  if (rows.empty()) return {};
  return tiles_of(visible_columns(p.mask, batch, head, rows, p.extent), Traits::kBc);
}

/// LSE of the rows that this thread holds, where it is wanted: one of the lanes of a row writes it.
/// [FlashAttention-2, Alg. 1, lines 13 and 15]
template <class Registers, class Traits>
ATTILE_DEVICE void store_lse(const ForwardParams<Traits>& p, int batch, int head, int row0,
                             const tile::OnlineSoftmax<Registers::kRegRows>& softmax, float unit) {
  if (p.lse == nullptr || Registers::col(0) != 0) return;
  float* const lse = p.lse + (static_cast<std::int64_t>(batch) * p.q_heads + head) * p.extent.q_len;
  ATTILE_UNROLL
  for (int r = 0; r < Registers::kRegRows; ++r) {
    const int row = row0 + Registers::row(r);
    if (Registers::has_row(r) && row < p.extent.q_len) lse[row] = softmax.lse(r, unit);
  }
}

/// Which tile of query rows of which head a block computes. Tiles of a head are neighbours, so that
/// they share its K and V in L2; the last rows, which see most under a causal mask, come first.
struct QueryTile {
  int batch, head, row0;

  template <class Traits>
  ATTILE_DEVICE QueryTile(const ForwardParams<Traits>& p, int block) {
    const int slice = block / p.q_tiles;
    batch = slice / p.q_heads;
    head = slice % p.q_heads;
    row0 = (p.q_tiles - 1 - block % p.q_tiles) * Traits::kBr;
  }
};

/// The kernel of every family: one block for each query tile of each head, which the `forward_tile`
/// of the traits' own namespace computes.
template <class Traits>
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(Traits::kThreads, Traits::kBlocksPerSm)
    forward_kernel(const ATTILE_GRID_CONSTANT ForwardParams<Traits> p) {
  forward_tile<Traits>(p, arch::block_index(), arch::dynamic_shared());
}

}  // namespace attile
