// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/math.h>
#include <attile/core/schedule.h>
#include <attile/core/splits.h>
#include <attile/kernel/decode/decode_params.cuh>
#include <attile/kernel/problem/work_tile.h>

#include <climits>
#include <cstdint>

namespace attile {

/// Is what a block computes at a time: some of the kv tiles that a row tile sees. A row tile has
/// one part, or several, each of which leaves its state in a slot of scratch memory.
struct SplitPart {
  /// The sequence, the kv tiles of this part, the kv head, and the first of the packed query heads.
  /// row0 is the first row of any of them: not each packed row from there on is one of the tile's.
  WorkTile at;
  int packed_row0 = 0;           ///< the row tile's first packed row (DecodeParams)
  int rows = 0;                  ///< the packed rows that there are, up to Br
  bool is_last_of_block = true;  ///< whether the block has no further part of the row tile

  // The row tile's units, and the first of them that this part has (SplitSchedule::complete).
  int first_unit = 0, units = 1, from = 0;

  // Of a row tile that is split:
  int parts = 1;
  int blocks = 1;       ///< that have parts of the row tile
  int first_block = 0;  ///< of these; its ticket counts them
  int slot = 0;         ///< of this part
  /// The slots of the row tile's parts: that of the first one, and of the others from the second
  /// one's on, slot_step apart.
  int first_slot = 0, second_slot = 0, slot_step = 0;

  ATTILE_DEVICE int slot_of(int part) const {
    return part == 0 ? first_slot : second_slot + (part - 1) * slot_step;
  }
};

/// Gives a block its parts, one after another. The units of all sequences (SequenceWork) are
/// numbered: sequence by sequence, in each row tile by row tile, a head's row tiles together, and
/// in a row tile by rising keys. Each block has a run of them, of nearly equal lengths (EvenCut). A
/// block's parts are, by
///   kNone   the whole row tiles that begin in its run: a long one may leave the next blocks
///           without work;
///   kFill   its run, cut where row tiles end: a row tile has a part in each block whose run
///           reaches into it;
///   kFixed  the units of its run, each by itself.
/// Lengths are read from device memory, by each warp for 32 sequences at a time, its window; and
/// by all threads together to count the units of more sequences than that.
/// What runs before the first loads is on the way of every call, and nothing hides its latency: it
/// has few instructions, and no more divisions than it needs.
/// Scope    all threads of the block, for the constructor; all lanes of a warp for `next`.
template <class Traits>
class SplitSchedule {
 public:
  /// `shared`: kSharedBytes, which are free again when it returns.
  static constexpr int kSharedBytes = Traits::kThreads / arch::kWarpSize * sizeof(int);

  ATTILE_DEVICE SplitSchedule(const DecodeParams<Traits>& p, int block, unsigned char* shared)
      : p_(p), block_(block), splits_(p.splits) {
    const Window window = read_window(0, 0);
    const int units = count_units(window, shared);
    // Offsets of packed queries that fall may give more rows than there are.
    if (splits_ == Splits::Kind::kFixed && units > p.slots) splits_ = Splits::Kind::kNone;
    // No run is empty: a row tile's parts are counted by the blocks from that of its first unit to
    // that of its last one, and are merged when all of them have come.
    const int blocks = max(min(arch::block_count(), units), 1);
    if (block >= blocks) return;
    cut_ = EvenCut(units, blocks);
    unit_ = cut_.first(block);
    end_ = cut_.first(block + 1);
    if (!kAlike) take(unit_, window);
  }

  /// Sets what the block loads next of a part; returns false after the last one.
  ATTILE_DEVICE bool next(SplitPart& part) {
    for (;;) {
      if (unit_ >= end_ || !find(unit_)) return false;
      const int units = work_.units_of_tile;
      const int row_tile = (unit_ - begin_) / units;  // of all heads
      part = {};
      part.first_unit = begin_ + row_tile * units;
      part.units = units;
      part.from = unit_ - part.first_unit;
      int to = units;
      if (splits_ == Splits::Kind::kFill) {
        to = min(units, part.from + end_ - unit_);
      } else if (splits_ == Splits::Kind::kFixed) {
        to = part.from + 1;
      }
      unit_ += to - part.from;
      if (splits_ == Splits::Kind::kNone && part.from > 0) continue;  // it begins in another run
      part.is_last_of_block = to == units || unit_ == end_;
      set_row_tile(part, row_tile, to);
      return true;
    }
  }

  /// Sets which blocks share a part's row tile, and the slots of its parts. With kFixed each unit
  /// has a slot; with kFill each block has two, of which the second one is for the row tile that
  /// begins in its run and does not end there, and the first one for the row tile that its run
  /// begins in the middle of.
  ATTILE_DEVICE void complete(SplitPart& part) const {
    if (splits_ == Splits::Kind::kNone) return;
    part.first_block = cut_.block_of(part.first_unit);
    part.blocks = cut_.block_of(part.first_unit + part.units - 1) - part.first_block + 1;
    if (splits_ == Splits::Kind::kFixed) {
      part.parts = part.units;
      part.slot = part.first_unit + part.from;
      part.first_slot = part.first_unit;
      part.second_slot = part.first_unit + 1;
      part.slot_step = 1;
    } else {
      part.parts = part.blocks;
      part.slot = 2 * block_ + (part.from == 0 ? 1 : 0);
      part.first_slot = 2 * part.first_block + 1;
      part.second_slot = 2 * part.first_block + 2;
      part.slot_step = 2;
    }
  }

 private:
  static constexpr bool kAlike = DecodeParams<Traits>::kAlike;
  static constexpr int kMostUnits = DecodeParams<Traits>::kMostUnits;

  /// Holds 32 sequences, of which each lane has one.
  struct Window {
    int first = 0;        ///< the first lane's sequence
    SequenceWork work{};  ///< of the lane's
    int end = 0;          ///< the number of the unit behind its last one
  };

  /// Sets the rows of a part, and the kv tiles of its units, up to `to` of the row tile's.
  ATTILE_DEVICE void set_row_tile(SplitPart& part, int row_tile, int to) const {
    WorkTile& at = part.at;
    at.sequence = sequence_;
    at.extent = work_.extent;
    at.q_origin = work_.q_origin;
    at.kv_origin = work_.kv_origin;
    const int pack = work_.row_tiles == 1 ? row_tile : row_tile / work_.row_tiles;
    at.head = pack * p_.packed_heads;
    at.kv_head = p_.packed_heads == p_.group_heads ? pack : at.head / p_.group_heads;
    part.packed_row0 = (row_tile - pack * work_.row_tiles) * Traits::kBr;
    part.rows = min(Traits::kBr, work_.extent.q_len * p_.packed_heads - part.packed_row0);
    at.row0 = p_.packed_heads.divmod(part.packed_row0).quotient;
    const int last_row = p_.packed_heads.divmod(part.packed_row0 + part.rows - 1).quotient;
    const int count = last_row - at.row0 + 1;
    TileRange seen{};
    at.first_key = at.extent.kv_len;
    const int heads = kIgnoresHead<typename Traits::MaskType> ? 1 : int{p_.packed_heads};
    for (int i = 0; i < min(part.rows, heads); ++i) {
      const int head = at.head + p_.packed_heads.divmod(part.packed_row0 + i).remainder;
      const TileRange of_head = p_.keys_seen(at, head, at.row0, count);
      seen = i == 0 ? of_head : hull(seen, of_head);
      at.first_key = min(at.first_key, p_.first_key_seen(at, head, at.row0, count));
    }
    const auto kv_tile = [&](int unit) { return (work_.first_unit + unit) * p_.unit_tiles; };
    at.kv_tiles = seen.between(part.from == 0 ? 0 : kv_tile(part.from),
                               to == part.units ? INT_MAX : kv_tile(to));
  }

  /// Returns the sequences from `first` on, whose first unit has the number `before`.
  ATTILE_DEVICE Window read_window(int first, int before) const {
    Window window{.first = first};
    if constexpr (kAlike) return window;  // nobody looks at it
    const int sequence = first + arch::thread_index() % arch::kWarpSize;
    if (sequence < p_.batch) window.work = p_.work_of(sequence);
    window.end = add(before, sum_to_lane(window.work.units));
    return window;
  }

  /// Moves on to the sequence that has a unit, or where it is behind the window to the last one of
  /// that. Scope    all lanes of a warp.
  ATTILE_DEVICE void take(int unit, const Window& window) {
    const int lane = min(arch::first_lane(unit < window.end), arch::kWarpSize - 1);
    work_ = arch::shuffle_words(window.work, lane);
    sequence_ = window.first + lane;
    begin_ = arch::shuffle(window.end, lane) - work_.units;
  }
  /// Moves on to the sequence that has a unit. Units are asked for in rising order. Returns false
  /// where there is none: lengths have changed while the kernel runs.
  ATTILE_DEVICE bool find(int unit) {
    if constexpr (kAlike) {
      sequence_ = unit / work_.units;
      begin_ = sequence_ * work_.units;
    } else {
      ATTILE_UNROLL_BY(1)
      while (unit >= begin_ + work_.units && sequence_ < p_.batch) {
        take(unit, read_window(sequence_ + 1, begin_ + work_.units));
      }
    }
    return sequence_ < p_.batch;
  }

  /// Returns the units of all sequences. Where all are alike it sets work_, which is that of each.
  /// Scope    all threads of the block.
  ATTILE_DEVICE int count_units(const Window& window, unsigned char* shared) {
    if constexpr (kAlike) {
      work_ = p_.work_of(0);
      return p_.batch * work_.units;
    }
    if (p_.batch <= arch::kWarpSize) return arch::shuffle(window.end, arch::kWarpSize - 1);
    int mine = 0;
    for (int sequence = arch::thread_index(); sequence < p_.batch; sequence += Traits::kThreads) {
      mine = add(mine, p_.work_of(sequence).units);
    }
    constexpr int kWarps = Traits::kThreads / arch::kWarpSize;
    int* const of_warp = reinterpret_cast<int*>(shared);
    const int of_lanes = sum_to_lane(mine);
    const int thread = arch::thread_index();
    if (thread % arch::kWarpSize == arch::kWarpSize - 1) {
      of_warp[thread / arch::kWarpSize] = of_lanes;
    }
    arch::barrier();  // all warps have written their sums before they are read
    int sum = 0;
    for (int warp = 0; warp < kWarps; ++warp) sum = add(sum, of_warp[warp]);
    arch::barrier();  // all have read them before the memory is used again
    return sum;
  }

  /// Returns the sum, or if that is less the most units that can be counted: offsets that fall may
  /// give more.
  ATTILE_DEVICE static int add(int a, int b) { return min(a + b, kMostUnits); }
  /// Returns the sum of the x of the lanes up to this one. Scope    all lanes of a warp.
  ATTILE_DEVICE static int sum_to_lane(int x) {
    const int lane = arch::thread_index() % arch::kWarpSize;
    ATTILE_UNROLL
    for (int step = 1; step < arch::kWarpSize; step *= 2) {
      const int before = arch::shuffle(x, max(lane - step, 0));
      if (lane >= step) x = add(x, before);
    }
    return x;
  }

  const DecodeParams<Traits>& p_;
  int block_;
  Splits::Kind splits_;
  EvenCut cut_{};
  int unit_ = 0, end_ = 0;  ///< what is left of the block's run
  int sequence_ = -1;       ///< the sequence whose units begin at begin_
  SequenceWork work_{};     ///< of that sequence
  int begin_ = 0;
};

}  // namespace attile
