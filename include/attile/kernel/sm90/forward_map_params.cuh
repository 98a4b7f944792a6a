// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/tensor_map.cuh>
#include <attile/core/args.h>
#include <attile/core/check.h>
#include <attile/core/config.h>
#include <attile/core/math.h>
#include <attile/core/status.h>
#include <attile/kernel/sm90/boxed.cuh>
#include <attile/kernel/sm90/element_tiles.cuh>
#include <attile/kernel/sm90/forward_traits.cuh>
#include <attile/kernel/sm90/modifier_words.cuh>

// How the forward kernel's tensors are cut into the boxes that TMA copies.

namespace attile::sm90 {

/// Says how many query heads of one kv head a tile packs (PackGQA in FlashAttention-3), and how
/// many rows of each of them a warpgroup computes.
struct HeadPacking {
  int heads = 1;
  int rows = kWarpgroupRows;

  HeadPacking() = default;
  /// Packs as many query heads as fit the rows of a warpgroup and divide `group_heads`, the query
  /// heads of a kv head.
  explicit HeadPacking(int group_heads) {
    for (heads = min(group_heads, kWarpgroupRows); group_heads % heads != 0;) --heads;
    rows = kWarpgroupRows / heads;
  }
};

/// Returns the packing that the kernel uses for the arguments.
template <class Traits>
HeadPacking packing_of(const typename Traits::Args& args) {
  return Traits::kPacksHeads ? HeadPacking(args.q_heads / args.kv_heads) : HeadPacking();
}

/// Describes V whose keys are contiguous (v_col_stride is not 1) as TMA addresses it, and the box
/// of it that fills one panel of a tile.
/// Shapes   (key, 1, dim, kv head, batch).
template <class Traits>
arch::BoxedTensor boxed_columns(const typename Traits::Args& a, int dim) {
  using Tile = typename Traits::VTile;
  static_assert(sizeof(typename Tile::Element) == 1,
                "attile::sm90: only V in fp8 may lie by columns");
  return {a.v.data,
          {a.kv_len, 1, dim, a.kv_heads, a.batch},
          {1, 16, a.v_col_stride, a.v.head_stride, a.v.batch_stride},
          {Tile::Layout::kPanelColumns, 1, Tile::kRows, 1, 1}};
}

/// Describes Q, K, V and O, and the modifier's elements, as TMA addresses them.
template <class Traits>
struct BoxedTensors {
  arch::BoxedTensor q, k, v, o, elements{};
  bool v_by_columns = false;
  Check pages;  ///< what `check_pages` says
  Check words;  ///< what `check_words` says

  BoxedTensors(const typename Traits::Args& a, HeadPacking packing)
      : BoxedTensors(a, packing, head_dims(a, Traits::kD, Traits::kDv)) {}

  bool has_rows() const { return q.size[2] > 0; }
  bool has_keys() const { return k.size[2] > 0; }
  /// Refuses tensors that TMA cannot address or would write past the rows of, pages that do not fit
  /// a tile, and a score modifier that the kernel's words cannot hold.
  Check check() const {
    if (!has_rows()) return {};
    if (has_keys() && !pages) return pages;
    if (!words) return words;
    if (has_keys() && v_by_columns && !Traits::kTakesColumns) return columns_not_boxable();
    const bool keys = !has_keys() || (arch::boxable(k) && arch::boxable(v));
    const bool queries = arch::boxable(q) && (!Traits::kStagesOutput || arch::boxable(o));
    if (!keys || !queries) return not_boxable(Direction::kForward);
    if (Traits::kElementStages > 0 && has_keys()) {
      if (const Check copies = check_elements(elements); !copies) return copies;
    }
    const bool stored = !Traits::kStagesOutput || arch::storable(o);
    return stored ? Check{} : not_storable(Direction::kForward);
  }

 private:
  using E = typename Traits::Elements;
  /// The type of O in boxes; no box of O is used where it is not staged.
  using TO = typename Traits::OTile::Element;

  BoxedTensors(const typename Traits::Args& a, HeadPacking packing, HeadDims dims)
      : q(boxed<typename Traits::QTile, typename E::Q>(a.q, a.sequences.q_shape(a.batch, a.q_len),
                                                       a.q_heads, dims.qk, packing.heads,
                                                       packing.rows)),
        k(boxed<typename Traits::KTile, typename E::K>(a.k, a.sequences.kv_shape(a.batch, a.kv_len),
                                                       a.kv_heads, dims.qk, 1,
                                                       box_keys(a, Traits::kBc))),
        v(boxed<typename Traits::LoadedVTile, typename E::V>(
            a.v, a.sequences.kv_shape(a.batch, a.kv_len), a.kv_heads, dims.v, 1,
            box_keys(a, Traits::kBc))),
        o(boxed<typename Traits::OTile, TO>(a.o, a.sequences.q_shape(a.batch, a.q_len), a.q_heads,
                                            dims.v, packing.heads, packing.rows)),
        pages(check_pages(a, Traits::kBc)),
        words(check_words<Traits::kWords, Direction::kForward>(a.score_mod)) {
    using Boxes = SequenceBoxes<typename Traits::SequencesType>;
    const Boxes boxes(a, a.q_heads, a.kv_heads);
    q = boxes.of(Boxes::kQ, q);
    o = boxes.of(Boxes::kO, o);
    k = boxes.of(Boxes::kKv, k);
    v = boxes.of(Boxes::kKv, v);
    if constexpr (Traits::kElementStages > 0) {
      elements = boxed_elements<typename Traits::ElementTile, !Traits::kCopiesElements>(
          a.score_mod.elements(), score_shape(a));
    }
    if constexpr (Traits::kFp8Values) {
      // The stride of an axis with one element says nothing.
      v_by_columns = a.v_col_stride != 1 && (dims.v > 1 || a.v.row_stride == 1);
      if (Traits::kTakesColumns && v_by_columns) v = boxed_columns<Traits>(a, dims.v);
    }
  }
};

/// Holds the descriptors by which TMA addresses Q, K, V and, where it is staged, O.
struct TensorMaps {
  arch::TensorMap q, k, v, o;
  bool has_keys = false;  ///< else those of K and V are not made, and must not be used
  bool v_by_columns = false;
  bool v_is_transposed = false;  ///< V lies in scratch memory (TransposeVParams)

  /// Makes them. Errors   those of arch::make_map.
  template <class Traits>
  [[nodiscard]] cudaError_t make(const BoxedTensors<Traits>& boxed) {
    if (const cudaError_t error = arch::make_map(q, boxed.q)) return error;
    if constexpr (Traits::kStagesOutput) {
      if (const cudaError_t error = arch::make_map(o, boxed.o)) return error;
    }
    has_keys = boxed.has_keys();
    v_by_columns = boxed.v_by_columns;
    if (!has_keys) return cudaSuccess;
    if (const cudaError_t error = arch::make_map(k, boxed.k)) return error;
    return arch::make_map(v, boxed.v);
  }

  /// Prefetches those that are made. Scope    one thread.
  template <class Traits>
  ATTILE_DEVICE void prefetch() const {
    arch::prefetch_map(q);
    if constexpr (Traits::kStagesOutput) arch::prefetch_map(o);
    if (!has_keys) return;
    arch::prefetch_map(k);
    arch::prefetch_map(v);
  }
};

}  // namespace attile::sm90
