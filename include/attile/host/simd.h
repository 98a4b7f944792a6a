// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/array.h>
#include <attile/core/config.h>
#include <attile/core/math.h>

#include <bit>
#include <cstdint>
#include <cstring>

// libstdc++'s vectors do not pass through the front end of a CUDA compiler. A .cu file gets plain
// C++, which is much slower: call the executor from a .cpp file.
#if !ATTILE_CUDA_COMPILER && __has_include(<experimental/simd>)
#include <experimental/simd>
#endif

// Loops over registers have to be unrolled completely, or the registers become memory.
#if ATTILE_CUDA_COMPILER
#define ATTILE_HOST_UNROLL
#else
#define ATTILE_HOST_UNROLL _Pragma("GCC unroll 16")
#endif

namespace attile::host {

/// Holds as many floats as fit a vector register, in plain C++: the executor uses it where there is
/// no std::experimental::simd. Lanes are independent; the compiler is left to vectorise them.
/// Scope    the host; marked for both sides because tile::OnlineSoftmax, which calls it, is.
template <int kLanes>
struct PlainFloats {
  static constexpr int kWidth = kLanes;
  Array<float, kLanes> lane;

  PlainFloats() = default;
  ATTILE_HOST_DEVICE explicit PlainFloats(float x) {
    for (int i = 0; i < kLanes; ++i) lane[i] = x;
  }
  ATTILE_HOST_DEVICE static PlainFloats load(const float* from) {
    PlainFloats v;
    for (int i = 0; i < kLanes; ++i) v.lane[i] = from[i];
    return v;
  }
  ATTILE_HOST_DEVICE void store(float* to) const {
    for (int i = 0; i < kLanes; ++i) to[i] = lane[i];
  }

  ATTILE_HOST_DEVICE friend PlainFloats operator+(PlainFloats a, const PlainFloats& b) {
    for (int i = 0; i < kLanes; ++i) a.lane[i] += b.lane[i];
    return a;
  }
  ATTILE_HOST_DEVICE friend PlainFloats operator-(PlainFloats a, const PlainFloats& b) {
    for (int i = 0; i < kLanes; ++i) a.lane[i] -= b.lane[i];
    return a;
  }
  ATTILE_HOST_DEVICE friend PlainFloats operator*(PlainFloats a, const PlainFloats& b) {
    for (int i = 0; i < kLanes; ++i) a.lane[i] *= b.lane[i];
    return a;
  }
  /// Returns a * b + c, fused where the machine can.
  ATTILE_HOST_DEVICE friend PlainFloats multiply_add(const PlainFloats& a, const PlainFloats& b,
                                                     PlainFloats c) {
    for (int i = 0; i < kLanes; ++i) c.lane[i] += a.lane[i] * b.lane[i];
    return c;
  }
  ATTILE_HOST_DEVICE friend PlainFloats maximum(PlainFloats a, const PlainFloats& b) {
    for (int i = 0; i < kLanes; ++i) a.lane[i] = max(a.lane[i], b.lane[i]);
    return a;
  }
  /// Returns x clamped to [low, high]; NaN stays.
  ATTILE_HOST_DEVICE friend PlainFloats clamp(PlainFloats x, float low, float high) {
    for (int i = 0; i < kLanes; ++i) {
      const float raised = x.lane[i] < low ? low : x.lane[i];
      x.lane[i] = raised > high ? high : raised;
    }
    return x;
  }
  /// Returns the float whose bits are those of x shifted left.
  ATTILE_HOST_DEVICE friend PlainFloats shift_bits_left(PlainFloats x, int count) {
    for (int i = 0; i < kLanes; ++i) {
      std::uint32_t bits;
      std::memcpy(&bits, &x.lane[i], sizeof bits);
      bits <<= count;
      std::memcpy(&x.lane[i], &bits, sizeof bits);
    }
    return x;
  }
  ATTILE_HOST_DEVICE friend float sum(const PlainFloats& x) {
    float total = 0.0f;
    for (int i = 0; i < kLanes; ++i) total += x.lane[i];
    return total;
  }
  ATTILE_HOST_DEVICE friend float largest(const PlainFloats& x) {
    float result = x.lane[0];
    for (int i = 1; i < kLanes; ++i) result = max(result, x.lane[i]);
    return result;
  }
};

#ifdef __cpp_lib_experimental_parallel_simd
/// Holds the floats of one vector register, by std::experimental::simd; the interface of
/// PlainFloats. The ABI is part of the name, so that files compiled for different machines can be
/// linked.
template <class Abi>
struct SimdFloats {
  using Lanes = std::experimental::simd<float, Abi>;
  using Bits = std::experimental::rebind_simd_t<std::uint32_t, Lanes>;
  static constexpr int kWidth = static_cast<int>(Lanes::size());
  Lanes lanes;

  SimdFloats() = default;
  [[gnu::always_inline]] explicit SimdFloats(float x) : lanes(x) {}
  [[gnu::always_inline]] SimdFloats(Lanes x) : lanes(x) {}
  [[gnu::always_inline]] static SimdFloats load(const float* from) {
    return Lanes(from, std::experimental::element_aligned);
  }
  [[gnu::always_inline]] void store(float* to) const {
    lanes.copy_to(to, std::experimental::element_aligned);
  }

  [[gnu::always_inline]] friend SimdFloats operator+(SimdFloats a, SimdFloats b) {
    return a.lanes + b.lanes;
  }
  [[gnu::always_inline]] friend SimdFloats operator-(SimdFloats a, SimdFloats b) {
    return a.lanes - b.lanes;
  }
  [[gnu::always_inline]] friend SimdFloats operator*(SimdFloats a, SimdFloats b) {
    return a.lanes * b.lanes;
  }
  [[gnu::always_inline]] friend SimdFloats multiply_add(SimdFloats a, SimdFloats b, SimdFloats c) {
    return a.lanes * b.lanes + c.lanes;
  }
  [[gnu::always_inline]] friend SimdFloats maximum(SimdFloats a, SimdFloats b) {
    return std::experimental::max(a.lanes, b.lanes);
  }
  [[gnu::always_inline]] friend SimdFloats clamp(SimdFloats x, float low, float high) {
    where(x.lanes < low, x.lanes) = low;
    where(x.lanes > high, x.lanes) = high;
    return x;
  }
  [[gnu::always_inline]] friend SimdFloats shift_bits_left(SimdFloats x, int count) {
    return std::bit_cast<Lanes>(std::bit_cast<Bits>(x.lanes) << count);
  }
  [[gnu::always_inline]] friend float sum(SimdFloats x) {
    return std::experimental::reduce(x.lanes);
  }
  [[gnu::always_inline]] friend float largest(SimdFloats x) {
    return std::experimental::hmax(x.lanes);
  }
};

using NativeFloats = SimdFloats<std::experimental::simd_abi::native<float>>;
#else
using NativeFloats = PlainFloats<8>;
#endif

/// Returns 2^x: n = round(x), 2^(x - n) by a polynomial, times 2^n.
/// Units   error below 1.2 ulp where -126 <= x < 127.5; +inf from there on; 0 for x < -126.5, -inf
///         included; NaN gives NaN.
template <class V>
[[gnu::always_inline]] ATTILE_HOST_DEVICE V exp2(V x) {
  // Added to a small float, rounds it to an integer n and leaves n + 127 in the lowest bits.
  constexpr float kRound = 12582912.0f + 127.0f;  // 1.5 * 2^23, and the exponent's bias
  constexpr float kSeries[] = {1.535336188319500e-4f,
                               1.339887440266574e-3f,
                               9.618437357674640e-3f,
                               5.550332471162809e-2f,
                               2.402264791363012e-1f,
                               6.931472028550421e-1f,
                               1.0f};
  x = clamp(x, -127.0f, 128.0f);
  const V rounded = x + V(kRound);
  const V f = x - (rounded - V(kRound));
  V p(kSeries[0]);
  for (int i = 1; i < 7; ++i) p = multiply_add(p, f, V(kSeries[i]));
  return p * shift_bits_left(rounded, 23);
}

}  // namespace attile::host
