// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/atomic.cuh>
#include <attile/arch/attributes.h>
#include <attile/arch/grid_dependency.cuh>
#include <attile/arch/launch.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/schedule.h>
#include <attile/kernel/backward_params.cuh>
#include <attile/kernel/backward_preprocess.cuh>
#include <attile/tile/scores.cuh>

// What all families of backward passes have in common: the turns of kInOrder, and the shells of the
// kernels.

namespace attile {

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
/// `backward_columns` of the traits' own namespace, which awaits the kernel before when it has sent
/// for K and V.
template <class Traits>
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(Traits::kThreads, Traits::kBlocksPerSm)
    backward_columns_kernel(const ATTILE_GRID_CONSTANT typename Traits::Params p) {
  arch::launch_dependents();
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
  arch::launch_dependents();
  if (arch::thread_index() == 0) {
    arch::await_dependencies();  // the counter is set
    *index = arch::fetch_add(p.to_begin(), -1) - 1;
  }
  arch::barrier();
  const int block = *index;
  arch::barrier();  // everyone has read it before the tiles are written there
  backward_columns<Traits>(p, block, arch::dynamic_shared());
}

/// One block for each tile of query rows of each head, after the pass over K/V blocks.
template <class Traits>
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(Traits::kDqThreads, 1)
    backward_postprocess_kernel(const ATTILE_GRID_CONSTANT typename Traits::Params p) {
  const int tile = row_tile_of_block<Traits>();
  arch::await_dependencies();  // the sum is complete
  const int slice = tile / p.q_tiles;
  store_dq(p, slice / p.q_heads, slice % p.q_heads, tile % p.q_tiles * Traits::kBr,
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
