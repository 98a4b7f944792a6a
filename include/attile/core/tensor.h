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

/// Returns a dense (batch, row, head, dim) array: rows of all heads interleaved.
template <class T>
constexpr Tensor<T> bshd(T* data, std::int64_t rows, std::int64_t heads, std::int64_t dim) {
  return {data, rows * heads * dim, dim, heads * dim};
}

/// Returns a dense (batch, head, row, dim) array: each head's rows in one piece.
template <class T>
constexpr Tensor<T> bhsd(T* data, std::int64_t rows, std::int64_t heads, std::int64_t dim) {
  return {data, heads * rows * dim, rows * dim, dim};
}

/// Returns a dense (batch, head, row) array of one number for each row, such as LSE, as a tensor of
/// dim 1.
template <class T>
constexpr Tensor<T> bhs(T* data, std::int64_t rows, std::int64_t heads) {
  return bhsd(data, rows, heads, 1);
}

}  // namespace attile
