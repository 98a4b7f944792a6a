// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/arch/thread.cuh>
#include <attile/core/work_tile.h>

namespace attile {

/// Is what a block computes at a time: some of the kv tiles that a row tile sees. A row tile has
/// one part, or several, each of which leaves its state in a slot of scratch memory.
struct SplitPart {
  /// The sequence, the kv tiles of this part, the kv head, and the first of the packed query heads.
  /// row0 is the first row of any of them: not each packed row from there on is one of the tile's.
  WorkTile at;
  int packed_row0 = 0;                     ///< the row tile's first packed row (DecodeParams)
  int rows = 0;                            ///< the packed rows that there are, up to Br
  bool is_last_of_row_tile_in_run = true;  ///< whether the run has no further part of the row tile

  // For SplitSchedule::complete:
  int first_unit = 0;  ///< the row tile's first unit, numbered in its strand
  int units = 1;       ///< of the row tile
  int from = 0;        ///< the part's first unit, counted from first_unit on
  int run = 0;         ///< the run that the part belongs to
  // Of a row tile that is split:
  int parts = 1;
  /// With kFixed, how many parts the first one has before it among those that it is merged with, so
  /// that this does not depend on what the call's other rows see.
  int parts_before = 0;
  int runs = 1;       ///< that have parts of the row tile, each of another block
  int first_run = 0;  ///< of these; its ticket counts them
  int slot = 0;       ///< of this part
  /// The slots of the row tile's parts: that of the first one, and of the others from the second
  /// one's on, slot_step apart.
  int first_part_slot = 0, second_part_slot = 0, slot_step = 0;
};

/// Returns whether x holds for any thread of the block. Named barrier 15 is its own.
/// What one thread has acquired before counts for all. Scope    all threads of the block.
template <class Traits>
ATTILE_DEVICE bool any_thread(bool x) {
  return arch::barrier_any(15, Traits::kThreads, x);
}

}  // namespace attile
