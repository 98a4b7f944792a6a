// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/boxed_tensor.h>
#include <attile/core/config.h>
#include <attile/core/math.h>
#include <attile/core/tensor.h>

#include <cstddef>
#include <cstdint>

// What the kernel that transposes V in fp8 takes (transpose_v.cuh).

namespace attile::sm90 {

/// The keys and columns that a block transposes, and its threads.
inline constexpr int kTransposedKeys = 128, kTransposedCols = 128, kTransposeThreads = 256;
/// The bytes from one key to the next in its shared memory: a multiple of 16, for stores of 16
/// bytes. Lanes that read keys 16 apart meet in one bank, two at a time, whatever multiple it is.
inline constexpr int kTransposedPitch = kTransposedCols + 16;
/// The dynamic shared memory of a block of that kernel.
inline constexpr std::size_t kTransposedBytes = kTransposedKeys * kTransposedPitch;

/// Holds the parameter of the kernel that transposes V.
/// Shapes   from: element (key, col) of a head at key * from.row_stride + col * col_stride, one of
///          which is 1; to: (batch, kv_heads, padded_cols(), padded_keys()), dense, both in the
///          order of a product (tile::transpose_operand), with zeros where `from` has no element.
template <class V>
struct TransposeVParams {
  Tensor<const V> from;
  std::int64_t col_stride;
  V* to;
  int batch, kv_heads, kv_len, dim;

  ATTILE_HOST_DEVICE int padded_keys() const { return round_up(kv_len, kTransposedKeys); }
  ATTILE_HOST_DEVICE int padded_cols() const { return round_up(dim, 16); }
  ATTILE_HOST_DEVICE std::int64_t head_stride() const {
    return std::int64_t{padded_cols()} * padded_keys();
  }
  std::size_t bytes() const {
    return static_cast<std::size_t>(std::int64_t{batch} * kv_heads * head_stride());
  }
  ATTILE_HOST_DEVICE int key_tiles() const { return padded_keys() / kTransposedKeys; }
  ATTILE_HOST_DEVICE int col_tiles() const { return ceil_div(padded_cols(), kTransposedCols); }
  std::int64_t blocks() const { return std::int64_t{batch} * kv_heads * key_tiles() * col_tiles(); }
  /// Holds what a block transposes. The counts are those from the tile's first element to the end
  /// of the tensor, so that they may be larger than the tile.
  struct Tile {
    const V* from;
    V* to;
    int keys_left, cols_left;  ///< elements of `from`
    int rows_left;             ///< rows of `to`: columns of V, with those that pad them
  };
  /// Returns the tile of block `block`.
  ATTILE_DEVICE Tile tile(int block) const {
    const int key0 = block % key_tiles() * kTransposedKeys;
    const int batch_head_col_tile = block / key_tiles();
    const int col0 = batch_head_col_tile % col_tiles() * kTransposedCols;
    const int batch_head = batch_head_col_tile / col_tiles();
    return {from.row(batch_head / kv_heads, batch_head % kv_heads, key0) + col0 * col_stride,
            to + batch_head * head_stride() + std::int64_t{col0} * padded_keys() + key0,
            kv_len - key0, dim - col0, padded_cols() - col0};
  }
  /// Describes `to` as TMA addresses it, and the box of it that fills one panel of a tile of V.
  template <class VTile>
  arch::BoxedTensor boxed() const {
    return {to,
            {padded_keys(), 1, padded_cols(), kv_heads, batch},
            {1, 16, padded_keys(), head_stride(), kv_heads * head_stride()},
            {VTile::Layout::kPanelColumns, 1, VTile::kRows, 1, 1}};
  }
};

}  // namespace attile::sm90
