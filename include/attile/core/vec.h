// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/array.h>
#include <attile/core/config.h>

namespace attile {

/// Holds N neighbours that one memory instruction moves. Units: sizeof(T) * N a power of two.
template <class T, int N>
struct alignas(sizeof(T) * N) Vec {
  Array<T, N> data;

  ATTILE_HOST_DEVICE constexpr T& operator[](int i) { return data[i]; }
  ATTILE_HOST_DEVICE constexpr const T& operator[](int i) const { return data[i]; }
};

using Float4 = Vec<float, 4>;

}  // namespace attile
