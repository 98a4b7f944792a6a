// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>
#include <attile/core/index.h>
#include <attile/core/schedule.h>

namespace attile {

/// What a block computes in one turn: rows of one query head of one sequence, or of several heads
/// that share a tile, against tiles of the sequence's keys. A schedule makes it, and whatever a
/// kernel addresses follows from it and from the problem. In a backward pass over keys a block has
/// one tile of keys, and goes through the rows that see it: `head` and `row0` are then those of the
/// rows in hand, and at first the first query head that reads `kv_head`.
struct WorkTile {
  /// Forward: the tiles of Bc keys that any of the rows sees. In a pass over keys: the one tile
  /// that the block has. Empty in the kernels before and behind that pass, which read no keys.
  TileRange kv_tiles{};
  int sequence = 0;  ///< its number, which policies know as `batch`
  int head = 0;      ///< query head, or the first of those that share the tile
  int kv_head = 0;   ///< the head of K and V that it reads
  /// First row, counted in the sequence. Where sm90 lets the tiles of a sequence end with its last
  /// row, the first tile may begin below 0: there are no such rows.
  int row0 = 0;
  Extent extent{};  ///< the sequence's lengths; read by Problem::extent

  /// The one tile of keys that the block has, in a pass over keys.
  ATTILE_HOST_DEVICE constexpr int kv_tile() const { return kv_tiles.first; }
};

}  // namespace attile
