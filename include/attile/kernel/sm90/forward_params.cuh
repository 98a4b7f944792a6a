// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/cluster.cuh>
#include <attile/arch/tensor_map.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/args.h>
#include <attile/core/check.h>
#include <attile/core/mask.h>
#include <attile/core/math.h>
#include <attile/core/schedule.h>
#include <attile/core/status.h>
#include <attile/core/tensor.h>
#include <attile/kernel/forward_kernel.cuh>
#include <attile/kernel/sm90/boxed.cuh>
#include <attile/kernel/sm90/forward_traits.cuh>
#include <attile/tile/scores.cuh>

#include <cstdint>
#include <type_traits>

namespace attile::sm90 {

/// Query heads that share a tile, and rows of each of them that a warpgroup has.
struct Packing {
  int heads = 1;
  int rows = kGroupRows;

  Packing() = default;
  /// Of a group of query heads that share a kv head: the most that divide it.
  explicit Packing(int group) {
    for (heads = min(group, kGroupRows); group % heads != 0;) --heads;
    rows = kGroupRows / heads;
  }
};

template <class Traits>
Packing packing_of(const typename Traits::Args& args) {
  return Traits::kPacked ? Packing(args.q_heads / args.kv_heads) : Packing();
}

/// How the kernel's copies see Q, K, V and O.
template <class Traits>
struct BoxedTensors {
  arch::BoxedTensor q, k, v, o;

  BoxedTensors(const typename Traits::Args& a, Packing packing)
      : BoxedTensors(a, packing, head_dims(a, Traits::kD, Traits::kDv)) {}

  bool has_keys() const { return k.size[2] > 0; }
  /// Why they cannot address them all, or would write behind rows.
  Check check() const {
    const bool keys = !has_keys() || (arch::boxable(k) && arch::boxable(v));
    if (!keys || !arch::boxable(q) || !arch::boxable(o)) return not_boxable(Direction::kForward);
    return arch::storable(o) ? Check{} : not_storable(Direction::kForward);
  }

 private:
  using T = typename Traits::ElementType;

  BoxedTensors(const typename Traits::Args& a, Packing packing, HeadDims dims)
      : q(boxed<typename Traits::QTile, T>(a.q, a.batch, a.q_heads, a.q_len, dims.qk, packing.heads,
                                           packing.rows)),
        k(boxed<typename Traits::KTile, T>(a.k, a.batch, a.kv_heads, a.kv_len, dims.qk, 1,
                                           Traits::KRing::kBoxRows)),
        v(boxed<typename Traits::VTile, T>(a.v, a.batch, a.kv_heads, a.kv_len, dims.v, 1,
                                           Traits::VRing::kBoxRows)),
        o(boxed<typename Traits::OTile, T>(a.o, a.batch, a.q_heads, a.q_len, dims.v, packing.heads,
                                           packing.rows)) {}
};

/// The maps by which they go.
struct TensorMaps {
  arch::TensorMap q, k, v, o;

  /// Errors   arch::make_map's.
  template <class Traits>
  [[nodiscard]] cudaError_t make(const BoxedTensors<Traits>& boxed) {
    if (const cudaError_t error = arch::make_map(q, boxed.q)) return error;
    if (const cudaError_t error = arch::make_map(o, boxed.o)) return error;
    if (!boxed.has_keys()) return cudaSuccess;  // K and V are not read
    if (const cudaError_t error = arch::make_map(k, boxed.k)) return error;
    return arch::make_map(v, boxed.v);
  }

  ATTILE_DEVICE void prefetch(bool has_keys) const {
    arch::prefetch_map(q);
    arch::prefetch_map(o);
    if (!has_keys) return;
    arch::prefetch_map(k);
    arch::prefetch_map(v);
  }
};

/// What the kernel gets.
template <class Traits>
struct ForwardParams : attile::ForwardParams<Traits> {
  TensorMaps maps{};
  float unit;   ///< tile::score_unit
  float slack;  ///< Traits::kRescaleSlack, as the scores are
  Packing packing;
  int slices;           ///< batches times packs of heads
  Sections sections{};  ///< where not kRowsAlike
  int lead;             ///< attile::lead_rows

  static std::int64_t tile_count(const typename Traits::Args& args) {
    const Packing packing = packing_of<Traits>(args);
    return std::int64_t{args.batch} * (args.q_heads / packing.heads) *
           ceil_div(args.q_len, tile_rows(packing));
  }

  /// Of arguments that passed `check_arguments`.
  explicit ForwardParams(const typename Traits::Args& args)
      : attile::ForwardParams<Traits>(args),
        unit(tile::score_unit<typename Traits::ScoreModType>(this->scale)),
        slack(Traits::kRescaleSlack / unit),
        packing(packing_of<Traits>(args)),
        slices(args.batch * (args.q_heads / packing.heads)) {
    this->q_tiles = ceil_div(args.q_len, tile_rows(packing));
    lead = lead_rows(args.q_len, tile_rows(packing), packing.rows);
    if constexpr (!kRowsAlike<typename Traits::MaskType>) sections = sections_of(args);
  }

  /// Makes the maps.
  [[nodiscard]] Check complete(const typename Traits::Args& args) {
    if (args.batch == 0 || args.q_len == 0) return {};
    const BoxedTensors<Traits> boxed(args, packing);
    const Check copies = boxed.check();
    return copies ? check_maps(maps.make(boxed)) : copies;
  }

 private:
  static int tile_rows(Packing packing) {
    return Traits::kCluster * Traits::kGroups * packing.rows;
  }
  Sections sections_of(const typename Traits::Args& args) const {
    const std::int64_t bytes = std::int64_t{args.kv_len} * (this->head_dim + this->head_dim_v) *
                               sizeof(typename Traits::ElementType);
    const int packs = args.q_heads / args.kv_heads / packing.heads;  // that share a kv head
    const int blocks = static_cast<int>(forward_block_count<Traits>(args) / Traits::kCluster);
    return Sections::of(bytes / packs, this->q_tiles, slices, max(blocks, 1));
  }
};

/// Which rows of which heads a tile is. row0 may be below 0: a slice's first tile may lack whole
/// groups of rows.
template <class Traits>
struct RowTile {
  int batch, head, row0;

  /// What of it a warpgroup has.
  ATTILE_DEVICE auto place(const ForwardParams<Traits>& p, int group, int col0) const {
    if constexpr (Traits::kPacked) {
      const int rows = p.packing.rows;
      return tile::PackedTilePlace{
          batch,           head, row0 + group * rows, col0, p.extent, group * kGroupRows,
          p.packing.heads, rows};
    } else {
      return tile::TilePlace{batch, head, row0, col0, p.extent};
    }
  }

  ATTILE_DEVICE static int packed_heads(const ForwardParams<Traits>& p) {
    return Traits::kPacked ? p.packing.heads : 1;
  }
  ATTILE_DEVICE static int group_rows(const ForwardParams<Traits>& p) {
    return Traits::kPacked ? p.packing.rows : kGroupRows;
  }
};

/// The same, and what it reads of K and V.
template <class Traits>
struct WorkTile : RowTile<Traits> {
  using RowTile<Traits>::batch;
  using RowTile<Traits>::head;
  using RowTile<Traits>::row0;
  using RowTile<Traits>::packed_heads;
  using RowTile<Traits>::group_rows;
  int kv_head, cluster_row0;

  ATTILE_DEVICE WorkTile(const ForwardParams<Traits>& p, WorkItem item) {
    const int packs = p.q_heads / packed_heads(p);
    batch = item.slice / packs;
    head = item.slice % packs * packed_heads(p);
    kv_head = head / (p.q_heads / p.kv_heads);
    const int rows = Traits::kGroups * group_rows(p);
    cluster_row0 = item.row_tile * Traits::kCluster * rows - p.lead;
    row0 = cluster_row0 + (Traits::kCluster == 1 ? 0 : arch::cluster_rank() * rows);
  }

  /// The tiles of Bc columns that one of its groups of rows sees.
  ATTILE_DEVICE TileRange seen(const ForwardParams<Traits>& p, int part) const {
    return rows_seen(p, row0 + part * group_rows(p), group_rows(p));
  }
  /// Those that any block of the cluster sees.
  ATTILE_DEVICE TileRange cluster_seen(const ForwardParams<Traits>& p) const {
    return rows_seen(p, cluster_row0, Traits::kCluster * Traits::kGroups * group_rows(p));
  }

 private:
  ATTILE_DEVICE TileRange rows_seen(const ForwardParams<Traits>& p, int from, int rows) const {
    const int first = max(from, 0);
    const int count = from + rows - first;
    TileRange range = tiles_seen(p, batch, head, first, count);
    if constexpr (Traits::kPacked) {
      for (int i = 1; i < p.packing.heads; ++i) {
        range = either(range, tiles_seen(p, batch, head + i, first, count));
      }
    }
    return range;
  }
};

/// A warpgroup's rows of a tile, and the tiles of K and V that they see. Behind the last ones of a
/// block come some that say so.
/// at       the tile, moved so that the warpgroup's place in it has these rows.
template <class Traits>
struct alignas(16) GroupRows {
  TileRange mine;
  int before = 0, after = 0;  ///< tiles of K and V that come for other warpgroups only
  RowTile<Traits> at{-1, 0, 0};

  GroupRows() = default;
  /// `part`: of the tile's rows, those that the warpgroup `group` has.
  ATTILE_DEVICE GroupRows(const ForwardParams<Traits>& p, const WorkTile<Traits>& tile, int group,
                          int part)
      : at(tile) {
    at.row0 += (part - group) * tile.group_rows(p);
    const TileRange all = tile.cluster_seen(p);
    mine = tile.seen(p, part).between(all.first, all.last);
    if (empty()) mine.first = mine.last = all.last;
    before = mine.first - all.first;
    after = all.last - mine.last;
  }

  ATTILE_DEVICE bool is_end() const { return at.batch < 0; }
  /// Whether they are rows of Q at all.
  ATTILE_DEVICE bool exist(const ForwardParams<Traits>& p, int group) const {
    return at.row0 + group * RowTile<Traits>::group_rows(p) >= 0;
  }
  ATTILE_DEVICE bool empty() const { return mine.first >= mine.last; }
};

/// The tiles of a block, one after another.
template <class Traits>
ATTILE_DEVICE auto items_of(const ForwardParams<Traits>& p, int block) {
  const int cluster = block / Traits::kCluster;
  const int clusters = arch::block_count() / Traits::kCluster;
  if constexpr (kRowsAlike<typename Traits::MaskType>) {
    return EvenItems(cluster, clusters, p.q_tiles, p.slices, p.lead > 0);
  } else {
    return GrowingItems(cluster, clusters, p.q_tiles, p.slices, p.sections);
  }
}

}  // namespace attile::sm90
