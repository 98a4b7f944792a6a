// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/arch/boxed_tensor.h>
#include <attile/arch/launch.cuh>
#include <attile/arch/memory.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/math.h>
#include <attile/core/tensor.h>
#include <attile/core/vec.h>
#include <attile/tile/mma_operands.cuh>
#include <attile/tile/transpose.cuh>

#include <cstddef>
#include <cstdint>

// V in fp8, transposed in scratch memory by a kernel ahead of the forward kernel, which then copies
// its tiles as they are. Else each block transposes each tile of V that it needs, which takes the
// bandwidth of shared memory that its products want.

namespace attile::sm90 {

/// The keys and columns that a block transposes, and its threads.
inline constexpr int kTransposedKeys = 128, kTransposedCols = 64, kTransposeThreads = 256;

/// Holds the parameter of the kernel that transposes V.
/// Shapes   from: element (key, col) of a head at key * from.row_stride + col * col_stride, one of
///          which is 1; to: (batch, kv_heads, cols(), keys()), dense, both in the order of a product
///          (tile::transpose_operand), with zeros where `from` has no element.
template <class V>
struct TransposedValues {
  Tensor<const V> from;
  std::int64_t col_stride;
  V* to;
  int batch, kv_heads, kv_len, dim;

  ATTILE_HOST_DEVICE int keys() const { return round_up(kv_len, 16); }
  ATTILE_HOST_DEVICE int cols() const { return round_up(dim, 16); }
  ATTILE_HOST_DEVICE std::int64_t head_stride() const { return std::int64_t{cols()} * keys(); }
  std::size_t bytes() const {
    return static_cast<std::size_t>(std::int64_t{batch} * kv_heads * head_stride());
  }
  ATTILE_HOST_DEVICE int key_tiles() const { return ceil_div(keys(), kTransposedKeys); }
  ATTILE_HOST_DEVICE int col_tiles() const { return ceil_div(cols(), kTransposedCols); }
  std::int64_t blocks() const {
    return std::int64_t{batch} * kv_heads * key_tiles() * col_tiles();
  }
  /// Describes `to` as TMA addresses it, and the box of it that fills one panel of a Tile.
  template <class Tile>
  arch::BoxedTensor boxed() const {
    return {to,
            {keys(), 1, cols(), kv_heads, batch},
            {1, 16, keys(), head_stride(), kv_heads * head_stride()},
            {Tile::Layout::kPanelColumns, 1, Tile::kRows, 1, 1}};
  }
};

/// Transposes V.
/// Scope    kTransposeThreads threads a block, with kTransposedBytes of dynamic shared memory.
/// Barriers all have written the tile before one reads it.
template <class V>
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(kTransposeThreads, 1)
    transpose_values_kernel(const ATTILE_GRID_CONSTANT TransposedValues<V> p) {
  constexpr int kKeys = kTransposedKeys, kCols = kTransposedCols, kPitch = kCols + 16;
  int tile = arch::block_index();
  const int key0 = tile % p.key_tiles() * kKeys;
  tile /= p.key_tiles();
  const int col0 = tile % p.col_tiles() * kCols;
  tile /= p.col_tiles();
  const int head = tile % p.kv_heads, sequence = tile / p.kv_heads;
  const V* const from = p.from.row(sequence, head, key0) + col0 * p.col_stride;
  V* const shared = reinterpret_cast<V*>(arch::dynamic_shared());
  const int keys = p.kv_len - key0, cols = p.dim - col0;  // that `from` has, of this tile or more
  // Each thread copies 16 neighbours at a time.
  ATTILE_UNROLL_BY(1)
  for (int i = arch::thread_index(); i < kKeys * kCols / 16; i += kTransposeThreads) {
    const bool by_rows = p.col_stride == 1;
    const int key = by_rows ? i / (kCols / 16) : i % (kKeys / 16) * 16;
    const int col = by_rows ? i % (kCols / 16) * 16 : i / (kKeys / 16);
    const int count = by_rows ? (key < keys ? cols - col : 0) : (col < cols ? keys - key : 0);
    const V* const at = from + key * p.from.row_stride + col * p.col_stride;
    Vec<V, 16> x{};
    if (count >= 16) {
      x = arch::load<16>(at);
    } else {
      for (int n = 0; n < count; ++n) x[n] = at[n];
    }
    V* const to = shared + key * kPitch + col;
    if (by_rows) {
      arch::store(to, x);
    } else {
      ATTILE_UNROLL
      for (int n = 0; n < 16; ++n) to[n * kPitch] = x[n];
    }
  }
  arch::barrier();
  // Two lanes write a sector of 32 bytes, and 16 of these read the columns of one word each.
  ATTILE_UNROLL_BY(1)
  for (int i = arch::thread_index(); i < kKeys * kCols / 16; i += kTransposeThreads) {
    const int row = i / 2 % kCols, key = (i % 2 + i / (2 * kCols) * 2) * 16;
    if (col0 + row >= p.cols() || key0 + key >= p.keys()) continue;
    const V* const column = shared + key * kPitch + tile::column_of_row(row);
    Vec<V, 16> x;
    ATTILE_UNROLL
    for (int n = 0; n < 16; ++n) x[n] = column[tile::BytePairs::element(n) * kPitch];
    const std::int64_t head_number = std::int64_t{sequence} * p.kv_heads + head;
    arch::store(p.to + head_number * p.head_stride() +
                    std::int64_t{col0 + row} * p.keys() + key0 + key,
                x);
  }
}

/// The dynamic shared memory of a block of that kernel.
inline constexpr std::size_t kTransposedBytes = kTransposedKeys * (kTransposedCols + 16);

}  // namespace attile::sm90
