// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>
#include <attile/core/index.h>
#include <attile/core/schedule.h>
#include <attile/core/sequences.h>

namespace attile {

/// Describes what a block computes at a time: rows of one query head of one sequence, or of several
/// heads that share a tile, against tiles of the sequence's keys. A schedule makes it, and all
/// addresses of a kernel follow from it and from the problem. In a backward pass over keys a block
/// has one kv tile, and goes through the rows that see it: `head` and `row0` are then those of the
/// current rows, and at first `head` is the first query head that reads `kv_head`.
struct WorkTile {
  /// Forward: the tiles of Bc keys that any of the rows sees. In a pass over keys: the one kv tile
  /// of the block. It is empty in the kernels before and after that pass, which read no keys.
  TileRange kv_tiles{};
  /// The index of the sequence, which policies call `batch`; below 0: of none, without rows or
  /// keys.
  int sequence = 0;
  int head = 0;     ///< the query head, or the first of those that share the tile
  int kv_head = 0;  ///< the head of K and V that it reads
  /// The first row, counted in the sequence. Where sm90 lets the tiles of a sequence end with its
  /// last row, the first tile may begin below 0, where there are no rows.
  int row0 = 0;
  /// These are read where sequences have lengths of their own (Problem::read_lengths).
  Extent extent{};                    ///< the sequence's lengths
  RowOrigin q_origin{}, kv_origin{};  ///< where its rows and its keys begin
  /// Where keys lie in pages, the first one that any of the rows may see: none before it is read.
  int first_key = 0;

  /// Returns the block's one kv tile, in a pass over keys.
  ATTILE_HOST_DEVICE constexpr int kv_tile() const { return kv_tiles.first; }
};

}  // namespace attile
