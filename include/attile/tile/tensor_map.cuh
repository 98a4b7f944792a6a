// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/boxed_tensor.h>
#include <attile/arch/tensor_map.cuh>
#include <attile/core/sequences.h>
#include <attile/core/status.h>
#include <attile/core/tensor.h>

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

// Tensor maps, by which TMA finds the tiles of a tensor. The host makes them.

namespace attile::tile {

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

/// Makes the map by which a Pipeline of `Tile` loads the tiles of a (batch, head, row, dim) tensor,
/// and by which `store_by_tma` stores them. Rows and columns of a tile that the tensor does not
/// have are loaded as zeros, and not stored.
///   arch::TensorMap k_map;
///   if (const attile::Check ok = tile::make_map<KTile>(k_map, k, {batch, kv_len}, kv_heads, 128);
///       !ok) {
///     return ok.error;  // ok.why says why
///   }
/// A kernel takes it in a parameter under ATTILE_GRID_CONSTANT; the tensor's address and strides
/// are in it, and not the contents.
/// Shapes   shape: the batches, and the rows of each; dim: the columns, up to those of `Tile`.
/// Errors   cudaErrorInvalidValue for a tensor that TMA cannot address; cudaErrorNotSupported where
///          the driver makes no tensor maps.
template <class Tile, class Data>
[[nodiscard]] Check make_map(arch::TensorMap& map, const Tensor<Data>& tensor, RowShape shape,
                             int heads, int dim) {
  using T = std::remove_const_t<Data>;
  static_assert(std::is_same_v<T, typename Tile::Element>,
                "attile::tile::make_map: the tensor and the tile have different elements");
  if (dim < 1 || dim > Tile::kCols) {
    return refuse("make_map: dim must be 1 to the columns of the tile");
  }
  const arch::BoxedTensor box = boxed<Tile, T>(tensor, shape, heads, dim);
  if (const char* const why = arch::box_fault(box)) return refuse(why);
  // A store writes whole units of 16 bytes, and would write past a row that ends inside one.
  if (!std::is_const_v<Data> && !arch::storable(box)) {
    return refuse("make_map: a tensor that is written has rows of a multiple of 16 bytes");
  }
  if (const cudaError_t error = arch::make_map(map, box)) {
    return {error, "make_map: the CUDA driver makes no tensor map of this tensor"};
  }
  return {};
}

}  // namespace attile::tile
