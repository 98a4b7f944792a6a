// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/element.h>
#include <attile/core/fp8.h>

#include <compare>
#include <concepts>

// What the suite's queries, keys and values are where an executor has them in fp8. They are numbers
// of fp8 times a scale that is a power of two, which are numbers of 16 bits, too: the yardstick is
// that of these, and errors of quantisation are none of the kernels'.

namespace attile_test {

enum class Fp8Type { kNone, kE4m3, kE5m2 };

/// The types of Q, K and V.
struct Fp8Types {
  Fp8Type q = Fp8Type::kNone, k = Fp8Type::kNone, v = Fp8Type::kNone;

  auto operator<=>(const Fp8Types&) const = default;
};

/// Which products an executor makes of elements of fp8, and not of what they are converted to:
/// none, those of Q and K, or those of P, in e4m3, and V in fp8, too, whose sums are promoted or
/// not.
enum class Fp8Products { kNone, kScores, kPromoted, kUnpromoted };

template <attile::Fp8 F>
inline constexpr Fp8Type kFp8TypeOf =
    attile::Fp8Format<F>::kIsE4m3 ? Fp8Type::kE4m3 : Fp8Type::kE5m2;

/// The scales of a kv head.
inline float q_scale_of(int kv_head) {
  constexpr float kScales[] = {2.0f, 1.0f, 0.25f};
  return kScales[kv_head % 3];
}
inline float k_scale_of(int kv_head) {
  constexpr float kScales[] = {0.5f, 2.0f, 4.0f, 1.0f, 0.25f};
  return kScales[kv_head % 5];
}
inline float v_scale_of(int kv_head) {
  constexpr float kScales[] = {4.0f, 0.5f, 1.0f, 2.0f};
  return kScales[kv_head % 4];
}

/// The number of fp8 times the scale that is nearest to x.
template <attile::Element T>
T rounded_to(Fp8Type type, T x, float scale) {
  const float stored = attile::to_float(x) / scale;
  switch (type) {
    case Fp8Type::kE4m3:
      return attile::from_float<T>(scale *
                                   attile::to_float(attile::from_float<__nv_fp8_e4m3>(stored)));
    case Fp8Type::kE5m2:
      return attile::from_float<T>(scale *
                                   attile::to_float(attile::from_float<__nv_fp8_e5m2>(stored)));
    case Fp8Type::kNone:
      break;
  }
  return x;
}

}  // namespace attile_test
