// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/boxed_tensor.h>
#include <attile/arch/bulk_tensor.cuh>
#include <attile/arch/tensor_map.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/index.h>
#include <attile/core/math.h>
#include <attile/core/status.h>
#include <attile/core/tile_modifier.h>
#include <attile/core/work_tile.h>
#include <attile/kernel/problem/element_copies.cuh>
#include <attile/kernel/sm90/boxed.cuh>
#include <attile/tile/panel_tile.cuh>
#include <attile/tile/pipeline.cuh>

#include <cstdint>

// Tiles of a score modifier's elements in shared memory, which TMA fills; where sequences have
// lengths of their own, lanes of a warp fill those at a sequence's end.

namespace attile::sm90 {

/// Describes a score modifier's elements as TMA addresses them, and the box of them that fills one
/// panel of a tile: an axis that they are repeated along has one element. Where sequences have
/// lengths of their own (kUniform false) the other axes have several, so that neither bounds nor
/// the number of sequences say whether TMA can address them.
template <class Tile, bool kUniform, class T>
arch::BoxedTensor boxed_elements(const ElementTensor<T>& x, const ScoreShape& shape) {
  constexpr int kBytes = sizeof(T), kLeast = kUniform ? 0 : 2;
  static_assert(kBytes == 2, "attile::sm90: TMA copies a modifier's elements of 16 bits");
  const auto count = [](std::int64_t stride, int size) {
    return stride == 0 ? 1 : max(size, kLeast);
  };
  return {x.data,
          {shape.extent.kv_len, 1, max(shape.extent.q_len, kLeast),
           count(x.head_stride, shape.heads), count(x.batch_stride, shape.batch)},
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
    load_box(pipeline, state, at, key0);
  }
  /// Does the same where sequences have lengths of their own: rows and keys beyond these are not
  /// read, and memory need not be there. A tile that lies wholly within the sequence comes as a
  /// box, and any other one by copies of the lanes, which end where the sequence does.
  /// Scope    all lanes of a warp, each of which the pipeline counts as a producer.
  template <class Params, class Pipeline>
  ATTILE_DEVICE void load_within(const Params& p, const Pipeline& pipeline,
                                 const typename Pipeline::State& state, const WorkTile& at,
                                 int key0) const {
    using Tile = decltype(pipeline.tile(0));
    const int lane = arch::thread_index() % arch::kWarpSize;
    const Extent extent = p.extent(at);
    pipeline.await_empty(state);
    if (at.row0 + Tile::kRows > extent.q_len || key0 + Tile::kCols > extent.kv_len) {
      tile::load_async<arch::kWarpSize>(pipeline.tile(state.stage), elements_of(p, at, key0),
                                        at.row0, lane);
      pipeline.producer_commit_copies(state);
    } else {
      // TMA writes over what this lane may have copied to the stage, and all lanes have said so.
      arch::fence_async_proxy();
      arch::warp_barrier();
      if (lane == 0) {
        static_cast<void>(pipeline.expect(state, Pipeline::kTileBytes));
        load_box(pipeline, state, at, key0);
      } else {
        pipeline.producer_commit(state);
      }
    }
  }

 private:
  template <class Pipeline>
  ATTILE_DEVICE void load_box(const Pipeline& pipeline, const typename Pipeline::State& state,
                              const WorkTile& at, int key0) const {
    pipeline.load(state, map, at.row0, at.head * has_heads, at.sequence * has_batches, key0);
  }
};
template <>
struct ElementMap<false> {};

}  // namespace attile::sm90
