// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/atomic.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/kernel/backward_params.cuh>
#include <attile/tile/scores.cuh>

// kInOrder: the tiles of K and V that see a tile of rows add their parts to its dQ in turn, from
// the last one to the first.

namespace attile {

/// Whose turn it is before `kv_tile`: the next one behind it that those rows see, or kv_tiles where
/// none does. Scope    all lanes of the warp.
template <class Traits>
ATTILE_DEVICE int tile_before(const BackwardParams<Traits>& p, const tile::TilePlace& place,
                              int kv_tile) {
  const int lane = arch::thread_index() % arch::kWarpSize;
  for (int next = kv_tile + 1; next < p.kv_tiles; next += arch::kWarpSize) {
    const int tile = next + lane;
    const bool sees = tile < p.kv_tiles && p.rows_of(place.batch, place.head, tile)
                                               .contains(place.row0 / Traits::kBr);
    const int found = arch::first_lane(sees);
    if (found < arch::kWarpSize) return next + found;
  }
  return p.kv_tiles;
}

/// Waits until tile `before` of K and V, and so all behind it, has added its part.
/// Scope    all lanes of a warp.
template <class Traits>
ATTILE_DEVICE void await_tile_before(const BackwardParams<Traits>& p, const tile::TilePlace& place,
                                     int before) {
  while (arch::load_acquire(p.turn_of(place.batch, place.head, place.row0)) != before) {
  }
  arch::warp_barrier();  // all lanes have seen it before one of them passes it
}

/// Waits until it is the turn of `kv_tile` to add its part to dQ of the tile of rows at `place`;
/// whether it is the first, which writes the sum. Scope    all lanes of a warp.
template <class Traits>
ATTILE_DEVICE bool begin_turn(const BackwardParams<Traits>& p, const tile::TilePlace& place,
                              int kv_tile) {
  const int before = tile_before(p, place, kv_tile);
  await_tile_before(p, place, before);
  return before == p.kv_tiles;
}

/// Says that `kv_tile` has added its part. Scope    one thread, behind all that added.
template <class Traits>
ATTILE_DEVICE void pass_turn(const BackwardParams<Traits>& p, const tile::TilePlace& place,
                             int kv_tile) {
  arch::store_release(p.turn_of(place.batch, place.head, place.row0), kv_tile);
}

}  // namespace attile
