// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/arch/boxed_tensor.h>
#include <attile/arch/fp8.cuh>
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
inline constexpr int kTransposedKeys = 128, kTransposedCols = 128, kTransposeThreads = 256;
/// The bytes from one key to the next in its shared memory.
inline constexpr int kTransposedPitch = kTransposedCols + 16;

/// Holds the parameter of the kernel that transposes V.
/// Shapes   from: element (key, col) of a head at key * from.row_stride + col * col_stride, one of
///          which is 1; to: (batch, kv_heads, cols(), keys()), dense, both in the order of a
///          product (tile::transpose_operand), with zeros where `from` has no element.
template <class V>
struct TransposedValues {
  Tensor<const V> from;
  std::int64_t col_stride;
  V* to;
  int batch, kv_heads, kv_len, dim;

  ATTILE_HOST_DEVICE int keys() const { return round_up(kv_len, kTransposedKeys); }
  ATTILE_HOST_DEVICE int cols() const { return round_up(dim, 16); }
  ATTILE_HOST_DEVICE std::int64_t head_stride() const { return std::int64_t{cols()} * keys(); }
  std::size_t bytes() const {
    return static_cast<std::size_t>(std::int64_t{batch} * kv_heads * head_stride());
  }
  ATTILE_HOST_DEVICE int key_tiles() const { return keys() / kTransposedKeys; }
  ATTILE_HOST_DEVICE int col_tiles() const { return ceil_div(cols(), kTransposedCols); }
  std::int64_t blocks() const { return std::int64_t{batch} * kv_heads * key_tiles() * col_tiles(); }
  /// Describes `to` as TMA addresses it, and the box of it that fills one panel of a Tile.
  template <class Tile>
  arch::BoxedTensor boxed() const {
    return {to,
            {keys(), 1, cols(), kv_heads, batch},
            {1, 16, keys(), head_stride(), kv_heads * head_stride()},
            {Tile::Layout::kPanelColumns, 1, Tile::kRows, 1, 1}};
  }
};

/// 16 elements of fp8.
using Words = Vec<std::uint32_t, 4>;

namespace detail {

/// Calls f(line, at, x) for each 16 neighbours x of a tile of kLines lines, `stride` apart, that a
/// thread copies; 0 behind the `count` elements of the `lines` lines that there are.
template <int kLines, int kCount, class V, class F>
ATTILE_DEVICE void copy_lines(const V* from, std::int64_t stride, int lines, int count,
                              const F& f) {
  constexpr int kUnits = kCount / 16, kShare = kLines * kUnits / kTransposeThreads;
  Words x[kShare];
  ATTILE_UNROLL
  for (int n = 0; n < kShare; ++n) {
    const int i = arch::thread_index() + n * kTransposeThreads;
    const int line = i / kUnits, at = i % kUnits * 16;
    const V* const unit = from + line * stride + at;
    x[n] = {};
    if (line < lines && at + 16 <= count) {
      x[n] = arch::load<4>(reinterpret_cast<const std::uint32_t*>(unit));
    } else if (line < lines) {
      ATTILE_UNROLL
      for (int e = 0; e < 16; ++e) {
        if (at + e < count) x[n][e / 4] |= std::uint32_t{unit[e].__x} << (e % 4 * 8);
      }
    }
  }
  ATTILE_UNROLL
  for (int n = 0; n < kShare; ++n) {
    const int i = arch::thread_index() + n * kTransposeThreads;
    f(i / kUnits, i % kUnits * 16, x[n]);
  }
}

}  // namespace detail

/// Transposes V. By columns it has only to be put into order.
/// Scope    kTransposeThreads threads a block, with kTransposedBytes of dynamic shared memory.
/// Barriers all have written the tile before one reads it.
template <class V>
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(kTransposeThreads, 4)
    transpose_values_kernel(const ATTILE_GRID_CONSTANT TransposedValues<V> p) {
  int tile = arch::block_index();
  const int key0 = tile % p.key_tiles() * kTransposedKeys;
  tile /= p.key_tiles();
  const int col0 = tile % p.col_tiles() * kTransposedCols;
  tile /= p.col_tiles();
  const int head = tile % p.kv_heads, sequence = tile / p.kv_heads;
  const V* const from = p.from.row(sequence, head, key0) + col0 * p.col_stride;
  const int keys = p.kv_len - key0, cols = p.dim - col0;  // that `from` has, of this tile or more
  V* const head_to = p.to + (std::int64_t{sequence} * p.kv_heads + head) * p.head_stride() + key0;
  // Writes 16 keys of a column, which are in order.
  const auto store = [&](int col, int key, const Words& x) {
    const int row = col0 + tile::row_of_column(col);
    if (row >= p.cols()) return;
    arch::store(reinterpret_cast<std::uint32_t*>(head_to + row * std::int64_t{p.keys()} + key), x);
  };
  if (p.col_stride != 1) {
    detail::copy_lines<kTransposedCols, kTransposedKeys>(
        from, p.col_stride, cols, keys,
        [&](int col, int key, const Words& x) { store(col, key, tile::in_operand_order(x)); });
    return;
  }
  unsigned char* const shared = arch::dynamic_shared();
  const auto words = [&](int key, int col) {
    return reinterpret_cast<std::uint32_t*>(shared + key * kTransposedPitch + col);
  };
  detail::copy_lines<kTransposedKeys, kTransposedCols>(
      from, p.from.row_stride, keys, cols,
      [&](int key, int col, const Words& x) { arch::store(words(key, col), x); });
  arch::barrier();
  // A thread has 16 keys of 4 columns; two neighbours write 32 bytes of a row.
  static_assert(kTransposedKeys * kTransposedCols / 64 == kTransposeThreads);
  const int i = arch::thread_index();
  const int key = (i % 2 + i / (kTransposedCols / 2) * 2) * 16;
  const int col = i / 2 % (kTransposedCols / 4) * 4;
  Words y[4];  // of each column, four keys in a word
  ATTILE_UNROLL
  for (int word = 0; word < 4; ++word) {
    std::uint32_t x[4];
    ATTILE_UNROLL
    for (int n = 0; n < 4; ++n) {
      x[n] = *words(key + tile::BytePairs::element(4 * word + n), col);
    }
    const std::uint32_t even[2] = {arch::every_second_byte<false>(x[0], x[1]),
                                   arch::every_second_byte<false>(x[2], x[3])};
    const std::uint32_t odd[2] = {arch::every_second_byte<true>(x[0], x[1]),
                                  arch::every_second_byte<true>(x[2], x[3])};
    y[0][word] = arch::every_second_byte<false>(even[0], even[1]);
    y[1][word] = arch::every_second_byte<false>(odd[0], odd[1]);
    y[2][word] = arch::every_second_byte<true>(even[0], even[1]);
    y[3][word] = arch::every_second_byte<true>(odd[0], odd[1]);
  }
  ATTILE_UNROLL
  for (int n = 0; n < 4; ++n) store(col + n, key, y[n]);
}

/// The dynamic shared memory of a block of that kernel.
inline constexpr std::size_t kTransposedBytes = kTransposedKeys * kTransposedPitch;

}  // namespace attile::sm90
