// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>
#include <attile/core/mask.h>
#include <attile/core/math.h>
#include <attile/kernel/backward/dq_mode.h>

#include <cstdint>

// In which direction the kv heads of a backward pass go through their kv tiles, and how many of
// them at a time.

namespace attile {

/// Returns whether half of the kv heads, which `group_heads` query heads read each, ascend: see
/// kv_block_of.
template <class Traits>
ATTILE_HOST_DEVICE constexpr bool alternates(int group_heads) {
  return Traits::kAlternatesFrom > 0 && group_heads >= Traits::kAlternatesFrom;
}
/// Returns how many of a sequence's kv heads descend.
template <class Traits>
ATTILE_HOST_DEVICE constexpr int descending_heads(int kv_heads, int group_heads) {
  return alternates<Traits>(group_heads) ? (kv_heads + 1) / 2 : kv_heads;
}

/// Returns whether all kv heads of a packed sequence of `kv_tiles` kv tiles ascend, so that their
/// longest blocks begin first, and blocks go through the query heads of one tile of rows after
/// another, from the last rows on. A block then waits for the one before it at its first step, and
/// no more: they go on at the same pace. An ascending block that goes head by head would wait in
/// each head for the longer one before it, unless as many blocks of descending heads have begun
/// before it as a device runs, which long sequences alone have. Nothing but its own keys and the
/// numbers of heads may decide, because the order of the sums depends on it.
template <class Traits>
ATTILE_HOST_DEVICE constexpr bool goes_rows_first(int kv_heads, int group_heads, int kv_tiles) {
  // Blocks that nearly fill a device. It decides the order of sums: never tune it by device.
  constexpr int kFills = 96;
  return Traits::kRowsFirstFrom > 0 && group_heads >= Traits::kRowsFirstFrom &&
         descending_heads<Traits>(kv_heads, group_heads) * kv_tiles < kFills;
}

/// Blocks that fill a device.
inline constexpr int kDeviceBlocks = 128;

/// Returns how many kv heads begin a tile each before one of them begins its next one, where they
/// go rows first: as many as have twice the blocks of a device. The blocks of a head that begin
/// together wait for each other in turn before their first step, and with more heads fewer do.
ATTILE_HOST_DEVICE constexpr int rows_first_in_flight(int kv_tiles) {
  return ceil_div(2 * kDeviceBlocks, kv_tiles);
}

/// Returns how many kv heads do so at the end of a grid of blocks that add in any order: as many as
/// fill a device, so that it ends with short blocks. Of short heads only one does: beside the long
/// blocks that are left the kernel behind the pass then has time for more of its work.
ATTILE_HOST_DEVICE constexpr int last_in_flight(int kv_tiles) {
  constexpr int kShort = 24;  // 3072 keys (bench/log/tuning-sequences.md)
  return kv_tiles < kShort ? 1 : ceil_div(kDeviceBlocks, kv_tiles);
}

/// Returns how many kv heads begin a tile each before one of them begins its next one. Only speed
/// depends on it. With kInOrder block n + 1 of a head can begin one step after block n, while a
/// device that runs B blocks ends B / steps blocks in a step, `steps` being those of a block: so
/// many heads keep it busy. The result is twice that, as dQ is in flight for longer than a step;
/// where heads alternate, it is at least what fills a device.
/// In other modes it is one, because blocks of one head share what L2 holds. But where blocks are
/// few, and a mask makes them uneven, it is what fills a device, so that the longest begin first.
/// `heads`: kv heads, of all sequences, or of one where they are packed. `q_tiles`, `kv_tiles`: of
/// each.
template <class Traits>
ATTILE_HOST_DEVICE constexpr int heads_in_flight(std::int64_t heads, int group_heads, int q_tiles,
                                                 int kv_tiles) {
  if (heads == 0 || q_tiles == 0 || kv_tiles == 0) return 1;
  std::int64_t in_flight = 1;
  if constexpr (Traits::kDqMode == DqMode::kInOrder) {
    constexpr int kMostBlocks = 2 * kDeviceBlocks;
    in_flight = ceil_div<std::int64_t>(kMostBlocks, std::int64_t{group_heads} * q_tiles);
    if (alternates<Traits>(group_heads)) {
      in_flight = max<std::int64_t>(in_flight, ceil_div(kDeviceBlocks, kv_tiles));
    }
  } else if constexpr (Traits::kHeadsInFlight && !kRowsAlike<typename Traits::MaskType>) {
    if (heads * kv_tiles <= 8 * kDeviceBlocks) in_flight = kDeviceBlocks / kv_tiles;
  }
  return static_cast<int>(max<std::int64_t>(min(in_flight, heads), 1));
}

/// Holds the order of the kv blocks that begin last, with kSortsLastKvBlocks. It is empty without.
template <bool kThere>
struct LastKvBlocks {
  int sorted_from = 0;           ///< the first block of the pass whose kv block is in `sorted`
  int* sorted_blocks = nullptr;  ///< the kv blocks of that block and of those behind it
};
template <>
struct LastKvBlocks<false> {};

/// Returns how many kv blocks, of `all`, are sorted with kSortsLastKvBlocks: those of as many heads
/// as have one and a half times the blocks of a device. By a model a pass then ends as early as
/// with all of them sorted, and the other blocks wait for no order. With half of the blocks at 8k a
/// pass takes 0.96 to 0.99 of the time, with a tenth at 32k 0.99 to 1.00 (H200, 2026-11-26,
/// bench/log/tuning-policies.md).
/// Of heads with more blocks than twice that, a part of one is sorted: sorting takes the square.
constexpr std::int64_t sorted_kv_blocks(std::int64_t all, int kv_tiles) {
  constexpr int kSorted = kDeviceBlocks + kDeviceBlocks / 2;
  if (kv_tiles == 0) return 0;
  const int last = kv_tiles <= 2 * kSorted ? round_up(kSorted, kv_tiles) : kSorted;
  return min<std::int64_t>(last, all);
}

}  // namespace attile
