// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/math.h>
#include <attile/core/tile_slots.h>

#include <climits>

// Finds sequences: how a warp of a grid over slots (TileSlots) finds the one that an item belongs
// to, where sequences are packed. The sequences are cut into ranges of at most 32, each of which a
// warp reads at once, a sequence a lane: it waits for device memory once among 32 sequences, and
// three times among 32768.
//
// Grids take the ranges in order, and within one the longest sequences first, unless all are short,
// so that what a grid ends with are short ones. All ranges but the first have 32 sequences, so that
// the last one, with which a grid ends, has as many to sort as can be. Slots in device memory
// (scratch rows, semaphores, flags) have the order of the sequences.

namespace attile {

/// Is a range of sequences. `is_whole`: its offsets rise, and each slot from its first sequence's
/// to its last one's leads to this range. That is always so, unless offsets decrease; then
/// `is_whole` is true for all slots that lead here, or for none of them.
struct SequenceRange {
  int first, sequences;
  int begin;  ///< its first slot
  int slots;  ///< of this lane's sequence, or where it has none of the first one
  bool is_whole;
};

/// Returns the range that has a slot. Each step looks at 32 ranges. Scope    all lanes of a warp.
template <Axis kAxis, int kTile, class S>
ATTILE_DEVICE SequenceRange range_by_warp(const TileSlots<kAxis, kTile, S>& slots, int slot) {
  const int lane = arch::thread_index() % arch::kWarpSize;
  const int ranges = ceil_div(slots.sequences(), arch::kWarpSize);
  const int missing = ranges * arch::kWarpSize - slots.sequences();  // in the first range
  const auto first_of = [&](int range) { return max(range * arch::kWarpSize - missing, 0); };
  int found = 0, past = ranges;
  // The largest begin seen at or before the slot, and the smallest after it.
  int begun = 0, ended = INT_MAX;
  bool is_sorted = true;
  while (past - found > 1) {
    const int step = ceil_div(past - found, arch::kWarpSize);
    const int range = found + (lane + 1) * step;
    const int begin = range < past ? slots.first(first_of(range)) : INT_MAX;
    const int before = arch::shuffle(begin, max(lane - 1, 0));
    is_sorted = is_sorted && !arch::any_lane(before > begin);
    const int steps = arch::first_lane(begin > slot);  // below 32: the last lane's is INT_MAX
    if (steps > 0) begun = max(begun, arch::shuffle(begin, steps - 1));
    ended = min(ended, arch::shuffle(begin, steps));
    found += steps * step;
    past = min(found + step, past);
  }
  const int first = first_of(found), next = first_of(found + 1);
  const int begin = slots.first(first), end = slots.first(next);
  const int mine = slots.slots(first + lane < next ? first + lane : first);
  is_sorted = is_sorted && !arch::any_lane(mine < 1);
  return {first, next - first, begin, mine,
          is_sorted && begun <= begin && slot < end && end <= ended};
}

/// Names the order in which a grid takes the sequences of a range.
enum class SlotOrder { kLongestFirst, kOfSequences };

/// Is a run of sequences that have as many slots as each other, and are of one kind, in the order
/// in which a grid takes them. `sequences`: 0 where an item is nobody's.
struct SequenceRun {
  int sequences = 0;
  int slots = 0;  ///< of each
  int item = 0;   ///< the item's number among those of the run
  int first = 0;  ///< the first sequence of the range
  int rank = -1;  ///< of this lane's sequence in the run; below 0 where that is not in it

  /// Returns the n-th sequence of the run. Scope    all lanes of a warp.
  ATTILE_DEVICE int sequence(int n) const { return first + arch::first_lane(rank == n); }
};

/// Returns the run of sequences that item `item` of a grid over slots belongs to; each slot has
/// `per_slot` items. Where offsets decrease it finds a sequence for all of its slots or for none.
/// Where the grid does not sort, each sequence is a run. kind(sequence): 0 or 1, by its own
/// lengths. Scope    all lanes of a warp.
template <SlotOrder kOrder = SlotOrder::kLongestFirst, Axis kAxis, int kTile, class S, class Kind>
ATTILE_DEVICE SequenceRun find_run_by_warp(const TileSlots<kAxis, kTile, S>& slots, int item,
                                           int per_slot, const Kind& kind) {
  constexpr int kShort = 1024 / kTile;  // slots of sequences that need not be sorted
  const int lane = arch::thread_index() % arch::kWarpSize;
  const int slot = item / per_slot;
  const SequenceRange range = range_by_warp(slots, slot);
  const bool is_mine = lane < range.sequences;
  const int sequence = range.first + (is_mine ? lane : 0);
  const int mine = range.slots;
  int before = slots.first(sequence) - range.begin;  // slots of runs that come before this one
  int rank = 0, alike = 1;
  if (kOrder == SlotOrder::kLongestFirst && range.is_whole && arch::any_lane(mine > kShort)) {
    before = alike = 0;
    const int key = 2 * mine + kind(sequence);  // key / 2 is the slots, key % 2 the kind
    ATTILE_UNROLL_BY(8)
    for (int i = 0; i < range.sequences; ++i) {
      const int others = arch::shuffle(key, i);
      if (others > key) before += others / 2;
      if (others == key) {
        ++alike;
        if (i < lane) ++rank;
      }
    }
  }
  const int among = slot - range.begin;
  const int found = arch::first_lane(is_mine && before <= among && among < before + mine * alike);
  if (!range.is_whole || found == arch::kWarpSize) return {};
  const int begin = arch::shuffle(before, found);
  return {arch::shuffle(alike, found), arch::shuffle(mine, found),
          item - (range.begin + begin) * per_slot, range.first,
          is_mine && before == begin ? rank : -1};
}

/// Returns the sequence that an item of a grid over slots belongs to (find_run_by_warp), if the
/// items of each sequence of a run follow each other.
template <SlotOrder kOrder = SlotOrder::kLongestFirst, Axis kAxis, int kTile, class S>
ATTILE_DEVICE auto find_by_warp(const TileSlots<kAxis, kTile, S>& slots, int item, int per_slot) {
  using Share = typename TileSlots<kAxis, kTile, S>::Share;
  const SequenceRun run = find_run_by_warp<kOrder>(slots, item, per_slot, [](int) { return 0; });
  if (run.sequences == 0) return Share{};
  const int items = run.slots * per_slot;
  const int n = run.item / items;
  return Share{run.sequence(n), run.slots, run.item - n * items, true};
}

/// Returns whether find_by_warp finds a sequence. Scope    all lanes of a warp.
template <Axis kAxis, int kTile, class S>
ATTILE_DEVICE bool is_found_by_warp(const TileSlots<kAxis, kTile, S>& slots, int sequence) {
  const SequenceRange range = range_by_warp(slots, slots.first(sequence));
  return range.is_whole && range.first <= sequence && sequence < range.first + range.sequences;
}

}  // namespace attile
