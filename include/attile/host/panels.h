// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/array.h>
#include <attile/core/element.h>
#include <attile/core/index.h>
#include <attile/core/sequences.h>
#include <attile/core/tensor.h>
#include <attile/host/simd.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

// The executor multiplies C (+)= A B in fp32, where A comes in strips of kStripRows rows and B in
// panels of kPanelWidth columns, both packed so that the innermost loop reads memory in order.

namespace attile::host {

/// Is the number of rows of A and of C that one call of `multiply` holds in registers.
template <class V>
inline constexpr int kStripRows = V::kWidth >= 16 ? 12 : 6;

/// Is the number of vectors of a row of B and of C that one call of `multiply` holds in registers.
inline constexpr int kPanelVectors = 2;

template <class V>
inline constexpr int kPanelWidth = kPanelVectors* V::kWidth;

/// Returns the storage of a 16-bit element: its first member, read in place, because a copy of the
/// class keeps compilers from vectorising.
template <class T>
std::uint32_t bits_of(const T& x) {
  static_assert(std::is_standard_layout_v<T> && sizeof(T) == sizeof(std::uint16_t),
                "a 16-bit element must be a class around its 16 bits");
  return reinterpret_cast<const std::uint16_t&>(x);
}

/// Convert as to_float does, in arithmetic that compilers vectorise: exact, infinities and NaN too.
inline float widen(float x) { return x; }
inline float widen(const __nv_bfloat16& x) { return std::bit_cast<float>(bits_of(x) << 16); }
inline float widen(const __half& x) {
  const std::uint32_t half = bits_of(x);
  // The exponent's bias is 15 in a half and 127 in a float; this way subnormal halves are exact.
  const float rebias = 0x1p112f;
  const float magnitude = std::bit_cast<float>((half & 0x7FFFu) << 13) * rebias;
  const std::uint32_t special = (half & 0x7C00u) == 0x7C00u ? 0x7F800000u : 0u;
  const std::uint32_t sign = (half & 0x8000u) << 16;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | special | sign);
}

template <Fp8 T>
float widen(const T& x) {
  return to_float(x);
}

/// Refers to the rows `block` of one head of a tensor. Stride: that of columns, UnitStride or
/// std::int64_t.
template <class T, class Stride = UnitStride>
struct RowBlock {
  using Element = T;

  const T* first;
  std::int64_t row_stride;
  int rows;

  RowBlock(const Tensor<const T>& tensor, int batch, int head, Interval block,
           Stride col_stride = {})
      : first(tensor.row(batch, head, block.begin)),
        row_stride(tensor.row_stride),
        rows(block.end - block.begin),
        col_stride_(col_stride) {}
  const T* row(int i) const { return first + i * row_stride; }
  /// Returns the stride of row i's elements.
  Stride col_stride(int) const { return col_stride_; }

 private:
  Stride col_stride_;
};

/// Refers to the keys `block` of one head of a sequence, or to its values, that lie in pages. Keys
/// before first_key are not read: in their place are `zeros`.
template <class T, class SequencesType, class Stride = UnitStride>
class PagedRowBlock {
 public:
  using Element = T;

  int rows;

  PagedRowBlock(const Tensor<const T>& pages, const SequencesType& sequences, int sequence,
                int head, Interval block, int first_key, const T* zeros, Stride col_stride = {})
      : rows(block.end - block.begin),
        pages_(pages),
        sequences_(sequences),
        origin_(sequences.kv_origin(sequence)),
        head_(head),
        begin_(block.begin),
        first_key_(first_key),
        zeros_(zeros),
        col_stride_(col_stride) {}
  const T* row(int i) const {
    const int key = begin_ + i;
    if (key < first_key_) return zeros_;
    const RowOrigin at = sequences_.kv_row(origin_, key);
    return pages_.row(at.batch, head_, at.row);
  }
  Stride col_stride(int i) const {
    return begin_ + i < first_key_ ? Stride{1} : col_stride_;  // zeros are a row
  }

 private:
  const Tensor<const T>& pages_;
  const SequencesType& sequences_;
  RowOrigin origin_;
  int head_, begin_, first_key_;
  const T* zeros_;
  Stride col_stride_;
};

/// Packs rows as the rows of B: panel p holds columns [p, p + 1) * kPanelWidth, row after row.
/// Shapes   to: (panels, depth, kPanelWidth); columns past dim are 0, rows past the block are not
///          written.
template <class V, class Block>
void pack_rows(const Block& block, int dim, int depth, float* to) {
  using T = typename Block::Element;
  constexpr int kWidth = kPanelWidth<V>;
  for (int c = 0; c < dim; c += kWidth, to += std::ptrdiff_t{depth} * kWidth) {
    for (int r = 0; r < block.rows; ++r) {
      const auto stride = block.col_stride(r);
      const T* from = block.row(r) + c * stride;
      float* row = to + r * kWidth;
      if (dim - c >= kWidth) {
        for (int i = 0; i < kWidth; ++i) row[i] = widen(from[i * stride]);
      } else {
        for (int i = 0; i < kWidth; ++i) row[i] = i < dim - c ? widen(from[i * stride]) : 0.0f;
      }
    }
  }
}

/// Returns the sum of x[i] * y[i], as 16 partial sums that the compiler can vectorise.
template <class T>
float dot(const T* x, const T* y, int n) {
  constexpr int kSums = 16;
  float sums[kSums] = {};
  int i = 0;
  for (; i + kSums <= n; i += kSums) {
    for (int j = 0; j < kSums; ++j) sums[j] += widen(x[i + j]) * widen(y[i + j]);
  }
  for (; i < n; ++i) sums[i % kSums] += widen(x[i]) * widen(y[i]);
  float total = 0.0f;
  for (const float sum : sums) total += sum;
  return total;
}

/// Transposes `rows` rows into columns: to[c * kGroup + r] = from[r][c]. It takes kRows rows and
/// four columns at a time, so that the block passes through registers; rows past `rows` become 0.
template <int kGroup, int kRows>
void transpose(const Array<const float*, kRows>& from, int rows, int columns, float* to) {
  constexpr int kColumns = 4;
  int c = 0;
  for (; rows == kRows && c + kColumns <= columns; c += kColumns) {
    Array<float, kColumns, kRows> turned;
    ATTILE_HOST_UNROLL
    for (int i = 0; i < kRows; ++i) {
      ATTILE_HOST_UNROLL
      for (int j = 0; j < kColumns; ++j) turned[j][i] = from[i][c + j];
    }
    ATTILE_HOST_UNROLL
    for (int j = 0; j < kColumns; ++j) std::copy_n(turned[j], kRows, to + (c + j) * kGroup);
  }
  for (; c < columns; ++c) {
    for (int i = 0; i < kRows; ++i) to[c * kGroup + i] = i < rows ? from[i][c] : 0.0f;
  }
}

/// Packs rows as columns, kGroup of them side by side: the strips of A (kGroup = kStripRows), or
/// the panels of B = X^T (kGroup = kPanelWidth).
/// Shapes   to: (groups, dim, kGroup); rows past the block are 0.
template <int kGroup, class Block>
void pack_transposed(const Block& block, int dim, float* to) {
  using T = typename Block::Element;
  constexpr int kRows = kGroup % 4 == 0 ? 4 : 2;
  constexpr int kChunk = 128;  // elements converted at a time
  Array<float, kRows, kChunk> converted;
  for (int first = 0; first < block.rows; first += kGroup, to += std::ptrdiff_t{dim} * kGroup) {
    for (int r = 0; r < kGroup; r += kRows) {
      const int rows = std::clamp(block.rows - first - r, 0, kRows);
      for (int c = 0; c < dim; c += kChunk) {
        const int columns = std::min(kChunk, dim - c);
        Array<const float*, kRows> from;
        for (int i = 0; i < kRows; ++i) {
          const T* const row = block.row(first + (i < rows ? r + i : 0)) + c;
          if constexpr (std::is_same_v<T, float>) {
            from[i] = row;
          } else {
            for (int j = 0; j < columns; ++j) converted[i][j] = widen(row[j]);
            from[i] = converted[i];
          }
        }
        transpose<kGroup, kRows>(from, rows, columns, to + std::ptrdiff_t{c} * kGroup + r);
      }
    }
  }
}

/// Writes n values, times a factor, rounded to T.
template <class T>
void write_row(const float* from, float factor, int n, T* to) {
  for (int i = 0; i < n; ++i) to[i] = from_float<T>(from[i] * factor);
}

/// Multiplies one strip of A by one panel of B: C = A B, or C += A B.
/// Shapes   A (kStripRows, depth), element (r, k) at a[r * kRowStride + k * kDepthStride];
///          B (depth, kVectors * width), rows kPanelWidth apart; C rows c_stride apart.
template <class V, int kVectors, int kRowStride, int kDepthStride, bool kAdd>
void multiply(const float* a, const float* b, int depth, float* c, std::ptrdiff_t c_stride) {
  constexpr int kRows = kStripRows<V>;
  Array<V, kRows, kVectors> sum;
  ATTILE_HOST_UNROLL
  for (int r = 0; r < kRows; ++r) {
    ATTILE_HOST_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      sum[r][v] = kAdd ? V::load(c + r * c_stride + v * V::kWidth) : V(0.0f);
    }
  }
  for (int k = 0; k < depth; ++k, a += kDepthStride, b += kPanelWidth<V>) {
    Array<V, kVectors> row;
    ATTILE_HOST_UNROLL
    for (int v = 0; v < kVectors; ++v) row[v] = V::load(b + v * V::kWidth);
    ATTILE_HOST_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const V factor(a[r * kRowStride]);
      ATTILE_HOST_UNROLL
      for (int v = 0; v < kVectors; ++v) sum[r][v] = multiply_add(factor, row[v], sum[r][v]);
    }
  }
  ATTILE_HOST_UNROLL
  for (int r = 0; r < kRows; ++r) {
    ATTILE_HOST_UNROLL
    for (int v = 0; v < kVectors; ++v) sum[r][v].store(c + r * c_stride + v * V::kWidth);
  }
}

/// Is the number of columns of the score matrix that a strip has room for: the largest tile.
inline constexpr int kMaxTileColumns = 256;

/// Computes S = A B for the panels that hold the columns `wide` of a tile, whose bounds are
/// multiples of kPanelWidth.
/// Shapes   A: a packed strip; B: packed panels; S (kStripRows, kMaxTileColumns).
template <class V>
void multiply_scores(const float* a, const float* panels, int dim, Interval wide, float* s) {
  constexpr int kWidth = kPanelWidth<V>;
  for (int c = wide.begin; c < wide.end; c += kWidth) {
    multiply<V, kPanelVectors, 1, kStripRows<V>, false>(a, panels + std::ptrdiff_t{c} * dim, dim,
                                                        s + c, kMaxTileColumns);
  }
}

/// Computes C += P B over the columns `columns` of a strip of scores.
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
