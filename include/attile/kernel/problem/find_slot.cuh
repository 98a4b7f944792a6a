// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/math.h>
#include <attile/core/tile_slots.h>

#include <climits>

namespace attile {

/// Returns whose an item is, as TileSlots::find does, but looks at 32 sequences in each step: a
/// block waits for device memory three times among 32768 sequences, and not fifteen times. Where
/// offsets decrease, it too finds all of a sequence's slots or none.
/// Scope    all lanes of a warp.
template <Axis kAxis, int kTile, class S>
ATTILE_DEVICE auto find_by_warp(const TileSlots<kAxis, kTile, S>& slots, int item, int per_slot) {
  using Share = typename TileSlots<kAxis, kTile, S>::Share;
  const int slot = item / per_slot;
  const int lane = arch::thread_index() % arch::kWarpSize;
  int found = 0, past = slots.sequences();
  int begun = 0, ended = INT_MAX;  // what the offsets before and behind say
  bool is_sorted = true;
  while (past - found > 1) {
    const int step = ceil_div(past - found, arch::kWarpSize);
    const int sequence = found + (lane + 1) * step;
    const int begin = sequence < past ? slots.first(sequence) : INT_MAX;
    const int before = arch::shuffle(begin, max(lane - 1, 0));
    is_sorted = is_sorted && !arch::any_lane(before > begin);
    const int steps = arch::first_lane(begin > slot);  // the last lane's is behind
    if (steps > 0) begun = max(begun, arch::shuffle(begin, steps - 1));
    ended = min(ended, arch::shuffle(begin, steps));
    found += steps * step;
    past = min(found + step, past);
  }
  const int begin = slots.first(found), end = slots.first(found + 1);
  const bool is_sequence = is_sorted && begun <= begin && slot < end && end <= ended;
  return Share{found, end - begin, item - begin * per_slot, is_sequence};
}

/// Returns whether a sequence is found for all of its slots, and no other one for any of them:
/// always, unless offsets decrease. Kernels of which one waits for another one leave the other
/// sequences out. Scope    all lanes of a warp.
template <Axis kAxis, int kTile, class S>
ATTILE_DEVICE bool has_all_by_warp(const TileSlots<kAxis, kTile, S>& slots, int sequence) {
  const auto share = find_by_warp(slots, slots.first(sequence), 1);
  return share.is_sequence && share.sequence == sequence;
}

}  // namespace attile
