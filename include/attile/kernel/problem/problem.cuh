// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/thread.cuh>
#include <attile/core/args.h>
#include <attile/core/block_sparse.h>
#include <attile/core/check.h>
#include <attile/core/config.h>
#include <attile/core/earlier_keys.h>
#include <attile/core/index.h>
#include <attile/core/mask.h>
#include <attile/core/math.h>
#include <attile/core/schedule.h>
#include <attile/core/sequences.h>
#include <attile/core/tensor.h>
#include <attile/core/tile_modifier.h>
#include <attile/core/tile_slots.h>
#include <attile/core/work_tile.h>
#include <attile/kernel/problem/find_slot.cuh>
#include <attile/kernel/problem/fp8_params.h>
#include <attile/kernel/problem/modifier_params.cuh>
#include <attile/tile/matrix.cuh>
#include <attile/tile/modifier_math.h>
#include <attile/tile/tile_coord.cuh>

#include <cstdint>
#include <type_traits>

namespace attile {

/// Name the slots of tiles of Br query rows, and of Bc keys.
template <class Traits>
using QSlots = TileSlots<Axis::kRows, Traits::kBr, typename Traits::SequencesType>;
template <class Traits>
using KvSlots = TileSlots<Axis::kKeys, Traits::kBc, typename Traits::SequencesType>;

namespace detail {

template <class Traits>
using PreparedModifierOf =
    PreparedModifier<typename Traits::Policies::ScoreModType,
                     tile::MathOf<typename Traits::ElementType>,
                     !Fp8Inputs<typename Traits::Args::Elements>::kHasScales>;

}  // namespace detail

/// Holds a problem as its kernels see it: the arguments with everything resolved that the host
/// knows. A kernel reads tensors, lengths and policies through it, by a work tile. It is the first
/// part of the parameter of every kernel but standard attention's.
template <class Traits>
struct Problem : detail::Fp8Inputs<typename Traits::Args::Elements>,
                 detail::HeadOrderParam<detail::kOrdersHeads<typename Traits::Policies>>,
                 detail::PreparedModifierOf<Traits> {
  using Args = typename Traits::Args;
  using Elements = typename Args::Elements;
  using T = typename Traits::ElementType;
  using TO = typename Traits::OutputType;
  using Policies = typename Traits::Policies;
  using SequencesType = typename Traits::SequencesType;
  using MaskType = typename Policies::MaskType;
  static constexpr bool kListsBlocks = BlockListMask<MaskType>;
  static constexpr bool kUniform = SequencesType::kUniform;
  static constexpr bool kOrdersHeads = detail::kOrdersHeads<Policies>;
  static constexpr bool kPackedQueries = kIsPackedAlong<SequencesType, Axis::kRows>;
  static constexpr bool kPaged = kIsPaged<SequencesType>;
  /// The larger of the two head dimensions that the kernel takes.
  static constexpr int kColumns = max(Traits::kD, Traits::kDv);

  tile::TensorParam<const typename Elements::Q> q;
  tile::TensorParam<const typename Elements::K> k;
  tile::TensorParam<const typename Elements::V> v;
  tile::TensorParam<std::conditional_t<Args::kIsForward, TO, const TO>> o;
  RowTensor<std::conditional_t<Args::kIsForward, float, const float>> lse;
  int batch;  ///< the number of sequences
  int q_heads, kv_heads;
  int group_heads;  ///< query heads that read one head of K and V
  Extent bounds;    ///< the lengths that no sequence exceeds
  int head_dim, head_dim_v;
  float scale;
  Policies policies;

  /// Takes arguments that passed `check_arguments`.
  explicit Problem(const Args& args) : Problem(args, head_dims(args, Traits::kD, Traits::kDv)) {}

  ATTILE_HOST_DEVICE ScoreShape score_shape() const { return {batch, q_heads, bounds}; }
  /// Returns what gives the score modifier's tiles where `scale` is the factor of products.
  ATTILE_HOST_DEVICE const auto& modifier() const {
    if constexpr (Problem::kHasPrepared) {
      return this->prepared_mod;
    } else {
      return policies.score_mod;
    }
  }
  /// Returns the lengths of a work tile's sequence. Where all sequences have the same, they are
  /// read from the parameter, which takes no registers.
  ATTILE_HOST_DEVICE Extent extent(const WorkTile& at) const {
    if constexpr (kUniform) {
      return bounds;
    } else {
      return at.extent;
    }
  }
  /// Set the lengths of a work tile's sequence, where it begins, and both.
  ATTILE_DEVICE void read_extent(WorkTile& at) const {
    at.extent = policies.sequences.extent(at.sequence, bounds);
  }
  ATTILE_DEVICE void read_origins(WorkTile& at) const {
    if constexpr (!kUniform) {
      at.q_origin = policies.sequences.q_origin(at.sequence);
      at.kv_origin = policies.sequences.kv_origin(at.sequence);
    }
  }
  ATTILE_DEVICE void read_lengths(WorkTile& at) const {
    read_extent(at);
    read_origins(at);
  }
  /// Returns the slots of tiles of query rows.
  ATTILE_HOST_DEVICE auto q_slots() const {
    return QSlots<Traits>(policies.sequences, batch, bounds.q_len);
  }
  /// Returns the work tile of a tile of query rows. `number`: counted through all heads of one
  /// sequence after another (find_by_warp), in each from its first rows on, or with `from_last`
  /// from its last ones. `q_tiles`: the tiles of q_len rows. It may have no rows (`has_rows`).
  /// Scope    all lanes of a warp.
  ATTILE_DEVICE WorkTile row_tile(int number, int q_tiles, bool from_last = false) const {
    const auto in_order = [&](int tile, int tiles) { return from_last ? tiles - 1 - tile : tile; };
    WorkTile at;
    if constexpr (kPackedQueries) {
      const auto share = find_by_warp(q_slots(), number, q_heads);
      if (!share.is_sequence) return {.sequence = -1};
      at.sequence = share.sequence;
      at.head = share.item / share.slots;
      at.kv_head = at.head / group_heads;
      at.row0 = in_order(share.item % share.slots, share.slots) * Traits::kBr;
    } else {
      const int batch_head = number / q_tiles;
      at.sequence = batch_head / q_heads;
      at.head = batch_head % q_heads;
      at.kv_head = at.head / group_heads;
      at.row0 = in_order(number % q_tiles, q_tiles) * Traits::kBr;
    }
    read_lengths(at);
    return at;
  }
  /// Returns the number of the tile that is the n-th one where batch heads go in `head_order`.
  /// Tiles have numbers as in `row_tile`. `tiles`: of each of a sequence's `heads` heads.
  ATTILE_DEVICE int in_head_order(int n, int tiles, int heads) const {
    if constexpr (kOrdersHeads) {
      const WorkItem item = this->head_order.item(n, tiles, batch * heads);
      return ordered_head(item.batch_head, heads) * tiles + item.q_tile;
    } else {
      return n;
    }
  }
  /// Returns the n-th work tile of a pass that goes through the tiles of query rows in that order,
  /// and in each head from its last rows on.
  ATTILE_DEVICE WorkTile ordered_row_tile(int n, int q_tiles) const {
    return row_tile(in_head_order(n, q_tiles, q_heads), q_tiles, true);
  }
  /// Returns the number of the batch head that is the n-th one in that order.
  ATTILE_DEVICE int ordered_head(int n, int heads) const {
    if constexpr (kOrdersHeads) {
      return this->head_order.batch_head(n, batch, heads);
    } else {
      return n;
    }
  }
  /// Returns whether a sequence has rows of a work tile. Where sequences have lengths of their own,
  /// a grid also has blocks for slots in which no tile lies.
  ATTILE_HOST_DEVICE bool has_rows(const WorkTile& at) const {
    return kUniform || at.row0 < extent(at).q_len;
  }
  /// Returns the coordinates of the scores of a work tile's rows, from key col0 on.
  ATTILE_DEVICE tile::TileCoord coord(const WorkTile& at, int col0) const {
    return {at.sequence, at.head, at.row0, col0, extent(at)};
  }

  /// These return where a work tile's sequence begins in tensors of queries, and of keys.
  ATTILE_HOST_DEVICE RowOrigin q_origin(const WorkTile& at) const {
    return kUniform ? RowOrigin{at.sequence, 0} : at.q_origin;
  }
  ATTILE_HOST_DEVICE RowOrigin kv_origin(const WorkTile& at) const {
    return kUniform ? RowOrigin{at.sequence, 0} : at.kv_origin;
  }

  /// These return Q, O, and a tensor of such a shape, of a work tile's sequence and query head. Row
  /// 0 is the sequence's first row, so that a tile loads from `at.row0` on.
  ATTILE_DEVICE auto q_of(const WorkTile& at) const { return rows_of_head(q, at, head_dim); }
  ATTILE_DEVICE auto o_of(const WorkTile& at) const { return rows_of_head(o, at, head_dim_v); }
  template <class X>
  ATTILE_DEVICE tile::Matrix<X> rows_of_head(const tile::TensorParam<X>& x, const WorkTile& at,
                                             int cols) const {
    return x.slice(q_origin(at), at.head, extent(at).q_len, cols);
  }
  /// These return K, V, and a tensor of such a shape, of a work tile's sequence and kv head. Row 0
  /// is the sequence's first key. What lies in pages has no rows before `at.first_key`.
  ATTILE_DEVICE auto k_of(const WorkTile& at) const { return keys_of_head(k, at, head_dim); }
  ATTILE_DEVICE auto v_of(const WorkTile& at) const {
    const auto matrix = keys_of_head(v, at, head_dim_v);
    if constexpr (Elements::kAllFp8) {
      return tile::WithColumnStride{matrix, this->v_col_stride};
    } else {
      return matrix;
    }
  }
  template <class X>
  ATTILE_DEVICE auto keys_of_head(const tile::TensorParam<X>& x, const WorkTile& at,
                                  int cols) const {
    if constexpr (kPaged) {
      return x.paged(policies.sequences, kv_origin(at), at.kv_head, at.first_key, extent(at).kv_len,
                     cols);
    } else {
      return x.slice(kv_origin(at), at.kv_head, extent(at).kv_len, cols);
    }
  }
  /// Points to the first element of a row of O, or of a tensor with as many rows. `at`: the row's
  /// sequence, head and number.
  template <class X>
  ATTILE_DEVICE X* query_row(const Tensor<X>& x, const ScoreIndex& at) const {
    const RowOrigin origin = policies.sequences.q_origin(at.batch);
    return x.row(origin.batch, at.head, std::int64_t{origin.row} + at.row);
  }
  /// Returns the score of the sink of a row: of the LSE of earlier keys, or of the query head.
  ATTILE_DEVICE float sink_of(const ScoreIndex& at) const {
    if constexpr (kIsEarlierKeys<typename Policies::SinkType>) {
      return *query_row(policies.sink.lse, at);
    } else {
      return policies.sink.logit(at.head);
    }
  }
  /// Points to the element of a sequence's first row in a tensor of LSE's shape; its other rows
  /// follow.
  template <class X>
  ATTILE_DEVICE X* first_row(const RowTensor<X>& x, int sequence, int head) const {
    const RowOrigin origin = policies.sequences.q_origin(sequence);
    return x.row(origin.batch, head, origin.row);
  }

  /// Returns the mask that decides about the scores of a tile that is visited. `is_full`: whether
  /// block lists name its block as full.
  ATTILE_HOST_DEVICE decltype(auto) mask_in_tile(bool is_full) const {
    if constexpr (kListsBlocks) {
      return MaskInTiles<MaskType>{policies.mask.inner, is_full};
    } else {
      return (policies.mask);
    }
  }
  /// Returns the policies with that mask.
  ATTILE_HOST_DEVICE decltype(auto) policies_in_tile(bool is_full) const {
    if constexpr (kListsBlocks) {
      return policies.with_mask(mask_in_tile(is_full));
    } else {
      return (policies);
    }
  }

  /// Returns the steps of a loop over the tiles of Bc keys that any of the `count` rows from
  /// `first` on sees: those tiles, or with a mask of block lists as many steps as the rows' block
  /// lists tiles (`kv_tile`). `head`: that of the work tile, or another one that shares the tile.
  ATTILE_DEVICE TileRange keys_seen(const WorkTile& at, int head, int first, int count) const {
    const Extent lengths = extent(at);
    const Interval rows{first, min(first + count, lengths.q_len)};
    if (!may_ask_mask(rows, lengths)) return {};
    if constexpr (kListsBlocks) {
      return listed_keys(at.sequence, head, first).steps(MaskType::kKvBlock / Traits::kBc);
    } else {
      return tiles_of(visible_columns(policies.mask, at.sequence, head, rows, lengths),
                      Traits::kBc);
    }
  }
  /// Returns what `at.first_key` has to be for the same rows and head: kv_len where they see
  /// nothing. Without pages it is not read.
  ATTILE_DEVICE int first_key_seen(const WorkTile& at, int head, int first, int count) const {
    if constexpr (kPaged) {
      const Extent lengths = extent(at);
      const Interval rows{first, min(first + count, lengths.q_len)};
      if (!may_ask_mask(rows, lengths)) return lengths.kv_len;
      const Interval seen =
          visible_columns(policies.mask, at.sequence, head, rows, lengths).touched;
      return seen.empty() ? lengths.kv_len : seen.begin;
    } else {
      return 0;
    }
  }
  /// Returns the kv tile of a step of at.kv_tiles. A list may name tiles behind the last key, of
  /// which all scores are hidden by the extent.
  ATTILE_DEVICE int kv_tile(const WorkTile& at, int step) const {
    if constexpr (kListsBlocks) {
      return listed_keys(at.sequence, at.head, at.row0)
          .tile(MaskType::kKvBlock / Traits::kBc, at.kv_tiles, step);
    } else {
      return step;
    }
  }
  /// Returns whether all scores of a step of `steps`, whose kv tile is `kv_tile`, are visible.
  ATTILE_DEVICE bool is_full(const WorkTile& at, const TileRange& steps, int step,
                             int kv_tile) const {
    if constexpr (kListsBlocks) {
      return steps.full(step) && (kv_tile + 1) * Traits::kBc <= extent(at).kv_len;
    } else {
      return steps.full(step);
    }
  }
  /// Calls f(masked, step) for each step of at.kv_tiles, as `visit` does.
  template <class F>
  ATTILE_DEVICE void visit_keys(const WorkTile& at, const F& f) const {
    if constexpr (kListsBlocks) {
      for (int step = at.kv_tiles.first; step < at.kv_tiles.last; ++step) {
        if (is_full(at, at.kv_tiles, step, kv_tile(at, step))) {
          f(std::false_type{}, step);
        } else {
          f(std::true_type{}, step);
        }
      }
    } else {
      visit(at.kv_tiles, f);
    }
  }

  /// Returns the factor from the products of a work tile's elements to its scores.
  ATTILE_DEVICE float score_scale(const WorkTile& at) const {
    if constexpr (Problem::kHasScales) {
      return this->scaled(scale, at.sequence, at.kv_head);
    } else {
      return scale;
    }
  }
  /// Returns the factor that O has beside 1 / l. `tile()` returns the work tile; it is not called
  /// where there are no scales. Scope    all lanes of a warp.
  template <class MakeTile>
  ATTILE_DEVICE float output_scale(const MakeTile& tile) const {
    if constexpr (Problem::kHasScales) {
      const WorkTile at = tile();
      return sampler().keep_scale() * this->v_scale.at(at.sequence, at.kv_head);
    } else {
      return sampler().keep_scale();
    }
  }

  /// Returns what decides about dropout. Scope    all lanes of a warp.
  ATTILE_DEVICE auto sampler() const {
    const auto sampler = policies.dropout.sampler(q_heads);
    if constexpr (GroupSampler<std::remove_cv_t<decltype(sampler)>>) {
      return arch::shuffle_words(sampler, 0);
    } else {
      return sampler;
    }
  }

 private:
  /// Returns whether the mask can say what rows see. One that reads memory may have none where
  /// there are no keys.
  ATTILE_DEVICE static bool may_ask_mask(Interval rows, Extent lengths) {
    if (rows.empty()) return false;
    return !(kListsBlocks || kHasTileMask<MaskType>) || lengths.kv_len != 0;
  }
  /// Returns the blocks of keys that row `row` of a head sees, with a mask of block lists.
  ATTILE_DEVICE BlockList listed_keys(int sequence, int head, int row) const {
    static_assert(MaskType::kQBlock % Traits::kBr == 0 && MaskType::kKvBlock % Traits::kBc == 0,
                  "attile: with a mask of block lists, Br and Bc must divide the sizes of a block");
    return policies.mask.listed_columns(sequence, head, row / MaskType::kQBlock);
  }

  Problem(const Args& args, HeadDims dims)
      : detail::Fp8Inputs<Elements>(args),
        detail::PreparedModifierOf<Traits>(args.score_mod, scale_of(args, dims.qk)),
        q(tile::tensor_param(args.q, dims.qk)),
        k(tile::tensor_param(args.k, dims.qk)),
        v(tile::tensor_param(args.v, dims.v, args.v_col_stride)),
        o(tile::tensor_param(args.o, dims.v)),
        lse(per_row(args, args.lse)),
        batch(args.batch),
        q_heads(args.q_heads),
        kv_heads(args.kv_heads),
        group_heads(args.q_heads / args.kv_heads),
        bounds{args.q_len, args.kv_len},
        head_dim(dims.qk),
        head_dim_v(dims.v),
        scale(scale_of(args, dims.qk)),
        policies(Policies::of(args)) {
    if constexpr (kOrdersHeads) {
      const std::int64_t longer = max(args.q_len, args.kv_len);
      this->head_order = HeadOrder::of(attile::data_axes(policies.score_mod), score_shape(),
                                       longer * (head_dim + head_dim_v) * sizeof(T));
    }
  }
};

}  // namespace attile
