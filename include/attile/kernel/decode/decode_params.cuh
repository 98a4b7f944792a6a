// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/device.cuh>
#include <attile/core/args.h>
#include <attile/core/check.h>
#include <attile/core/config.h>
#include <attile/core/math.h>
#include <attile/core/schedule.h>
#include <attile/core/splits.h>
#include <attile/core/status.h>
#include <attile/core/tile_slots.h>
#include <attile/kernel/forward/forward_kernel.cuh>
#include <attile/kernel/problem/problem.cuh>
#include <attile/kernel/problem/work_tile.h>

#include <climits>
#include <cstddef>
#include <cstdint>

namespace attile {

/// Holds what a decode kernel has to do for one sequence. Its rows are cut into row tiles, and the
/// kv tiles of each row tile into units: of one kv tile, or of a split (Splits::kFixed). All row
/// tiles of all heads have the same units, which are those that the sequence's rows are expected to
/// see; what a row tile sees beyond them belongs to its first and to its last unit.
struct SequenceWork {
  int row_tiles = 0;       ///< of each head
  int first_unit = 0;      ///< counted from key 0 on
  int units_of_tile = 0;   ///< of each row tile: at least 1, so that rows without keys are written
  std::int64_t units = 0;  ///< of all row tiles of all heads
};

/// Holds the one argument of a decode kernel: the problem, how its keys are split, and the scratch
/// memory of the splits.
///
/// Rows are packed: all query heads that read a kv head share row tiles, row i of every head before
/// row i + 1. The decisions of dropout belong to one head; with it every query head has row tiles
/// of its own.
template <class Traits>
struct DecodeParams : Problem<Traits> {
  using Base = Problem<Traits>;
  using Args = typename Traits::Args;
  static constexpr int kBr = Traits::kBr;
  static constexpr int kBc = Traits::kBc;

  Splits::Kind splits;
  int unit_tiles;            ///< kv tiles of a unit
  int packed_heads;          ///< query heads that share row tiles
  int row_heads;             ///< heads that have row tiles of their own: q_heads / packed_heads
  int part_rows;             ///< rows of a part that scratch memory has room for
  float* scratch = nullptr;  ///< has a slot for each part, and tickets (see `ticket`)

  /// Takes arguments that passed `check_arguments`; `complete` does the rest.
  explicit DecodeParams(const Args& args)
      : Base(args),
        splits(args.splits.kind),
        unit_tiles(splits == Splits::Kind::kFixed ? max(args.splits.keys / kBc, 1) : 1),
        packed_heads(heads_that_share(args)),
        row_heads(args.q_heads / packed_heads),
        part_rows(rows_of_parts(args)) {}

  /// Returns the most blocks that have work.
  static std::int64_t tile_count(const Args& args) {
    return args.splits.kind == Splits::Kind::kNone ? row_tile_bound(args) : unit_bound(args);
  }
  /// Returns the bytes of scratch memory of a call.
  static std::size_t workspace_bytes(const Args& args) {
    const std::int64_t slots = slots_of(args);
    const std::int64_t floats = slots * part_floats(rows_of_parts(args));
    const std::int64_t lines = max(ceil_div(slots, std::int64_t{kLineTickets}),
                                   ceil_div(floats, std::int64_t{kLineFloats - kLineTickets}));
    return max<std::size_t>(lines * kLineFloats * sizeof(float), 16);
  }

  /// Takes the scratch memory of a call. Returns how many bytes of it the kernel wants to be 0:
  /// none, since every launch leaves the tickets at 0.
  std::size_t use(void* workspace) {
    scratch = static_cast<float*>(workspace);
    return 0;
  }
  /// Says why this kernel does not take the arguments.
  [[nodiscard]] Check complete(const Args& args) {
    if (args.splits.kind == Splits::Kind::kFixed && args.splits.keys % kBc != 0) {
      return refuse("splits.keys must be a multiple of the kernel's Bc");
    }
    if (std::int64_t{args.q_len} * packed_heads > INT_MAX - kBr) {
      return refuse("q_len times the query heads of a kv head must be below 2^31");
    }
    return {};
  }

  /// Returns the floats of a part in scratch memory: m and l of its rows, and O.
  static constexpr int kOutputColumns = round_up(Traits::kDv, 4);
  ATTILE_HOST_DEVICE static constexpr std::int64_t part_floats(int rows) {
    return std::int64_t{rows} * (kOutputColumns + 2);
  }
  /// Returns where float `offset` of a part lies: m of its rows, then l, then O. Four neighbours
  /// from a multiple of 4 on are neighbours there, too.
  ATTILE_DEVICE float* part(std::int64_t slot, int offset) const {
    const std::int64_t number = slot * part_floats(part_rows) + offset;
    const std::int64_t line = number / (kLineFloats - kLineTickets);
    return scratch + number + (line + 1) * kLineTickets;
  }
  /// Returns the ticket of a slot: how many parts of the row tile whose first part has the slot are
  /// complete.
  ATTILE_DEVICE int* ticket(std::int64_t slot) const {
    return reinterpret_cast<int*>(scratch) + slot / kLineTickets * kLineFloats +
           slot % kLineTickets;
  }

  /// Returns what there is to do for a sequence.
  ATTILE_DEVICE SequenceWork work_of(int sequence) const {
    WorkTile at{.sequence = sequence};
    this->read_lengths(at);
    const Extent lengths = this->extent(at);
    if (lengths.q_len <= 0) return {};
    SequenceWork work;
    const std::int64_t rows = std::int64_t{lengths.q_len} * packed_heads;
    work.row_tiles = static_cast<int>(ceil_div(rows, std::int64_t{kBr}));
    const TileRange seen = expected_keys(at, lengths);
    work.first_unit = seen.first / unit_tiles;
    work.units_of_tile = max(ceil_div(seen.last, unit_tiles) - work.first_unit, 1);
    work.units = std::int64_t{row_heads} * work.row_tiles * work.units_of_tile;
    return work;
  }

 private:
  /// Scratch memory is cut into lines, whose first words are tickets. So where tickets lie does not
  /// depend on the arguments, and no call leaves a part where another one has a ticket.
  static constexpr int kLineFloats = 256;
  static constexpr int kLineTickets = 4;

  /// Returns the kv tiles that the rows of a sequence are expected to see. They only say how to cut
  /// the work: of masks that are no intervals, nothing is read.
  ATTILE_DEVICE TileRange expected_keys(const WorkTile& at, const Extent& lengths) const {
    if constexpr (IntervalMask<typename Base::MaskType>) {
      return this->keys_seen(at, 0, 0, lengths.q_len);
    } else {
      return {0, 0, 0, ceil_div(lengths.kv_len, kBc)};
    }
  }

  static int heads_that_share(const Args& args) {
    return Traits::kPacksHeads ? args.q_heads / args.kv_heads : 1;
  }
  /// Even, so that O behind m and l is aligned to 16 bytes.
  static int rows_of_parts(const Args& args) {
    const std::int64_t rows = std::int64_t{longest_lengths(args).q_len} * heads_that_share(args);
    return static_cast<int>(round_up(min<std::int64_t>(kBr, rows), std::int64_t{2}));
  }
  /// Returns the most row tiles of all heads. Of each sequence of one batch the last one may be
  /// cut.
  static std::int64_t row_tile_bound(const Args& args) {
    const std::int64_t packed = heads_that_share(args);
    const RowShape shape = args.sequences.q_shape(args.batch, args.q_len);
    const std::int64_t tiles = ceil_div(shape.rows * packed, std::int64_t{kBr});
    const bool share_a_batch = kIsPackedAlong<typename Base::SequencesType, Axis::kRows>;
    const std::int64_t of_head = share_a_batch ? tiles + args.batch : args.batch * tiles;
    return of_head * (args.q_heads / packed);
  }
  static std::int64_t unit_bound(const Args& args) {
    const int keys = args.splits.kind == Splits::Kind::kFixed ? max(args.splits.keys, kBc) : kBc;
    return row_tile_bound(args) * max(ceil_div(args.kv_len, keys), 1);
  }
  static std::int64_t slots_of(const Args& args) {
    switch (args.splits.kind) {
      case Splits::Kind::kFill:
        return 2 * forward_block_count<Traits>(args);
      case Splits::Kind::kFixed:
        return unit_bound(args);
      default:
        return 0;
    }
  }
};

}  // namespace attile
