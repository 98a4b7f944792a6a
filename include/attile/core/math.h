// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>

#include <limits>

namespace attile {

inline constexpr float kLog2e = 1.4426950408889634f;
inline constexpr float kLn2 = 0.6931471805599453f;
inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Returns the smallest n with n * divisor >= value. Units: value >= 0, divisor > 0.
template <class Int>
ATTILE_HOST_DEVICE constexpr Int ceil_div(Int value, Int divisor) {
  return static_cast<Int>(value / divisor + (value % divisor != 0));
}

/// Returns the smallest multiple of `multiple` that is >= value. Units: value >= 0, multiple > 0.
template <class Int>
ATTILE_HOST_DEVICE constexpr Int round_up(Int value, Int multiple) {
  return ceil_div(value, multiple) * multiple;
}

template <class Number>
ATTILE_HOST_DEVICE constexpr Number min(Number a, Number b) {
  return b < a ? b : a;
}

template <class Number>
ATTILE_HOST_DEVICE constexpr Number max(Number a, Number b) {
  return a < b ? b : a;
}

}  // namespace attile
