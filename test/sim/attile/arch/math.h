// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>

#include <cmath>

#include "sim/machine.h"

// The simulated counterpart of include/attile/arch/math.h.

namespace attile::arch {

inline float exp2(float x) {
  sim::count_exp();
  return std::exp2(x);
}
inline float fmax(float a, float b) { return ::fmaxf(a, b); }
inline float log(float x) { return std::log(x); }

}  // namespace attile::arch
