// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/arch/opaque.h>
#include <attile/arch/shared_memory.cuh>
#include <attile/arch/wgmma.cuh>
#include <attile/core/config.h>
#include <attile/tile/copy.cuh>
#include <attile/tile/matrix.cuh>
#include <attile/tile/mma_operands.cuh>
#include <attile/tile/mma_tile.cuh>
#include <attile/tile/panel_tile.cuh>
#include <attile/tile/two_sums.cuh>

#include <cstdint>
#include <type_traits>

// Asynchronous matrix products of one warpgroup: a `start_...` function begins a product, and
// `wait_product` waits for it. The accumulator is an MmaTile of which each warp holds 16 rows.
// Between the start and the wait no other code may access the accumulator or the operands.
//
//   tile::start_transposed_product(s_frag, q_smem, k_smem, warpgroup * 64);  // S = Q K^T
//   tile::start_product(o_frag, p_left, v_smem);                             // O += P V
//   tile::wait_product<1>(s_frag);  // S is made; P V may be under way
//   tile::wait_product<0>(o_frag);

namespace attile::tile {

namespace detail {

/// Returns the operand of wgmma that begins `offset` bytes into a tile.
template <class Tile>
ATTILE_DEVICE arch::WgmmaOperand wgmma_operand(const Tile& tile, int offset = 0) {
  using Layout = typename Tile::Layout;
  return {arch::opaque(arch::shared_address(tile.data) + offset), Layout::kRowBytes,
          Layout::kPanelBytes};
}

/// Returns the number of bytes from the first column of a tile to step k of the depth, 32 bytes.
template <class Tile>
ATTILE_DEVICE constexpr int columns_step(int k) {
  using Layout = typename Tile::Layout;
  return k * 32 / Layout::kRowBytes * Layout::kPanelBytes + k * 32 % Layout::kRowBytes;
}

/// Refuses a register tile that cannot be the result of a warpgroup's product.
template <class Acc>
ATTILE_DEVICE constexpr void require_rows_of_warpgroup() {
  static_assert(Acc::kWarpRows == 16,
                "attile::tile: of the result of a warpgroup's product each warp has 16 rows, so "
                "that an MmaTile has 16 for each of its warps");
}

/// Is a tile in shared memory that a product reads.
template <class Tile>
concept WgmmaTile = requires {
  typename Tile::Element;
  typename Tile::Layout;
};

/// Is a left operand in registers.
template <class A>
concept WgmmaLeft = requires {
  typename A::Element;
  A::kDepth;
};

/// Begins d = A B^T + d, or d = A B^T where `accumulate` is false, of one step of the depth.
/// `a`: a descriptor, or a piece in registers.
template <class TA, class TB, std::size_t kColumnsOver4, class Left>
ATTILE_DEVICE void start_step(float (&d)[2][kColumnsOver4], const Left& a, std::uint64_t b,
                              bool accumulate) {
  constexpr int kColumns = 4 * int{kColumnsOver4};
  if constexpr (sizeof(TA) == 1) {
    arch::wgmma_m64k32<TA, TB, kColumns>(d, a, b, accumulate);
  } else {
    static_assert(std::is_same_v<TA, TB>,
                  "attile::tile: operands of 16-bit elements have one element type");
    arch::wgmma_m64k16<TA, kColumns, false>(d, a, b, accumulate);
  }
}

}  // namespace detail

/// Begins acc = A B^T, or acc += A B^T where kAdds. `acc` is a register tile or TwoSums. The
/// elements are of 16 bits, or of 8 bits, each operand's of a type of its own.
/// Shapes   a (rows, depth): 64 rows from a_row on; b (columns, depth): the rows from b_row on, one
///          for each column of acc.
/// Scope    all threads of a warpgroup; the product is a commit group of its own.
template <bool kAdds = false, class Acc, class A, class B>
  requires(A::kCols > 0)
ATTILE_DEVICE void start_transposed_product(Acc& acc, const A& a, const B& b, int a_row = 0,
                                            int b_row = 0) {
  detail::require_rows_of_warpgroup<Acc>();
  static_assert(detail::WgmmaTile<A> && detail::WgmmaTile<B>,
                "attile::tile::start_transposed_product: the operands are PanelTiles in shared "
                "memory; the left one may be in registers, as a RegisterLeft<T, Scores>");
  static_assert(A::kCols == B::kCols && Acc::kCols <= B::kRows,
                "attile::tile::start_transposed_product: a is (rows, depth), b is (columns, "
                "depth)");
  using TA = typename A::Element;
  const arch::WgmmaOperand left = detail::wgmma_operand(a, a_row * A::Layout::kRowBytes);
  const arch::WgmmaOperand right = detail::wgmma_operand(b, b_row * B::Layout::kRowBytes);
  // The compiler could move writes to `acc` below the products, which read it.
  if constexpr (kAdds) arch::fence_operand(acc.x);
  arch::wgmma_fence();  // the products could access registers before this thread's earlier writes
  ATTILE_UNROLL
  for (int k = 0; k < A::kCols / kStepDepth<TA>; ++k) {
    detail::start_step<TA, typename B::Element>(
        sum_of_step(acc, k).x, left.at(detail::columns_step<A>(k)),
        right.at(detail::columns_step<B>(k)), kAdds || k >= kSums<Acc>);
  }
  arch::wgmma_commit();
}

/// Begins acc = A B^T with A in registers, of which each warp holds 16 rows; with kMayAdd and
/// `adds` acc += A B^T. Shapes   b (columns, depth): the rows from b_row on, one for each column of
/// acc. Scope    all threads of a warpgroup; the product is a commit group of its own.
template <bool kMayAdd = false, class Acc, class A, class B>
  requires(A::kDepth > 0)
ATTILE_DEVICE void start_transposed_product(Acc& acc, const A& a, const B& b, int b_row,
                                            bool adds = true) {
  detail::require_rows_of_warpgroup<Acc>();
  static_assert(A::kDepth <= B::kCols && Acc::kCols <= B::kRows,
                "attile::tile::start_transposed_product: a is (rows, depth), b is (columns, "
                "depth)");
  using TA = typename A::Element;
  const arch::WgmmaOperand right = detail::wgmma_operand(b, b_row * B::Layout::kRowBytes);
  // The compiler could move writes to `acc` below the products, which read it.
  if constexpr (kMayAdd) arch::fence_operand(acc.x);
  arch::wgmma_fence();  // the products could access registers before this thread's earlier writes
  ATTILE_UNROLL
  for (int k = 0; k < A::kDepth / kStepDepth<TA>; ++k) {
    detail::start_step<TA, typename B::Element>(
        acc.x, a.piece(0, k), right.at(detail::columns_step<B>(k)), (kMayAdd && adds) || k > 0);
  }
  arch::wgmma_commit();
}

/// Begins acc = A^T B.
/// Shapes   a (depth, columns): the panel of 64 columns from a_col on; b (depth, columns): whole
///          panels from b_col on.
/// Scope    all threads of a warpgroup; the product is a commit group of its own.
template <class Acc, class A, class B>
ATTILE_DEVICE void start_left_transposed_product(Acc& acc, const A& a, int a_col, const B& b,
                                                 int b_col) {
  detail::require_rows_of_warpgroup<Acc>();
  using T = typename A::Element;
  static_assert(A::kRows == B::kRows && A::Layout::kRowBytes == 128,
                "attile::tile: of A, whole panels of 64 columns are taken, as deep as B");
  static_assert(sizeof(T) == 2 && std::is_same_v<T, typename B::Element>,
                "attile::tile: operands whose rows are the depth have one 16-bit element type");
  const arch::WgmmaOperand left =
      detail::wgmma_operand(a, a_col / A::Layout::kPanelColumns * A::Layout::kPanelBytes);
  const arch::WgmmaOperand right =
      detail::wgmma_operand(b, b_col / B::Layout::kPanelColumns * B::Layout::kPanelBytes);
  arch::wgmma_fence();  // the products could access registers before this thread's earlier writes
  ATTILE_UNROLL
  for (int k = 0; k < A::kRows / 16; ++k) {
    arch::wgmma_m64k16<T, Acc::kCols, true, true>(acc.x, left.at(k * 16 * A::Layout::kRowBytes),
                                                  right.at(k * 16 * B::Layout::kRowBytes), k > 0);
  }
  arch::wgmma_commit();
}

/// Begins acc += A B, or acc = A B where `adds` is false.
/// Shapes   a (rows, depth), in registers; b (depth, columns): the rows from b_row on.
/// Scope    all threads of a warpgroup; the product is a commit group of its own.
template <class Acc, class A, class B>
ATTILE_DEVICE void start_product(Acc& acc, const A& a, const B& b, int b_row = 0,
                                 bool adds = true) {
  detail::require_rows_of_warpgroup<Acc>();
  static_assert(detail::WgmmaLeft<A> && detail::WgmmaTile<B>,
                "attile::tile::start_product: the left operand is in registers, as a "
                "RegisterLeft<T, Scores>, and the right one is a PanelTile; of two tiles in shared "
                "memory there is start_transposed_product");
  static_assert(A::kDepth <= B::kRows && Acc::kCols <= B::kCols,
                "attile::tile::start_product: a is (rows, depth), b is (depth, columns)");
  using T = typename B::Element;
  static_assert(sizeof(T) == 2 && std::is_same_v<T, typename A::Element>,
                "attile::tile: operands whose rows are the depth have one 16-bit element type");
  const arch::WgmmaOperand right = detail::wgmma_operand(b, b_row * B::Layout::kRowBytes);
  // The compiler could move writes to `acc` below the products, which read it.
  arch::fence_operand(acc.x);
  arch::wgmma_fence();  // the products could access registers before this thread's earlier writes
  ATTILE_UNROLL
  for (int k = 0; k < A::kDepth / 16; ++k) {
    arch::wgmma_m64k16<T, Acc::kCols, true>(acc.x, a.piece(0, k),
                                            right.at(k * 16 * B::Layout::kRowBytes), adds || k > 0);
  }
  arch::wgmma_commit();
}

/// Refuses an operand that ends before the product that reads it.
template <class Acc, class E, class Registers, class B>
void start_product(Acc& acc, const RegisterLeft<E, Registers>&& a, const B& b, int b_row = 0,
                   bool adds = true) = delete;

/// Holds an MmaTile of more than 128 columns as two tiles, the first of 128 columns. No instruction
/// then has more registers than a kernel of 512 threads may begin with, which the compiler demands
/// (C7602).
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

/// Names the accumulator for any number of columns: an MmaTile up to 128 of them, else a WideTile.
template <int Rows, int Cols, int kWarps>
using SumTile =
    std::conditional_t<(Cols > 128), WideTile<Rows, Cols, kWarps>, MmaTile<Rows, Cols, kWarps>>;

/// Begins acc += A B for a wide accumulator, as two commit groups.
template <int Rows, int Cols, int kWarps, class A, class B>
ATTILE_DEVICE void start_product(WideTile<Rows, Cols, kWarps>& acc, const A& a, const B& b,
                                 int b_row = 0) {
  using Layout = typename B::Layout;
  constexpr int kPanels = WideTile<Rows, Cols, kWarps>::kLowCols / Layout::kPanelColumns;
  start_product(acc.low, a, b, b_row);
  start_product(acc.high, a, B{b.data + kPanels * Layout::kPanelBytes}, b_row);
}

/// Keeps the compiler from moving uses of an accumulator above this call. It follows the wait for
/// the products, before which the accumulator is incomplete.
template <class Registers>
ATTILE_DEVICE void fence_accumulators(Registers& acc) {
  arch::fence_operand(acc.x);
}
template <int Rows, int Cols, int kWarps>
ATTILE_DEVICE void fence_accumulators(WideTile<Rows, Cols, kWarps>& acc) {
  arch::fence_operand(acc.low.x);
  arch::fence_operand(acc.high.x);
}

/// Stages both parts of a wide tile, each as `stage` of an MmaTile does.
template <class Tile, int Rows, int Cols, int kWarps>
ATTILE_DEVICE void stage(const Tile& shared, const WideTile<Rows, Cols, kWarps>& registers,
                         float factor, int col0, int row0) {
  stage(shared, registers.low, factor, col0, row0);
  stage(shared, registers.high, factor, col0 + registers.kLowCols, row0);
}

/// Stores both parts of a wide tile, each as `store` of an MmaTile does.
template <class T, int Rows, int Cols, int kWarps>
ATTILE_DEVICE void store(const Matrix<T>& target, const WideTile<Rows, Cols, kWarps>& registers,
                         int row0, float factor = 1.0f) {
  constexpr int kLow = WideTile<Rows, Cols, kWarps>::kLowCols;
  store(target, registers.low, row0, factor);
  store(Matrix<T>{target.data + kLow, target.row_stride, target.rows, target.cols - kLow,
                  target.vectors},
        registers.high, row0, factor);
}

/// Waits until at most kPending of the warp's latest commit groups are unfinished. `acc` belongs to
/// a finished one by then; read before the wait, it would be incomplete.
template <int kPending, class Acc>
ATTILE_DEVICE void wait_product(Acc& acc) {
  arch::wgmma_wait<kPending>();
  fence_accumulators(acc);
}

}  // namespace attile::tile
