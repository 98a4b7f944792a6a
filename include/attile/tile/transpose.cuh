// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/arch/fp8.cuh>
#include <attile/arch/halves.h>
#include <attile/arch/math.h>
#include <attile/arch/matrix.cuh>
#include <attile/arch/memory.cuh>
#include <attile/arch/shared_memory.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/array.h>
#include <attile/core/config.h>
#include <attile/core/vec.h>
#include <attile/tile/mma_operands.cuh>
#include <attile/tile/mma_tile.cuh>
#include <attile/tile/panel_tile.cuh>

#include <cstdint>

// A right operand of fp8 (depth, columns) has to lie in shared memory as its transpose, and its
// depth in the order in which the left operand comes from registers (BytePairs). A warp writes it
// there from a tile that a copy has brought. Its columns have an order of their own, too: of each
// 16, the even ones come first. So the 8 rows of a matrix that is stored lie in all banks, and a
// lane has 4 neighbouring columns of the product (MmaTile, kLaneCols = 4).

namespace attile::tile {

/// Returns which column of the operand row `row` of its transpose holds.
ATTILE_HOST_DEVICE constexpr int column_of_row(int row) {
  return row / 16 * 16 + row % 8 * 2 + row / 8 % 2;
}

/// Returns which row of the transpose holds column `col` of the operand.
ATTILE_HOST_DEVICE constexpr int row_of_column(int col) {
  return col / 16 * 16 + col % 2 * 8 + col % 16 / 2;
}

/// Writes an operand of fp8 that lies by rows: to(r, p) = from(BytePairs::element(p),
/// column_of_row(r)).
/// Shapes   from (depth, columns), to (columns, depth): multiples of 32.
/// kPieces  2 or 4: how many pieces of 32 rows and 16 columns a warp loads before it stores the
///          first one of them; 2 where it has fewer columns than 64. Each takes four registers.
/// Scope    all lanes of a warp, which is `number` of kWarps that write a part each.
/// Barriers `arch::fence_async_proxy` by all lanes and a barrier after, before a product reads it.
template <int kWarps = 1, int kPieces = 2, int Depth, int Cols, class T>
ATTILE_DEVICE void transpose_operand(const PanelTile<Cols, Depth, T>& to,
                                     const PanelTile<Depth, Cols, T>& from, int number = 0) {
  using To = PanelTile<Cols, Depth, T>;
  using From = PanelTile<Depth, Cols, T>;
  static_assert(sizeof(T) == 1 && Cols % 32 == 0 && Depth % 32 == 0,
                "attile::tile::transpose_operand: fp8, and multiples of 32 rows and columns");
  const unsigned lane = detail::lane();
  const std::uint32_t to_base = arch::shared_address(to.data);
  const std::uint32_t from_base = arch::shared_address(from.data);
  const LaneOffsets<From> from_offsets(lane, 0);
  const LaneOffsets<To> to_offsets(lane % 16, lane / 16);
  // Unrolled loops take more registers than a producer warp has.
  constexpr int kCols = 16 * (Cols % (kWarps * kPieces * 16) == 0 ? kPieces : 2);
  ATTILE_UNROLL_BY(1)
  for (int first = number * kCols; first < Cols; first += kWarps * kCols) {
    ATTILE_UNROLL_BY(1)
    for (int row = 0; row < Depth; row += 32) {
      // Of each: rows 2 i and 2 i + 1 of columns 2 c and 2 c + 1, of 8 rows in each word.
      std::uint32_t x[kCols / 16][4];
      ATTILE_UNROLL
      for (int col = 0; col < kCols; col += 16) {
        arch::load_matrices_transposed(x[col / 16], from_base + from_offsets.at(row, first + col));
      }
      ATTILE_UNROLL
      for (int col = 0; col < kCols; col += 16) {
        const auto& w = x[col / 16];
        const std::uint32_t y[4] = {
            arch::every_second_byte<false>(w[0], w[1]), arch::every_second_byte<true>(w[0], w[1]),
            arch::every_second_byte<false>(w[2], w[3]), arch::every_second_byte<true>(w[2], w[3])};
        arch::store_matrices(to_base + to_offsets.at(first + col, row), y);
      }
    }
  }
}

/// Returns 16 neighbours of the depth of an operand of fp8, in words, in its order: element p of
/// the result is x's element BytePairs::element(p).
ATTILE_DEVICE Vec<std::uint32_t, 4> in_operand_order(const Vec<std::uint32_t, 4>& x) {
  return {arch::halves(x[0], x[2], false), arch::halves(x[0], x[2], true),
          arch::halves(x[1], x[3], false), arch::halves(x[1], x[3], true)};
}

/// Writes the same of an operand that lies by columns: to(r, p) = from(column_of_row(r),
/// BytePairs::element(p)).
/// Shapes   from, to (columns, depth): multiples of 32.
/// kPieces  how many pieces of 16 elements a lane loads before it stores the first one of them,
///          where that divides its share of them; else fewer. Each takes four registers.
template <int kWarps = 1, int kPieces = 2, int Depth, int Cols, class T>
ATTILE_DEVICE void reorder_operand(const PanelTile<Cols, Depth, T>& to,
                                   const PanelTile<Cols, Depth, T>& from, int number = 0) {
  using Words = Vec<std::uint32_t, 4>;
  constexpr int kUnits = Depth / 16, kLanes = kWarps * arch::kWarpSize;
  constexpr int kShare = Cols * kUnits / kLanes;
  constexpr int kOnce = kShare % kPieces == 0 ? kPieces : kShare % 2 == 0 ? 2 : 1;
  const int thread = number * arch::kWarpSize + static_cast<int>(detail::lane());
  ATTILE_UNROLL_BY(1)
  for (int first = thread; first < Cols * kUnits; first += kOnce * kLanes) {
    Words x[kOnce];
    ATTILE_UNROLL
    for (int n = 0; n < kOnce; ++n) {
      const int row = (first + n * kLanes) / kUnits, col = (first + n * kLanes) % kUnits * 16;
      x[n] =
          arch::load<4>(reinterpret_cast<const std::uint32_t*>(&from.at(column_of_row(row), col)));
    }
    ATTILE_UNROLL
    for (int n = 0; n < kOnce; ++n) {
      const int row = (first + n * kLanes) / kUnits, col = (first + n * kLanes) % kUnits * 16;
      arch::store(reinterpret_cast<std::uint32_t*>(&to.at(row, col)), in_operand_order(x[n]));
    }
  }
}

/// Adds a product of such an operand to columns of a result:  sums = sums * factor + product.
/// Shapes   product (rows, columns from col0 of sums on), with the columns as the instruction has
///          them; factor: one for each row of a lane.
template <int Rows, int SumCols, int Cols, int kWarps>
ATTILE_DEVICE void scale_and_add(MmaTile<Rows, SumCols, kWarps, 1, 4>& sums, int col0,
                                 const Array<float, Rows / kWarps / 8>& factor,
                                 const MmaTile<Rows, Cols, kWarps>& product) {
  using Product = MmaTile<Rows, Cols, kWarps>;
  ATTILE_UNROLL
  for (int r = 0; r < Product::kRegRows; ++r) {
    ATTILE_UNROLL
    for (int c = 0; c < Product::kRegCols; ++c) {
      float& sum = sums.x[r][col0 / 4 + c];
      sum = arch::fma(sum, factor[r], product.x[r][c]);
    }
  }
}

}  // namespace attile::tile
