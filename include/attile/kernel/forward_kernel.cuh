// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/device.cuh>
#include <attile/arch/launch.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/args.h>
#include <attile/core/check.h>
#include <attile/core/math.h>
#include <attile/core/schedule.h>
#include <attile/tile/copy.cuh>
#include <attile/tile/online_softmax.h>
#include <attile/tile/scores.cuh>

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

  /// Tiles of query rows, of all batches and heads.
  static std::int64_t tile_count(const typename Traits::Args& args) {
    return std::int64_t{args.batch} * args.q_heads * ceil_div(args.q_len, Traits::kBr);
  }

  /// Of arguments that passed `check_arguments`; the rest is `complete`'s.
  explicit ForwardParams(const typename Traits::Args& args)
      : ForwardParams(args, head_dims(args, Traits::kD, Traits::kDv)) {}

  /// What a family adds that can fail, or why its kernel does not take the arguments.
  [[nodiscard]] Check complete(const typename Traits::Args&) { return {}; }

 private:
  ForwardParams(const typename Traits::Args& args, HeadDims dims)
      : q(tile::tensor_param(args.q, dims.qk)),
        k(tile::tensor_param(args.k, dims.qk)),
        v(tile::tensor_param(args.v, dims.v)),
        o(tile::tensor_param(args.o, dims.v)),
        lse(args.lse),
        q_heads(args.q_heads),
        kv_heads(args.kv_heads),
        extent{args.q_len, args.kv_len},
        head_dim(dims.qk),
        head_dim_v(dims.v),
        q_tiles(ceil_div(args.q_len, Traits::kBr)),
        scale(scale_of(args, dims.qk)),
        mask(args.mask),
        score_mod(args.score_mod),
        dropout(args.dropout) {}
};

/// The kernel's one parameter, for arguments that passed `check`: what can fail has succeeded
/// there.
template <class Traits>
typename Traits::Params forward_params(const typename Traits::Args& args) {
  typename Traits::Params params(args);
  static_cast<void>(params.complete(args));
  return params;
}

/// The kernel of every family: what the `forward_block` of the traits' own namespace computes.
template <class Traits>
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(Traits::kThreads, Traits::kBlocksPerSm)
    forward_kernel(const ATTILE_GRID_CONSTANT typename Traits::Params p);

/// Blocks of the grid: one for each tile; or, of kernels that are kPersistent, as many as run at
/// the same time, and no more than the arguments allow, each for several tiles.
template <class Traits>
std::int64_t forward_block_count(const typename Traits::Args& args) {
  const std::int64_t tiles = Traits::Params::tile_count(args);
  if constexpr (!Traits::kPersistent) {
    return tiles * Traits::kCluster;
  } else {
    int at_once = arch::multiprocessors() * Traits::kBlocksPerSm;
    if constexpr (Traits::kCluster > 1) {
      at_once = max(arch::clusters_at_once(forward_kernel<Traits>, Traits::kCluster,
                                           Traits::kThreads, Traits::kSharedBytes),
                    1);
    }
    if (args.max_blocks > 0) at_once = min(at_once, max(args.max_blocks / Traits::kCluster, 1));
    return min<std::int64_t>(tiles, at_once) * Traits::kCluster;
  }
}

/// The tiles of Bc columns that any of the `count` rows from `first` on sees.
template <class Traits>
ATTILE_DEVICE TileRange tiles_seen(const ForwardParams<Traits>& p, int batch, int head, int first,
                                   int count) {
  const Interval rows{first, min(first + count, p.extent.q_len)};
  if (rows.empty()) return {};
  return tiles_of(visible_columns(p.mask, batch, head, rows, p.extent), Traits::kBc);
}

/// LSE of the rows that this thread holds, where it is wanted: the lanes of a row write one each.
/// [FlashAttention-2, Alg. 1, lines 13 and 15]
template <class Registers, class Traits, class Place>
ATTILE_DEVICE void store_lse(const ForwardParams<Traits>& p, const Place& place,
                             const tile::OnlineSoftmax<Registers::kRegRows>& softmax, float unit) {
  constexpr int kLanes = Registers::kRowLanes;
  const int lane = Registers::lane_of_row();
  if (p.lse == nullptr || lane >= kLanes) return;
  ATTILE_UNROLL
  for (int first = 0; first < Registers::kRegRows; first += kLanes) {
    tile::OnlineSoftmax<1> mine{};
    ATTILE_UNROLL
    for (int r = first; r < min(first + kLanes, Registers::kRegRows); ++r) {
      if (r == first + lane) mine = {{softmax.m[r]}, {softmax.l[r]}};
    }
    const int r = first + lane;
    if (r >= Registers::kRegRows || !Registers::has_row(r)) continue;
    const int row = Registers::row(r);
    if (!place.has_row(row)) continue;
    const ScoreIndex at = place.at(row, 0);
    float* const lse =
        p.lse + (static_cast<std::int64_t>(at.batch) * p.q_heads + at.head) * p.extent.q_len;
    lse[at.row] = mine.lse(0, unit);
  }
}

/// Which rows of which head a tile of them is. Tiles of a head are neighbours, so that
/// they share its K and V in L2; the last rows, which see most under a causal mask, come first.
struct QueryTile {
  int batch, head, row0;

  template <class Traits>
  ATTILE_DEVICE QueryTile(const ForwardParams<Traits>& p, int tile) {
    const int slice = tile / p.q_tiles;
    batch = slice / p.q_heads;
    head = slice % p.q_heads;
    row0 = (p.q_tiles - 1 - tile % p.q_tiles) * Traits::kBr;
  }

  ATTILE_DEVICE tile::TilePlace place(int col0, Extent extent) const {
    return {batch, head, row0, col0, extent};
  }
};

/// The kernel of every family: what the `forward_block` of the traits' own namespace computes.
template <class Traits>
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(Traits::kThreads, Traits::kBlocksPerSm)
    forward_kernel(const ATTILE_GRID_CONSTANT typename Traits::Params p) {
  forward_block<Traits>(p, arch::block_index(), arch::dynamic_shared());
}

}  // namespace attile
