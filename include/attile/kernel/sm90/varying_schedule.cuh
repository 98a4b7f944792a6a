// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/atomic.cuh>
#include <attile/arch/mbarrier.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/index.h>
#include <attile/core/math.h>
#include <attile/core/schedule.h>
#include <attile/core/tile_slots.h>
#include <attile/kernel/problem/work_tile.h>
#include <attile/kernel/sm90/forward_memory.cuh>
#include <attile/kernel/sm90/forward_params.cuh>
#include <attile/kernel/sm90/forward_schedule.cuh>

#include <cstdint>

// How the producer threads of the forward kernel get the block's work tiles. Where all sequences
// have the same lengths, each thread works them out by a ForwardSchedule of its own. Else one
// warp reads the lengths in device memory, and writes the work tiles to shared memory, where the
// others read them:
//
//   schedule_tiles, one warp                        ScheduledTiles, kTileReaders threads
//     waits for the readers (empty)                   waits until the tile is there (full)
//     takes the number of the next work tile          copies it
//     writes the tile, and says so (full)             says that the next one may be taken (empty)
//
// After the block's last work tile comes one without a sequence. The threads that load K and V let
// the next tile be taken when they have a pipeline's stages to load, so that it is there in time,
// and a block that is late holds no work that others could do.

namespace attile::sm90 {

/// Makes a block's work tiles, one after another, where sequences have lengths of their own: those
/// of the slots (TileSlots) in which there are rows, for each query head. A window of 32 slots has
/// its tiles taken by their number of kv tiles, the longest first, by all heads of a section; then
/// come the other heads, and then the window before it, so that a sequence begins with its last
/// rows, which see most under a causal mask. Tiles are taken by a counter in device memory, so that
/// no block waits for others in the end, or where the caller has brought no scratch memory by the
/// index of the block. Scope    all lanes of a warp.
template <class Traits>
class VaryingTiles {
  static constexpr int kRows = Traits::kConsumers * kWarpgroupRows;
  static constexpr int kWindow = ForwardParams<Traits>::kWindowSlots;
  static_assert(kWindow == arch::kWarpSize, "each lane has a slot of the window");

 public:
  ATTILE_DEVICE explicit VaryingTiles(const ForwardParams<Traits>& p) : p_(p) {}

  /// Goes on to the block's next work tile. Returns whether there is one.
  ATTILE_DEVICE bool next() {
    for (;;) {
      const int number = take();
      if (number >= p_.scheduled.items) return false;
      const int of_window = kWindow * p_.q_heads;
      if (number / of_window != window_) enter(number / of_window);
      const int item = number % of_window;
      const int section = p_.scheduled.section_heads;
      const int first = item / (kWindow * section) * section;
      const int heads = min(section, p_.q_heads - first);
      const int among = item - first * kWindow;
      const int lane = arch::first_lane(rank_ == among / heads);
      at_.sequence = arch::shuffle(sequence_, lane);
      at_.row0 = arch::shuffle(row0_, lane);
      at_.head = first + among % heads;
      if (at_.sequence >= 0) return true;
    }
  }
  ATTILE_DEVICE WorkTile tile() const {
    WorkTile at = at_;
    at.kv_head = at.head / p_.group_heads;
    p_.read_lengths(at);
    at.kv_tiles = p_.tiles_seen(at, at.row0, kRows);
    return at;
  }

 private:
  /// Returns the number of the next item.
  ATTILE_DEVICE int take() {
    int* const counter = p_.scheduled.counter;
    int number = 0;
    if (counter == nullptr) {
      number = static_cast<int>(min<std::int64_t>(
          snake(arch::block_index(), arch::block_count(), wave_++), p_.scheduled.items));
    } else if (arch::thread_index() % arch::kWarpSize == 0) {
      number = arch::fetch_add(counter, 1);
    }
    return arch::uniform(number);
  }
  /// Finds the tile of each lane's slot of a window, counted from the last slot on, and its rank
  /// among those of the window.
  ATTILE_DEVICE void enter(int window) {
    window_ = window;
    const int lane = arch::thread_index() % arch::kWarpSize;
    const int slot = p_.scheduled.slots - 1 - window * kWindow - lane;
    int length = 0;
    sequence_ = -1;
    if (slot >= 0) {
      using Slots = typename ForwardParams<Traits>::Slots;
      const auto share = Slots(p_.policies.sequences, p_.batch, p_.bounds.q_len).find(slot, 1);
      WorkTile at;
      at.sequence = share.sequence;
      p_.read_lengths(at);
      at.row0 = share.item * kRows;
      if (share.is_sequence && at.row0 < at.extent.q_len) {
        if (p_.kHasLead) at.row0 -= lead_rows(at.extent.q_len, kRows, kWarpgroupRows);
        const TileRange seen = p_.tiles_seen(at, at.row0, kRows);
        length = 1 + seen.last - seen.first;
        sequence_ = at.sequence, row0_ = at.row0;
      }
    }
    rank_ = 0;
    ATTILE_UNROLL_BY(4)
    for (int i = 0; i < arch::kWarpSize; ++i) {
      const int other = arch::shuffle(length, i);
      rank_ += other > length || (other == length && i < lane);
    }
  }

  const ForwardParams<Traits>& p_;
  int wave_ = 0, window_ = -1;
  int sequence_ = -1, row0_ = 0, rank_ = 0;  ///< of the lane's slot; below 0: it has no rows
  WorkTile at_{};
};

/// Reads the work tiles that `schedule_tiles` makes, as ForwardSchedule gives them.
/// Scope    one thread of kTileReaders.
template <class Traits>
class ScheduledTiles {
 public:
  ATTILE_DEVICE explicit ScheduledTiles(const ForwardMemory<Traits>& smem) : smem_(smem) { next(); }
  ATTILE_DEVICE bool more() const { return tile_.sequence >= 0; }
  ATTILE_DEVICE void next() {
    arch::mbarrier_wait(smem_.tile_full(), parity_);  // the tile is written
    tile_ = smem_.tile();
    parity_ ^= 1;
  }
  ATTILE_DEVICE const WorkTile& tile() const { return tile_; }
  /// Says that the next tile may be taken: once for each tile, before `next`.
  ATTILE_DEVICE void allow_next() const { arch::mbarrier_arrive(smem_.tile_empty()); }

 private:
  const ForwardMemory<Traits>& smem_;
  WorkTile tile_;
  int parity_ = 0;
};

/// Writes the block's work tiles for the others, with kSchedules. Scope    all lanes of a warp.
template <class Traits>
ATTILE_DEVICE void schedule_tiles(const ForwardParams<Traits>& p,
                                  const ForwardMemory<Traits>& smem) {
  VaryingTiles<Traits> tiles(p);
  bool more = true;
  for (int parity = 1; more; parity ^= 1) {
    arch::mbarrier_wait(smem.tile_empty(), parity);  // all have read the tile before
    more = tiles.next();
    if (arch::thread_index() % arch::kWarpSize != 0) continue;
    WorkTile at{.sequence = -1};
    if (more) at = tiles.tile();
    smem.tile() = at;
    arch::mbarrier_arrive(smem.tile_full());
  }
}

/// Returns what gives a producer thread the block's work tiles.
template <class Traits>
ATTILE_DEVICE auto work_tiles(const ForwardParams<Traits>& p, int block,
                              const ForwardMemory<Traits>& smem) {
  if constexpr (Traits::kSchedules) {
    return ScheduledTiles<Traits>(smem);
  } else {
    return ForwardSchedule<Traits>(p, block);
  }
}

}  // namespace attile::sm90
