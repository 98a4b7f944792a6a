// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>

#include <cmath>

namespace attile::arch {

/// 2^x; -inf gives 0. On the device one ex2.approx.ftz: relative error at most 2^-22.
ATTILE_HOST_DEVICE float exp2(float x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return std::exp2(x);
#endif
}

/// The larger of two numbers; a NaN loses against a number (one FMNMX).
ATTILE_HOST_DEVICE float fmax(float a, float b) { return ::fmaxf(a, b); }

/// Natural logarithm; 0 gives -inf.
ATTILE_HOST_DEVICE float log(float x) { return std::log(x); }

}  // namespace attile::arch
