// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/atomic.cuh>
#include <attile/arch/attributes.h>
#include <attile/arch/launch.cuh>
#include <attile/arch/math.h>
#include <attile/arch/memory.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/element.h>
#include <attile/core/math.h>
#include <attile/core/schedule.h>
#include <attile/core/vec.h>
#include <attile/kernel/backward_params.cuh>
#include <attile/tile/scores.cuh>

#include <cstdint>

// What all families of backward passes have in common: the kernel before, the turns of kInOrder,
// and the shells of the kernels. Lines are those of FlashAttention-2 (arXiv 2307.08691),
// Algorithm 2.

namespace attile {

/// Threads of a block of the kernel before the pass: few, because one takes a row.
inline constexpr int kPreprocessThreads = 64;

/// rowsum(dO * O) of one row, in the order of its columns. Where a row sees one key, O is its V,
/// and a dP that is summed in the same order cancels delta without a rounding.
template <class T>
ATTILE_DEVICE float row_product(const T* dout, const T* o, int cols, bool vectors) {
  constexpr int kVector = 16 / sizeof(T);
  float sum = 0.0f;
  if (!vectors) {
    for (int d = 0; d < cols; ++d) sum += to_float(dout[d]) * to_float(o[d]);
    return sum;
  }
  ATTILE_UNROLL_BY(4)
  for (int d = 0; d < cols; d += kVector) {
    const auto x = arch::load<kVector>(dout + d);
    const auto y = arch::load<kVector>(o + d);
    ATTILE_UNROLL
    for (int e = 0; e < kVector; ++e) sum += to_float(x[e]) * to_float(y[e]);
  }
  return sum;
}

/// Line 4, the row statistics that the loops read, and zeros for the sum of dQ (line 3): one block
/// for each tile of query rows of each head.
template <class Traits>
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(kPreprocessThreads, 1)
    backward_preprocess_kernel(const ATTILE_GRID_CONSTANT typename Traits::Params p) {
  constexpr bool kInOrder = Traits::kDqMode == DqMode::kInOrder;
  const int thread = arch::thread_index();
  if (kInOrder && arch::block_index() == 0 && thread == 0) {
    *p.to_begin() = p.batch * p.kv_heads * p.kv_tiles;
  }
  if (p.slices() * p.q_tiles == 0) return;
  const int slice = arch::block_index() / p.q_tiles;
  const int row0 = arch::block_index() % p.q_tiles * Traits::kBr;
  const int batch = slice / p.q_heads;
  const int head = slice % p.q_heads;
  // With kInOrder the last tile of K and V writes dQ of the rows that see it.
  const int last = p.kv_tiles - 1;
  const bool written =
      kInOrder && last >= 0 && p.rows_of(batch, head, last).contains(row0 / Traits::kBr);
  if (kInOrder && thread == 0) *p.turn_of(batch, head, row0) = written ? p.kv_tiles : last;
  if (p.dq_sum != nullptr && !written) {
    float* const sum = p.dq_sum_of(slice, row0);
    for (int i = thread * 4; i < Traits::kBr * Traits::kDqCols; i += kPreprocessThreads * 4) {
      arch::store(sum + i, Float4{});
    }
  }
  for (int r = thread; r < Traits::kBr; r += kPreprocessThreads) {
    const int row = row0 + r;
    float delta = 0.0f;
    float row_lse = kInf;
    if (row < p.extent.q_len) {
      const std::int64_t stat = static_cast<std::int64_t>(slice) * p.extent.q_len + row;
      const float lse = p.l == nullptr ? p.lse[stat] : p.lse[stat] + arch::log(p.l[stat]);
      // An empty row has no gradient, whatever its dLSE: P = 0 must meet a finite factor.
      if (lse != -kInf) {
        row_lse = lse;
        delta = row_product(p.dout.tensor.row(batch, head, row), p.o.tensor.row(batch, head, row),
                            p.head_dim_v, p.dout.vectors && p.o.vectors);
        if (p.dlse != nullptr) delta -= p.dlse[stat];
      }
    }
    const std::int64_t at = slice * p.stat_rows() + row;
    p.row_lse[at] = row_lse;
    p.delta[at] = delta;
  }
}

/// Whose turn it is before `kv_tile`, where K and V's tiles take turns from the last to the first:
/// the next one behind it that those rows see. The last one counts for all rows: the preprocess
/// kernel stands in for it where they do not see it.
/// Scope    all lanes of the warp.
template <class Traits>
ATTILE_DEVICE int tile_before(const BackwardParams<Traits>& p, const tile::TilePlace& place,
                              int kv_tile) {
  const int lane = arch::thread_index() % arch::kWarpSize;
  for (int next = kv_tile + 1; next < p.kv_tiles - 1; next += arch::kWarpSize) {
    const int tile = next + lane;
    const bool sees = tile < p.kv_tiles - 1 &&
                      p.rows_of(place.batch, place.head, tile).contains(place.row0 / Traits::kBr);
    const int found = arch::first_lane(sees);
    if (found < arch::kWarpSize) return next + found;
  }
  return p.kv_tiles - 1;
}

/// Waits until all tiles of K and V behind `kv_tile` have added their parts to dQ of the tile of
/// rows at `place`: the first warp does.
/// Barriers one after, before anyone reads dQ.
template <class Traits>
ATTILE_DEVICE void await_turn(const BackwardParams<Traits>& p, const tile::TilePlace& place,
                              int kv_tile) {
  if (kv_tile == p.kv_tiles - 1 || arch::thread_index() >= arch::kWarpSize) return;
  const int before = tile_before(p, place, kv_tile);
  while (arch::load_acquire(p.turn_of(place.batch, place.head, place.row0)) != before) {
  }
}

/// Says that `kv_tile` has added its part.
/// Barriers one before, after everyone has written dQ.
template <class Traits>
ATTILE_DEVICE void pass_turn(const BackwardParams<Traits>& p, const tile::TilePlace& place,
                             int kv_tile) {
  if (arch::thread_index() != 0) return;
  arch::store_release(p.turn_of(place.batch, place.head, place.row0), kv_tile);
}

/// Which tile of K and V of which kv head a block of the pass over K/V blocks takes.
struct KeyTile {
  int batch, kv_head, index;

  template <class Traits>
  ATTILE_DEVICE KeyTile(const BackwardParams<Traits>& p, int block) {
    const int slice = block / p.kv_tiles;
    batch = slice / p.kv_heads;
    kv_head = slice % p.kv_heads;
    index = block % p.kv_tiles;
  }
};

/// The pass over K/V blocks: one block for each tile of K and V of each kv head, by the
/// `backward_columns` of the traits' own namespace.
template <class Traits>
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(Traits::kThreads, Traits::kBlocksPerSm)
    backward_columns_kernel(const ATTILE_GRID_CONSTANT typename Traits::Params p) {
  backward_columns<Traits>(p, arch::block_index(), arch::dynamic_shared());
}

/// The same for kInOrder, where a block may wait for those with larger indices: they are given out
/// from the last to the first as the blocks begin, so that whoever is waited for has begun. From
/// the last, because blocks take their rows from the first on: under a causal mask or a window a
/// tile of K and V then meets no rows before the tile behind it has.
template <class Traits>
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(Traits::kThreads, Traits::kBlocksPerSm)
    backward_in_order_kernel(const ATTILE_GRID_CONSTANT typename Traits::Params p) {
  int* const index = reinterpret_cast<int*>(arch::dynamic_shared());
  if (arch::thread_index() == 0) *index = arch::fetch_add(p.to_begin(), -1) - 1;
  arch::barrier();
  const int block = *index;
  arch::barrier();  // everyone has read it before the tiles are written there
  backward_columns<Traits>(p, block, arch::dynamic_shared());
}

/// One block for each tile of query rows of each head, after the pass over K/V blocks.
template <class Traits>
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(Traits::kDqThreads, 1)
    backward_postprocess_kernel(const ATTILE_GRID_CONSTANT typename Traits::Params p) {
  const int slice = arch::block_index() / p.q_tiles;
  store_dq(p, slice / p.q_heads, slice % p.q_heads, arch::block_index() % p.q_tiles * Traits::kBr,
           arch::dynamic_shared());
}

namespace detail {

/// The kernel of the pass over K/V blocks.
template <class Traits>
constexpr auto columns_kernel() {
  if constexpr (Traits::kDqMode == DqMode::kInOrder) {
    return backward_in_order_kernel<Traits>;
  } else {
    return backward_columns_kernel<Traits>;
  }
}

}  // namespace detail

}  // namespace attile
