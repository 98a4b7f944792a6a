// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/overlap.h>
#include <attile/core/sequences.h>
#include <attile/core/status.h>
#include <attile/core/tensor.h>

#include <type_traits>

// What is checked of each tensor of a call.

namespace attile::detail {

/// Returns whether two elements of a (batch, heads, rows, dim) view share memory.
template <class T>
constexpr bool overlaps_itself(const Tensor<T>& t, int batch, int heads, int rows, int dim) {
  return strides_overlap<3>({batch, heads, rows}, {t.batch_stride, t.head_stride, t.row_stride},
                            dim);
}

/// Returns whether the rows of two tensors are as far apart.
template <class T, class U>
constexpr bool same_strides(const Tensor<T>& t, const Tensor<U>& u) {
  return t.batch_stride == u.batch_stride && t.head_stride == u.head_stride &&
         t.row_stride == u.row_stride;
}

/// Holds the error texts for one tensor.
struct TensorTexts {
  const char *null, *misaligned, *overlaps;
};

#define ATTILE_TENSOR_TEXTS(name)                                               \
  ::attile::detail::TensorTexts {                                               \
    name " is null", name " is not aligned to its element type",                \
        name " overlaps itself: two of its rows share memory (see its strides)" \
  }

/// Refuses a (batch, heads, rows, dim) view that cannot be read, or where T is not const written.
template <class T>
Check check_tensor(const Tensor<T>& t, TensorTexts texts, RowShape shape, int heads, int dim) {
  const auto [batch, rows] = shape;
  if (batch == 0 || heads == 0 || rows == 0) return {};
  if (t.data == nullptr) return refuse(texts.null);
  if (misaligned(t.data)) return refuse(texts.misaligned);
  if (!std::is_const_v<T> && overlaps_itself(t, batch, heads, rows, dim)) {
    return refuse(texts.overlaps);
  }
  return {};
}

/// Checks the scales of tensors in fp8.
template <class Args>
Check check_scales(const Args& a) {
  const auto is_misaligned = [](const auto& scales) {
    if constexpr (requires { scales.data; }) return misaligned(scales.data);
    return false;
  };
  if constexpr (requires { a.q_scale; }) {
    if (is_misaligned(a.q_scale)) return refuse("q_scale is not aligned to 4 bytes");
  }
  if (is_misaligned(a.k_scale)) return refuse("k_scale is not aligned to 4 bytes");
  if (is_misaligned(a.v_scale)) return refuse("v_scale is not aligned to 4 bytes");
  return {};
}

/// Returns the first refusal, or none.
template <class... Checks>
constexpr Check first_refusal(Checks... checks) {
  Check result;
  ((result ? void(result = checks) : void()), ...);
  return result;
}

}  // namespace attile::detail
