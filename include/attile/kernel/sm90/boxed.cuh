// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/boxed_tensor.h>
#include <attile/core/status.h>
#include <attile/core/tensor.h>

#include <cuda_runtime.h>

#include <cstdint>

namespace attile::sm90 {

/// A tensor and the box of it that fills one panel of a tile: of `rows` rows of `packed`
/// neighbouring heads each.
template <class Tile, class T, class Data>
arch::BoxedTensor boxed(const Tensor<Data>& t, int batch, int heads, int length, int dim,
                        int packed = 1, int rows = Tile::kRows) {
  constexpr int kBytes = sizeof(T);
  const std::int64_t head_bytes = t.head_stride * kBytes;
  return {t.data,
          {dim, packed, length, heads / packed, batch},
          {kBytes, head_bytes, t.row_stride * kBytes, head_bytes * packed, t.batch_stride * kBytes},
          {Tile::Layout::kPanelColumns, packed, rows, 1, 1}};
}

inline Check not_boxable() {
  return refuse(
      "the sm90 kernels copy q, k, v, dout, dk, dv and a forward pass's o as tensors: their "
      "addresses and strides must be multiples of 16 bytes, strides above 0, and the rows of a "
      "forward pass's o and of dk and dv (head_dim_v and head_dim) multiples of 16 bytes too");
}
inline Check check_maps(cudaError_t error) {
  if (error == cudaSuccess) return {};
  return {error, "the CUDA driver makes no tensor maps of q, k, v, o, dout, dk or dv"};
}

}  // namespace attile::sm90
