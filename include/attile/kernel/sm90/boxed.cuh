// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/boxed_tensor.h>
#include <attile/arch/bulk_tensor.cuh>
#include <attile/core/args.h>
#include <attile/core/config.h>
#include <attile/core/index.h>
#include <attile/core/math.h>
#include <attile/core/sequences.h>
#include <attile/core/status.h>
#include <attile/core/tensor.h>
#include <attile/kernel/problem/work_tile.h>

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

namespace attile::sm90 {

/// Returns a tensor as TMA addresses it, and the box of it that fills one panel of a tile: `rows`
/// rows of each of `packed` neighbouring heads.
/// Shapes   the result: (dim, head of a pack, row, pack, batch), the contiguous dimension first.
template <class Tile, class T, class Data>
arch::BoxedTensor boxed(const Tensor<Data>& t, RowShape shape, int heads, int dim, int packed = 1,
                        int rows = Tile::kRows) {
  constexpr int kBytes = sizeof(T);
  const std::int64_t head_bytes = t.head_stride * kBytes;
  return {t.data,
          {dim, packed, shape.rows, heads / packed, shape.batches},
          {kBytes, head_bytes, t.row_stride * kBytes, head_bytes * packed, t.batch_stride * kBytes},
          {Tile::Layout::kPanelColumns, packed, rows, 1, 1}};
}

/// Returns the same tensor for boxes that end with their sequence, where sequences have lengths of
/// their own: rows of a box behind a sequence's last one are zeros, and are not written, although
/// those of its neighbour follow. The dimension of the rows has only `longest` of them, and begins
/// as many rows before the tensor; another dimension, of the same stride, is where the sequence
/// ends (`SequenceBoxes`). A tensor so near to address 0 that there is nothing before it has no
/// such boxes. Shapes   (dim, end, row, head, batch).
inline arch::BoxedTensor ragged(arch::BoxedTensor boxed, int longest) {
  if (boxed.size[2] <= 1) boxed.stride_bytes[2] = 16;  // that of one row is not used
  const std::int64_t rows = boxed.size[2], stride = boxed.stride_bytes[2];
  boxed.size[1] = rows + 1;
  boxed.stride_bytes[1] = stride;
  boxed.size[2] = longest;
  if (boxed.data != nullptr) {
    const auto address = reinterpret_cast<std::uintptr_t>(boxed.data);
    const bool fits = stride <= 0 || address / static_cast<std::uintptr_t>(stride) >
                                         static_cast<unsigned>(longest);
    boxed.data = fits ? reinterpret_cast<const void*>(address - longest * stride) : nullptr;
  }
  return boxed;
}

/// Finds the boxes of a sequence's rows in tensor maps: of dense tensors, or where sequences have
/// lengths of their own of `ragged` ones.
template <class SequencesType>
class SequenceBoxes {
 public:
  template <class Args>
  explicit SequenceBoxes(const Args& a) {
    if constexpr (!kUniform) longest_ = longest_lengths(a);
  }

  /// Return a tensor of queries, or of keys, as the maps have it.
  arch::BoxedTensor of_queries(const arch::BoxedTensor& boxed) const {
    if constexpr (!kUniform) return ragged(boxed, longest_.q_len);
    return boxed;
  }
  arch::BoxedTensor of_keys(const arch::BoxedTensor& boxed) const {
    if constexpr (!kUniform) return ragged(boxed, longest_.kv_len);
    return boxed;
  }

  /// Return the coordinates of a work tile's rows, from column col0 on, and of its keys, from key
  /// key0 on. `head`: as the map counts heads. Where sequences have lengths of their own, and row0
  /// is below 0, they are those of a box of zeros.
  ATTILE_DEVICE arch::TmaCoord queries(const WorkTile& at, int head, int col0 = 0) const {
    if constexpr (kUniform) {
      return {col0, 0, at.row0, head, at.sequence};
    } else {
      const int before = longest_.q_len - at.extent.q_len;
      const int row = at.row0 < 0 ? longest_.q_len : before + at.row0;
      return {col0, at.q_origin.row + at.extent.q_len, row, head, at.q_origin.batch};
    }
  }
  ATTILE_DEVICE arch::TmaCoord keys(const WorkTile& at, int key0) const {
    if constexpr (kUniform) {
      return {0, 0, key0, at.kv_head, at.sequence};
    } else {
      const int before = longest_.kv_len - at.extent.kv_len;
      return {0, at.kv_origin.row + at.extent.kv_len, before + key0, at.kv_head,
              at.kv_origin.batch};
    }
  }

 private:
  static constexpr bool kUniform = SequencesType::kUniform;
  struct Nothing {};
  [[no_unique_address]] std::conditional_t<kUniform, Nothing, Extent> longest_{};
};

/// Returns the reason why TMA cannot address the tensors of a pass.
inline Check not_boxable(Direction direction) {
  return refuse(direction == Direction::kForward
                    ? "the sm90 kernels copy q, k, v and o in boxes: their addresses and strides "
                      "must be multiples of 16 bytes, and strides above 0 and below 2^40 bytes"
                    : "the sm90 kernels copy q, k, v, dout, dk and dv in boxes: their addresses "
                      "and strides must be multiples of 16 bytes, and strides above 0 and below "
                      "2^40 bytes");
}
/// Returns the reason why TMA cannot address the elements of a score modifier.
inline Check elements_not_boxable() {
  return refuse(
      "this sm90 kernel copies the score modifier's elements in boxes: their address and strides "
      "must be multiples of 16 bytes, columns contiguous, and other strides 0, or above 0 and "
      "below "
      "2^40 bytes");
}
/// Returns the reason why TMA would write past the rows of a pass's results.
inline Check not_storable(Direction direction) {
  return refuse(direction == Direction::kForward
                    ? "the sm90 kernels write o in units of 16 bytes: its rows, head_dim_v "
                      "elements, must be multiples of 16 bytes"
                    : "the sm90 kernels write dk and dv in units of 16 bytes: their rows, head_dim "
                      "and head_dim_v elements, must be multiples of 16 bytes");
}
/// Returns the driver's error in making tensor maps, with the reason, or no error.
inline Check check_maps(cudaError_t error) {
  if (error == cudaSuccess) return {};
  return {error, "the CUDA driver makes no tensor maps of q, k, v, o, dout, dk or dv"};
}

}  // namespace attile::sm90
