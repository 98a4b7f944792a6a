// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/tensor_map.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/args.h>
#include <attile/core/check.h>
#include <attile/core/fast_divmod.h>
#include <attile/core/mask.h>
#include <attile/core/math.h>
#include <attile/core/schedule.h>
#include <attile/core/status.h>
#include <attile/core/work_tile.h>
#include <attile/kernel/forward/forward_kernel.cuh>
#include <attile/kernel/sm90/boxed.cuh>
#include <attile/kernel/sm90/element_tiles.cuh>
#include <attile/kernel/sm90/forward_map_params.cuh>
#include <attile/kernel/sm90/forward_traits.cuh>
#include <attile/kernel/sm90/transpose_v.cuh>
#include <attile/tile/factor_of_p.h>
#include <attile/tile/scores.cuh>

#include <cstddef>
#include <cstdint>

namespace attile::sm90 {

/// Says whether all tiles of rows take the same time, but for the first one of each batch head, and
/// are not counted.
template <class Traits>
inline constexpr bool kEvenRows = !Traits::kHasScheduler && kRowsAlike<typename Traits::MaskType>;

/// Holds what the scheduler, the warp that makes work tiles for the others, needs with
/// kHasScheduler.
template <bool kThere>
struct SchedulerParams {
  int* counter = nullptr;      ///< of the items that blocks have taken; null: by the block's index
  int items = 0;               ///< one for each slot of each query head
  int l2_keys = 0;             ///< keys of one kv head whose K and V take kL2Bytes
  bool counts = true;          ///< whether the counter is worth it
  Sections counted{};          ///< the order with the counter, of sequences of one length
  FastDivmod group_heads = 1;  ///< query heads of a kv head
};
template <>
struct SchedulerParams<false> {};

/// Holds the keys of a box of K and V where they lie in pages, how many boxes a tile has, and how
/// many tiles have no more of them than a warp has lanes.
template <bool kThere>
struct PageParams {
  int box_keys = 0, boxes = 1, tiles = 1;
};
template <>
struct PageParams<false> {};

/// The one argument of the kernel: it adds tensor maps and the order of work tiles to
/// attile::ForwardParams. Its q_tiles are the tiles of rows of one pack of query heads.
template <class Traits>
struct TmaForwardParams : ForwardParams<Traits> {
  using Base = ForwardParams<Traits>;
  /// Whether the last work tile of a head ends with its last row, or less than warpgroup_rows()
  /// behind it. Else the first one begins with row 0: where a tile of block lists lies within one
  /// block.
  static constexpr bool kHasLead = !Problem<Traits>::kListsBlocks;

  TensorMaps maps{};
  float scale_log2;         ///< tile::score_scale_log2
  float rescale_threshold;  ///< Traits::kRescaleThreshold / scale_log2
  HeadPacking packing;
  int packs;            ///< packs of query heads of each sequence
  int batch_heads;      ///< pairs of a sequence and a pack: batch * packs
  Sections sections{};  ///< the order of batch heads for GrowingItems
  /// attile::lead_rows of q_len, or 0 without kHasLead. Where sequences have lengths of their own
  /// it is not used: there DynamicSchedule has that of each one.
  int lead;
  [[no_unique_address]] ElementMap<(Traits::kElementStages > 0)> elements;
  [[no_unique_address]] SequenceBoxes<typename Traits::SequencesType> boxes;
  [[no_unique_address]] SchedulerParams<Traits::kHasScheduler> scheduler;
  [[no_unique_address]] PageParams<Problem<Traits>::kPaged> pages;

  /// Returns the number of work tiles, or of slots of them (TileSlots).
  static std::int64_t tile_count(const typename Traits::Args& args) {
    if constexpr (Traits::kHasScheduler) return Base::tile_count(args);
    const HeadPacking packing = packing_of<Traits>(args);
    return std::int64_t{args.batch} * (args.q_heads / packing.heads) *
           ceil_div(args.q_len, tile_rows(packing));
  }

  /// Takes arguments that passed `check_arguments`. `complete` makes the tensor maps.
  explicit TmaForwardParams(const typename Traits::Args& args)
      : Base(args),
        scale_log2(tile::score_scale_log2<typename Traits::ScoreModType>(this->scale)),
        rescale_threshold(Traits::kRescaleThreshold / scale_log2),
        packing(packing_of<Traits>(args)),
        packs(args.q_heads / packing.heads),
        batch_heads(args.batch * packs),
        boxes(args, args.q_heads, args.kv_heads) {
    this->q_tiles = ceil_div(args.q_len, tile_rows(packing));
    lead = kHasLead ? lead_rows(args.q_len, tile_rows(packing), packing.rows) : 0;
    if constexpr (Traits::kHasScheduler) {
      scheduler.l2_keys =
          static_cast<int>(min<std::int64_t>(kL2Bytes / key_bytes(), kLargestSmall));
      scheduler.items = static_cast<int>(tile_count(args));
      scheduler.group_heads = this->group_heads;
      // The first work tile of each block is its own.
      if (!Traits::SequencesType::kUniform) scheduler.counts = scheduler.items > blocks(args);
    }
    if constexpr (Traits::SequencesType::kUniform && !kEvenRows<Traits>) {
      sections = sections_of(args);
      if constexpr (Traits::kHasScheduler && kUnevenRows<typename Traits::MaskType>) {
        scheduler.counted = sections;
      } else if constexpr (Traits::kHasScheduler) {
        // To zero the counter takes as long as short calls gain by it (bench/log/tuning-sm90.md).
        // Units: tiles of rows, with as many keys each.
        const std::int64_t work = std::int64_t{scheduler.items} * this->q_tiles;
        scheduler.counts = work >= 32 * blocks(args);
        scheduler.counted = Sections::counted(this->q_tiles, sharing(), batch_heads, blocks(args));
      }
    }
    if constexpr (Problem<Traits>::kPaged) {
      pages.box_keys = sm90::box_keys(args, Traits::kBc);
      pages.boxes = Traits::kBc / pages.box_keys;
      pages.tiles = arch::kWarpSize / pages.boxes;
    }
  }
  /// Returns the bytes of scratch memory of a call: 16, and V where it is transposed ahead.
  static std::size_t workspace_bytes(const typename Traits::Args& args) {
    const std::size_t counter = Base::workspace_bytes(args);
    if constexpr (Traits::kTransposesAhead) {
      if (transposes_ahead(args)) {
        return counter + kValuesAlignment + transpose_v_params(args, nullptr).bytes();
      }
    }
    return counter;
  }
  /// Takes the scratch memory of a call. Returns how many bytes of it the kernel wants to be 0.
  std::size_t use(void* workspace) {
    if constexpr (Traits::kHasScheduler) {
      constexpr int kMostCounted = 1 << 30;  // so that no block counts beyond an int
      if (!scheduler.counts || scheduler.items > kMostCounted) return 0;
      scheduler.counter = static_cast<int*>(workspace);
      sections = scheduler.counted;
      return sizeof *scheduler.counter;
    }
    return 0;
  }

  /// Transposes V into scratch memory, where that is worth it (transpose_v.cuh).
  /// Errors   those of arch::make_map, and the launch's.
  [[nodiscard]] cudaError_t prepare([[maybe_unused]] const typename Traits::Args& args,
                                    [[maybe_unused]] void* workspace,
                                    [[maybe_unused]] cudaStream_t stream) {
    if constexpr (Traits::kTransposesAhead) {
      if (!maps.has_keys || !transposes_ahead(args)) return cudaSuccess;
      const auto from = reinterpret_cast<std::uintptr_t>(workspace) + Base::workspace_bytes(args);
      auto values = transpose_v_params(
          args, reinterpret_cast<void*>(round_up<std::uintptr_t>(from, kValuesAlignment)));
      if (maps.v_by_columns) values.col_stride = args.v_col_stride;
      maps.v_is_transposed = true;
      const auto boxed = values.template boxed<typename Traits::VTile>();
      if (const cudaError_t error = arch::make_map(maps.v, boxed)) return error;
      return arch::launch(transpose_v_kernel<typename Traits::Elements::V>,
                          static_cast<unsigned>(values.blocks()), unsigned{kTransposeThreads},
                          kTransposedBytes, stream, values);
    } else {
      return cudaSuccess;
    }
  }

  /// Makes the tensor maps.
  /// Errors   the reasons of BoxedTensors::check, and those of arch::make_map.
  [[nodiscard]] Check complete(const typename Traits::Args& args) {
    const BoxedTensors<Traits> boxed(args, packing);
    if (args.batch == 0 || !boxed.has_rows()) return {};
    if (const Check copies = boxed.check(); !copies) return copies;
    if constexpr (Traits::kElementStages > 0) {
      if (boxed.has_keys()) {
        if (const Check made = check_maps(elements.make(boxed.elements)); !made) return made;
      }
    }
    return check_maps(maps.make(boxed));
  }

  /// Returns the object that has scale, scale_log2 and rescale_threshold of these rows: the rows
  /// themselves (ConsumerRows) where Q, K and V have scales, else this parameter.
  template <class Rows>
  ATTILE_DEVICE const auto& scales_of([[maybe_unused]] const Rows& rows) const {
    if constexpr (Base::kHasScales) {
      return rows;
    } else {
      return *this;
    }
  }
  /// Returns Traits::kMaximumOffset of these rows, in the units of scores.
  template <class Rows>
  ATTILE_DEVICE auto maximum_offset([[maybe_unused]] const Rows& rows) const {
    if constexpr (Traits::kMaximumOffset > 0.0f) {
      constexpr float kOfThreshold = Traits::kMaximumOffset / Traits::kRescaleThreshold;
      return tile::MaximumOffset{kOfThreshold * scales_of(rows).rescale_threshold};
    } else {
      return tile::NoMaximumOffset{};
    }
  }
  /// Returns the number of query heads that a tile packs.
  ATTILE_DEVICE int packed_heads() const { return Traits::kPacksHeads ? packing.heads : 1; }
  /// Returns the coordinate of a tile's first head in the maps of Q and O, which count packs.
  ATTILE_DEVICE int box_head(int head) const {
    return Traits::kPacksHeads ? head / packing.heads : head;
  }
  using Boxes = SequenceBoxes<typename Traits::SequencesType>;
  /// Return the coordinates of a work tile's rows of Q, those of O from column col0 on, and those
  /// of its keys, from key key0 on.
  ATTILE_DEVICE arch::TmaCoord queries(const WorkTile& at) const {
    return boxes.rows(Boxes::kQ, at, box_head(at.head));
  }
  ATTILE_DEVICE arch::TmaCoord outputs(const WorkTile& at, int col0) const {
    return boxes.rows(Boxes::kO, at, box_head(at.head), col0);
  }
  ATTILE_DEVICE arch::TmaCoord keys(const WorkTile& at, int key0) const {
    return boxes.keys(Boxes::kKv, at, key0);
  }
  /// Returns the coordinates of a box of pages.box_keys keys, where keys lie in pages.
  ATTILE_DEVICE arch::TmaCoord keys_in_page(const WorkTile& at, int key0) const {
    return boxes.keys_in_page(this->policies.sequences, at, key0, pages.box_keys);
  }
  /// Returns the number of rows of each packed head that a warpgroup computes.
  ATTILE_DEVICE int warpgroup_rows() const {
    return Traits::kPacksHeads ? packing.rows : kWarpgroupRows;
  }
  /// Returns the coordinates of the scores in a warpgroup's registers, from key col0 on; `at` has
  /// the rows of that warpgroup. A tile::MmaTile counts its rows through all warpgroups of the
  /// block, so that the 64 * warpgroup rows that precede this one's are subtracted.
  ATTILE_DEVICE auto coord(const WorkTile& at, int warpgroup, int col0) const {
    const int before = warpgroup * kWarpgroupRows;
    if constexpr (Traits::kPacksHeads) {
      return tile::PackedHeadsCoord{at.sequence,      at.head, at.row0,       col0,
                                    this->extent(at), before,  packing.heads, packing.rows};
    } else {
      auto coord = Base::coord(at, col0);
      coord.row0 -= before;
      return coord;
    }
  }
  /// Returns the tile of K and V that is visited at a step of at.kv_tiles: with kDescends the last
  /// one of a sequence is that of step 0, with kFromDiagonal that of the diagonal.
  ATTILE_DEVICE int kv_tile(const WorkTile& at, int step) const {
    if constexpr (Traits::kFromDiagonal) {
      return from_diagonal(diagonal_tile(at), step);
    } else if constexpr (Traits::kDescends) {
      return ceil_div(this->extent(at).kv_len, Traits::kBc) - 1 - step;
    } else {
      return Base::kv_tile(at, step);
    }
  }
  /// Returns at.kv_tiles; where the last key cuts a block that is listed as full, or such an entry
  /// names no block, without full tiles: then `seen_tile` reads each tile's number.
  /// Scope    all lanes of a warp, with a mask of block lists.
  ATTILE_DEVICE TileRange uncut_keys(const WorkTile& at) const {
    using M = typename Traits::MaskType;
    const BlockList list =
        this->policies.mask.listed_columns(at.sequence, at.head, at.row0 / M::kQBlock);
    const auto uncut = static_cast<unsigned>(this->extent(at).kv_len / M::kKvBlock);
    TileRange steps = at.kv_tiles;
    const int count = (steps.full_last - steps.full_first) / (M::kKvBlock / Traits::kBc);
    bool cuts = false;
    for (int i = arch::thread_index() % arch::kWarpSize; i < count; i += arch::kWarpSize) {
      cuts = cuts || static_cast<unsigned>(list.full[i]) >= uncut;
    }
    if (arch::any_lane(cuts)) steps.full_last = steps.full_first;
    return steps;
  }
  /// Is the tile of a step: whether its block is listed as full, and whether all its scores are
  /// visible.
  struct SeenTile {
    int kv_tile;
    bool in_full_block, full;
  };
  /// Returns that of a step of `steps`. `kv_tile`: its number, for which with kReadsTilesLate
  /// `read()` is called where `uncut_keys` has not said that the tile is full.
  template <class Read>
  ATTILE_DEVICE SeenTile seen_tile(const WorkTile& at, TileRange steps, int step, int kv_tile,
                                   const Read& read) const {
    if constexpr (Traits::kReadsTilesLate) {
      if (steps.full(step)) return {kv_tile, true, true};
      steps.full_last = steps.last;
      kv_tile = read();
    }
    return {kv_tile, steps.full(step), this->is_full(at, steps, step, kv_tile)};
  }
  /// Returns the tile of a step where that of step 0 is `diagonal`.
  ATTILE_DEVICE static int from_diagonal(int diagonal, int step) {
    return step <= diagonal ? diagonal - step : step;
  }
  /// Returns the tile of K that has the diagonal of the last row of a work tile, of which `at` may
  /// also have a part: it is the same for all parts.
  ATTILE_DEVICE int diagonal_tile(const WorkTile& at) const {
    const Extent extent = this->extent(at);
    const int rows = Traits::kConsumers * warpgroup_rows();
    const int last = min((at.row0 + lead) / rows * rows + rows - lead, extent.q_len) - 1;
    const int col = min(max(last + extent.shift(), 0), extent.kv_len - 1);
    return max(col, 0) / Traits::kBc;
  }
  /// Returns the tiles of K and V that `rows` rows, from row `from` on, of any of a tile's heads
  /// see, as the steps at which they are visited. `from` may be below 0, where there are no rows.
  ATTILE_DEVICE TileRange tiles_seen(const WorkTile& at, int from, int rows) const {
    const int first = max(from, 0);
    const int count = from + rows - first;
    TileRange range = this->keys_seen(at, at.head, first, count);
    if constexpr (Traits::kPacksHeads) {
      for (int i = 1; i < packing.heads; ++i) {
        range = hull(range, this->keys_seen(at, at.head + i, first, count));
      }
    }
    if constexpr (Traits::kFromDiagonal) {
      // All rows see all keys, so that only the last tile may not be full.
      if (range.full_last < range.last && diagonal_tile(at) == range.last - 1) {
        range.full_first = 1;
        range.full_last = range.last;
      }
    } else if constexpr (Traits::kDescends) {
      return range.reversed(ceil_div(this->extent(at).kv_len, Traits::kBc));
    }
    return range;
  }

 private:
  /// The alignment of V that is transposed ahead: else the rows of TMA's boxes would cross sectors.
  static constexpr std::size_t kValuesAlignment = 128;
  /// Returns whether so many rows read V that transposing it ahead takes less time than it saves.
  static bool transposes_ahead(const typename Traits::Args& args) {
    return std::int64_t{args.q_len} * (args.q_heads / args.kv_heads) >= Traits::kTransposedFromRows;
  }
  /// Returns V by rows, and where it is transposed to.
  static auto transpose_v_params(const typename Traits::Args& args, void* to) {
    using V = typename Traits::Elements::V;
    return TransposeVParams<V>{args.v,
                               1,
                               static_cast<V*>(to),
                               args.batch,
                               args.kv_heads,
                               args.kv_len,
                               head_dims(args, Traits::kD, Traits::kDv).v};
  }
  /// Returns the rows of each packed head in a tile of the block.
  static int tile_rows(HeadPacking packing) { return Traits::kConsumers * packing.rows; }
  /// Returns the bytes of K and V of one key of one kv head.
  int key_bytes() const {
    using E = typename Traits::Elements;
    return this->head_dim * int{sizeof(typename E::K)} +
           this->head_dim_v * int{sizeof(typename E::V)};
  }
  /// Returns the order in which blocks take the tiles of batch heads (core/schedule.h).
  Sections sections_of(const typename Traits::Args& args) const {
    const std::int64_t bytes = std::int64_t{args.kv_len} * key_bytes();
    return Sections::of(bytes / sharing(), this->q_tiles, batch_heads, blocks(args));
  }
  /// Returns the number of packs that follow each other and read the same kv head.
  int sharing() const {
    if constexpr (Base::kOrdersHeads) {
      if (this->head_order.by_head) return 1;  // they do not follow each other
    }
    return this->group_heads / packing.heads;
  }
  /// Returns the number of blocks, or of their teams.
  static int blocks(const typename Traits::Args& args) {
    return max(static_cast<int>(forward_block_count<Traits>(args)) * Traits::kTeams, 1);
  }
};

/// Says whether the kernel of `PackedHeads`, which packs query heads, is expected to take at most
/// nine tenths of the time of that of `Traits` (batch_head_time). Two teams hide the ends of each
/// other's tiles: beside them a tile of packed rows counts its keys and 448 more, and one of a team
/// its keys and 64 more (bench/log/tuning-sm90.md).
template <class Traits, class PackedHeads>
bool packing_pays(const typename Traits::Args& args) {
  const HeadPacking packing(args.q_heads / args.kv_heads);
  std::int64_t packed = 0, unpacked = 0;
  if constexpr (Traits::kTeams == 1) {
    packed = batch_head_time(args.q_len, PackedHeads::kConsumers, packing.rows);
    unpacked = batch_head_time(args.q_len, Traits::kConsumers, kWarpgroupRows);
  } else {
    const std::int64_t keys = args.kv_len;
    packed = ceil_div(args.q_len, PackedHeads::kConsumers * packing.rows) * (keys + 448);
    unpacked = ceil_div(args.q_len, Traits::kBr) * (keys + 64);
  }
  return packing.heads > 1 && 10 * packed <= 9 * packing.heads * unpacked;
}

}  // namespace attile::sm90
