// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/core/config.h>
#include <attile/core/math.h>
#include <attile/core/vec.h>
#include <attile/tile/shared_tile.cuh>

namespace attile::tile {

// These functions add the product of two shared tiles to a register tile; the letters of a name say
// which operand is transposed. Scope: each thread for the elements that it holds; the operands are
// visible to it before, and nobody writes them until the caller's next barrier.
//
//   tile::matmul_nt(s_frag, q_smem, k_smem);  // S += Q K^T
//   tile::matmul_nn(o_frag, p_smem, v_smem);  // O += P V
//
// Operands are read along their contiguous direction, up to 4 floats at a time, in one of three
// ways (bench/log/tuning-portable.md has the rates). All take any sizes, except that dot
// products take a depth that 4 divides:
//   A column-major, B row-major      a column of A times a row of B: the fastest
//   A row-major, B row-major         the same, with 4 columns of A at once
//   A row-major, B column-major      dot products over 4 values of k

namespace detail {

/// Adds a[r] * b[c] to acc(r, c). Every second row runs backwards: it begins with the operand with
/// which the row before ended, and which then need not be fetched again.
template <class Acc>
ATTILE_DEVICE void outer_product(Acc& acc, const float (&a)[Acc::kRegRows],
                                 const float (&b)[Acc::kRegCols]) {
  ATTILE_UNROLL
  for (int r = 0; r < Acc::kRegRows; ++r) {
    ATTILE_UNROLL
    for (int i = 0; i < Acc::kRegCols; ++i) {
      const int c = r % 2 == 0 ? i : Acc::kRegCols - 1 - i;
      acc.x[r][c] += a[r] * b[c];
    }
  }
}

/// Reads the elements of column k of A that this thread needs.
template <class Acc, class A>
ATTILE_DEVICE void read_column(float (&column)[Acc::kRegRows], const A& a, int k) {
  constexpr int kRun = Acc::kRowRun;
  ATTILE_UNROLL
  for (int r = 0; r < Acc::kRegRows; r += kRun) {
    const Vec<float, kRun> run = a.template run<kRun>(Acc::safe_row(r), k);
    ATTILE_UNROLL
    for (int e = 0; e < kRun; ++e) column[r + e] = run[e];
  }
}

/// Reads the elements of row k of B that this thread needs.
template <class Acc, class B>
ATTILE_DEVICE void read_row(float (&row)[Acc::kRegCols], const B& b, int k) {
  constexpr int kRun = Acc::kColRun;
  ATTILE_UNROLL
  for (int c = 0; c < Acc::kRegCols; c += kRun) {
    const Vec<float, kRun> run = b.template run<kRun>(k, Acc::safe_col(c));
    ATTILE_UNROLL
    for (int e = 0; e < kRun; ++e) row[c + e] = run[e];
  }
}

/// Adds A B to acc, one column of A and one row of B at a time; the next ones are read before these
/// are used.
template <class Acc, class A, class B>
ATTILE_DEVICE void multiply_outer(Acc& acc, const A& a, const B& b) {
  constexpr int kDepth = A::kCols;
  float column[2][Acc::kRegRows], row[2][Acc::kRegCols];
  read_column<Acc>(column[0], a, 0);
  read_row<Acc>(row[0], b, 0);
  ATTILE_UNROLL_BY(2)
  for (int k = 0; k < kDepth / 2 * 2; k += 2) {
    read_column<Acc>(column[1], a, k + 1);
    read_row<Acc>(row[1], b, k + 1);
    outer_product(acc, column[0], row[0]);
    const int next = min(k + 2, kDepth - 1);
    read_column<Acc>(column[0], a, next);
    read_row<Acc>(row[0], b, next);
    outer_product(acc, column[1], row[1]);
  }
  if constexpr (kDepth % 2 != 0) outer_product(acc, column[0], row[0]);
}

/// Adds A B to acc, where the rows of A and the rows of B are contiguous.
template <class Acc, class A, class B>
ATTILE_DEVICE void multiply_rows(Acc& acc, const A& a, const B& b) {
  constexpr int kDepth = A::kCols;
  float column[Acc::kRegRows], row[Acc::kRegCols];
  ATTILE_UNROLL_BY(2)
  for (int k = 0; k < kDepth / 4 * 4; k += 4) {
    Float4 a4[Acc::kRegRows];
    ATTILE_UNROLL
    for (int r = 0; r < Acc::kRegRows; ++r) a4[r] = a.template run<4>(Acc::safe_row(r), k);
    ATTILE_UNROLL
    for (int e = 0; e < 4; ++e) {
      ATTILE_UNROLL
      for (int r = 0; r < Acc::kRegRows; ++r) column[r] = a4[r][e];
      read_row<Acc>(row, b, k + e);
      outer_product(acc, column, row);
    }
  }
  ATTILE_UNROLL
  for (int k = kDepth / 4 * 4; k < kDepth; ++k) {
    ATTILE_UNROLL
    for (int r = 0; r < Acc::kRegRows; ++r) column[r] = a.at(Acc::safe_row(r), k);
    read_row<Acc>(row, b, k);
    outer_product(acc, column, row);
  }
}

/// Adds A B to acc, where the rows of A and the columns of B are contiguous.
template <class Acc, class A, class B>
ATTILE_DEVICE void multiply_dot(Acc& acc, const A& a, const B& b) {
  static_assert(A::kCols % 4 == 0, "attile::tile: the depth of a dot product is a multiple of 4");
  ATTILE_UNROLL_BY(4)
  for (int k = 0; k < A::kCols; k += 4) {
    Float4 a4[Acc::kRegRows];
    ATTILE_UNROLL
    for (int r = 0; r < Acc::kRegRows; ++r) a4[r] = a.template run<4>(Acc::safe_row(r), k);
    ATTILE_UNROLL
    for (int c = 0; c < Acc::kRegCols; ++c) {
      const Float4 b4 = b.template run<4>(k, Acc::safe_col(c));
      ATTILE_UNROLL
      for (int e = 0; e < 4; ++e) {
        ATTILE_UNROLL
        for (int r = 0; r < Acc::kRegRows; ++r) acc.x[r][c] += a4[r][e] * b4[e];
      }
    }
  }
}

}  // namespace detail

/// Computes acc(r, c) += sum over k of a(r, k) * b(k, c): O += P V, dQ += dS K.
template <class Acc, class A, class B>
ATTILE_DEVICE void matmul_nn(Acc& acc, const A& a, const B& b) {
  static_assert(A::kRows == Acc::kRows && B::kCols == Acc::kCols && A::kCols == B::kRows,
                "attile::tile::matmul_nn: a is (rows, depth), b is (depth, cols)");
  static_assert(A::kRowMajor || B::kRowMajor,
                "attile::tile: a column-major A needs a row-major B (or, in A B^T, column-major)");
  if constexpr (!A::kRowMajor) {
    detail::multiply_outer(acc, a, b);
  } else if constexpr (B::kRowMajor) {
    detail::multiply_rows(acc, a, b);
  } else {
    detail::multiply_dot(acc, a, b);
  }
}

/// Computes acc(r, c) += sum over k of a(r, k) * b(c, k): S = Q K^T, dP = dO V^T.
template <class Acc, class A, class B>
ATTILE_DEVICE void matmul_nt(Acc& acc, const A& a, const B& b) {
  static_assert(A::kRows == Acc::kRows && B::kRows == Acc::kCols && A::kCols == B::kCols,
                "attile::tile::matmul_nt: a is (rows, depth), b is (cols, depth)");
  matmul_nn(acc, a, b.transposed());
}

/// Computes acc(r, c) += sum over k of a(k, r) * b(k, c): dV += P^T dO, dK += dS^T Q.
template <class Acc, class A, class B>
ATTILE_DEVICE void matmul_tn(Acc& acc, const A& a, const B& b) {
  static_assert(A::kCols == Acc::kRows && B::kCols == Acc::kCols && A::kRows == B::kRows,
                "attile::tile::matmul_tn: a is (depth, rows), b is (depth, cols)");
  matmul_nn(acc, a.transposed(), b);
}

}  // namespace attile::tile
