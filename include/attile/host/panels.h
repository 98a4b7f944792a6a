// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/element.h>
#include <attile/core/index.h>
#include <attile/core/tensor.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

// What the executor multiplies: C (+)= A B in fp32, where A comes in strips of kStripRows rows and
// B in panels of kPanelWidth columns, both packed so that the innermost loop reads memory in order.

namespace attile::host {

/// Rows of A and of C that one call of `multiply` holds in registers.
template <class V>
inline constexpr int kStripRows = V::kWidth >= 16 ? 12 : 6;

/// Vectors of a row of B and of C that one call of `multiply` holds in registers.
inline constexpr int kPanelVectors = 2;

template <class V>
inline constexpr int kPanelWidth = kPanelVectors * V::kWidth;

/// The bits of an element as a float; exact, infinities and NaN included, and plain enough to be
/// vectorised.
inline float widen(float x) { return x; }
inline float widen(__nv_bfloat16 x) {
  return std::bit_cast<float>(std::uint32_t{std::bit_cast<std::uint16_t>(x)} << 16);
}
inline float widen(__half x) {
  const std::uint32_t half = std::bit_cast<std::uint16_t>(x);
  // The exponent's bias is 15 in a half and 127 in a float; this way subnormal halves are exact.
  const float rebias = 0x1p112f;
  const float magnitude = std::bit_cast<float>((half & 0x7FFFu) << 13) * rebias;
  const std::uint32_t special = (half & 0x7C00u) == 0x7C00u ? 0x7F800000u : 0u;
  const std::uint32_t sign = (half & 0x8000u) << 16;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | special | sign);
}

/// The rows `rows` of one head of a tensor.
template <class T>
struct RowBlock {
  const T* first;
  std::int64_t row_stride;
  int rows;

  RowBlock(const Tensor<const T>& tensor, int batch, int head, Interval block)
      : first(tensor.row(batch, head, block.begin)),
        row_stride(tensor.row_stride),
        rows(block.end - block.begin) {}
  const T* row(int i) const { return first + i * row_stride; }
};

/// Packs rows as the rows of B: panel p holds columns [p, p + 1) * kPanelWidth, row after row.
/// Shapes   to: (panels, depth, kPanelWidth); columns past dim are 0, rows past the block are not
///          written.
template <class V, class T>
void pack_rows(const RowBlock<T>& block, int dim, int depth, float* to) {
  constexpr int kWidth = kPanelWidth<V>;
  for (int c = 0; c < dim; c += kWidth, to += std::ptrdiff_t{depth} * kWidth) {
    for (int r = 0; r < block.rows; ++r) {
      const T* from = block.row(r) + c;
      float* row = to + r * kWidth;
      if (dim - c >= kWidth) {
        for (int i = 0; i < kWidth; ++i) row[i] = widen(from[i]);
      } else {
        for (int i = 0; i < kWidth; ++i) row[i] = i < dim - c ? widen(from[i]) : 0.0f;
      }
    }
  }
}

/// Packs rows as columns, kGroup of them side by side: the strips of A (kGroup = kStripRows), or
/// the panels of B = X^T (kGroup = kPanelWidth).
/// Shapes   to: (groups, dim, kGroup); rows past the block are 0.
template <int kGroup, class T>
void pack_transposed(const RowBlock<T>& block, int dim, float* to) {
  constexpr int kChunk = 64;
  float chunk[kGroup][kChunk];
  for (int first = 0; first < block.rows; first += kGroup) {
    const int rows = std::min(kGroup, block.rows - first);
    for (int c = 0; c < dim; c += kChunk) {
      const int columns = std::min(kChunk, dim - c);
      for (int r = 0; r < kGroup; ++r) {
        if (r < rows) {
          const T* from = block.row(first + r) + c;
          for (int i = 0; i < columns; ++i) chunk[r][i] = widen(from[i]);
        } else {
          std::fill_n(chunk[r], columns, 0.0f);
        }
      }
      for (int i = 0; i < columns; ++i, to += kGroup) {
        for (int r = 0; r < kGroup; ++r) to[r] = chunk[r][i];
      }
    }
  }
}

/// Writes n values, times a factor, rounded to T.
template <class T>
void write_row(const float* from, float factor, int n, T* to) {
  for (int i = 0; i < n; ++i) to[i] = from_float<T>(from[i] * factor);
}

/// One strip of A times one panel of B: C = A B, or C += A B.
/// Shapes   A (kStripRows, depth), element (r, k) at a[r * kRowStride + k * kDepthStride];
///          B (depth, kVectors * width), rows kPanelWidth apart; C rows c_stride apart.
template <class V, int kVectors, int kRowStride, int kDepthStride, bool kAdd>
void multiply(const float* a, const float* b, int depth, float* c, std::ptrdiff_t c_stride) {
  constexpr int kRows = kStripRows<V>;
  V sum[kRows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      sum[r][v] = kAdd ? V::load(c + r * c_stride + v * V::kWidth) : V(0.0f);
    }
  }
  for (int k = 0; k < depth; ++k, a += kDepthStride, b += kPanelWidth<V>) {
    V row[kVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) row[v] = V::load(b + v * V::kWidth);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const V factor(a[r * kRowStride]);
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) sum[r][v] = multiply_add(factor, row[v], sum[r][v]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) sum[r][v].store(c + r * c_stride + v * V::kWidth);
  }
}

/// Columns of the score matrix that a strip of scores has room for: the largest tile.
inline constexpr int kMaxTileColumns = 256;

/// S = A B for the panels that hold the columns `wide` of a tile, whose bounds are multiples of
/// kPanelWidth. Shapes   A: a packed strip; B: packed panels; S (kStripRows, kMaxTileColumns).
template <class V>
void multiply_scores(const float* a, const float* panels, int dim, Interval wide, float* s) {
  constexpr int kWidth = kPanelWidth<V>;
  for (int c = wide.begin; c < wide.end; c += kWidth) {
    multiply<V, kPanelVectors, 1, kStripRows<V>, false>(a, panels + std::ptrdiff_t{c} * dim, dim,
                                                       s + c, kMaxTileColumns);
  }
}

/// C += P B over the columns `columns` of a strip of scores.
/// Shapes   P (kStripRows, kMaxTileColumns); B: rows packed with `depth` rows to a panel;
///          C (kStripRows, c_stride), c_stride a multiple of the vector width, >= dim.
template <class V>
void multiply_output(const float* p, const float* panels, int depth, Interval columns, int dim,
                     float* c, std::ptrdiff_t c_stride) {
  constexpr int kWidth = kPanelWidth<V>;
  const int terms = columns.end - columns.begin;
  for (int d = 0; d < dim; d += kWidth, panels += std::ptrdiff_t{depth} * kWidth) {
    const float* b = panels + columns.begin * kWidth;
    if (dim - d > V::kWidth) {
      multiply<V, kPanelVectors, kMaxTileColumns, 1, true>(p + columns.begin, b, terms, c + d,
                                                           c_stride);
    } else {
      multiply<V, 1, kMaxTileColumns, 1, true>(p + columns.begin, b, terms, c + d, c_stride);
    }
  }
}

}  // namespace attile::host
