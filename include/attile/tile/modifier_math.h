// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/math.h>
#include <attile/core/config.h>
#include <attile/core/math.h>
#include <attile/core/tile_modifier.h>

#include <cmath>
#include <type_traits>

// The functions that score modifiers get from kernels.

namespace attile::tile {

/// Gives a score modifier the functions of the standard library, and a product that the compiler
/// cannot fuse.
struct SafeMath : StandardMath {
  ATTILE_HOST_DEVICE static float multiply(float a, float b) { return arch::multiply(a, b); }
};

/// Gives a score modifier functions of the machine's own instructions, for results of 16 bits.
struct FastMath : SafeMath {
  static constexpr bool kExact = false;

  /// tanh(y) / y for |y| <= 0.6 as a polynomial of y^2, whose relative error these coefficients
  /// minimise: 2^-23.3.
  static constexpr float kNear = 0.6f;
  static constexpr float kC0 = 0.999999927f, kC1 = -0.3333231f, kC2 = 0.133101737f,
                         kC3 = -0.0521014809f, kC4 = 0.0154754275f;

  /// Is the function x -> outer tanh(inner x) for |x| <= limit, with the factors in the
  /// polynomial's coefficients. Where these could vanish or overflow limit is -1.
  struct NearTanh {
    float limit;
    float c0, c1, c2, c3, c4;

    ATTILE_HOST_DEVICE NearTanh(float outer, float inner) {
      const auto moderate = [](float x) { return x >= 0x1p-12f && x <= 0x1p12f; };
      const float square = inner * inner;
      limit = moderate(inner) && moderate(outer * inner) ? kNear / inner : -1.0f;
      c0 = outer * inner * kC0;
      c1 = outer * inner * square * kC1;
      c2 = outer * inner * square * square * kC2;
      c3 = outer * inner * square * square * square * kC3;
      c4 = outer * inner * square * square * square * square * kC4;
    }
    ATTILE_HOST_DEVICE float operator()(float x) const {
      return arch::multiply(polynomial(arch::multiply(x, x), c0, c1, c2, c3, c4), x);
    }
  };
  /// Is that function for all x, with a relative error of at most 2^-21. Far from 0 tanh(y) is
  /// 1 - 2 / (2^(2 log2(e) y) + 1), whose error is one of the absolute value; the power may
  /// overflow to inf, of which the reciprocal is 0.
  struct Tanh {
    float outer, inner;

    ATTILE_HOST_DEVICE NearTanh near() const { return {outer, inner}; }
    ATTILE_HOST_DEVICE float operator()(float x) const { return at(x, near()); }
    ATTILE_HOST_DEVICE float at(float x, const NearTanh& near_zero) const {
      if (std::fabs(x) <= near_zero.limit) return near_zero(x);
      const float y = arch::multiply(x, inner);
      const float power = arch::exp2(arch::multiply(y, 2.0f * kLog2e));
      const float far = arch::fma(-2.0f, arch::reciprocal(power + 1.0f), 1.0f);
      const float close =
          arch::multiply(polynomial(arch::multiply(y, y), kC0, kC1, kC2, kC3, kC4), y);
      return arch::multiply(outer, std::fabs(y) <= kNear ? close : far);
    }
  };
  ATTILE_HOST_DEVICE static Tanh tanh(float outer, float inner) { return {outer, inner}; }
  /// Is the same with the polynomial worked out, for what a host prepares: in registers it would
  /// take six more.
  struct PreparedTanh : Tanh {
    NearTanh near_zero;

    ATTILE_HOST_DEVICE const NearTanh& near() const { return near_zero; }
    ATTILE_HOST_DEVICE float operator()(float x) const { return at(x, near_zero); }
  };
  ATTILE_HOST_DEVICE static PreparedTanh prepared_tanh(float outer, float inner) {
    return {{outer, inner}, {outer, inner}};
  }

  struct ApproximateTanh {
    float outer, inner;
    ATTILE_HOST_DEVICE float operator()(float x) const {
      return arch::multiply(outer, arch::approximate_tanh(arch::multiply(x, inner)));
    }
  };
  ATTILE_HOST_DEVICE static ApproximateTanh approximate_tanh(float outer, float inner) {
    return {outer, inner};
  }

 private:
  ATTILE_HOST_DEVICE static float polynomial(float x, float c0, float c1, float c2, float c3,
                                             float c4) {
    const float sum = arch::fma(x, arch::fma(x, arch::fma(x, c4, c3), c2), c1);
    return arch::fma(x, sum, c0);
  }
};

/// Names the functions for a kernel of elements T.
template <class T>
using MathOf = std::conditional_t<sizeof(T) == 2, FastMath, SafeMath>;

}  // namespace attile::tile
