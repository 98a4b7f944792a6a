// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/core/config.h>
#include <attile/core/vec.h>

namespace attile::tile {

// Products of two shared tiles, added to a register tile; the letters say which operand is
// transposed. Scope: each thread for what it holds; the operands are visible to it before, and
// nobody writes them until the caller's next barrier. All take any sizes.

/// acc(r, c) += sum over k of a(r, k) * b(c, k): S = Q K^T, dP = dO V^T.
template <class Acc, class A, class B>
ATTILE_DEVICE void matmul_nt(Acc& acc, const A& a, const B& b) {
  static_assert(A::kRows == Acc::kRows && B::kRows == Acc::kCols && A::kCols == B::kCols,
                "attile::tile::matmul_nt: a is (rows, depth), b is (cols, depth)");
  static_assert(A::kCols % 4 == 0, "attile::tile::matmul_nt: the depth is a multiple of 4");
  ATTILE_UNROLL_BY(2)
  for (int k = 0; k < A::kCols; k += 4) {
    Float4 a4[Acc::kRegRows];
    ATTILE_UNROLL
    for (int r = 0; r < Acc::kRegRows; ++r) a4[r] = a.at4(Acc::safe_row(r), k);
    ATTILE_UNROLL
    for (int c = 0; c < Acc::kRegCols; ++c) {
      const Float4 b4 = b.at4(Acc::safe_col(c), k);
      ATTILE_UNROLL
      for (int e = 0; e < 4; ++e) {
        ATTILE_UNROLL
        for (int r = 0; r < Acc::kRegRows; ++r) acc.x[r][c] += a4[r][e] * b4[e];
      }
    }
  }
}

namespace detail {

/// acc(r, c) += a[r] * b(k, c) for one k.
template <class Acc, class B>
ATTILE_DEVICE void outer_product(Acc& acc, const float (&a)[Acc::kRegRows], const B& b, int k) {
  static_assert(Acc::kColRun == 4, "attile::tile: b is read in runs of 4 columns");
  Float4 b4[Acc::kRegCols / 4];
  ATTILE_UNROLL
  for (int c = 0; c < Acc::kRegCols; c += 4) b4[c / 4] = b.at4(k, Acc::safe_col(c));
  ATTILE_UNROLL
  for (int r = 0; r < Acc::kRegRows; ++r) {
    ATTILE_UNROLL
    for (int c = 0; c < Acc::kRegCols; ++c) acc.x[r][c] += a[r] * b4[c / 4][c % 4];
  }
}

}  // namespace detail

/// acc(r, c) += sum over k of a(r, k) * b(k, c): O += P V, dQ += dS K.
template <class Acc, class A, class B>
ATTILE_DEVICE void matmul_nn(Acc& acc, const A& a, const B& b) {
  static_assert(A::kRows == Acc::kRows && B::kCols == Acc::kCols && A::kCols == B::kRows,
                "attile::tile::matmul_nn: a is (rows, depth), b is (depth, cols)");
  constexpr int kDepth = A::kCols;
  float column[Acc::kRegRows];
  ATTILE_UNROLL_BY(2)
  for (int k = 0; k < kDepth / 4 * 4; k += 4) {
    Float4 a4[Acc::kRegRows];
    ATTILE_UNROLL
    for (int r = 0; r < Acc::kRegRows; ++r) a4[r] = a.at4(Acc::safe_row(r), k);
    ATTILE_UNROLL
    for (int e = 0; e < 4; ++e) {
      ATTILE_UNROLL
      for (int r = 0; r < Acc::kRegRows; ++r) column[r] = a4[r][e];
      detail::outer_product(acc, column, b, k + e);
    }
  }
  ATTILE_UNROLL
  for (int k = kDepth / 4 * 4; k < kDepth; ++k) {
    ATTILE_UNROLL
    for (int r = 0; r < Acc::kRegRows; ++r) column[r] = a.at(Acc::safe_row(r), k);
    detail::outer_product(acc, column, b, k);
  }
}

/// acc(r, c) += sum over k of a(k, r) * b(k, c): dV += P^T dO, dK += dS^T Q.
template <class Acc, class A, class B>
ATTILE_DEVICE void matmul_tn(Acc& acc, const A& a, const B& b) {
  static_assert(A::kCols == Acc::kRows && B::kCols == Acc::kCols && A::kRows == B::kRows,
                "attile::tile::matmul_tn: a is (depth, rows), b is (depth, cols)");
  static_assert(Acc::kRowRun == 4, "attile::tile::matmul_tn: a is read in runs of 4 rows");
  ATTILE_UNROLL_BY(4)
  for (int k = 0; k < A::kRows; ++k) {
    float column[Acc::kRegRows];
    ATTILE_UNROLL
    for (int r = 0; r < Acc::kRegRows; r += 4) {
      const Float4 a4 = a.at4(k, Acc::safe_row(r));
      ATTILE_UNROLL
      for (int e = 0; e < 4; ++e) column[r + e] = a4[e];
    }
    detail::outer_product(acc, column, b, k);
  }
}

}  // namespace attile::tile
