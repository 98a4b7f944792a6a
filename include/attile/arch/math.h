// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>

#include <cmath>
#include <cstdint>
#include <cstring>

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

/// Whether a number's sign bit is set: it is of -0, too.
ATTILE_HOST_DEVICE bool has_sign(float x) {
  std::int32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits < 0;
}

/// The largest of three numbers, the sign bit of `a` not being set, as integers: bits of floats
/// order as the numbers do but for two with that bit (one VIMNMX3 on compute capability 9.0, which
/// has no such instruction for floats). A NaN's sign decides.
ATTILE_HOST_DEVICE float fmax_above(float a, float b, float c) {
  const auto bits = [](float x) {
    std::int32_t i;
    std::memcpy(&i, &x, sizeof i);
    return i;
  };
  const std::int32_t ab = bits(a) > bits(b) ? bits(a) : bits(b);
  const std::int32_t abc = ab > bits(c) ? ab : bits(c);
  float x;
  std::memcpy(&x, &abc, sizeof x);
  return x;
}

/// a * b with a rounding of its own, whatever it is added to.
ATTILE_HOST_DEVICE float multiply(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

/// a * b + c with one rounding.
ATTILE_HOST_DEVICE float fma(float a, float b, float c) { return ::fmaf(a, b, c); }

/// 1 / x. On the device one rcp.approx.ftz: within one unit in the last place.
ATTILE_HOST_DEVICE float reciprocal(float x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return 1.0f / x;
#endif
}

/// Natural logarithm; 0 gives -inf.
ATTILE_HOST_DEVICE float log(float x) { return std::log(x); }

}  // namespace attile::arch
