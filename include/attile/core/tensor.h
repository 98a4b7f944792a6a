// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>

#include <cstdint>
#include <type_traits>

namespace attile {

/// Is a (batch, head, row, dim) view; dim is contiguous.
/// Units   strides count elements, not bytes; any sign, and 0 repeats an input along that axis.
template <class T>
struct Tensor {
  T* data = nullptr;
  std::int64_t batch_stride = 0;
  std::int64_t head_stride = 0;
  std::int64_t row_stride = 0;

  /// Returns the first element of one row.
  ATTILE_HOST_DEVICE T* row(int batch, int head, std::int64_t row) const {
    return data + batch * batch_stride + head * head_stride + row * row_stride;
  }

  /// Converts a writable tensor to a tensor to read.
  template <class U>
    requires(std::is_same_v<U, const T> && !std::is_const_v<T>)
  ATTILE_HOST_DEVICE constexpr operator Tensor<U>() const {
    return {data, batch_stride, head_stride, row_stride};
  }
};

/// Is a dense (batch, head, row) array of one number for each row of each head.
template <class T>
struct RowTensor {
  T* data = nullptr;
  int heads = 0;
  int rows = 0;  ///< of each head

  /// Returns the number of one row.
  ATTILE_HOST_DEVICE T* row(int batch, int head, std::int64_t row) const {
    return data + static_cast<std::int64_t>(batch * heads + head) * rows + row;
  }
};

namespace detail {

/// Returns whether an address is no multiple of the alignment of its type.
template <class T>
bool misaligned(const T* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % alignof(T) != 0;
}

/// Is a number that has to be given.
struct Given {
  std::int64_t value;

  constexpr Given(std::int64_t given) : value(given) {}
  constexpr operator std::int64_t() const { return value; }
};
/// Stands first in an aggregate whose members are given by name alone: a number is none of it.
struct ByName {};

}  // namespace detail

/// Holds the extents of a dense array, all of them by name, as rows and heads are easily swapped:
/// `{.rows = 2048, .heads = 32, .dim = 128}`.
struct DenseShape {
  detail::ByName by_name{};
  detail::Given rows;  ///< of one sequence
  detail::Given heads;
  detail::Given dim;
};

/// Holds the extents of a dense array of one number for each row: `{.rows = 2048, .heads = 32}`.
struct DenseRows {
  detail::ByName by_name{};
  detail::Given rows;
  detail::Given heads;
};

/// Returns a dense (batch, row, head, dim) array: rows of all heads interleaved.
///   attile::bshd(q, {.rows = 2048, .heads = 32, .dim = 128})
template <class T>
constexpr Tensor<T> bshd(T* data, const DenseShape& shape) {
  return {data, shape.rows * shape.heads * shape.dim, shape.dim, shape.heads * shape.dim};
}

/// Returns a dense (batch, head, row, dim) array: each head's rows in one piece.
template <class T>
constexpr Tensor<T> bhsd(T* data, const DenseShape& shape) {
  return {data, shape.heads * shape.rows * shape.dim, shape.rows * shape.dim, shape.dim};
}

/// Returns a dense (batch, head, row) array of one number for each row, such as LSE, as a tensor of
/// dim 1.
template <class T>
constexpr Tensor<T> bhs(T* data, const DenseRows& shape) {
  return bhsd(data, {.rows = shape.rows, .heads = shape.heads, .dim = 1});
}

/// Refuse extents by position.
template <class T, class... Others>
  requires(sizeof...(Others) == 3)
constexpr Tensor<T> bshd(T* data, const Others&...) {
  static_assert(sizeof...(Others) != 3,
                "attile: bshd(data, {.rows = n, .heads = h, .dim = d}): extents are named");
  return {data};
}
template <class T, class... Others>
  requires(sizeof...(Others) == 3)
constexpr Tensor<T> bhsd(T* data, const Others&...) {
  static_assert(sizeof...(Others) != 3,
                "attile: bhsd(data, {.rows = n, .heads = h, .dim = d}): extents are named");
  return {data};
}
template <class T, class... Others>
  requires(sizeof...(Others) == 2)
constexpr Tensor<T> bhs(T* data, const Others&...) {
  static_assert(sizeof...(Others) != 2,
                "attile: bhs(data, {.rows = n, .heads = h}): extents are named");
  return {data};
}

}  // namespace attile
