// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/boxed_tensor.h>
#include <attile/arch/tensor_map.cuh>
#include <attile/core/config.h>
#include <attile/core/index.h>
#include <attile/core/status.h>
#include <attile/core/tile_modifier.h>
#include <attile/core/work_tile.h>
#include <attile/kernel/sm90/boxed.cuh>
#include <attile/tile/panel_tile.cuh>
#include <attile/tile/pipeline.cuh>

#include <cstdint>

// Tiles of a score modifier's elements in shared memory, which TMA fills.

namespace attile::sm90 {

/// Describes a score modifier's elements as TMA addresses them, and the box of them that fills one
/// panel of a tile: an axis that they are repeated along has one element.
template <class Tile, class T>
arch::BoxedTensor boxed_elements(const ElementTensor<T>& x, const ScoreShape& shape) {
  constexpr int kBytes = sizeof(T);
  static_assert(kBytes == 2, "attile::sm90: TMA copies a modifier's elements of 16 bits");
  const auto count = [](std::int64_t stride, int size) { return stride == 0 ? 1 : size; };
  return {x.data,
          {shape.extent.kv_len, 1, shape.extent.q_len, count(x.head_stride, shape.heads),
           count(x.batch_stride, shape.batch)},
          {x.col_stride * kBytes, 16, x.row_stride * kBytes, x.head_stride * kBytes,
           x.batch_stride * kBytes},
          {Tile::Layout::kPanelColumns, 1, Tile::kRows, 1, 1}};
}

/// Refuses elements that TMA cannot address, and those that all rows have in common: for these
/// there are kernels that read them once for each column.
inline Check check_elements(const arch::BoxedTensor& boxed) {
  const bool copies =
      arch::boxable(boxed) && boxed.stride_bytes[0] == 2 && boxed.stride_bytes[2] != 0;
  return copies ? Check{}
                : refuse(
                      "this sm90 kernel copies the score modifier's elements in boxes: their "
                      "address and strides must be multiples of 16 bytes, columns contiguous, rows "
                      "above 0, other strides 0 or above, and all below 2^40 bytes");
}

/// Holds the descriptor of a modifier's elements, and which of their axes are not repeated.
template <bool kThere>
struct ElementMap {
  arch::TensorMap map{};
  int has_heads = 0, has_batches = 0;  ///< 1 or 0

  /// Makes them for elements that check_elements takes.
  [[nodiscard]] cudaError_t make(const arch::BoxedTensor& boxed) {
    has_heads = boxed.size[3] > 1;
    has_batches = boxed.size[4] > 1;
    return arch::make_map(map, boxed);
  }
  /// Waits until the stage is empty, and begins the copy of the elements of a work tile's rows and
  /// of its keys from key0 on. Scope    the producer thread.
  template <class Pipeline>
  ATTILE_DEVICE void load(const Pipeline& pipeline, const typename Pipeline::State& state,
                          const WorkTile& at, int key0) const {
    pipeline.producer_acquire(state);
    pipeline.load(state, map, at.row0, at.head * has_heads, at.sequence * has_batches, key0);
  }
};
template <>
struct ElementMap<false> {};

}  // namespace attile::sm90
