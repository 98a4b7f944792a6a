// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/atomic.cuh>
#include <attile/arch/opaque.h>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/kernel/backward_params.cuh>
#include <attile/kernel/work_tile.h>

// kInOrder: the tiles of K and V that see a tile of rows add their parts to its dQ in turn, from
// the last one to the first, or, of a head that ascends (`column_of`), from the first to the last.

namespace attile {

/// The tile of K and V nearest to `from`, in that direction (1 or -1) and from there on, that the
/// rows of `at` see; kv_tiles where none is. kKeepsTurns, what a mask has of a batch is read
/// anew for each 32 tiles, and takes no registers meanwhile. Scope    all lanes of the warp.
template <class Traits>
ATTILE_DEVICE int nearest_seen(const BackwardParams<Traits>& p, const WorkTile& at, int from,
                               int direction) {
  const int lane = arch::thread_index() % arch::kWarpSize;
  const auto is_one = [&](int tile) {
    return static_cast<unsigned>(tile) < static_cast<unsigned>(p.kv_tiles);
  };
  const auto here = [&] {
    WorkTile tile = at;
    if (Traits::kKeepsTurns) tile.sequence = arch::opaque(at.sequence);
    return tile;
  };
  for (int next = from; is_one(next); next += direction * arch::kWarpSize) {
    const int tile = next + direction * lane;
    const bool sees = is_one(tile) && p.rows_of(here(), tile).contains(at.row0 / Traits::kBr);
    const int found = arch::first_lane(sees);
    if (found < arch::kWarpSize) return next + direction * found;
  }
  return p.kv_tiles;
}

/// Waits until tile `before` of K and V, and so all that come before it, have added their parts.
/// Scope    all lanes of a warp.
template <class Traits>
ATTILE_DEVICE void await_tile_before(const BackwardParams<Traits>& p, const WorkTile& at,
                                     int before) {
  while (arch::load_acquire(p.turn_of(at)) != before) {
  }
  arch::warp_barrier();  // all lanes have seen it before one of them passes it
}

/// Waits until it is the turn of `kv_tile` to add its part to dQ of the rows of `at`;
/// whether it is the first, which writes the sum. `ascends`: p.ascends. Scope    all lanes of a
/// warp.
template <class Traits>
ATTILE_DEVICE bool begin_turn(const BackwardParams<Traits>& p, const WorkTile& at, int kv_tile,
                              bool ascends = false) {
  const int direction = ascends ? -1 : 1;
  const int before = nearest_seen(p, at, kv_tile + direction, direction);
  await_tile_before(p, at, before);
  return before == p.kv_tiles;
}

/// Says that `kv_tile` has added its part. Scope    one thread, behind all that added.
template <class Traits>
ATTILE_DEVICE void pass_turn(const BackwardParams<Traits>& p, const WorkTile& at, int kv_tile) {
  arch::store_release(p.turn_of(at), kv_tile);
}

}  // namespace attile
