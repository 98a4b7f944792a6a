// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>

#include <cmath>
#include <cstdint>
#include <cstring>

namespace attile::arch {

/// Returns 2^x; -inf gives 0. On the device it is one ex2.approx.ftz: relative error at most 2^-22.
ATTILE_HOST_DEVICE float exp2(float x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return std::exp2(x);
#endif
}

/// Returns the larger of two numbers; of a NaN and a number it returns the number (one FMNMX).
ATTILE_HOST_DEVICE float fmax(float a, float b) { return ::fmaxf(a, b); }

/// Returns whether a number's sign bit is set, as it is in -0.
ATTILE_HOST_DEVICE bool has_sign(float x) {
  std::int32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits < 0;
}

/// Returns the largest of three numbers, where the sign bit of `a` is not set. It compares them as
/// integers: the bits of two floats are ordered as the numbers are, unless both have the sign bit
/// (one VIMNMX3 on compute capability 9.0, which has no such instruction for floats). A NaN counts
/// by its sign.
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

/// Returns a * b with a rounding of its own: the compiler cannot fuse it with an addition.
ATTILE_HOST_DEVICE float multiply(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

/// Returns a / b, rounded to nearest even however the compiler divides.
ATTILE_HOST_DEVICE float divide(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fdiv_rn(a, b);
#else
  return a / b;
#endif
}

/// Returns a * b + c with one rounding.
ATTILE_HOST_DEVICE float fma(float a, float b, float c) { return ::fmaf(a, b, c); }

/// Returns 1 / x. On the device it is one rcp.approx.ftz: within one unit in the last place.
ATTILE_HOST_DEVICE float reciprocal(float x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return 1.0f / x;
#endif
}

/// Returns tanh(x). On the device it is one tanh.approx: relative error at most 2^-10.9 (PTX ISA).
ATTILE_HOST_DEVICE float approximate_tanh(float x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return std::tanh(x);
#endif
}

/// Returns the natural logarithm; 0 gives -inf.
ATTILE_HOST_DEVICE float log(float x) { return std::log(x); }

}  // namespace attile::arch
