// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>
#include <attile/core/element.h>
#include <attile/core/index.h>
#include <attile/core/overlap.h>
#include <attile/core/score_mod.h>
#include <attile/core/tensor.h>

#include <cstdint>

// Score modifiers that add a bias, and the gradient of one.

namespace attile {

/// Adds a bias: s + bias[batch, head, row, col]; a bias of -inf hides the score.
/// Units   strides count elements; 0 broadcasts along that axis.
template <Element T = float>
struct AdditiveBias {
  const T* bias = nullptr;
  std::int64_t batch_stride = 0;
  std::int64_t head_stride = 0;
  std::int64_t row_stride = 0;
  std::int64_t col_stride = 1;

  static constexpr bool kMayHide = true;

  const char* fault() const {
    if (bias == nullptr) return "AdditiveBias: bias must not be null";
    return detail::misaligned(bias) ? "AdditiveBias: bias is not aligned to its element type"
                                    : nullptr;
  }

  template <class Real>
  ATTILE_HOST_DEVICE ModifiedScore<Real> operator()(Real s, ScoreIndex i, Extent) const {
    return {s + Real(to_float(*at(i))), Real(1)};
  }

  ATTILE_HOST_DEVICE ElementTensor<T> elements() const {
    return {bias, batch_stride, head_stride, row_stride, col_stride};
  }
  constexpr DataAxes data_axes() const {
    return {batch_stride != 0, head_stride != 0, row_stride != 0, col_stride != 0};
  }

  struct Tile {
    using Modifier = AdditiveBias;
    using Element = T;
    float scale;
    const T* first;
    std::int64_t row_stride, col_stride;

    ATTILE_HOST_DEVICE const T* row(int dr) const { return first + dr * row_stride; }
    ATTILE_HOST_DEVICE std::int64_t col(int dc) const { return dc * col_stride; }
    ATTILE_HOST_DEVICE T read(const T* row, std::int64_t col) const { return row[col]; }
    ATTILE_HOST_DEVICE ModifiedScore<float> operator()(float x, const T*, std::int64_t,
                                                       T element) const {
      return {std::fma(scale, x, to_float(element)), 1.0f};
    }
    template <class Products, class F>
    ATTILE_HOST_DEVICE void simplify(const Products&, const F& f) const {
      if (row_stride == 0) {
        f(OneRow{scale, first, col_stride});
      } else {
        f(*this);
      }
    }
  };
  /// Is for a bias that all rows have in common: each column's is read once for all rows.
  struct OneRow {
    using Modifier = AdditiveBias;
    float scale;
    const T* first;
    std::int64_t col_stride;

    ATTILE_HOST_DEVICE int row(int) const { return 0; }
    ATTILE_HOST_DEVICE float col(int dc) const { return to_float(first[dc * col_stride]); }
    ATTILE_HOST_DEVICE ModifiedScore<float> operator()(float x, int, float col) const {
      return {std::fma(scale, x, col), 1.0f};
    }
  };
  template <class Math>
  ATTILE_HOST_DEVICE Tile of_tile(const ScoreBlock& block, const Math&) const {
    return {block.scale, at(block.first), row_stride, col_stride};
  }
  constexpr bool reads_columns() const { return row_stride == 0; }
  template <class Math>
  ATTILE_HOST_DEVICE OneRow column_tile(const ScoreBlock& block, const Math&) const {
    return {block.scale, at(block.first), col_stride};
  }
  /// Is for a bias of col - row: each diagonal's is read once.
  struct Distances {
    using Modifier = AdditiveBias;
    float scale;
    const T* origin;  ///< of col = row
    std::int64_t stride;

    ATTILE_HOST_DEVICE float diagonal(int distance) const {
      return to_float(origin[distance * stride]);
    }
    ATTILE_HOST_DEVICE ModifiedScore<float> operator()(float x, float word) const {
      return {std::fma(scale, x, word), 1.0f};
    }
  };
  constexpr bool reads_diagonals() const { return col_stride != 0 && row_stride == -col_stride; }
  template <class Math>
  ATTILE_HOST_DEVICE Distances diagonal_tile(const ScoreBlock& block, const Math&) const {
    return {block.scale, at({block.first.batch, block.first.head, 0, 0}), col_stride};
  }

 private:
  ATTILE_HOST_DEVICE const T* at(ScoreIndex i) const {
    return bias + (i.batch * batch_stride + i.head * head_stride + i.row * row_stride +
                   i.col * col_stride);
  }
};

template <class T>
inline constexpr bool kNeedsScores<AdditiveBias<T>> = false;

/// Says where the gradient of a bias goes: fp32, [batch, head, row, col].
/// Units   strides count elements, of any sign. 0 sums over that axis; row_stride = -col_stride has
///         one element for each col - row, and row_stride = col_stride for each col + row.
struct BiasGradient {
  float* data = nullptr;  ///< the element of the score (0, 0, 0, 0)
  std::int64_t batch_stride = 0;
  std::int64_t head_stride = 0;
  std::int64_t row_stride = 0;
  std::int64_t col_stride = 1;

  ATTILE_HOST_DEVICE float* at(std::int64_t batch, std::int64_t head, std::int64_t row,
                               std::int64_t col) const {
    return data + batch * batch_stride + head * head_stride + row * row_stride + col * col_stride;
  }

  ATTILE_HOST_DEVICE GradientPer per() const {
    if (row_stride == 0) return col_stride == 0 ? GradientPer::kHead : GradientPer::kCol;
    if (col_stride == 0) return GradientPer::kRow;
    return row_stride == -col_stride ? GradientPer::kDiagonal : GradientPer::kScore;
  }
  ATTILE_HOST_DEVICE std::int64_t lines(const ScoreShape& s) const {
    return cols(s) == 0 ? 0 : batches(s) * heads(s) * rows(s);
  }
  /// Returns the elements that a row has and the rows before it have not.
  ATTILE_HOST_DEVICE GradientLine line(std::int64_t n, const ScoreShape& s) const {
    const std::int64_t batch_head = n / rows(s), row = n % rows(s);
    const std::int64_t batch = batch_head / heads(s), head = batch_head % heads(s);
    if (row == 0 || !diagonal()) return {at(batch, head, row, 0), cols(s), col_stride};
    return {at(batch, head, row, row_stride == col_stride ? cols(s) - 1 : 0), 1, 1};
  }

  /// Returns whether elements share memory beyond what a stride of 0 or a diagonal implies.
  bool overlaps_itself(const ScoreShape& s) const {
    const std::int64_t diagonals = rows(s) + cols(s) - 1;
    return strides_overlap<4>(
        {batches(s), heads(s), diagonal() ? diagonals : rows(s), diagonal() ? 1 : cols(s)},
        {batch_stride, head_stride, row_stride, col_stride}, 1);
  }
  /// Returns whether no two scores share an element; true without scores.
  bool one_for_each(const ScoreShape& s) const {
    if (s.batch == 0 || s.heads == 0 || s.extent.q_len == 0 || s.extent.kv_len == 0) return true;
    return !strides_overlap<4>({s.batch, s.heads, s.extent.q_len, s.extent.kv_len},
                               {batch_stride, head_stride, row_stride, col_stride}, 1);
  }

 private:
  ATTILE_HOST_DEVICE bool diagonal() const {
    return row_stride != 0 && (row_stride == col_stride || row_stride == -col_stride);
  }
  // An axis that is summed over has one element, however many scores.
  ATTILE_HOST_DEVICE std::int64_t batches(const ScoreShape& s) const {
    return batch_stride != 0 ? s.batch : 1;
  }
  ATTILE_HOST_DEVICE std::int64_t heads(const ScoreShape& s) const {
    return head_stride != 0 ? s.heads : 1;
  }
  ATTILE_HOST_DEVICE std::int64_t rows(const ScoreShape& s) const {
    return row_stride != 0 ? s.extent.q_len : 1;
  }
  ATTILE_HOST_DEVICE int cols(const ScoreShape& s) const {
    return col_stride != 0 ? s.extent.kv_len : 1;
  }
};

/// Adds a bias as AdditiveBias does, and has a gradient: the backward pass also writes dS', summed
/// as the gradient's strides say, which may differ from the bias's. Hidden scores give 0.
/// Cost     backward fp32 atomic additions: one for each score that is not hidden, or where rows,
///          columns or diagonals are summed over, fewer (docs/masks.md).
template <Element T = float>
struct LearnedBias {
  AdditiveBias<T> bias{};
  BiasGradient gradient{};  ///< the forward pass does not read it

  static constexpr bool kMayHide = true;
  static constexpr bool kHasGradient = true;

  const char* fault() const { return bias.fault(); }

  template <class Real>
  ATTILE_HOST_DEVICE ModifiedScore<Real> operator()(Real s, ScoreIndex i, Extent e) const {
    return bias(s, i, e);
  }
  ATTILE_HOST_DEVICE ElementTensor<T> elements() const { return bias.elements(); }
  constexpr DataAxes data_axes() const { return bias.data_axes(); }
  struct Tile : AdditiveBias<T>::Tile {
    using Modifier = LearnedBias;
  };
  template <class Math>
  ATTILE_HOST_DEVICE Tile of_tile(const ScoreBlock& block, const Math& math) const {
    return {bias.of_tile(block, math)};
  }
  constexpr bool reads_columns() const { return bias.reads_columns(); }
  struct OneRow : AdditiveBias<T>::OneRow {
    using Modifier = LearnedBias;
  };
  template <class Math>
  ATTILE_HOST_DEVICE OneRow column_tile(const ScoreBlock& block, const Math& math) const {
    return {bias.column_tile(block, math)};
  }
  constexpr bool reads_diagonals() const { return bias.reads_diagonals(); }
  struct Distances : AdditiveBias<T>::Distances {
    using Modifier = LearnedBias;
  };
  template <class Math>
  ATTILE_HOST_DEVICE Distances diagonal_tile(const ScoreBlock& block, const Math& math) const {
    return {bias.diagonal_tile(block, math)};
  }

  template <class Real, class Add>
  ATTILE_HOST_DEVICE void add_gradient(Real, Real ds, ScoreIndex i, Extent, const Add& add) const {
    add(gradient.at(i.batch, i.head, i.row, i.col), ds);
  }
  ATTILE_HOST_DEVICE GradientPer gradient_per() const { return gradient.per(); }
  ATTILE_HOST_DEVICE std::int64_t gradient_lines(const ScoreShape& s) const {
    return gradient.lines(s);
  }
  ATTILE_HOST_DEVICE GradientLine gradient_line(std::int64_t n, const ScoreShape& s) const {
    return gradient.line(n, s);
  }
  const char* gradient_fault(const ScoreShape& s) const {
    if (gradient.lines(s) == 0) return nullptr;
    if (gradient.data == nullptr) return "LearnedBias: gradient must not be null";
    if (detail::misaligned(gradient.data)) return "LearnedBias: gradient is not aligned to 4 bytes";
    if (gradient.overlaps_itself(s)) {
      return "LearnedBias: elements of gradient share memory (see its strides; 0 sums)";
    }
    const void* const input = bias.bias;
    return gradient.data == input ? "LearnedBias: gradient is the memory of the bias" : nullptr;
  }
  bool adds_once(const ScoreShape& s) const { return gradient.one_for_each(s); }
};

template <class T>
inline constexpr bool kNeedsScores<LearnedBias<T>> = false;
template <class T>
inline constexpr bool kHasLinearGradient<LearnedBias<T>> = true;

}  // namespace attile
