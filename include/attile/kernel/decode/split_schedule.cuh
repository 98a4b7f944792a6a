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
  int parts = 1;                 ///< of the row tile
  int blocks = 1;                ///< that have parts of the row tile
  int first_block = 0;           ///< of these; its ticket counts them
  bool is_last_of_block = true;  ///< whether the block has no further part of the row tile
  std::int64_t slot = 0;         ///< of this part
  /// The slots of the row tile's parts: that of the first one, and of the others from the second
  /// one's on, slot_step apart.
  std::int64_t first_slot = 0, second_slot = 0, slot_step = 0;

  ATTILE_DEVICE std::int64_t slot_of(int part) const {
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
/// Lengths are read from device memory: by all threads to count the units, and then by each warp,
/// 32 sequences at a time, to find the sequence of a unit.
/// Scope    all threads of the block, for the constructor; all lanes of a warp for `next`.
template <class Traits>
class SplitSchedule {
 public:
  /// `shared`: kSharedBytes, aligned to 8 bytes, which are free again when it returns.
  static constexpr int kSharedBytes = Traits::kThreads / arch::kWarpSize * 8;

  ATTILE_DEVICE SplitSchedule(const DecodeParams<Traits>& p, int block, unsigned char* shared)
      : p_(p), block_(block) {
    cut_.units = count_units(shared);
    // No run is empty: a row tile's parts are counted by the blocks from that of its first unit to
    // that of its last one, and are merged when all of them have come.
    cut_.blocks =
        static_cast<int>(max<std::int64_t>(min<std::int64_t>(arch::block_count(), cut_.units), 1));
    if (block < cut_.blocks) {
      unit_ = cut_.first(block);
      end_ = cut_.first(block + 1);
    }
    if (unit_ < end_ && p.splits == Splits::Kind::kNone) {
      find(unit_);
      const std::int64_t inside = (unit_ - begin_) % work_.units_of_tile;
      if (inside > 0) unit_ += work_.units_of_tile - inside;
    }
  }

  /// Sets the block's next part; returns false after the last one.
  ATTILE_DEVICE bool next(SplitPart& part) {
    if (unit_ >= end_) return false;
    find(unit_);
    const int units = work_.units_of_tile;
    const std::int64_t row_tile = (unit_ - begin_) / units;
    const std::int64_t first = begin_ + row_tile * units;  // the row tile's first unit
    const int from = static_cast<int>(unit_ - first);
    int to = units;
    part = {};
    if (p_.splits == Splits::Kind::kFill) {
      to = static_cast<int>(min<std::int64_t>(units, from + end_ - unit_));
    } else if (p_.splits == Splits::Kind::kFixed) {
      to = from + 1;
    }
    if (p_.splits != Splits::Kind::kNone) {
      part.first_block = cut_.block_of(first);
      part.blocks = cut_.block_of(first + units - 1) - part.first_block + 1;
      part.is_last_of_block = to == units || unit_ + to - from == end_;
      set_slots(part, first, from);
    }
    unit_ += to - from;
    set_row_tile(part, row_tile, from, to);
    return true;
  }

 private:
  static constexpr bool kUniform = DecodeParams<Traits>::kUniform;

  /// Sets the slots of the row tile whose first unit is `first`, for a part that begins `from`
  /// units after it. With kFixed each unit has a slot; with kFill each block has two, of which the
  /// second one is for the row tile that begins in its run and does not end there, and the first
  /// one for the row tile that its run begins in the middle of.
  ATTILE_DEVICE void set_slots(SplitPart& part, std::int64_t first, int from) const {
    if (p_.splits == Splits::Kind::kFixed) {
      part.parts = work_.units_of_tile;
      part.slot = first + from;
      part.first_slot = first;
      part.second_slot = first + 1;
      part.slot_step = 1;
    } else {
      part.parts = part.blocks;
      part.slot = 2 * std::int64_t{block_} + (from == 0 ? 1 : 0);
      part.first_slot = 2 * std::int64_t{part.first_block} + 1;
      part.second_slot = 2 * std::int64_t{part.first_block} + 2;
      part.slot_step = 2;
    }
  }

  /// Sets the rows of a part and the kv tiles of units [from, to) of their row tile.
  ATTILE_DEVICE void set_row_tile(SplitPart& part, std::int64_t row_tile, int from, int to) const {
    WorkTile& at = part.at;
    at.sequence = sequence_;
    at.head = static_cast<int>(row_tile / work_.row_tiles) * p_.packed_heads;
    at.kv_head = at.head / p_.group_heads;
    p_.read_lengths(at);
    part.packed_row0 = static_cast<int>(row_tile % work_.row_tiles) * Traits::kBr;
    const std::int64_t packed_rows = std::int64_t{p_.extent(at).q_len} * p_.packed_heads;
    part.rows = static_cast<int>(min<std::int64_t>(Traits::kBr, packed_rows - part.packed_row0));
    at.row0 = part.packed_row0 / p_.packed_heads;
    const int count = (part.packed_row0 + part.rows - 1) / p_.packed_heads - at.row0 + 1;
    TileRange seen{};
    at.first_key = p_.extent(at).kv_len;
    for (int head = at.head; head < at.head + p_.packed_heads; ++head) {
      seen = hull(seen, p_.keys_seen(at, head, at.row0, count));
      at.first_key = min(at.first_key, p_.first_key_seen(at, head, at.row0, count));
    }
    const auto kv_tile = [&](int unit) { return (work_.first_unit + unit) * p_.unit_tiles; };
    at.kv_tiles = seen.between(from == 0 ? 0 : kv_tile(from),
                               to == work_.units_of_tile ? INT_MAX : kv_tile(to));
  }

  /// Moves on to the sequence that has a unit. Units are asked for in rising order.
  ATTILE_DEVICE void find(std::int64_t unit) {
    if constexpr (kUniform) {
      sequence_ = static_cast<int>(unit / work_.units);
      begin_ = sequence_ * work_.units;
    } else {
      const int lane = arch::thread_index() % arch::kWarpSize;
      while (unit >= begin_ + work_.units && sequence_ < p_.batch) {
        const int sequence = sequence_ + 1 + lane;
        SequenceWork work{};
        if (sequence < p_.batch) work = p_.work_of(sequence);
        const std::int64_t end = begin_ + work_.units + sum_to_lane(work.units);
        const int found = arch::first_lane(unit < end);
        const int from = min(found, arch::kWarpSize - 1);
        begin_ = shuffle(end - work.units, from);
        work_ = {arch::shuffle(work.row_tiles, from), arch::shuffle(work.first_unit, from),
                 arch::shuffle(work.units_of_tile, from), shuffle(work.units, from)};
        sequence_ += 1 + from;
      }
    }
  }

  /// Returns the units of all sequences. Where all are alike it sets work_, which is that of each.
  /// Scope    all threads of the block.
  ATTILE_DEVICE std::int64_t count_units(unsigned char* shared) {
    if constexpr (kUniform) {
      work_ = p_.work_of(0);
      return p_.batch * work_.units;
    }
    std::int64_t mine = 0;
    for (int sequence = arch::thread_index(); sequence < p_.batch; sequence += Traits::kThreads) {
      mine += p_.work_of(sequence).units;
    }
    constexpr int kWarps = Traits::kThreads / arch::kWarpSize;
    auto* const of_warp = reinterpret_cast<std::int64_t*>(shared);
    const std::int64_t of_lanes = sum_to_lane(mine);
    const int thread = arch::thread_index();
    if (thread % arch::kWarpSize == arch::kWarpSize - 1) {
      of_warp[thread / arch::kWarpSize] = of_lanes;
    }
    arch::barrier();  // all warps have written their sums before they are read
    std::int64_t sum = 0;
    for (int warp = 0; warp < kWarps; ++warp) sum += of_warp[warp];
    arch::barrier();  // all have read them before the memory is used again
    return sum;
  }

  /// Returns the sum of the x of the lanes up to this one. Scope    all lanes of a warp.
  ATTILE_DEVICE static std::int64_t sum_to_lane(std::int64_t x) {
    const int lane = arch::thread_index() % arch::kWarpSize;
    ATTILE_UNROLL
    for (int step = 1; step < arch::kWarpSize; step *= 2) {
      const std::int64_t before = shuffle(x, max(lane - step, 0));
      if (lane >= step) x += before;
    }
    return x;
  }
  ATTILE_DEVICE static std::int64_t shuffle(std::int64_t x, int from) {
    const auto low = static_cast<std::uint32_t>(arch::shuffle(static_cast<int>(x), from));
    const std::int64_t high = arch::shuffle(static_cast<int>(x >> 32), from);
    return high << 32 | low;
  }

  const DecodeParams<Traits>& p_;
  int block_;
  EvenCut cut_{};
  std::int64_t unit_ = 0, end_ = 0;  ///< what is left of the block's run
  int sequence_ = -1;                ///< the sequence whose units begin at begin_
  SequenceWork work_{};              ///< of that sequence
  std::int64_t begin_ = 0;
};

}  // namespace attile
