// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/arch/opaque.h>
#include <attile/arch/thread.cuh>
#include <attile/core/array.h>
#include <attile/core/config.h>
#include <attile/core/math.h>
#include <attile/core/sequences.h>
#include <attile/core/tensor.h>

#include <concepts>
#include <cstdint>

namespace attile::tile {

/// Refers to the (rows, cols) matrix of one batch head in device memory.
template <class T>
struct Matrix {
  using Element = T;

  T* data;
  std::int64_t row_stride;
  int rows, cols;
  int vectors;  ///< whether the address and the length of each row are multiples of 16 bytes

  ATTILE_DEVICE bool has_row(int row) const { return row < rows; }
  ATTILE_DEVICE T* row(int row) const { return data + row * row_stride; }
  ATTILE_DEVICE T* at(int row, int col) const { return data + row * row_stride + col; }
};

/// Refers to the keys, or the values, of one sequence and head that lie in pages in device memory:
/// a (rows, cols) matrix of which rows before first_row are not there. The sequences policy finds
/// each of the others.
template <class T, class SequencesType>
struct PagedMatrix {
  using Element = T;

  const SequencesType& sequences;
  RowOrigin origin;  ///< the sequence's kv_origin
  Tensor<T> pages;   ///< from this head's first row of page 0 on
  int first_row, rows, cols;
  int vectors;  ///< see Matrix

  ATTILE_DEVICE bool has_row(int row) const { return first_row <= row && row < rows; }
  /// Points to an element of a row that is there.
  ATTILE_DEVICE T* at(int row, int col) const { return at(entry(row), col); }
  /// Does the same in two steps: `entry` reads memory, and nothing of what it returns is used
  /// before `at`.
  ATTILE_DEVICE RowOrigin entry(int row) const {
    if constexpr (kHasEntries) {
      return sequences.kv_entry(origin, row);
    } else {
      return sequences.kv_row(origin, row);
    }
  }
  ATTILE_DEVICE T* at(RowOrigin entry, int col) const {
    RowOrigin found = entry;
    if constexpr (kHasEntries) found = sequences.in_pages(entry);
    // A product with an unsigned number takes half the instructions.
    return pages.data + static_cast<unsigned>(found.batch) * pages.batch_stride +
           static_cast<unsigned>(found.row) * pages.row_stride + col;
  }

 private:
  static constexpr bool kHasEntries = requires(const SequencesType& s, RowOrigin origin) {
    { s.in_pages(s.kv_entry(origin, 0)) } -> std::same_as<RowOrigin>;
  };
};

/// Refers to a matrix whose columns are col_stride apart, which is 1 where it has `vectors`.
template <class M>
struct WithColumnStride : M {
  std::int64_t col_stride;

  ATTILE_DEVICE auto* at(int row, int col) const { return M::at(row, 0) + col * col_stride; }
};

/// Refers to a matrix that has `vectors` but for the length of its rows, which may end anywhere.
template <class T>
struct AlignedMatrix : Matrix<T> {};

/// Says whether a matrix is one of these.
template <class M>
inline constexpr bool kIsAligned = false;
template <class T>
inline constexpr bool kIsAligned<AlignedMatrix<T>> = true;

/// Says whether a matrix lies in pages, as a PagedMatrix does.
template <class M>
inline constexpr bool kLiesInPages = false;
template <class T, class S>
inline constexpr bool kLiesInPages<PagedMatrix<T, S>> = true;
template <class M>
inline constexpr bool kLiesInPages<WithColumnStride<M>> = kLiesInPages<M>;

/// Are what tiles are loaded from. Rows that a matrix does not have are loaded as zeros.
template <class M>
concept RowSource = requires(const M& matrix, int row) {
  { matrix.has_row(row) } -> std::same_as<bool>;
  { matrix.at(row, row) } -> std::same_as<typename M::Element*>;
  { matrix.rows + matrix.cols + matrix.vectors } -> std::same_as<int>;
};

/// Holds in which pages the rows of a tile lie, of which kThreads threads copy kRows: in each step
/// kThreads / kSide rows, kSide neighbouring threads each row. A Matrix has no pages, and its rows
/// one after another: then this holds nothing.
template <bool kPaged, int kThreads, int kRows, int kSide>
struct PageRows {
  PageRows() = default;
  template <class M>
  ATTILE_DEVICE PageRows(const M&, int, unsigned) {}
};

/// Of the rows that a warp copies in kSide steps each lane asks for the page of one. Instead of a
/// row that is not there it asks for one that is. They may be asked for long before the tile is
/// copied: what memory says is used by Pointers alone.
/// Scope    all lanes of a warp, whose `number` among the threads begins at a multiple of 32.
template <int kThreads, int kRows, int kSide>
class PageRows<true, kThreads, kRows, kSide> {
  static constexpr int kLanes = static_cast<int>(arch::kWarpSize);
  static constexpr int kStep = kThreads / kSide;      // rows from step to step
  static constexpr int kRowsOfStep = kLanes / kSide;  // of a warp
  static constexpr int kSteps = ceil_div(kRows, kStep);
  static constexpr int kAsked = ceil_div(kSteps, kSide);  // rows that a lane asks for

 public:
  PageRows() = default;
  template <class M>
  ATTILE_DEVICE PageRows(const M& matrix, int row0, unsigned number) {
    if (matrix.first_row >= matrix.rows) return;
    const int lane = static_cast<int>(number) % kLanes;
    const int first = row0 + (static_cast<int>(number) - lane) / kSide;  // the warp's
    ATTILE_UNROLL
    for (int i = 0; i < kAsked; ++i) {
      const int step = min(i * kSide + lane / kRowsOfStep, kSteps - 1);
      const int row = first + lane % kRowsOfStep + step * kStep;
      entries_[i] = matrix.entry(max(min(row, matrix.rows - 1), matrix.first_row));
    }
  }

  /// Points to the rows that each lane has asked for, in one matrix: an address is made once for
  /// all lanes that copy its row.
  template <class T>
  class Pointers {
   public:
    template <class M>
    ATTILE_DEVICE Pointers(const M& matrix, const PageRows& page_rows) {
      ATTILE_UNROLL
      for (int i = 0; i < kAsked; ++i) to_rows_[i] = matrix.at(page_rows.entries_[i], 0);
    }
    /// Points to the row that this lane copies in a step, a constant.
    ATTILE_DEVICE T* get(int step) const {
      const int lane = arch::thread_index() % kLanes;
      const int from = step % kSide * kRowsOfStep + lane / kSide;
      return arch::shuffle_words(to_rows_[step / kSide], from);
    }

   private:
    Array<T*, kAsked> to_rows_;
  };

 private:
  Array<RowOrigin, kAsked> entries_ = {};
};

/// Goes down the rows of a matrix, kStep of them at a time, in one column. It is made from the
/// matrix, the PageRows of a tile, the first row of the tile, the row in the tile, and the column.
/// `passed`, of all calls: the rows that it has gone, a constant.
/// Scope    all lanes of a warp, in the same steps.
template <RowSource M, int kStep, class Pages>
class RowCursor;

/// Keeps a running pointer.
template <class T, int kStep, class Pages>
class RowCursor<Matrix<T>, kStep, Pages> {
 public:
  ATTILE_DEVICE RowCursor(const Matrix<T>& matrix, const Pages&, int row0, int row, unsigned col)
      : stride_(arch::opaque(matrix.row_stride)),
        at_(matrix.data + (row0 + row) * stride_ + col),
        rows_(matrix.rows - row0 - row) {}

  /// Returns whether the matrix has the row.
  ATTILE_DEVICE bool has_row(int passed) const { return passed < rows_; }
  /// Points to the row's element; where there is no such row, to nothing that may be read.
  ATTILE_DEVICE T* get(int) const { return at_; }
  ATTILE_DEVICE void advance() { at_ += kStep * stride_; }

 private:
  std::int64_t stride_;
  T* at_;
  int rows_;  ///< from the first one on
};

/// Takes the row of each step from the PageRows.
template <class T, class S, int kStep, class Pages>
class RowCursor<PagedMatrix<T, S>, kStep, Pages> {
 public:
  ATTILE_DEVICE RowCursor(const PagedMatrix<T, S>& matrix, const Pages& page_rows, int row0,
                          int row, unsigned col)
      : matrix_(matrix), pointers_(matrix, page_rows), row_(row0 + row), col_(col) {}

  ATTILE_DEVICE bool has_row(int passed) const { return matrix_.has_row(row_ + passed); }
  ATTILE_DEVICE T* get(int passed) const { return pointers_.get(passed / kStep) + col_; }
  ATTILE_DEVICE void advance() {}

 private:
  const PagedMatrix<T, S>& matrix_;
  typename Pages::template Pointers<T> pointers_;
  int row_;
  unsigned col_;
};

template <class T, int kStep, class Pages>
class RowCursor<AlignedMatrix<T>, kStep, Pages> : public RowCursor<Matrix<T>, kStep, Pages> {
  using RowCursor<Matrix<T>, kStep, Pages>::RowCursor;
};

/// Goes down a matrix with `vectors`, whose columns are neighbours.
template <class M, int kStep, class Pages>
class RowCursor<WithColumnStride<M>, kStep, Pages> : public RowCursor<M, kStep, Pages> {
  using RowCursor<M, kStep, Pages>::RowCursor;
};

/// Holds a tensor as a parameter of a kernel, with the alignment that the host has found. On the
/// host, and in the kernel:
///   const Params p{.k = tile::tensor_param(k, kDim), ...};
///   const tile::Matrix<const T> k = p.k.slice(batch, kv_head, kv_len, kDim);
template <class T>
struct TensorParam {
  Tensor<T> tensor;
  int vectors;  ///< see Matrix; an int, because bool parameters would be kept in registers, as bits

  /// Returns the matrix of one head of one sequence.
  ATTILE_DEVICE Matrix<T> slice(int batch, int head, int rows, int cols) const {
    return slice(RowOrigin{batch, 0}, head, rows, cols);
  }
  /// Returns the matrix whose rows begin at `first`.
  ATTILE_DEVICE Matrix<T> slice(RowOrigin first, int head, int rows, int cols) const {
    return {tensor.row(first.batch, head, first.row), tensor.row_stride, rows, cols, vectors};
  }
  /// Returns the matrix of one head of a sequence with that kv_origin, whose keys lie in pages.
  template <class SequencesType>
  ATTILE_DEVICE PagedMatrix<T, SequencesType> paged(const SequencesType& sequences,
                                                    RowOrigin origin, int head, int first_row,
                                                    int rows, int cols) const {
    const Tensor<T> pages{tensor.row(0, head, 0), tensor.batch_stride, 0, tensor.row_stride};
    return {sequences, origin, pages, first_row, rows, cols, vectors};
  }
};

/// Returns the parameter for a tensor with rows of `dim` elements; its `vectors` says whether all
/// rows can be moved 16 bytes at a time.
template <class T>
TensorParam<T> tensor_param(const Tensor<T>& t, int dim, std::int64_t col_stride = 1) {
  constexpr std::int64_t kVector = 16 / sizeof(T);
  const bool vectors = reinterpret_cast<std::uintptr_t>(t.data) % 16 == 0 && dim % kVector == 0 &&
                       col_stride == 1 && t.batch_stride % kVector == 0 &&
                       t.head_stride % kVector == 0 && t.row_stride % kVector == 0;
  return {t, vectors};
}

}  // namespace attile::tile
