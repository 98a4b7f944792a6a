// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/element.h>
#include <attile/core/fp8.h>

#include <cstdint>
#include <source_location>

#include "sim/machine.h"
#include "sim/values.h"

// The simulated counterpart of include/attile/arch/fp8.cuh.

namespace attile::arch {

inline std::uint32_t swap_middle_bytes(std::uint32_t word) {
  return (word & 0xFF0000FFu) | (word & 0x00FF0000u) >> 8 | (word & 0x0000FF00u) << 8;
}

template <bool kOdd>
std::uint32_t every_second_byte(std::uint32_t low, std::uint32_t high) {
  const auto pair = [](std::uint32_t word) {
    const std::uint32_t bytes = word >> (kOdd ? 8 : 0);
    return (bytes & 0xFFu) | (bytes >> 8 & 0xFF00u);
  };
  return pair(low) | pair(high) << 16;
}

template <class F>
std::uint32_t narrow(float x0, float x1, float x2, float x3) {
  std::uint32_t word = 0;
  for (const float x : {x3, x2, x1, x0}) word = word << 8 | from_float<F>(x).__x;
  return word;
}

/// Returns element i of fp8 in a word.
template <class F>
float fp8_in_word(std::uint32_t word, int i) {
  F x;
  x.__x = static_cast<__nv_fp8_storage_t>(word >> (8 * i));
  return to_float(x);
}

template <class F>
constexpr float fp8_unit() {
  return Fp8Format<F>::kIsE4m3 ? 256.0f : 1.0f;
}

template <class F, class T, bool kApart = false, bool kInUnit = false>
void widen(std::uint32_t word, std::uint32_t& low, std::uint32_t& high) {
  if (kApart) word = swap_middle_bytes(word);
  const auto element = [&](int i) {
    return fp8_in_word<F>(word, i) / (kInUnit ? fp8_unit<F>() : 1.0f);
  };
  low = word_of(from_floats<T>(element(0), element(1)));
  high = word_of(from_floats<T>(element(2), element(3)));
}

template <class FA, class FB>
void mma_m16n8k32(float& d0, float& d1, float& d2, float& d3, const std::uint32_t (&a)[4],
                  std::uint32_t b0, std::uint32_t b1,
                  std::source_location at = std::source_location::current()) {
  float d[4] = {d0, d1, d2, d3};
  const std::uint32_t b[2] = {b0, b1};
  sim::mma_m16n8k32(d, a, b, sim::values_of<FA>(), sim::values_of<FB>(), at);
  d0 = d[0], d1 = d[1], d2 = d[2], d3 = d[3];
}

}  // namespace attile::arch
