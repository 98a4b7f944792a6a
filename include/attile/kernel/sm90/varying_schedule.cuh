// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/atomic.cuh>
#include <attile/arch/mbarrier.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/math.h>
#include <attile/core/schedule.h>
#include <attile/kernel/problem/work_tile.h>
#include <attile/kernel/sm90/forward_memory.cuh>
#include <attile/kernel/sm90/forward_params.cuh>
#include <attile/kernel/sm90/forward_schedule.cuh>
#include <attile/tile/pipeline.cuh>

// How the producer threads of the forward kernel get the block's work tiles. Where all sequences
// have the same lengths, each thread works them out by a ForwardSchedule of its own. Else one
// thread goes through the lengths in device memory, and writes the work tiles to slots, which the
// others read:
//
//   schedule_tiles, one thread                      ScheduledTiles, kTileReaders threads
//     waits until all have read the slot (empty)      waits until the tile is there (full)
//     takes the number of the next work tile          copies it, and says so (empty)
//     writes the tile, and says so (full)
//
// After the block's last work tile comes one without a sequence. A number is taken when a slot is
// free, so that a block that is late does not hold work that others could do.

namespace attile::sm90 {

/// Makes a block's work tiles, one after another, where sequences have lengths of their own: those
/// that have rows (VaryingItems). Their numbers come from a counter in device memory, so that no
/// block waits for others in the end, or where the caller has brought no scratch memory from the
/// index of the block.
template <class Traits>
class VaryingTiles {
  struct Lengths {
    const ForwardParams<Traits>& p;

    ATTILE_DEVICE int q_tiles(int sequence) const {
      return ceil_div(p.policies.sequences.extent(sequence, p.bounds).q_len, kRows);
    }
    ATTILE_DEVICE int section_heads(int sequence) const {
      const int keys = p.policies.sequences.extent(sequence, p.bounds).kv_len;
      return max(min(p.scheduled.l2_keys / max(keys, 1), p.kv_heads), 1) * p.group_heads;
    }
  };
  static constexpr int kRows = Traits::kConsumers * kWarpgroupRows;

 public:
  ATTILE_DEVICE VaryingTiles(const ForwardParams<Traits>& p, int block)
      : p_(p), items_(Lengths{p}, p.batch, p.q_heads), block_(block) {}

  /// Goes on to the block's next work tile. Returns whether there is one. Scope    one thread.
  ATTILE_DEVICE bool next() {
    int* const counter = p_.scheduled.counter;
    return items_.seek(counter != nullptr ? arch::fetch_add(counter, 1)
                                          : snake(block_, arch::block_count(), wave_++));
  }
  ATTILE_DEVICE WorkTile tile() const {
    const auto item = items_.item();
    WorkTile at;
    at.sequence = item.sequence;
    at.head = item.head;
    at.kv_head = at.head / p_.group_heads;
    at.extent = p_.policies.sequences.extent(at.sequence, p_.bounds);
    const int lead = p_.kHasLead ? lead_rows(at.extent.q_len, kRows, kWarpgroupRows) : 0;
    at.row0 = item.q_tile * kRows - lead;
    at.kv_tiles = p_.tiles_seen(at, at.row0, kRows);
    return at;
  }

 private:
  const ForwardParams<Traits>& p_;
  VaryingItems<Lengths> items_;
  int block_, wave_ = 0;
};

/// Reads the work tiles that `schedule_tiles` makes, as ForwardSchedule gives them.
/// Scope    one thread of kTileReaders.
template <class Traits>
class ScheduledTiles {
 public:
  ATTILE_DEVICE explicit ScheduledTiles(const ForwardMemory<Traits>& smem) : smem_(smem) { next(); }
  ATTILE_DEVICE bool more() const { return tile_.sequence >= 0; }
  ATTILE_DEVICE void next() {
    arch::mbarrier_wait(smem_.tile_full(state_.stage), state_.parity);  // the tile is written
    tile_ = smem_.tile_slot(state_.stage);
    arch::mbarrier_arrive(smem_.tile_empty(state_.stage));
    state_.advance();
  }
  ATTILE_DEVICE const WorkTile& tile() const { return tile_; }

 private:
  const ForwardMemory<Traits>& smem_;
  WorkTile tile_;
  tile::PipelineState<Traits::kTileSlots> state_;
};

/// Writes the block's work tiles to the slots, with kSchedules. Scope    one thread.
template <class Traits>
ATTILE_DEVICE void schedule_tiles(const ForwardParams<Traits>& p, int block,
                                  const ForwardMemory<Traits>& smem) {
  VaryingTiles<Traits> tiles(p, block);
  tile::PipelineState<Traits::kTileSlots> state;
  for (bool more = true; more; state.advance()) {
    arch::mbarrier_wait(smem.tile_empty(state.stage), state.parity ^ 1);  // all have read the slot
    more = tiles.next();
    WorkTile at{.sequence = -1};
    if (more) at = tiles.tile();
    smem.tile_slot(state.stage) = at;
    arch::mbarrier_arrive(smem.tile_full(state.stage));
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
