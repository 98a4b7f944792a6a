// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>
#include <attile/core/float_bits.h>

#include <cuda_fp8.h>

#include <concepts>
#include <cstdint>

// The types of 8-bit elements, their conversions, and the scales that give them a range.

namespace attile {

/// Is satisfied by the 8-bit floating-point types, as CUDA stores them. e4m3 has 4 bits of exponent
/// and 3 of mantissa: up to 448, NaN and no infinity. e5m2 has 5 and 2: up to 57344, and the
/// infinities and NaNs of fp16, of which it is the upper byte.
template <class T>
concept Fp8 = std::same_as<T, __nv_fp8_e4m3> || std::same_as<T, __nv_fp8_e5m2>;

/// Holds what a type's codes mean. A code without its sign bit is ordered as its number is.
template <Fp8 T>
struct Fp8Format {
  static constexpr bool kIsE4m3 = std::same_as<T, __nv_fp8_e4m3>;
  static constexpr int kMantissaBits = kIsE4m3 ? 3 : 2;
  static constexpr int kBias = kIsE4m3 ? 7 : 15;
  static constexpr std::uint32_t kSign = 0x80;
  static constexpr std::uint32_t kSmallestNormal = 1u << kMantissaBits;
  static constexpr std::uint32_t kLargest = kIsE4m3 ? 0x7E : 0x7B;
  static constexpr std::uint32_t kNan = 0x7F;
};

/// Returns the element's number, exactly.
template <Fp8 T>
ATTILE_HOST_DEVICE float to_float(T x) {
  using F = Fp8Format<T>;
  constexpr int kShift = 23 - F::kMantissaBits;
  const std::uint32_t code = x.__x, magnitude = code & (F::kSign - 1);
  const bool is_small = magnitude < F::kSmallestNormal;
  // A subnormal number is what a normal one with the least exponent has above 2^that. No fp32
  // number is subnormal here, so that it is exact where the compiler flushes these to 0.
  constexpr std::uint32_t kBase = static_cast<std::uint32_t>(127 - F::kBias) << 23;
  const std::uint32_t normal = magnitude | (is_small ? F::kSmallestNormal : 0u);
  const float least = float_of(kBase + (F::kSmallestNormal << kShift));
  std::uint32_t word = word_of(float_of(kBase + (normal << kShift)) - (is_small ? least : 0.0f));
  if (magnitude > F::kLargest) {
    word = 0x7F800000u | (magnitude & (F::kSmallestNormal - 1)) << kShift;
  }
  return float_of(word | (code & F::kSign) << 24);
}

/// Rounds to nearest even. What is larger than the largest number becomes that, infinities too; a
/// NaN becomes the NaN with code 0x7F, whatever its sign.
template <Fp8 T>
ATTILE_HOST_DEVICE T from_float(float x) {
  using F = Fp8Format<T>;
  constexpr int kShift = 23 - F::kMantissaBits;
  constexpr std::uint32_t kBase = static_cast<std::uint32_t>(127 - F::kBias) << 23;
  constexpr std::uint32_t kLeast = kBase + (F::kSmallestNormal << kShift);
  const std::uint32_t word = word_of(x), magnitude = word & 0x7FFFFFFFu;
  std::uint32_t code;
  if (magnitude > 0x7F800000u) {
    T nan;
    nan.__x = static_cast<__nv_fp8_storage_t>(F::kNan);
    return nan;
  }
  if (magnitude >= kLeast) {
    const std::uint32_t half = (1u << (kShift - 1)) - 1 + (magnitude >> kShift & 1u);
    code = (magnitude + half - kBase) >> kShift;
    if (code > F::kLargest) code = F::kLargest;
  } else {
    // The sum with a number whose last bit is the smallest subnormal number rounds to these.
    constexpr std::uint32_t kUnits = static_cast<std::uint32_t>(127 + kShift + 1 - F::kBias) << 23;
    code = word_of(float_of(magnitude) + float_of(kUnits)) - kUnits;
  }
  T rounded;
  rounded.__x = static_cast<__nv_fp8_storage_t>(code | (word >> 24 & F::kSign));
  return rounded;
}

/// Returns the largest number of a type.
template <Fp8 T>
ATTILE_HOST_DEVICE T largest_number() {
  T largest;
  largest.__x = static_cast<__nv_fp8_storage_t>(Fp8Format<T>::kLargest);
  return largest;
}

/// Says where sums of products of fp8 are kept. A matrix instruction of compute capability 8.9 or
/// 9.0 keeps 14 significant bits of what it adds to, and cuts off the others.
enum class Fp8Sums {
  /// O is an fp32 sum of such sums over one tile of keys each: the error does not grow with the
  /// number of keys.
  kPromoted,
  /// The instructions add to O itself, which is faster: it may be off by 2^-13 of itself for every
  /// 32 keys.
  kUnpromoted
};

/// Returns the log2 of the factor of P in e4m3: the largest number of a row is 2^8 of at most 448,
/// so that the smallest normal one is 2^-14 of the largest one, and the smallest of all 2^-17.
/// Unpromoted sums, which are less exact, have 2^6: then a row's maximum may rise by 2.85 and not
/// 0.85 before O is multiplied by a factor, which promoted sums have in their addition.
constexpr int fp8_probability_log2(Fp8Sums sums) { return sums == Fp8Sums::kPromoted ? 8 : 6; }

/// Holds the scales of a tensor in fp8, whose numbers are x = scale * stored: one for each sequence
/// and kv head, or one for several of them, by strides of 0. `{scale}` names one for the tensor,
/// `{scales, kv_heads, 1}` a dense (batch, kv_heads) array.
/// Shapes   data in device memory (host memory for the CPU executor); null: all scales are 1.
/// Units    positive and finite; strides count elements.
struct Scales {
  const float* data = nullptr;
  std::int64_t batch_stride = 0;
  std::int64_t head_stride = 0;

  ATTILE_HOST_DEVICE float at(int sequence, int kv_head) const {
    return data == nullptr ? 1.0f : data[sequence * batch_stride + kv_head * head_stride];
  }
};

/// Replaces the scales of a tensor that has none: it takes no value.
struct NoScales {
  ATTILE_HOST_DEVICE static constexpr float at(int, int) { return 1.0f; }
};

namespace detail {

template <class T>
struct ScalesOfElement {
  using type = NoScales;
};
template <Fp8 T>
struct ScalesOfElement<T> {
  using type = Scales;
};

}  // namespace detail

/// Names the scales of a tensor of T.
template <class T>
using ScalesOf = typename detail::ScalesOfElement<T>::type;

/// Replaces the stride between columns of a tensor that has contiguous rows: it takes no value.
struct UnitStride {
  UnitStride() = default;
  ATTILE_HOST_DEVICE explicit constexpr UnitStride(int) {}
  ATTILE_HOST_DEVICE constexpr operator std::int64_t() const { return 1; }
};

}  // namespace attile
