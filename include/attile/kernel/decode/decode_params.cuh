// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/device.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/args.h>
#include <attile/core/check.h>
#include <attile/core/config.h>
#include <attile/core/fast_divmod.h>
#include <attile/core/index.h>
#include <attile/core/mask.h>
#include <attile/core/math.h>
#include <attile/core/schedule.h>
#include <attile/core/sequences.h>
#include <attile/core/splits.h>
#include <attile/core/status.h>
#include <attile/core/work_tile.h>
#include <attile/kernel/forward/forward_kernel.cuh>
#include <attile/kernel/problem/problem.cuh>

#include <climits>
#include <cstddef>
#include <cstdint>

namespace attile {

/// Holds what a decode kernel has to do for one sequence. Its rows are cut into row tiles, and the
/// kv tiles of each row tile into units: of one kv tile, or of a split (Splits::kFixed). All row
/// tiles of all heads have the same units, which are those that the sequence's rows see by the mask
/// of head 0. What a row tile sees ahead of them belongs to its first unit, and what it sees after
/// them to its last one; it may also see nothing of a unit. That costs balance, and nothing else.
struct SequenceWork {
  int row_tiles = 0;           ///< of each head
  int first_seen_unit = 0;     ///< counted from key 0 on
  int units_per_row_tile = 1;  ///< at least 1, so that rows without keys are written
  int units = 0;               ///< of all row tiles of a strand's heads (SplitSchedule)
  // As WorkTile has them.
  Extent extent{};
  RowOrigin q_origin{}, kv_origin{};
};

/// Holds the one argument of a decode kernel: the problem, how its keys are split, and the scratch
/// memory of the splits.
///
/// Row tiles have packed rows: those of all query heads that read a kv head, row i of every head
/// before row i + 1, so that packed row r is row r / packed_heads of head r % packed_heads. The
/// decisions of dropout belong to one head; with it every query head has row tiles of its own.
template <class Traits>
struct DecodeParams : Problem<Traits> {
  using Base = Problem<Traits>;
  using Args = typename Traits::Args;
  static constexpr int kBr = Traits::kBr;
  static constexpr int kBc = Traits::kBc;
  /// Is the most blocks of a grid. Scratch memory has a ticket for each at its beginning, whatever
  /// the arguments, so that a call never finds there what another one has left of a part.
  static constexpr int kMostBlocks = 4096;
  /// Is how many parts of a row tile are merged at a time.
  static constexpr int kPartsAtOnce = 8;
  /// Is the most units of a problem, so that two such numbers have a sum.
  static constexpr int kMostUnits = (1 << 30) - 1;

  Splits::Kind splits;
  FastDivmod kv_tiles_per_unit;  ///< kv tiles of a unit
  FastDivmod packed_heads;       ///< query heads that share row tiles
  FastDivmod strands;            ///< of which each has units of its own (SplitSchedule)
  int strand_heads;              ///< heads of a strand that have row tiles of their own
  int head_tiles;                ///< row tiles of a head with q_len rows
  FastDivmod runs_per_row_tile;  ///< where all are alike (SplitSchedule); 0: not so cut
  int part_rows;                 ///< packed rows that a part has room for in scratch memory
  int slots;                     ///< parts that scratch memory has room for
  /// Whether a warm-up pass reads lengths, which the kernel before may still write: its parts are
  /// those of the call then, unless lengths change or the mask may read device memory.
  int reads_early;
  /// Whether the grid has more blocks than the device has multiprocessors.
  int is_crowded;
  /// Whether a tile's loads begin when the one before it has arrived, and not when the one before
  /// that has been used. With more bytes in flight, some multiprocessors get more than others, and
  /// end early. With less, short parts take longer (bench/log/tuning-decode.md).
  int loads_late;
  /// For each run: how many blocks have ended their parts of the row tile that begins in the run
  /// and ends in a later one. 0 before and after each launch.
  int* tickets = nullptr;
  float* parts = nullptr;  ///< for each slot: m, l and O of a part of a row tile

  /// Takes arguments that passed `check_arguments`. `complete` says whether the kernel takes them.
  explicit DecodeParams(const Args& args)
      : Base(args),
        splits(args.splits.kind),
        kv_tiles_per_unit(tiles_of_unit(args)),
        packed_heads(heads_that_share(args)),
        strands(strands_of(args)),
        strand_heads(args.q_heads / packed_heads / strands),
        head_tiles(tiles_of_head(args)),
        runs_per_row_tile(runs_per_row_tile_of(args)),
        part_rows(rows_of_parts(args)),
        slots(slots_of(args)),
        reads_early(kMayReadEarly && may_read_early(args.sequences)),
        is_crowded(min(tile_count(args), most_blocks(args)) > arch::multiprocessors()),
        loads_late(may_load_late(args) && is_crowded) {}

  /// Whether a mask may read device memory: then it is not asked in a warm-up pass.
  static constexpr bool kMaskMayRead = !kReadsNothing<typename Base::MaskType>;
  /// Whether a warm-up pass may read lengths: what units there are, and which entries of page
  /// tables may be read, must not depend on such a mask.
  static constexpr bool kMayReadEarly =
      !kMaskMayRead || (!IntervalMask<typename Base::MaskType> && !Base::kPaged);
  /// Whether loads may be late: with two stages, of which one is in flight then, and of 16 bits,
  /// for which that has been measured.
  static constexpr bool kMayLoadLate =
      Traits::kStages == 2 && sizeof(typename Traits::ElementType) == 2 && !Fp8<typename Traits::K>;

  /// Returns the most blocks that have work. Where all row tiles may be alike it is their runs:
  /// more blocks than runs would leave it to chance which multiprocessors get two of these, unless
  /// there are runs for nearly all blocks. Where lengths differ, after all, each block has a run.
  static std::int64_t tile_count(const Args& args) {
    if (args.splits.kind == Splits::Kind::kNone) {
      return min<std::int64_t>(row_tile_bound(args), kMostBlocks);
    }
    const int each = runs_per_row_tile_of(args);
    const std::int64_t runs = tiles_of(args) * each, most = most_blocks(args);
    const bool is_for_all = each == 0 || runs >= most - most / 8;
    const std::int64_t units = unit_bound(args);
    return min(is_for_all ? units : min(units, runs), std::int64_t{kMostBlocks});
  }
  /// Returns the bytes of scratch memory of a call.
  static std::size_t workspace_bytes(const Args& args) {
    if (args.splits.kind == Splits::Kind::kNone) return 16;  // which is not used
    const std::int64_t floats = slots_of(args) * part_floats(rows_of_parts(args));
    return kTicketBytes + static_cast<std::size_t>(floats) * sizeof(float);
  }

  /// Takes the scratch memory of a call. Returns how many bytes of it the kernel wants to be made 0
  /// now: none, since `reset_workspace` did that once, and every launch leaves all tickets at 0.
  std::size_t use(void* workspace) {
    tickets = static_cast<int*>(workspace);
    parts = reinterpret_cast<float*>(static_cast<unsigned char*>(workspace) + kTicketBytes);
    return 0;
  }
  /// Says why this kernel does not take the arguments.
  [[nodiscard]] Check complete(const Args& args) {
    if (args.splits.kind == Splits::Kind::kFixed && args.splits.keys % kBc != 0) {
      return refuse(
          "splits.keys must be a multiple of the kernel's Bc: for default tiles any multiple of "
          "128 is one");
    }
    if (rows_of_head(args) > INT_MAX - kBr) {
      return refuse("q_len times the query heads of a kv head must be less than 2^31 - Br");
    }
    if (units_with(args, kv_tiles_per_unit) > kMostUnits) {
      return refuse("there are more than 2^30 parts of rows: decode is for few rows of queries");
    }
    return {};
  }

  /// Is how many times four columns of a row's O a thread merges. With eight columns it weighs a
  /// state half as often, and a block of four warps has eight rows of 128 columns at once: all this
  /// is on the way of a short call. Above 128 columns there are no registers for it.
  static constexpr int kOutputQuads = Traits::kDv <= 128 ? 2 : 1;
  static constexpr int kOutputColumns = round_up(Traits::kDv, 4 * kOutputQuads);
  /// Returns the memory of a part: m and l of part_rows rows, and their O.
  ATTILE_DEVICE float* part(int slot) const { return parts + slot * part_floats(part_rows); }

  /// Whether all sequences have the same units: where all have the same lengths, and what rows are
  /// expected to see does not depend on the sequence.
  static constexpr bool kAlike = Base::kUniform && (!IntervalMask<typename Base::MaskType> ||
                                                    kIgnoresBatch<typename Base::MaskType>);
  /// Says whether the parts of a warm-up pass may be those of the call (SplitSchedule::keep_parts):
  /// all warps say the same. Of packed queries, lengths and offsets may be of different times.
  ATTILE_DEVICE bool may_keep_parts() const {
    return !kMaskMayRead && !Base::kPackedQueries &&
           (kAlike || this->batch <= static_cast<int>(arch::kWarpSize)) && reads_early != 0;
  }
  /// Returns the kv tiles of all keys.
  ATTILE_DEVICE static TileRange all_keys(const Extent& lengths) {
    return {0, 0, 0, ceil_div(lengths.kv_len, kBc)};
  }
  /// Returns what there is to do for a sequence. `by_bounds`: as if it had one row and all keys,
  /// so that no device memory is read.
  ATTILE_DEVICE SequenceWork work_of(int sequence, bool by_bounds) const {
    WorkTile at{.sequence = sequence};
    at.extent = this->bounds;
    if (!by_bounds) this->read_lengths(at);
    SequenceWork work{.extent = this->extent(at),
                      .q_origin = this->q_origin(at),
                      .kv_origin = this->kv_origin(at)};
    if (work.extent.q_len <= 0) return work;
    if (by_bounds) work.extent.q_len = 1;  // a bound of rows may be far above what there is
    work.row_tiles = ceil_div(work.extent.q_len * packed_heads, kBr);
    const TileRange seen = by_bounds ? all_keys(work.extent) : expected_keys(at, work.extent);
    work.first_seen_unit = kv_tiles_per_unit.divmod(seen.first).quotient;
    const auto last = kv_tiles_per_unit.divmod(seen.last);
    work.units_per_row_tile =
        max(last.quotient + (last.remainder > 0 ? 1 : 0) - work.first_seen_unit, 1);
    // The bound of keys may be above what the host made units for.
    const std::int64_t units =
        std::int64_t{strand_heads} * work.row_tiles * work.units_per_row_tile;
    work.units = static_cast<int>(min<std::int64_t>(units, kMostUnits));
    return work;
  }

 private:
  static constexpr std::size_t kTicketBytes = kMostBlocks * sizeof(int);

  ATTILE_HOST_DEVICE static constexpr std::int64_t part_floats(int rows) {
    return std::int64_t{rows} * (kOutputColumns + 2);
  }
  /// Returns the kv tiles that the rows of a sequence are expected to see. Of masks that are no
  /// intervals nothing is read: all keys.
  ATTILE_DEVICE TileRange expected_keys(const WorkTile& at, const Extent& lengths) const {
    if constexpr (IntervalMask<typename Base::MaskType>) {
      return this->keys_seen(at, 0, 0, lengths.q_len);
    } else {
      return all_keys(lengths);
    }
  }

  /// Returns whether long parts are what blocks have: those of fixed splits are short, and of few
  /// row tiles each has many.
  static bool may_load_late(const Args& args) {
    return kMayLoadLate && args.splits.kind != Splits::Kind::kFixed &&
           4 * tiles_of(args) >= most_blocks(args);
  }
  static int heads_that_share(const Args& args) {
    return Traits::kPacksHeads ? args.q_heads / args.kv_heads : 1;
  }
  /// Returns the packed rows of a head with q_len rows, and their tiles.
  static std::int64_t rows_of_head(const Args& args) {
    return std::int64_t{longest_lengths(args).q_len} * heads_that_share(args);
  }
  static int tiles_of_head(const Args& args) {
    return static_cast<int>(ceil_div(rows_of_head(args), std::int64_t{kBr}));
  }
  /// Returns the most blocks at a time.
  static std::int64_t most_blocks(const Args& args) {
    const int blocks = min(arch::multiprocessors() * Traits::kBlocksPerSm, kMostBlocks);
    return args.max_blocks > 0 ? min(blocks, args.max_blocks) : blocks;
  }
  /// Returns how many strands there are: one for each head that has row tiles of its own, if these
  /// divide the blocks with at most an eighth left over.
  static int strands_of(const Args& args) {
    const std::int64_t blocks = most_blocks(args), heads = args.q_heads / heads_that_share(args);
    const bool divide = 0 < heads && heads <= blocks && blocks % heads <= blocks / 8;
    return divide ? static_cast<int>(heads) : 1;
  }
  /// Returns the row tiles of all heads and sequences where each has q_len rows.
  static std::int64_t tiles_of(const Args& args) {
    return std::int64_t{args.batch} * (args.q_heads / heads_that_share(args)) * tiles_of_head(args);
  }
  /// Returns runs_per_row_tile: 1 with kNone, 0 with kFixed. With kFill it is the runs of a row
  /// tile that give each multiprocessor kBlocksPerSm runs, of which one computes while the keys of
  /// others arrive; 0 if these leave more than an eighth of the blocks without work. It is 1 where
  /// row tiles are more than blocks, and never more than leave a run a tile for each stage. Where
  /// loads may be late, blocks take equally long: then it is 0 if one row tile for each block and
  /// round would leave 1/64 of the blocks without work.
  static int runs_per_row_tile_of(const Args& args) {
    const std::int64_t tiles = tiles_of(args);
    if (args.splits.kind == Splits::Kind::kFixed || tiles == 0 || tiles > kMostUnits) return 0;
    if (args.splits.kind == Splits::Kind::kNone) return 1;
    // The first tiles of a run, one for each stage, arrive together.
    const int units = max(ceil_div(longest_lengths(args).kv_len, kBc * Traits::kStages), 1);
    const std::int64_t most = most_blocks(args);
    const std::int64_t rounds = ceil_div(tiles, most);
    if (kMayLoadLate && rounds > 1) return 64 * (rounds * most - tiles) > rounds * most ? 0 : 1;
    const std::int64_t each = rounds > 1 ? 1 : min<std::int64_t>(most / tiles, units);
    if (rounds == 1 && each == units) return units;
    return rounds * most - each * tiles <= rounds * most / 8 ? static_cast<int>(each) : 0;
  }
  /// Returns part_rows. It is even, so that O after m and l is aligned to 16 bytes.
  static int rows_of_parts(const Args& args) {
    return static_cast<int>(round_up(min<std::int64_t>(kBr, rows_of_head(args)), std::int64_t{2}));
  }
  /// Returns the most row tiles of all heads. Where sequences are packed, each may cut its last row
  /// tile.
  static std::int64_t row_tile_bound(const Args& args) {
    const std::int64_t packed = heads_that_share(args);
    const RowShape shape = args.sequences.q_shape(args.batch, args.q_len);
    const bool are_packed = kIsPackedAlong<typename Base::SequencesType, Axis::kRows>;
    const std::int64_t rows = (are_packed ? std::int64_t{shape.batches} : 1) * shape.rows;
    const std::int64_t tiles = ceil_div(rows * packed, std::int64_t{kBr});
    const std::int64_t of_head = are_packed ? tiles + args.batch : args.batch * tiles;
    return of_head * (args.q_heads / packed);
  }
  /// Returns the most units where each has so many kv tiles.
  static std::int64_t units_with(const Args& args, int tiles) {
    const int kv_tiles = ceil_div(longest_lengths(args).kv_len, kBc);
    return row_tile_bound(args) * max(ceil_div(kv_tiles, tiles), 1);
  }
  static std::int64_t unit_bound(const Args& args) { return units_with(args, tiles_of_unit(args)); }
  /// Returns kv_tiles_per_unit: as few as the splits allow, and as many as keep the units
  /// countable.
  static int tiles_of_unit(const Args& args) {
    if (args.splits.kind == Splits::Kind::kFixed) return max(args.splits.keys / kBc, 1);
    int tiles = 1;
    while (tiles < kMostUnits / 2 && units_with(args, tiles) > kMostUnits) tiles *= 2;
    return tiles;
  }
  /// Returns the parts that scratch memory has room for. With kFill a block has at most two of
  /// split row tiles (SplitSchedule::complete).
  static int slots_of(const Args& args) {
    switch (args.splits.kind) {
      case Splits::Kind::kFill:
        return static_cast<int>(2 * min(unit_bound(args), most_blocks(args)));
      case Splits::Kind::kFixed:
        return static_cast<int>(min<std::int64_t>(unit_bound(args), kMostUnits));
      default:
        return 0;
    }
  }
};

}  // namespace attile
