// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/boxed_tensor.h>
#include <attile/core/args.h>
#include <attile/core/sequences.h>
#include <attile/core/status.h>
#include <attile/core/tensor.h>

#include <cuda_runtime.h>

#include <cstdint>

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
