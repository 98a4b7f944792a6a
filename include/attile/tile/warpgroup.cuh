// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/arch/opaque.h>
#include <attile/arch/shared_memory.cuh>
#include <attile/arch/wgmma.cuh>
#include <attile/core/config.h>
#include <attile/tile/mma_tile.cuh>
#include <attile/tile/panel_tile.cuh>
#include <attile/tile/two_sums.cuh>

#include <cstdint>
#include <type_traits>

// Products that a warpgroup begins, and waits for later. Its sums are the rows of an MmaTile of 16
// rows a warp. Between `start_...` and the wait nothing else touches sums and operands.

namespace attile::tile {

namespace detail {

template <class Tile>
ATTILE_DEVICE arch::WgmmaOperand wgmma_operand(const Tile& tile, int offset = 0) {
  using Layout = typename Tile::Layout;
  return {arch::opaque(arch::shared_address(tile.data) + offset), Layout::kRowBytes,
          Layout::kPanelBytes};
}

/// Bytes from the first column of a tile to step k of 16 columns.
template <class Tile>
ATTILE_DEVICE constexpr int columns_step(int k) {
  using Layout = typename Tile::Layout;
  return k * 32 / Layout::kRowBytes * Layout::kPanelBytes + k * 32 % Layout::kRowBytes;
}

}  // namespace detail

/// Begins acc = A B^T, acc a register tile or TwoSums, or acc += A B^T where kAdds. Shapes   a: 64
/// rows of depth from row a_row on; b: columns of depth from b_row on.
/// Scope    all threads of a warpgroup; a group of products of its own.
template <class T, bool kAdds = false, class Acc, class A, class B>
ATTILE_DEVICE void start_transposed_product(Acc& acc, const A& a, const B& b, int a_row = 0,
                                            int b_row = 0) {
  const arch::WgmmaOperand left = detail::wgmma_operand(a, a_row * A::Layout::kRowBytes);
  const arch::WgmmaOperand right = detail::wgmma_operand(b, b_row * B::Layout::kRowBytes);
  if constexpr (kAdds) arch::fence_operand(acc.x);
  arch::wgmma_fence();
  ATTILE_UNROLL
  for (int k = 0; k < A::kCols / 16; ++k) {
    arch::wgmma_m64k16<T, Acc::kCols, false>(
        sum_of_step(acc, k).x, left.at(detail::columns_step<A>(k)),
        right.at(detail::columns_step<B>(k)), kAdds || k >= kSums<Acc>);
  }
  arch::wgmma_commit();
}

/// The same with A in registers, 16 rows a warp.
template <class T, class Acc, class Tile, class B>
ATTILE_DEVICE void start_transposed_product(Acc& acc, const LoadedLeft<Tile>& a, const B& b,
                                            int b_row) {
  const arch::WgmmaOperand right = detail::wgmma_operand(b, b_row * B::Layout::kRowBytes);
  arch::wgmma_fence();
  ATTILE_UNROLL
  for (int k = 0; k < Tile::kCols / 16; ++k) {
    arch::wgmma_m64k16<T, Acc::kCols, false>(acc.x, a.piece(0, k),
                                             right.at(detail::columns_step<B>(k)), k > 0);
  }
  arch::wgmma_commit();
}

/// Begins acc = A^T B. Shapes   a: (depth, columns), 64 columns of it, a panel, from `a_col` on;
/// b: (depth, columns), whole panels of it from `b_col` on. Scope    likewise.
template <class T, class Acc, class A, class B>
ATTILE_DEVICE void start_left_transposed_product(Acc& acc, const A& a, int a_col, const B& b,
                                                 int b_col) {
  static_assert(A::kRows == B::kRows && A::Layout::kRowBytes == 128,
                "attile::tile: of A, whole panels of 64 columns are taken, as deep as B");
  const arch::WgmmaOperand left =
      detail::wgmma_operand(a, a_col / A::Layout::kPanelColumns * A::Layout::kPanelBytes);
  const arch::WgmmaOperand right =
      detail::wgmma_operand(b, b_col / B::Layout::kPanelColumns * B::Layout::kPanelBytes);
  arch::wgmma_fence();
  ATTILE_UNROLL
  for (int k = 0; k < A::kRows / 16; ++k) {
    arch::wgmma_m64k16<T, Acc::kCols, true, true>(acc.x, left.at(k * 16 * A::Layout::kRowBytes),
                                                  right.at(k * 16 * B::Layout::kRowBytes), k > 0);
  }
  arch::wgmma_commit();
}

/// Begins acc += A B, or acc = A B where not `adds`. Shapes   a (rows, depth) in registers; b: rows
/// of depth from b_row on. Scope    likewise.
template <class T, class Acc, class A, class B>
ATTILE_DEVICE void start_product(Acc& acc, const A& a, const B& b, int b_row = 0,
                                 bool adds = true) {
  const arch::WgmmaOperand right = detail::wgmma_operand(b, b_row * B::Layout::kRowBytes);
  arch::fence_operand(acc.x);
  arch::wgmma_fence();
  ATTILE_UNROLL
  for (int k = 0; k < A::kDepth / 16; ++k) {
    arch::wgmma_m64k16<T, Acc::kCols, true>(acc.x, a.piece(0, k),
                                            right.at(k * 16 * B::Layout::kRowBytes), adds || k > 0);
  }
  arch::wgmma_commit();
}

/// An MmaTile in two, of which the first has 128 columns: no instruction has more registers than a
/// kernel of 512 threads may begin with, which the compiler insists on (C7602).
template <int Rows, int Cols, int kWarps>
struct WideTile {
  static_assert(Cols > 128, "attile::tile::WideTile: one MmaTile has up to 128 columns");
  static constexpr int kLowCols = 128;

  MmaTile<Rows, kLowCols, kWarps> low;
  MmaTile<Rows, Cols - kLowCols, kWarps> high;

  ATTILE_DEVICE void clear() {
    low.clear();
    high.clear();
  }
};

template <int Rows, int Cols, int kWarps>
using SumTile =
    std::conditional_t<(Cols > 128), WideTile<Rows, Cols, kWarps>, MmaTile<Rows, Cols, kWarps>>;

/// Begins acc += A B, two groups of products.
template <class T, int Rows, int Cols, int kWarps, class A, class B>
ATTILE_DEVICE void start_product(WideTile<Rows, Cols, kWarps>& acc, const A& a, const B& b,
                                 int b_row = 0) {
  using Layout = typename B::Layout;
  constexpr int kPanels = WideTile<Rows, Cols, kWarps>::kLowCols / Layout::kPanelColumns;
  start_product<T>(acc.low, a, b, b_row);
  start_product<T>(acc.high, a, B{b.data + kPanels * Layout::kPanelBytes}, b_row);
}

/// The products of a warpgroup are done: its sums may be used.
template <class Registers>
ATTILE_DEVICE void fence_accumulators(Registers& acc) {
  arch::fence_operand(acc.x);
}
template <int Rows, int Cols, int kWarps>
ATTILE_DEVICE void fence_accumulators(WideTile<Rows, Cols, kWarps>& acc) {
  arch::fence_operand(acc.low.x);
  arch::fence_operand(acc.high.x);
}

/// As for an MmaTile, all of it.
template <class Tile, int Rows, int Cols, int kWarps>
ATTILE_DEVICE void stage(const Tile& shared, const WideTile<Rows, Cols, kWarps>& registers,
                         float factor, int col0, int row0) {
  stage(shared, registers.low, factor, col0, row0);
  stage(shared, registers.high, factor, col0 + registers.kLowCols, row0);
}

/// Waits until at most kPending of the warp's latest groups of products are under way; `acc` is
/// one that is not, then.
template <int kPending, class Acc>
ATTILE_DEVICE void wait_product(Acc& acc) {
  arch::wgmma_wait<kPending>();
  fence_accumulators(acc);
}

}  // namespace attile::tile
