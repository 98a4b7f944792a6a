// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>
#include <attile/core/element.h>

#include <concepts>
#include <cstdint>

// Instructions that treat a word as two numbers of 16 bits.

namespace attile::arch {

/// Returns four bytes of a (numbers 0 to 3) and b (4 to 7): byte i of the result is the one whose
/// number is digit i of `selector`, in base 16 (one PRMT).
ATTILE_HOST_DEVICE std::uint32_t byte_perm(std::uint32_t a, std::uint32_t b,
                                           std::uint32_t selector) {
#ifdef __CUDA_ARCH__
  return __byte_perm(a, b, selector);
#else
  const std::uint64_t both = std::uint64_t{b} << 32 | a;
  std::uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned number = selector >> (4 * i) & 7u;
    result |= static_cast<std::uint32_t>(both >> (8 * number) & 0xFFu) << (8 * i);
  }
  return result;
#endif
}

/// Returns the lower halves of two words, that of `a` below that of `b`, or with `upper` the upper
/// halves (one PRMT).
ATTILE_HOST_DEVICE std::uint32_t halves(std::uint32_t a, std::uint32_t b, bool upper) {
  return byte_perm(a, b, upper ? 0x7632u : 0x5410u);
}

namespace detail {
/// Returns f of the halves of three words, in halves; what f returns above 16 bits is dropped.
template <class F>
constexpr std::uint32_t each_half(std::uint32_t a, std::uint32_t b, std::uint32_t c, const F& f) {
  return f(a >> 16, b >> 16, c >> 16) << 16 | (f(a & 0xFFFFu, b & 0xFFFFu, c & 0xFFFFu) & 0xFFFFu);
}
}  // namespace detail

/// Returns min(a + b, c) of each half, unsigned and modulo 2^16 (one VIADDMNMX on compute
/// capability 9.0).
ATTILE_HOST_DEVICE std::uint32_t add_min_of_halves(std::uint32_t a, std::uint32_t b,
                                                   std::uint32_t c) {
#ifdef __CUDA_ARCH__
  return __viaddmin_u16x2(a, b, c);
#else
  return detail::each_half(a, b, c, [](std::uint32_t x, std::uint32_t y, std::uint32_t z) {
    const std::uint32_t sum = (x + y) & 0xFFFFu;
    return sum < z ? sum : z;
  });
#endif
}

/// Returns max(a + b, c) of each half, signed, the sum modulo 2^16 (one VIADDMNMX on compute
/// capability 9.0).
ATTILE_HOST_DEVICE std::uint32_t add_max_of_signed_halves(std::uint32_t a, std::uint32_t b,
                                                          std::uint32_t c) {
#ifdef __CUDA_ARCH__
  return __viaddmax_s16x2(a, b, c);
#else
  return detail::each_half(a, b, c, [](std::uint32_t x, std::uint32_t y, std::uint32_t z) {
    const auto sum = static_cast<std::int16_t>(x + y), least = static_cast<std::int16_t>(z);
    return static_cast<std::uint32_t>(sum > least ? sum : least);
  });
#endif
}

/// Returns two numbers rounded to T, the first one in the lower half, with 0 in place of negative
/// ones. T: fp16 or bf16. One F2FP from compute capability 8.0 on; before it, and on the host,
/// comparisons and a conversion.
template <Element T>
ATTILE_HOST_DEVICE std::uint32_t positive_halves(float x, float y) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  std::uint32_t word;
  if constexpr (std::same_as<T, __half>) {
    asm("cvt.rn.relu.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(y), "f"(x));
  } else {
    asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(y), "f"(x));
  }
  return word;
#else
  return word_of(from_floats<T>(x < 0.0f ? 0.0f : x, y < 0.0f ? 0.0f : y));
#endif
}

}  // namespace attile::arch
