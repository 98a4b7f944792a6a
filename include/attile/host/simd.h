// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>
#include <attile/core/math.h>

#include <bit>
#include <cstdint>

// libstdc++'s vectors do not pass through the front end of a CUDA compiler.
#if !ATTILE_CUDA_COMPILER && __has_include(<experimental/simd>)
#include <experimental/simd>
#endif

namespace attile::host {

/// As many floats as fit a vector register in plain C++: what the executor uses where there is no
/// std::experimental::simd. Lanes are independent; the compiler is left to vectorise them.
template <int kLanes>
struct PlainFloats {
  static constexpr int kWidth = kLanes;
  float lane[kLanes];

  PlainFloats() = default;
  explicit PlainFloats(float x) {
    for (float& value : lane) value = x;
  }
  static PlainFloats load(const float* from) {
    return make([&](int i) { return from[i]; });
  }
  void store(float* to) const {
    for (int i = 0; i < kLanes; ++i) to[i] = lane[i];
  }
  template <class Value>
  static PlainFloats make(const Value& value) {
    PlainFloats v;
    for (int i = 0; i < kLanes; ++i) v.lane[i] = value(i);
    return v;
  }

  friend PlainFloats operator+(const PlainFloats& a, const PlainFloats& b) {
    return make([&](int i) { return a.lane[i] + b.lane[i]; });
  }
  friend PlainFloats operator-(const PlainFloats& a, const PlainFloats& b) {
    return make([&](int i) { return a.lane[i] - b.lane[i]; });
  }
  friend PlainFloats operator*(const PlainFloats& a, const PlainFloats& b) {
    return make([&](int i) { return a.lane[i] * b.lane[i]; });
  }
  /// a * b + c, fused where the machine can.
  friend PlainFloats multiply_add(const PlainFloats& a, const PlainFloats& b,
                                  const PlainFloats& c) {
    return make([&](int i) { return a.lane[i] * b.lane[i] + c.lane[i]; });
  }
  friend PlainFloats maximum(const PlainFloats& a, const PlainFloats& b) {
    return make([&](int i) { return max(a.lane[i], b.lane[i]); });
  }
  /// x kept inside [low, high]; NaN stays.
  friend PlainFloats clamp(const PlainFloats& x, float low, float high) {
    return make([&](int i) {
      const float atleast = x.lane[i] < low ? low : x.lane[i];
      return atleast > high ? high : atleast;
    });
  }
  /// The float whose bits are those of x shifted left.
  friend PlainFloats shift_bits_left(const PlainFloats& x, int count) {
    return make([&](int i) {
      return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x.lane[i]) << count);
    });
  }
  friend float sum(const PlainFloats& x) {
    float total = 0.0f;
    for (const float value : x.lane) total += value;
    return total;
  }
  friend float largest(const PlainFloats& x) {
    float result = x.lane[0];
    for (const float value : x.lane) result = max(result, value);
    return result;
  }
};

#ifdef __cpp_lib_experimental_parallel_simd
/// The floats of one vector register, by std::experimental::simd; the interface of PlainFloats.
/// The ABI is part of the name, so that files compiled for different machines can be linked.
template <class Abi>
struct SimdFloats {
  using Lanes = std::experimental::simd<float, Abi>;
  using Bits = std::experimental::rebind_simd_t<std::uint32_t, Lanes>;
  static constexpr int kWidth = static_cast<int>(Lanes::size());
  Lanes lanes;

  SimdFloats() = default;
  explicit SimdFloats(float x) : lanes(x) {}
  SimdFloats(Lanes x) : lanes(x) {}
  static SimdFloats load(const float* from) {
    return Lanes(from, std::experimental::element_aligned);
  }
  void store(float* to) const { lanes.copy_to(to, std::experimental::element_aligned); }

  friend SimdFloats operator+(SimdFloats a, SimdFloats b) { return a.lanes + b.lanes; }
  friend SimdFloats operator-(SimdFloats a, SimdFloats b) { return a.lanes - b.lanes; }
  friend SimdFloats operator*(SimdFloats a, SimdFloats b) { return a.lanes * b.lanes; }
  friend SimdFloats multiply_add(SimdFloats a, SimdFloats b, SimdFloats c) {
    return a.lanes * b.lanes + c.lanes;
  }
  friend SimdFloats maximum(SimdFloats a, SimdFloats b) {
    return std::experimental::max(a.lanes, b.lanes);
  }
  friend SimdFloats clamp(SimdFloats x, float low, float high) {
    where(x.lanes < low, x.lanes) = low;
    where(x.lanes > high, x.lanes) = high;
    return x;
  }
  friend SimdFloats shift_bits_left(SimdFloats x, int count) {
    return std::bit_cast<Lanes>(std::bit_cast<Bits>(x.lanes) << count);
  }
  friend float sum(SimdFloats x) { return std::experimental::reduce(x.lanes); }
  friend float largest(SimdFloats x) { return std::experimental::hmax(x.lanes); }
};

using NativeFloats = SimdFloats<std::experimental::simd_abi::native<float>>;
#else
using NativeFloats = PlainFloats<8>;
#endif

/// 2^x: n = round(x), 2^(x - n) by a polynomial, times 2^n.
/// Units   relative error below 2e-7 where 2^x is a normal number below 2^127.5; above that +inf;
///         below 2^-126.5, and at -inf, 0; NaN gives NaN.
template <class V>
V exp2(V x) {
  // Added to a small float, rounds it to an integer n and leaves n + 127 in the lowest bits.
  constexpr float kRound = 12582912.0f + 127.0f;  // 1.5 * 2^23, and the exponent's bias
  constexpr float kSeries[] = {1.535336188319500e-4f, 1.339887440266574e-3f, 9.618437357674640e-3f,
                               5.550332471162809e-2f, 2.402264791363012e-1f, 6.931472028550421e-1f,
                               1.0f};
  x = clamp(x, -127.0f, 128.0f);
  const V rounded = x + V(kRound);
  const V f = x - (rounded - V(kRound));
  V p(kSeries[0]);
  for (int i = 1; i < 7; ++i) p = multiply_add(p, f, V(kSeries[i]));
  return p * shift_bits_left(rounded, 23);
}

}  // namespace attile::host
