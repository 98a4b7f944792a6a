// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <concepts>

namespace attile {

/// The element types of Q, K, V, O and their gradients.
template <class T>
concept Element =
    std::same_as<T, float> || std::same_as<T, __half> || std::same_as<T, __nv_bfloat16>;

ATTILE_HOST_DEVICE float to_float(float x) { return x; }
ATTILE_HOST_DEVICE float to_float(__half x) { return __half2float(x); }
ATTILE_HOST_DEVICE float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

/// Rounds to nearest even.
template <Element T>
ATTILE_HOST_DEVICE T from_float(float x) {
  if constexpr (std::same_as<T, __half>) {
    return __float2half_rn(x);
  } else if constexpr (std::same_as<T, __nv_bfloat16>) {
    return __float2bfloat16_rn(x);
  } else {
    return x;
  }
}

/// The name that error messages and programs print.
template <Element T>
constexpr const char* element_name() {
  if constexpr (std::same_as<T, __half>) return "fp16";
  if constexpr (std::same_as<T, __nv_bfloat16>) return "bf16";
  return "fp32";
}

}  // namespace attile
