// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/math.h>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/schedule.h>
#include <attile/core/work_tile.h>
#include <attile/kernel/sm90/forward_params.cuh>
#include <attile/tile/scores.cuh>

#include <cstdint>
#include <type_traits>

namespace attile::sm90 {

/// Gives a block its work tiles, one after another, without kHasScheduler: which ones follows from
/// the index of the block and the sizes of the problem alone (EvenItems, GrowingItems in
/// core/schedule.h). A tile's kv_tiles reach from the first to the last one that any of its rows
/// sees.
///
/// A work tile has kConsumers parts of warpgroup_rows() rows. Where the parts of a head do not fill
/// its work tiles, the first work tile lacks parts at its beginning, and begins at row0 = -lead.
/// With 3 consumers and 5 parts of the head, which are numbered here, lead is one part:
///
///     work tile 0            work tile 1
///     (none) part 0  part 1  part 2  part 3  part 4
///
/// A part that is missing sees no tile (TmaForwardParams::tiles_seen).
template <class Traits>
class StaticSchedule {
  static constexpr bool kEven = kEvenRows<Traits>;
  using Items = std::conditional_t<kEven, EvenItems, GrowingItems>;

 public:
  ATTILE_DEVICE StaticSchedule(const TmaForwardParams<Traits>& p, int block)
      : p_(p), items_(items(p, block)) {}

  ATTILE_DEVICE bool more() const { return items_.more(); }
  ATTILE_DEVICE void next() { items_.next(); }
  ATTILE_DEVICE WorkTile tile() const { return tile(items_.item()); }
  /// Returns the tile of an item, whose batch head is the one that Problem::head_order has in its
  /// place.
  ATTILE_DEVICE WorkTile tile(WorkItem item) const {
    const int packs = Traits::kPacksHeads ? p_.packs : p_.q_heads;
    if constexpr (Problem<Traits>::kOrdersHeads) {
      if (kEven) item = p_.head_order.in_place_of(item, p_.q_tiles, p_.lead > 0, p_.batch_heads);
      item.batch_head = p_.ordered_head(item.batch_head, packs);
    }
    WorkTile at;
    at.sequence = item.batch_head / packs;
    at.head = item.batch_head % packs * p_.packed_heads();
    at.kv_head = at.head / p_.group_heads;
    p_.read_lengths(at);
    const int rows = Traits::kConsumers * p_.warpgroup_rows();
    at.row0 = item.q_tile * rows - p_.lead;
    at.kv_tiles = p_.tiles_seen(at, at.row0, rows);
    return at;
  }
  /// Returns the number of the block's item in the order of all.
  ATTILE_DEVICE std::int64_t number() const { return items_.number(); }
  /// Returns the tile with a number.
  ATTILE_DEVICE WorkTile numbered_tile(int number) const { return tile(items_.item(number)); }

 private:
  ATTILE_DEVICE static Items items(const TmaForwardParams<Traits>& p, int block) {
    const int blocks = arch::block_count() * Traits::kTeams;
    if constexpr (kEven) {
      return EvenItems(block, blocks, p.q_tiles, p.batch_heads, p.lead > 0);
    } else {
      return GrowingItems(block, blocks, p.q_tiles, p.batch_heads, p.sections);
    }
  }

  const TmaForwardParams<Traits>& p_;
  Items items_;
};

/// Holds what depends on the scales of Q, K and V in fp8, which are those of a sequence and a kv
/// head. Of other types the parameter has it, once for all.
template <class Traits, bool kThere>
struct RowScales {
  float scale, scale_log2, rescale_threshold;  ///< those of TmaForwardParams for these rows
  float v_scale;

  RowScales() = default;
  ATTILE_DEVICE RowScales(const TmaForwardParams<Traits>& p, const WorkTile& at)
      : scale(p.score_scale(at)),
        scale_log2(tile::score_scale_log2<typename Traits::ScoreModType>(scale)),
        rescale_threshold(Traits::kRescaleThreshold * arch::reciprocal(scale_log2)),
        v_scale(p.v_scale.at(at.sequence, at.kv_head)) {}
  /// Returns the factor that O has beside 1 / l, of the one that dropout has.
  ATTILE_DEVICE float output_scale(float keep_scale) const { return keep_scale * v_scale; }
};
template <class Traits>
struct RowScales<Traits, false> {
  RowScales() = default;
  ATTILE_DEVICE RowScales(const TmaForwardParams<Traits>&, const WorkTile&) {}
  ATTILE_DEVICE static float output_scale(float keep_scale) { return keep_scale; }
};

/// Holds which rows of a work tile one consumer warpgroup computes, and the tiles of K and V that
/// they see. The producer of its Q writes it. After the block's last work tile comes one without
/// rows (`is_end`). What a reader can work out again from these members (WorkTile::kv_head) is
/// left out, because the main loop reads them back from shared memory.
template <class Traits>
struct alignas(16) ConsumerRows : RowScales<Traits, Problem<Traits>::kHasScales> {
  /// The sequence's lengths, where it has lengths of its own. Else they are the parameter's.
  struct NoLengths {
    NoLengths() = default;
    ATTILE_DEVICE explicit NoLengths(Extent) {}
  };
  static constexpr bool kUniform = Problem<Traits>::kUniform;
  /// The tile of K that has the diagonal of the work tile's last row, with kFromDiagonal.
  struct Diagonal {
    int tile = 0;
    Diagonal() = default;
    ATTILE_DEVICE explicit Diagonal(Extent) {}
  };
  using OfUniform = std::conditional_t<Traits::kFromDiagonal, Diagonal, NoLengths>;
  /// Those of packed sequences, and the number of the sequence's first row.
  struct PackedLengths : Extent {
    int first_row = 0;
    PackedLengths() = default;
    ATTILE_DEVICE explicit PackedLengths(Extent extent) : Extent(extent) {}
  };
  /// Whether it is kept, so that storing O of 16 bits and LSE reads no device memory: 0.99 of the
  /// time (H200, bench/log/tuning-sequences.md). With teams under a causal mask the warp that loads
  /// Q spills.
  static constexpr bool kKeepsFirstRow =
      kIsPacked<typename Traits::SequencesType> &&
      (Traits::kTeams == 1 || kRowsAlike<typename Traits::MaskType>);
  using OfOwn = std::conditional_t<kKeepsFirstRow, PackedLengths, Extent>;
  using Lengths = std::conditional_t<kUniform, OfUniform, OfOwn>;

  TileRange kv_tiles;  ///< the steps at which these rows' tiles of K and V are visited (kv_tile)
  /// Steps of the work tile ahead of these, and after them, whose tiles other consumers' rows see.
  /// Where these rows see no tile, all are ahead.
  int skip_before = 0, skip_after = 0;
  int sequence = -1, head = 0;
  int row0 = 0;  ///< the first of these rows; below 0 where the part is missing

  Lengths lengths{};

  ConsumerRows() = default;
  /// Makes the rows of part `part` of a work tile, which has a part for each consumer.
  ATTILE_DEVICE ConsumerRows(const TmaForwardParams<Traits>& p, const WorkTile& tile, int part)
      : ConsumerRows::RowScales(p, tile),
        sequence(tile.sequence),
        head(tile.head),
        lengths(tile.extent) {
    if constexpr (Traits::kFromDiagonal) lengths.tile = p.diagonal_tile(tile);
    const TileRange all = tile.kv_tiles;
    const int rows = p.warpgroup_rows();
    row0 = tile.row0 + part * rows;
    if constexpr (Traits::kReadsTilesLate) {
      if (row0 < p.extent(tile).q_len) kv_tiles = all;  // all rows of a block see the same
    } else {
      kv_tiles = p.tiles_seen(tile, row0, rows).between(all.first, all.last);
    }
    if (empty()) kv_tiles.first = kv_tiles.last = all.last;
    skip_before = kv_tiles.first - all.first;
    skip_after = all.last - kv_tiles.last;
  }

  /// Returns the work tile that has these rows alone. With kKeepsFirstRow nothing is read from
  /// device memory, and kv_origin is not set.
  ATTILE_DEVICE WorkTile at(const TmaForwardParams<Traits>& p) const {
    if constexpr (kKeepsFirstRow) {
      return at(p, origin_of_row(p.policies.sequences, lengths.first_row));
    } else {
      return at(p, RowOrigin{});
    }
  }
  /// Returns the same; with kKeepsFirstRow the sequence's rows begin at `origin`, else that is
  /// read.
  ATTILE_DEVICE WorkTile at(const TmaForwardParams<Traits>& p,
                            [[maybe_unused]] const RowOrigin& origin) const {
    WorkTile at{.kv_tiles = kv_tiles,
                .sequence = sequence,
                .head = head,
                .kv_head = head / p.group_heads,
                .row0 = row0};
    if constexpr (kKeepsFirstRow) {
      at.q_origin = origin;
    } else {
      p.read_lengths(at);  // where rows and keys begin, and the lengths
    }
    at.extent = extent_of(p);  // these are kept here, so that none are read from device memory
    return at;
  }
  ATTILE_DEVICE Extent extent_of(const TmaForwardParams<Traits>& p) const {
    if constexpr (kUniform) {
      return p.bounds;
    } else {
      return lengths;
    }
  }
  ATTILE_DEVICE bool is_end() const { return sequence < 0; }
  /// Returns whether they are rows of Q at all. Where the first work tile of a head lacks parts,
  /// these are ahead of row 0; where work tiles begin with the first row, the last one may have
  /// parts behind the last row.
  ATTILE_DEVICE bool exist(const TmaForwardParams<Traits>& p) const {
    return row0 >= 0 && (TmaForwardParams<Traits>::kHasLead || row0 < extent_of(p).q_len);
  }
  ATTILE_DEVICE bool empty() const { return kv_tiles.first >= kv_tiles.last; }
};

/// Returns which part of the block's work tile `number` a consumer warpgroup has. Under a causal
/// mask a part sees more kv tiles than the part before it, and by this rotation no warpgroup always
/// has the longest. That is worth 0.8 % in the mean of the 18 forward benchmarks of group `peers`,
/// up to 3.5 % at D 64 and D 128 causal, 1k (H200, 2026-11-24, bench/log/tuning-sm90.md).
template <class Traits>
ATTILE_DEVICE int consumer_part(int warpgroup, int number) {
  return (warpgroup + number) % Traits::kConsumers;
}

}  // namespace attile::sm90
