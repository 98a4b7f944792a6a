// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/atomic.cuh>
#include <attile/arch/math.h>
#include <attile/arch/mbarrier.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/index.h>
#include <attile/core/math.h>
#include <attile/core/schedule.h>
#include <attile/core/work_tile.h>
#include <attile/kernel/sm90/forward_memory.cuh>
#include <attile/kernel/sm90/forward_params.cuh>
#include <attile/kernel/sm90/forward_schedule.cuh>

#include <climits>
#include <cstdint>
#include <type_traits>

// How the producer threads of the forward kernel get the block's work tiles. Without kHasScheduler
// each thread works them out by a StaticSchedule of its own. With it, which is where sequences have
// lengths of their own and with Tuning's kCounts, one warp, the scheduler, reads in device memory
// what lengths and masks say, and writes the work tiles to a place in shared memory, where those
// that load K, V and Q read them:
//
//   run_scheduler, one warp                        ScheduleReader, kScheduleReaders threads
//     waits for the readers (empty)                   waits until the tile is there (full)
//     takes the number of the next work tile          copies it
//     writes the tile, and says so (full)             allows the next one to be made (empty)
//
// After the block's last work tile comes one whose sequence is below 0. Lanes that load Q allow the
// next work tile as soon as they have read one. The threads that load K and V allow it when only as
// many tiles of K and V of this one are left to load as the pipeline has stages: early enough to
// hide the wait for the counter, and late enough that a slow block does not hold work which others
// could begin. They must allow it before they wait for the stage of this work tile's last V: a
// consumer may hold the V in that stage while it waits for the next Q (docs/deadlock.md, rule 4).
// The scheduler is one warp, and what it computes for a work tile is short (WaveDivision): where
// tiles are short, consumers wait for it (bench/log/tuning-sequences.md).
// With teams, and with kWords, the scheduler is the warp that loads Q, which reads no tile
// (load_q_of_team). The lanes that write words allow the next tile with one team as those that load
// Q do, and with two as load_kv does, whose lanes they are.

namespace attile::sm90 {

/// Takes the next number from a counter in device memory, for all lanes.
/// Scope    all lanes of a warp.
ATTILE_DEVICE int take_number(int* counter) {
  const bool takes = arch::thread_index() % arch::kWarpSize == 0;
  return arch::uniform(takes ? arch::fetch_add(counter, 1) : 0);
}

/// Returns how many blocks, or their teams, share the work tiles.
template <class Traits>
ATTILE_DEVICE int sharing_blocks() {
  return arch::block_count() * Traits::kTeams;
}

/// Is 1 / x, off by one unit in the last place at most.
struct MachineReciprocal {
  ATTILE_DEVICE float operator()(float x) const { return arch::reciprocal(x); }
};
/// Divides the numbers of a few waves of work tiles.
using WaveDivision = SmallDivision<MachineReciprocal>;

/// Makes a block's work tiles, one after another, where sequences have lengths of their own. Work
/// tiles are numbered through the problem, 32 sequences at a time, one a lane, of which those with
/// most tiles begin, or run by run (item_of_run): their order changes no result. A block's numbers
/// rise, so that it goes through the sequences once. The first one is the block's own, or its
/// team's: so no block gets two work tiles while another one gets none. The others come from a
/// counter in device memory, so that blocks end together. Without a counter, as where the caller
/// has brought no scratch memory or each block has one tile, they follow from the index of the
/// block (`snake`). Scope    all lanes of a warp, for all functions.
template <class Traits>
class DynamicSchedule {
  static constexpr int kRows = Traits::kConsumers * kWarpgroupRows;
  /// Whether sequences share sections: where tiles of rows see more or fewer keys, and these are
  /// not many more than the rows, as those of a cache are.
  static constexpr bool kHasRuns =
      !kRowsAlike<typename Traits::MaskType> && !kIsForwardOnly<typename Traits::SequencesType>;

 public:
  ATTILE_DEVICE DynamicSchedule(const TmaForwardParams<Traits>& p, int block,
                                const ForwardMemory<Traits>& smem)
      : p_(p), smem_(smem), numbers_{block, 0} {
    if constexpr (Traits::kKeepsNumbers) {
      if (is_first_lane()) smem.schedule_numbers() = {block, 0};
    }
  }

  /// Goes on to the block's next number. Returns whether it may be that of a work tile.
  ATTILE_DEVICE bool next() {
    int number = 0;
    if constexpr (Traits::kKeepsNumbers) {
      if (is_first_lane()) number = number_of(smem_.schedule_numbers());
    } else {
      if (is_first_lane()) number = number_of(numbers_);
      ++numbers_.tiles;
    }
    number_ = arch::uniform(number);
    return number_ < p_.scheduler.items;
  }
  /// Returns its work tile; if there is none, one whose sequence is below 0. The origins are read
  /// last: by then few registers hold anything else.
  ATTILE_DEVICE WorkTile tile() {
    WorkTile at{.sequence = -1};
    if (!enter(at, static_cast<unsigned>(number_))) return at;
    at.kv_tiles = p_.tiles_seen(at, at.row0, kRows);
    const int first = max(at.row0, 0);
    at.first_key = p_.first_key_seen(at, at.head, first, at.row0 + kRows - first);
    p_.read_origins(at);
    return at;
  }

 private:
  ATTILE_DEVICE static bool is_first_lane() { return arch::thread_index() % arch::kWarpSize == 0; }
  ATTILE_DEVICE static int blocks() { return sharing_blocks<Traits>(); }
  /// Returns how many of them are one wave. Without kPersistent there is a block for each tile; the
  /// bound keeps numbers of 32 sequences with fewer tiles each where WaveDivision is right.
  ATTILE_DEVICE static int blocks_of_wave() {
    return min(blocks(), kLargestSmall / arch::kWarpSize);
  }
  /// Returns that number to the first lane. `own`: the block's index, and how many tiles it has
  /// had.
  ATTILE_DEVICE int number_of(const ScheduleNumbers& own) const {
    int* const counter = p_.scheduler.counter;
    if (own.tiles == 0) return own.team;
    if (counter != nullptr) return blocks() + arch::fetch_add(counter, 1);
    return static_cast<int>(min<std::int64_t>(snake(own.team, blocks(), own.tiles), INT_MAX));
  }
  /// Goes to the work tile with a number, which is not below the one before. Returns whether there
  /// is one.
  ATTILE_DEVICE bool enter(WorkTile& at, unsigned number) {
    int found = lane_of(number);
    for (; found == arch::kWarpSize; found = lane_of(number)) {
      first_ += arch::kWarpSize;
      if (first_ >= p_.batch) return false;
      count_tiles();
    }
    const int q_tiles = arch::shuffle(q_tiles_, found);
    WorkItem item{static_cast<int>(number) - begin_of_lane(found), 0};
    at.sequence = first_ + found;
    const bool is_small = q_tiles * p_.q_heads < blocks_of_wave();
    if (kHasRuns && q_tiles > 1 && is_small) {
      item = item_of_run(at, static_cast<int>(number), q_tiles);
    } else {
      p_.read_extent(at);
      if (q_tiles > 1 && is_small) {
        item = item_of_sequence(at.extent, item.batch_head, q_tiles, WaveDivision());
      } else if (q_tiles > 1) {
        item = item_of_sequence(at.extent, item.batch_head, q_tiles, Division());
      }
    }
    at.head = item.batch_head;
    at.kv_head = p_.scheduler.group_heads.divmod(at.head).quotient;
    at.row0 = item.q_tile * kRows;
    if (p_.kHasLead) at.row0 -= lead_rows(at.extent.q_len, kRows, kWarpgroupRows);
    return true;
  }
  /// Returns the n-th of the work tiles of a sequence that has `q_tiles` a head.
  template <class Divide>
  ATTILE_DEVICE WorkItem item_of_sequence(Extent lengths, int n, int q_tiles,
                                          const Divide& by) const {
    const int fit = min(by.quotient(p_.scheduler.l2_keys, max(lengths.kv_len, 1)), p_.kv_heads);
    const int sharing = kRowsAlike<typename Traits::MaskType> ? 0 : p_.group_heads;
    const auto sections = Sections::fitting(max(fit, 1) * p_.group_heads, q_tiles, sharing,
                                            p_.q_heads, blocks_of_wave());
    return GrowingItems(0, 1, q_tiles, p_.q_heads, sections).item(n, by);
  }
  /// Returns the head, and its tile, of a number, and goes to its sequence. Sequences that have
  /// equally many work tiles, fewer than there are blocks, are a run: they go in the order of the
  /// batch heads of a dense problem. Else the longest tiles of the last sequence would begin late,
  /// and few blocks would compute them while the others have nothing to do.
  ATTILE_DEVICE WorkItem item_of_run(WorkTile& at, int number, int q_tiles) const {
    const bool is_same = q_tiles_ == q_tiles;
    const int run_begin = begin_of_lane(arch::first_lane(is_same));
    const int heads = arch::count_lanes(is_same) * p_.q_heads;
    constexpr WaveDivision kBy;
    const auto sections = Sections::counted(q_tiles, p_.group_heads, heads, blocks_of_wave(), kBy);
    WorkItem item = GrowingItems(0, 1, q_tiles, heads, sections).item(number - run_begin, kBy);
    const int before = kBy.quotient(item.batch_head, p_.q_heads);
    item.batch_head -= before * p_.q_heads;
    const auto begin = static_cast<unsigned>(run_begin + before * (q_tiles * p_.q_heads));
    at.sequence = first_ + arch::first_lane(is_same && begin_ == begin);
    p_.read_extent(at);
    return item;
  }
  /// Counts the work tiles of the sequences from first_ on, and puts those that have most first: so
  /// blocks end with the shortest tiles. Where offsets in device memory decrease they may be more
  /// than a number can say: then the last ones have none.
  ATTILE_DEVICE void count_tiles() {
    const int lane = arch::thread_index() % arch::kWarpSize;
    const int sequence = first_ + lane;
    int rows = 0;
    if (0 <= sequence && sequence < p_.batch) {
      rows = p_.policies.sequences.extent(sequence, p_.bounds).q_len;
    }
    unsigned past = begin_ + q_tiles_ * p_.q_heads;  // the number behind those before
    ATTILE_UNROLL
    for (int step = 1; step < arch::kWarpSize; step *= 2) {
      past = max(past, arch::shuffle_xor(past, step));
    }
    q_tiles_ = ceil_div(rows, kRows);
    int before = lane * q_tiles_;  // tiles of a head; as far as all have equally many
    if (arch::any_lane(q_tiles_ != arch::shuffle(q_tiles_, 0))) {
      const int rank = q_tiles_ * arch::kWarpSize - lane;
      before = 0;
      ATTILE_UNROLL_BY(4)
      for (int other = 0; other < arch::kWarpSize; ++other) {
        const int tiles = arch::shuffle(q_tiles_, other);
        if (tiles * arch::kWarpSize - other > rank) before += tiles;
      }
    }
    const std::int64_t begin = past + std::int64_t{before} * p_.q_heads;
    begin_ = static_cast<unsigned>(min<std::int64_t>(begin, INT_MAX));
  }

  /// Returns the lane of whose sequence's work tiles one has a number; kWarpSize: none.
  ATTILE_DEVICE int lane_of(unsigned number) const {
    return arch::first_lane(number - begin_ < static_cast<unsigned>(q_tiles_ * p_.q_heads));
  }
  /// Returns the number of the first work tile of a lane's sequence.
  ATTILE_DEVICE int begin_of_lane(int lane) const {
    return arch::shuffle(static_cast<int>(begin_), lane);
  }

  const TmaForwardParams<Traits>& p_;
  const ForwardMemory<Traits>& smem_;
  ScheduleNumbers numbers_;  // without kKeepsNumbers
  int number_ = 0;
  // Of the 32 sequences, one a lane, of which the first ones may be missing: so the last are 32.
  int first_ = (p_.batch - 1) % arch::kWarpSize + 1 - 2 * arch::kWarpSize;
  unsigned begin_ = 0;  // the number of the first work tile of this lane's
  int q_tiles_ = 0;     // which it has in each head
};

/// Makes a block's work tiles with kHasScheduler where all sequences have the same lengths: those
/// of StaticSchedule, in the order of `sections`, but by the counter, so that blocks end together
/// however many keys tiles of rows see. Without scratch memory they are those of StaticSchedule.
/// With teams the first one is that of StaticSchedule, too: so no block gets two while another one
/// gets none. With kSparesProducer those that are not counted are a grid apart.
/// Scope    all lanes of a warp, for all functions.
template <class Traits>
class CountedSchedule {
 public:
  ATTILE_DEVICE CountedSchedule(const TmaForwardParams<Traits>& p, int block,
                                const ForwardMemory<Traits>& /*smem*/)
      : p_(p), own_(p, block) {}

  /// Goes on to the block's next work tile. Returns whether there is one.
  ATTILE_DEVICE bool next() {
    int* const counter = p_.scheduler.counter;
    constexpr bool kFirstByIndex = Traits::kTeams > 1;
    if (counter != nullptr && !(kFirstByIndex && number_ < 0)) {
      const int before = kFirstByIndex ? sharing_blocks<Traits>() : 0;
      number_ = before + take_number(counter);
    } else if constexpr (Traits::kSparesProducer) {
      const std::int64_t next =
          number_ < 0 ? own_.number() : std::int64_t{number_} + sharing_blocks<Traits>();
      number_ = static_cast<int>(min<std::int64_t>(next, p_.scheduler.items));
    } else {
      number_ = static_cast<int>(min<std::int64_t>(own_.number(), p_.scheduler.items));
      own_.next();
    }
    return number_ < p_.scheduler.items;
  }
  ATTILE_DEVICE WorkTile tile() const { return own_.numbered_tile(number_); }

 private:
  const TmaForwardParams<Traits>& p_;
  StaticSchedule<Traits> own_;
  int number_ = -1;
};

/// Reads the work tiles that `run_scheduler` makes, as StaticSchedule gives them.
/// Scope    one thread of kScheduleReaders. `lanes` are the lanes of its warp that read, too.
/// Hazards  all lanes that load Q read a tile from the same address, so the compiler takes its head
///          for the same in all of them and keeps it in one register of the warp, from which TMA
///          takes it. That is right only where they read the same tile: they wait for each other.
template <class Traits>
class ScheduleReader {
 public:
  ATTILE_DEVICE ScheduleReader(const ForwardMemory<Traits>& smem, unsigned lanes)
      : smem_(smem), lanes_(lanes) {
    next();
  }
  ATTILE_DEVICE bool more() const { return tile_.sequence >= 0; }
  ATTILE_DEVICE void next() {
    arch::mbarrier_wait(smem_.work_tile_full(), parity_);  // the tile is written
    arch::warp_barrier(lanes_);                            // no lane is ahead of another one
    tile_ = smem_.work_tile();
    parity_ ^= 1;
  }
  ATTILE_DEVICE const WorkTile& tile() const { return tile_; }
  /// Allows the scheduler to make the next tile: once for each tile, before `next`.
  ATTILE_DEVICE void allow_next() const { arch::mbarrier_arrive(smem_.work_tile_empty()); }

 private:
  const ForwardMemory<Traits>& smem_;
  unsigned lanes_;
  WorkTile tile_;
  int parity_ = 0;
};

/// Writes the block's work tiles for the others, with kHasScheduler. One lane calls made(at) with
/// each of them, and with what follows the last one. `number`: how often it has done so, for
/// Uniform sequences with kSparesProducer. Scope    all lanes of a warp.
template <class Traits, class F>
ATTILE_DEVICE void run_scheduler(const TmaForwardParams<Traits>& p, int block,
                                 const ForwardMemory<Traits>& smem, const F& made,
                                 [[maybe_unused]] const int& number = 0) {
  using Schedule = std::conditional_t<Traits::SequencesType::kUniform, CountedSchedule<Traits>,
                                      DynamicSchedule<Traits>>;
  Schedule tiles(p, block, smem);
  const bool writes = arch::thread_index() % arch::kWarpSize == 0;
  bool more = true;
  // With parity 1 the first wait returns at once.
  for (int parity = 1; more; parity ^= 1) {
    if constexpr (Traits::kSparesProducer && !Traits::kKeepsNumbers) parity = ~number & 1;
    if (writes) {
      if constexpr (Traits::kKeepsNumbers) parity = ~smem.schedule_numbers().tiles & 1;
      arch::mbarrier_wait(smem.work_tile_empty(), parity);  // readers allow the next one
    }
    more = tiles.next();
    WorkTile at{.sequence = -1};
    if (more) at = tiles.tile();
    if constexpr (!Traits::SequencesType::kUniform) more = at.sequence >= 0;
    if constexpr (Traits::kReadsTilesLate) {
      if (more) at.kv_tiles = p.uncut_keys(at);
    }
    if (writes) {
      smem.work_tile() = at;
      arch::mbarrier_arrive(smem.work_tile_full());
      made(smem.work_tile());
    }
  }
}

/// Returns what gives a producer thread the block's work tiles. The `readers` first lanes of its
/// warp get them.
template <class Traits>
ATTILE_DEVICE auto schedule_of_thread(const TmaForwardParams<Traits>& p, int block,
                                      const ForwardMemory<Traits>& smem, int readers) {
  if constexpr (Traits::kHasScheduler) {
    return ScheduleReader<Traits>(smem, arch::kAllLanes >> (arch::kWarpSize - readers));
  } else {
    return StaticSchedule<Traits>(p, block);
  }
}

}  // namespace attile::sm90
