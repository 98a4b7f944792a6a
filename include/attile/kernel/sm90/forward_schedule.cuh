// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/cluster.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/mask.h>
#include <attile/core/schedule.h>
#include <attile/kernel/sm90/forward_params.cuh>
#include <attile/kernel/work_tile.h>

#include <type_traits>

namespace attile::sm90 {

/// The work tiles of a block, one after another. A tile's row0 is the first row of the block, and
/// below 0 where a slice's first tile lacks whole groups of rows; its kv_tiles are those that any
/// block of the cluster sees, which all of them bring.
template <class Traits>
class ForwardSchedule {
  static constexpr bool kEven = kEvenRows<Traits>;
  using Items = std::conditional_t<kEven, EvenItems, GrowingItems>;

 public:
  ATTILE_DEVICE ForwardSchedule(const ForwardParams<Traits>& p, int block)
      : p_(p), items_(items(p, block)) {}

  ATTILE_DEVICE bool more() const { return items_.more(); }
  ATTILE_DEVICE void next() { items_.next(); }
  ATTILE_DEVICE WorkTile tile() const {
    const WorkItem item = items_.item();
    const int packs = Traits::kPacked ? p_.packs : p_.q_heads;
    WorkTile at;
    at.sequence = item.slice / packs;
    at.head = item.slice % packs * p_.packed_heads();
    at.kv_head = at.head / p_.group_heads;
    at.extent = p_.policies.sequences.extent(at.sequence, p_.bounds);
    const int rows = Traits::kGroups * p_.group_rows();
    const int cluster_row0 = item.row_tile * Traits::kCluster * rows - p_.lead;
    at.row0 = cluster_row0 + (Traits::kCluster == 1 ? 0 : arch::cluster_rank() * rows);
    at.kv_tiles = p_.tiles_seen(at, cluster_row0, Traits::kCluster * rows);
    return at;
  }

 private:
  ATTILE_DEVICE static Items items(const ForwardParams<Traits>& p, int block) {
    const int cluster = block / Traits::kCluster;
    const int clusters = arch::block_count() / Traits::kCluster;
    if constexpr (kEven) {
      return EvenItems(cluster, clusters, p.q_tiles, p.slices, p.lead > 0);
    } else {
      return GrowingItems(cluster, clusters, p.q_tiles, p.slices, p.sections);
    }
  }

  const ForwardParams<Traits>& p_;
  Items items_;
};

/// What the loading warp tells a warpgroup for one turn: which rows it computes, and which tiles of
/// K and V they see. Behind the last turn of a block comes one without rows (`is_end`). It has of
/// the work tile what its reader cannot work out again: more would be read back in the main loop.
template <class Traits>
struct alignas(16) GroupRows {
  /// The sequence's lengths, where it has lengths of its own: they are the parameter's else.
  struct NoLengths {
    NoLengths() = default;
    ATTILE_DEVICE explicit NoLengths(Extent) {}
  };
  static constexpr bool kUniform = Problem<Traits>::kUniform;
  using Lengths = std::conditional_t<kUniform, NoLengths, Extent>;

  TileRange kv_tiles;         ///< those that these rows see
  int before = 0, after = 0;  ///< tiles of K and V that come for other warpgroups only
  int sequence = -1, head = 0;
  int row0 = 0;  ///< the tile's, moved so that its rows for this warpgroup are these

  Lengths lengths{};

  GroupRows() = default;
  /// `part`: of the tile's rows, those that the warpgroup `group` has.
  ATTILE_DEVICE GroupRows(const ForwardParams<Traits>& p, const WorkTile& tile, int group, int part)
      : sequence(tile.sequence), head(tile.head), lengths(tile.extent) {
    const TileRange all = tile.kv_tiles;
    const int rows = p.group_rows();
    kv_tiles = p.tiles_seen(tile, tile.row0 + part * rows, rows).between(all.first, all.last);
    if (empty()) kv_tiles.first = kv_tiles.last = all.last;
    row0 = tile.row0 + (part - group) * rows;
    before = kv_tiles.first - all.first;
    after = all.last - kv_tiles.last;
  }

  /// The work tile, of these rows.
  ATTILE_DEVICE WorkTile at(const ForwardParams<Traits>& p) const {
    return {.kv_tiles = kv_tiles,
            .sequence = sequence,
            .head = head,
            .kv_head = head / p.group_heads,
            .row0 = row0,
            .extent = extent_of(p)};
  }
  ATTILE_DEVICE Extent extent_of(const ForwardParams<Traits>& p) const {
    if constexpr (kUniform) {
      return p.bounds;
    } else {
      return lengths;
    }
  }
  ATTILE_DEVICE bool is_end() const { return sequence < 0; }
  /// Whether they are rows of Q at all. Uniform tiles end with the last row: nothing is behind it.
  ATTILE_DEVICE bool exist(const ForwardParams<Traits>& p, int group) const {
    const int first = row0 + group * p.group_rows();
    return first >= 0 && (kUniform || first < extent_of(p).q_len);
  }
  ATTILE_DEVICE bool empty() const { return kv_tiles.first >= kv_tiles.last; }
};

}  // namespace attile::sm90
