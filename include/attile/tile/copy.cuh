// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/element.h>
#include <attile/core/math.h>
#include <attile/core/tensor.h>
#include <attile/core/vec.h>

#include <cstdint>

namespace attile::tile {

/// The (rows, cols) matrix of one batch and head in device memory.
template <class T>
struct Matrix {
  T* data;
  std::int64_t row_stride;
  int rows, cols;
  bool vectors;  ///< each row starts at, and takes, a multiple of 16 bytes
};

/// A tensor as a kernel gets it: with what the host found out about its alignment.
template <class T>
struct TensorParam {
  Tensor<T> tensor;
  bool vectors;

  ATTILE_DEVICE Matrix<T> slice(int batch, int head, int rows, int cols) const {
    return {tensor.row(batch, head, 0), tensor.row_stride, rows, cols, vectors};
  }
};

/// Whether all rows of `dim` elements can be moved 16 bytes at a time.
template <class T>
TensorParam<T> tensor_param(const Tensor<T>& t, int dim) {
  constexpr std::int64_t kVector = 16 / sizeof(T);
  const bool vectors = reinterpret_cast<std::uintptr_t>(t.data) % 16 == 0 && dim % kVector == 0 &&
                       t.batch_stride % kVector == 0 && t.head_stride % kVector == 0 &&
                       t.row_stride % kVector == 0;
  return {t, vectors};
}

/// shared(r, c) = source(row0 + r, c); 0 beyond the source's rows and columns, so that nothing
/// stored there can reach a result.
/// Shapes   shared (Rows, Cols); source.cols <= Cols.
/// Scope    all kThreads threads of the block.
/// Barriers one before, when others still read the tile; one after, before others read it.
template <int kThreads, class Shared, class T>
ATTILE_DEVICE void load(const Shared& shared, const Matrix<const T>& source, int row0) {
  constexpr int kVector = 16 / sizeof(T);
  if (Shared::kCols % kVector == 0 && source.vectors) {
    constexpr int kPerRow = ceil_div(Shared::kCols, kVector);
    ATTILE_UNROLL_BY(8)
    for (int i = arch::thread_index(); i < Shared::kRows * kPerRow; i += kThreads) {
      const int r = i / kPerRow;
      const int c = i % kPerRow * kVector;
      const bool inside = row0 + r < source.rows && c < source.cols;
      Vec<T, kVector> v{};
      if (inside) {
        v = *reinterpret_cast<const Vec<T, kVector>*>(source.data + (row0 + r) * source.row_stride +
                                                      c);
      }
      ATTILE_UNROLL
      for (int e = 0; e < kVector; e += 4) {
        shared.at4(r, c + e) = {to_float(v[e]), to_float(v[e + 1]), to_float(v[e + 2]),
                                to_float(v[e + 3])};
      }
    }
  } else {
    ATTILE_UNROLL_BY(4)
    for (int i = arch::thread_index(); i < Shared::kRows * Shared::kCols; i += kThreads) {
      const int r = i / Shared::kCols;
      const int c = i % Shared::kCols;
      const bool inside = row0 + r < source.rows && c < source.cols;
      shared.at(r, c) = inside ? to_float(source.data[(row0 + r) * source.row_stride + c]) : 0.0f;
    }
  }
}

/// target(row0 + r, c) = registers(r, c) * factor, within the target's rows and columns.
/// Scope    each thread for what it holds.
template <class Registers, class T>
ATTILE_DEVICE void store(const Matrix<T>& target, const Registers& registers, int row0,
                         float factor = 1.0f) {
  static_assert(Registers::kColRun == 4, "attile::tile::store: columns are held in runs of 4");
  ATTILE_UNROLL
  for (int r = 0; r < Registers::kRegRows; ++r) {
    const int row = row0 + Registers::row(r);
    if (!Registers::has_row(r) || row >= target.rows) continue;
    T* const out = target.data + row * target.row_stride;
    ATTILE_UNROLL
    for (int c = 0; c < Registers::kRegCols; c += 4) {
      const int col = Registers::col(c);
      Vec<T, 4> v;
      ATTILE_UNROLL
      for (int e = 0; e < 4; ++e) v[e] = from_float<T>(registers.x[r][c + e] * factor);
      if (target.vectors && col < target.cols) {
        *reinterpret_cast<Vec<T, 4>*>(out + col) = v;
      } else {
        ATTILE_UNROLL
        for (int e = 0; e < 4; ++e) {
          if (col + e < target.cols) out[col + e] = v[e];
        }
      }
    }
  }
}

/// shared(r, c) = registers(r, c).
/// Scope    each thread for what it holds.
/// Barriers one after, for the lanes that read what other lanes wrote.
template <class Shared, class Registers>
ATTILE_DEVICE void stage(const Shared& shared, Registers& registers) {
  registers.for_each([&](int r, int c, float x) { shared.at(r, c) = x; });
}

}  // namespace attile::tile
