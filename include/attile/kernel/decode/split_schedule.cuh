// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/arch/grid_dependency.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/fast_divmod.h>
#include <attile/core/math.h>
#include <attile/core/schedule.h>
#include <attile/core/splits.h>
#include <attile/core/work_tile.h>
#include <attile/kernel/decode/decode_params.cuh>
#include <attile/kernel/decode/split_part.cuh>

#include <climits>
#include <cstdint>

namespace attile {

/// Gives a block its parts, one after another.
///   split   with kFixed, so many keys counted from key 0 on, which are always computed by
///           themselves, so that a row's bits depend on nothing else.
///   unit    what one block gets or another one, undivided: one kv tile of a row tile; with kFixed
///           one split. Where units would be too many to count, several kv tiles.
///   strand  the row tiles whose units are numbered together: those of one head, or of all heads
///           where the heads do not divide the blocks (DecodeParams::strands). The order is
///           sequence, head, row tile, key.
///   run     consecutive units of one strand, which one block computes. Run r is run r / strands of
///           strand r % strands; block i computes runs i, i + blocks and so on.
///   part    the units of one row tile that a run has; with kFixed one of these units.
/// With kFill and three blocks, a strand of two row tiles of seven and five units:
///   unit      |0 1 2 3|4 5 6|7|8 9 10 11|
///   row tile  |----- 0 -----|---- 1 ----|
///   run       |-- 0 --|-- 1 --|--- 2 ---|
///   part      |-------|-----|-|---------|
/// All strands are cut alike, so that neighbouring kv heads, which are neighbours in memory, are
/// read at the same keys at the same time (bench/log/tuning-decode.md). There is one run for a
/// block at most, of nearly equal lengths (EvenCut). The exception: where all row tiles have the
/// same number of units, and there are as many as the host expects, each is cut into
/// DecodeParams::runs_per_row_tile runs; if that is 1, a block may compute several runs.
/// A block's parts are, by
///   kNone   the whole row tiles that begin in its run: a long one may leave the next runs without
///           work;
///   kFill   its run, cut where row tiles end: a row tile has a part in each run that reaches into
///           it;
///   kFixed  the units of its run, each by itself.
/// Lengths are read from device memory, by each warp for 32 sequences at a time, its window; and by
/// all threads together to count the units of more sequences than that. They must not change
/// while the kernel runs: the warps of a block would disagree about its parts, and might wait for
/// each other for ever; scratch memory would want `reset_workspace`.
/// What runs before the first loads is on the way of every call, and nothing hides its latency: it
/// has few instructions, and no more divisions than it needs.
/// Scope    all threads of the block, for `begin`; all lanes of a warp for `next`.
template <class Traits>
class SplitSchedule {
 public:
  ATTILE_DEVICE explicit SplitSchedule(const DecodeParams<Traits>& p) : p_(p) {}

  /// Goes to the first part of a block. With `warms_up`, ahead of `await_dependencies`, lengths are
  /// read early (DecodeParams::reads_early), or parts are those of sequences with all rows and
  /// keys, and have a kv tile, and no row. `shared`: an int for each warp, free when it returns.
  ATTILE_DEVICE void begin(int block, unsigned char* shared, bool warms_up) {
    warms_up_ = warms_up;
    by_bounds_ = warms_up && p_.reads_early == 0;
    splits_ = p_.splits;
    run_ = block;
    unit_ = end_ = 0;
    const Window window = read_window(0, 0);
    const int units = count_units(window, shared);
    // Offsets of packed queries that decrease, which is wrong, can give more units than can be
    // counted, or than there are slots: every row tile is then one part, which needs no slot.
    const bool is_fixed = splits_ == Splits::Kind::kFixed;
    const bool is_too_many = is_fixed && std::int64_t{units} * p_.strands > p_.slots;
    if (units == kMostUnits || is_too_many) splits_ = Splits::Kind::kNone;
    set_cut(units);
    if (set_run() && !kAlike) take(unit_, window);
    early_ = window.work;
  }

  /// Makes the parts of a warm-up pass those of the call and returns true, if lengths are still
  /// those that it has read; else `begin` has to be called again.
  /// Scope    all threads of the block, if DecodeParams::may_keep_parts.
  ATTILE_DEVICE bool keep_parts() {
    if (!are_lengths_unchanged()) return false;
    warms_up_ = false;
    return true;
  }

  /// Sets what the block loads next of a part; returns false after the last one.
  ATTILE_DEVICE bool next(SplitPart& part) {
    for (;;) {
      if (unit_ >= end_) {
        run_ += arch::block_count();
        if (!set_run()) return false;
      }
      if (!find(unit_)) return false;
      const int units = work_.units_per_row_tile;
      const int row_tile = quotient(unit_ - begin_, units);  // of the strand's heads
      part = {};
      part.run = run_;
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
      if (splits_ == Splits::Kind::kFixed) {
        part.parts_before = work_.first_seen_unit % DecodeParams<Traits>::kPartsAtOnce;
      }
      part.is_last_of_row_tile_in_run = to == units || unit_ == end_;
      set_row_tile(part, row_tile, to);
      return true;
    }
  }

  /// Sets which runs share a part's row tile, and the slots of its parts. With kFixed each unit has
  /// a slot. With kFill run r has slots 2 r and 2 r + 1: slot 2 r for the row tile that an earlier
  /// run began, slot 2 r + 1 for the row tile that run r begins and a later one ends.
  ATTILE_DEVICE void complete(SplitPart& part) const {
    if (splits_ == Splits::Kind::kNone) return;
    const int strands = p_.strands;
    const auto [run, strand] = p_.strands.divmod(part.run);
    int first_run = 0;  // of the strand's
    if (cuts_row_tiles_) {
      part.runs = p_.runs_per_row_tile;
      first_run = p_.runs_per_row_tile.divmod(run).quotient * part.runs;
    } else {
      first_run = cut_.run_of(part.first_unit);
      part.runs = cut_.run_of(part.first_unit + part.units - 1) - first_run + 1;
    }
    part.first_run = first_run * strands + strand;
    if (splits_ == Splits::Kind::kFixed) {
      part.parts = part.units;
      part.first_part_slot = part.first_unit * strands + strand;
      part.slot = part.first_part_slot + part.from * strands;
      part.second_part_slot = part.first_part_slot + strands;
      part.slot_step = strands;
    } else {
      part.parts = part.runs;
      part.slot = 2 * part.run + (part.from == 0 ? 1 : 0);
      part.first_part_slot = 2 * part.first_run + 1;
      part.second_part_slot = 2 * (part.first_run + strands);
      part.slot_step = 2 * strands;
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

  /// Cuts the units of a strand into runs, of which none is empty: a row tile's parts are counted
  /// by the runs from that of its first unit to that of its last one, and are merged when all of
  /// them have come.
  ATTILE_DEVICE void set_cut(int units) {
    // Of a strand, as runs_per_row_tile_of counts them.
    const int row_tiles = p_.batch * p_.strand_heads * p_.head_tiles;
    // With several runs of a row tile a block may have only one run: there are slots for one.
    cuts_row_tiles_ = are_alike_ && p_.runs_per_row_tile > 0 &&
                      units_per_row_tile_ >= p_.runs_per_row_tile &&
                      units == std::int64_t{row_tiles} * units_per_row_tile_ &&
                      (p_.runs_per_row_tile == 1 ||
                       row_tiles * p_.strands * p_.runs_per_row_tile <= arch::block_count());
    if (cuts_row_tiles_) {
      const auto each = p_.runs_per_row_tile.divmod(units_per_row_tile_);
      cut_.length = each.quotient;
      cut_.longer = each.remainder;
      runs_ = row_tiles * p_.runs_per_row_tile;
    } else {
      runs_ = min(max(p_.strands.divmod(arch::block_count()).quotient, 1), units);
      if (runs_ > 0) cut_ = EvenCut(units, runs_);
    }
  }
  /// Begins the run of that number; returns false where there is none.
  ATTILE_DEVICE bool set_run() {
    const int run = p_.strands.divmod(run_).quotient;
    if (run >= runs_) return false;
    const auto [row_tile, run_of_tile] =
        cuts_row_tiles_ ? p_.runs_per_row_tile.divmod(run) : FastDivmod::Result{0, run};
    unit_ = row_tile * units_per_row_tile_ + static_cast<int>(cut_.first(run_of_tile));
    end_ = row_tile * units_per_row_tile_ + static_cast<int>(cut_.first(run_of_tile + 1));
    return true;
  }
  /// Divides numbers that are not negative.
  ATTILE_DEVICE static int quotient(unsigned x, unsigned by) { return static_cast<int>(x / by); }

  /// Sets the head and the rows of a part, and the kv tiles of its units, up to `to` of the row
  /// tile's. `row_tile`: of the sequence and the strand.
  ATTILE_DEVICE void set_row_tile(SplitPart& part, int row_tile, int to) const {
    WorkTile& at = part.at;
    at.sequence = sequence_;
    at.extent = work_.extent;
    at.q_origin = work_.q_origin;
    at.kv_origin = work_.kv_origin;
    const int pack = work_.row_tiles == 1 ? row_tile : quotient(row_tile, work_.row_tiles);
    const int head = pack + p_.strands.divmod(run_).remainder;  // of those with their own row tiles
    at.head = head * p_.packed_heads;
    at.kv_head = p_.packed_heads == p_.group_heads ? head : quotient(at.head, p_.group_heads);
    part.packed_row0 = (row_tile - pack * work_.row_tiles) * Traits::kBr;
    part.rows = min(Traits::kBr, work_.extent.q_len * p_.packed_heads - part.packed_row0);
    at.row0 = p_.packed_heads.divmod(part.packed_row0).quotient;
    const int last_row = p_.packed_heads.divmod(part.packed_row0 + part.rows - 1).quotient;
    const int count = last_row - at.row0 + 1;
    if (by_bounds_) {  // not even the mask is asked, which may read device memory
      part.rows = 0;
      at.kv_tiles.last = 1;
      return;
    }
    const auto set_kv_tiles = [&](const TileRange& seen) {
      const auto kv_tile = [&](int unit) {
        return (work_.first_seen_unit + unit) * p_.kv_tiles_per_unit;
      };
      at.kv_tiles = seen.between(part.from == 0 ? 0 : kv_tile(part.from),
                                 to == part.units ? INT_MAX : kv_tile(to));
    };
    // What is brought into the level-2 cache may be more than what is seen.
    if (DecodeParams<Traits>::kMaskMayRead && warms_up_) {
      return set_kv_tiles(p_.all_keys(at.extent));
    }
    TileRange seen = p_.keys_seen(at, at.head, at.row0, count);
    at.first_key = p_.first_key_seen(at, at.head, at.row0, count);
    if constexpr (!kIgnoresHead<typename Traits::MaskType>) {
      ATTILE_UNROLL_BY(1)
      for (int i = 0; i < min(part.rows, int{p_.packed_heads}); ++i) {
        const int head = at.head + p_.packed_heads.divmod(part.packed_row0 + i).remainder;
        const TileRange of_head = p_.keys_seen(at, head, at.row0, count);
        seen = i == 0 ? of_head : hull(seen, of_head);
        const int first_key = p_.first_key_seen(at, head, at.row0, count);
        at.first_key = i == 0 ? first_key : min(at.first_key, first_key);
      }
    }
    set_kv_tiles(seen);
  }

  /// Returns whether lengths are those that the warm-up pass has read. The kernel before may have
  /// written them at any time, and several times: each warp compares the numbers that made its
  /// parts with those that `await_dependencies` makes visible, and all hear of a difference.
  /// Scope    all threads of the block.
  ATTILE_DEVICE bool are_lengths_unchanged() const {
    if constexpr (kAlike) return true;
    WorkTile at{.sequence = static_cast<int>(arch::thread_index() % arch::kWarpSize)};
    bool differs = false;
    if (at.sequence < p_.batch) {
      p_.read_lengths(at);
      differs = at.extent != early_.extent || p_.q_origin(at) != early_.q_origin ||
                p_.kv_origin(at) != early_.kv_origin;
    }
    return !any_thread<Traits>(differs);
  }

  /// Returns the sequences from `first` on, whose first unit has the number `before`.
  ATTILE_DEVICE Window read_window(int first, int before) const {
    Window window{.first = first};
    if constexpr (kAlike) return window;  // nobody looks at it
    const int sequence = first + arch::thread_index() % arch::kWarpSize;
    if (sequence < p_.batch) window.work = work_of(sequence);
    window.end = add(before, sum_to_lane(window.work.units));
    return window;
  }

  ATTILE_DEVICE SequenceWork work_of(int sequence) const {
    const bool is_early = warms_up_ && !Problem<Traits>::kUniform;  // that reads nothing
    return arch::read_early(is_early, [&] { return p_.work_of(sequence, by_bounds_); });
  }

  /// Moves on to the sequence that has a unit, or if no sequence of the window has it to the
  /// window's last one. Scope    all lanes of a warp.
  ATTILE_DEVICE void take(int unit, const Window& window) {
    const int lane = min(arch::first_lane(unit < window.end), arch::kWarpSize - 1);
    work_ = arch::shuffle_words(window.work, lane);
    sequence_ = window.first + lane;
    begin_ = arch::shuffle(window.end, lane) - work_.units;
  }
  /// Moves on to the sequence that has a unit. Units are asked for in rising order. Returns
  /// false where there is none, so that no access is out of bounds even if lengths change.
  ATTILE_DEVICE bool find(int unit) {
    if constexpr (kAlike) {
      sequence_ = unit / work_.units;
      begin_ = sequence_ * work_.units;
    } else {
      ATTILE_UNROLL_BY(1)
      while (unit >= begin_ + work_.units && sequence_ < p_.batch) {
        // A second read may see other lengths than the first: so keep_parts finds a difference.
        if (warms_up_) early_.extent.q_len = -1;
        take(unit, read_window(sequence_ + 1, begin_ + work_.units));
      }
    }
    return sequence_ < p_.batch;
  }

  /// Returns the units of all sequences, and sets whether all have as many, and as many in each
  /// row tile. Where that is known it sets work_, which is that of each. Scope    all threads of
  /// the block.
  ATTILE_DEVICE int count_units(const Window& window, unsigned char* shared) {
    if constexpr (kAlike) {
      work_ = work_of(0);
      units_per_row_tile_ = work_.units_per_row_tile;
      return p_.batch * work_.units;
    }
    units_per_row_tile_ = arch::shuffle(window.work.units_per_row_tile, 0);
    const int units = arch::shuffle(window.work.units, 0);
    const auto differs = [&](const SequenceWork& work) {
      return work.units_per_row_tile != units_per_row_tile_ || work.units != units;
    };
    const int thread = arch::thread_index();
    if (p_.batch <= arch::kWarpSize) {
      are_alike_ = !arch::any_lane(thread % arch::kWarpSize < p_.batch && differs(window.work));
      return arch::shuffle(window.end, arch::kWarpSize - 1);
    }
    int mine = 0;
    bool is_other = false;
    for (int sequence = thread; sequence < p_.batch; sequence += Traits::kThreads) {
      const SequenceWork work = work_of(sequence);
      mine = add(mine, work.units);
      is_other |= differs(work);
    }
    constexpr int kWarps = Traits::kThreads / arch::kWarpSize;
    int* const of_warp = reinterpret_cast<int*>(shared);
    const int of_lanes = sum_to_lane(mine);
    if (thread % arch::kWarpSize == arch::kWarpSize - 1) {
      of_warp[thread / arch::kWarpSize] = of_lanes;
    }
    // All warps have written their sums before they are read.
    are_alike_ = !any_thread<Traits>(is_other);
    int sum = 0;
    for (int warp = 0; warp < kWarps; ++warp) sum = add(sum, of_warp[warp]);
    arch::barrier();  // all have read them before the memory is used again
    return sum;
  }

  /// Returns the sum, or if that is less the most units that can be counted: offsets that decrease
  /// may give more.
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
  bool warms_up_ = false;
  bool by_bounds_ = false;  ///< in a warm-up pass that reads no device memory
  SequenceWork early_{};    ///< of the lane's sequence, in a warm-up pass
  Splits::Kind splits_{};
  bool are_alike_ = kAlike;      ///< whether all row tiles have as many units
  bool cuts_row_tiles_ = false;  ///< whether row tiles are cut by themselves, alike
  EvenCut cut_{};                ///< of a row tile's units then, else of all
  int units_per_row_tile_ = 0;   ///< the units of a row tile, where all are alike
  int runs_ = 0;                 ///< of a strand
  int run_ = 0;                  ///< the block's, of all
  int unit_ = 0, end_ = 0;       ///< what is left of the run
  int sequence_ = -1;            ///< the sequence whose units begin at begin_
  SequenceWork work_{};          ///< of that sequence
  int begin_ = 0;
};

}  // namespace attile
