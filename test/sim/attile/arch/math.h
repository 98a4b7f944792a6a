// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdint>

#include "sim/machine.h"

// The simulated counterpart of include/attile/arch/math.h.

namespace attile::arch {

inline float exp2(float x) {
  sim::count_exp();
  const float y = std::exp2(x);
  return y < FLT_MIN ? 0.0f : y;  // as ex2.approx.ftz
}
inline float fmax(float a, float b) {
  if (a == b) return std::signbit(a) ? b : a;  // -0 < +0
  return ::fmaxf(a, b);
}
inline bool has_sign(float x) { return std::signbit(x); }
inline float fmax_above(float a, float b, float c) {
  const auto bits = [](float x) { return std::bit_cast<std::int32_t>(x); };
  return std::bit_cast<float>(std::max({bits(a), bits(b), bits(c)}));
}
inline float multiply(float a, float b) { return a * b; }
inline float divide(float a, float b) { return a / b; }
inline float fma(float a, float b, float c) { return std::fma(a, b, c); }
inline float reciprocal(float x) { return 1.0f / x; }
inline float approximate_tanh(float x) { return std::tanh(x); }
inline float log(float x) { return std::log(x); }

}  // namespace attile::arch
