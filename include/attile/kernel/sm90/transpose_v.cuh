// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/arch/fp8.cuh>
#include <attile/arch/launch.cuh>
#include <attile/arch/memory.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/vec.h>
#include <attile/kernel/sm90/transpose_v_params.cuh>
#include <attile/tile/mma_operands.cuh>
#include <attile/tile/transpose.cuh>

#include <cstdint>

// A kernel that transposes V in fp8 into scratch memory before the forward kernel, which then loads
// its tiles by TMA as they are. Without it each block transposes every tile of V that it reads, and
// that takes bandwidth of shared memory from its products.

namespace attile::sm90 {

/// 16 elements of fp8.
using Fp8x16 = Vec<std::uint32_t, 4>;

namespace detail {

/// Calls f(line, first, x) for each 16 contiguous elements x that this thread has of a tile of
/// kLines lines of kCount elements. Lines lie `stride` elements apart. Elements past `lines` and
/// `count` are 0.
/// Units    from and stride: multiples of 16 bytes.
template <int kLines, int kCount, class V, class F>
ATTILE_DEVICE void for_each_16(const V* from, std::int64_t stride, int lines, int count,
                               const F& f) {
  constexpr int kUnits = kCount / 16, kShare = kLines * kUnits / kTransposeThreads;
  Fp8x16 x[kShare];
  ATTILE_UNROLL
  for (int n = 0; n < kShare; ++n) {
    const int i = arch::thread_index() + n * kTransposeThreads;
    const int line = i / kUnits, first = i % kUnits * 16;
    const V* const unit = from + line * stride + first;
    x[n] = {};
    if (line < lines && first + 16 <= count) {
      x[n] = arch::load<4>(reinterpret_cast<const std::uint32_t*>(unit));
    } else if (line < lines) {
      ATTILE_UNROLL
      for (int e = 0; e < 16; ++e) {
        if (first + e < count) x[n][e / 4] |= std::uint32_t{unit[e].__x} << (e % 4 * 8);
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

/// Transposes V. Where the keys of a column are contiguous already (col_stride is not 1), it only
/// puts them into the order of the product's operand. At most 64 registers a thread, so that a
/// multiprocessor has four blocks at a time.
/// Scope    kTransposeThreads threads a block, with kTransposedBytes of dynamic shared memory.
/// Barriers all have written the tile before one reads it.
template <class V>
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(kTransposeThreads, 4)
    transpose_v_kernel(const ATTILE_GRID_CONSTANT TransposeVParams<V> p) {
  const auto part = p.tile(arch::block_index());
  // Writes 16 keys of a column, which are in order.
  const auto store = [&](int col, int key, const Fp8x16& x) {
    const int row = tile::row_of_column(col);
    if (row >= part.rows_left) return;
    arch::store(
        reinterpret_cast<std::uint32_t*>(part.to + row * std::int64_t{p.padded_keys()} + key), x);
  };
  if (p.col_stride != 1) {
    detail::for_each_16<kTransposedCols, kTransposedKeys>(
        part.from, p.col_stride, part.cols_left, part.keys_left,
        [&](int col, int key, const Fp8x16& x) { store(col, key, tile::in_operand_order(x)); });
    return;
  }
  unsigned char* const shared = arch::dynamic_shared();
  const auto words = [&](int key, int col) {
    return reinterpret_cast<std::uint32_t*>(shared + key * kTransposedPitch + col);
  };
  detail::for_each_16<kTransposedKeys, kTransposedCols>(
      part.from, p.from.row_stride, part.keys_left, part.cols_left,
      [&](int key, int col, const Fp8x16& x) { arch::store(words(key, col), x); });
  arch::barrier();
  // A thread has 16 keys of 4 columns; two neighbours write 32 bytes of a row.
  static_assert(kTransposedKeys * kTransposedCols / 64 == kTransposeThreads,
                "attile::sm90: a thread transposes 16 keys of 4 columns");
  const int i = arch::thread_index();
  const int key = (i % 2 + i / (kTransposedCols / 2) * 2) * 16;
  const int col = i / 2 % (kTransposedCols / 4) * 4;
  Fp8x16 y[4];  // of each column, four keys in a word
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

}  // namespace attile::sm90
