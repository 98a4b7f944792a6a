// SPDX-License-Identifier: MIT
#include <attile/core/element.h>
#include <attile/core/math.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "support/catch.h"

namespace {

using attile::from_float;
using attile::to_float;

template <class T>
T from_bits(std::uint32_t bits) {
  return std::bit_cast<T>(static_cast<std::uint16_t>(bits));
}

template <class T>
std::uint16_t bits_of(float x) {
  return std::bit_cast<std::uint16_t>(from_float<T>(x));
}

/// Every value comes back as it was, and what lies between two neighbours goes to the nearer one,
/// from the middle to the even one.
template <class T>
void check_rounding(std::uint32_t infinity) {
  int wrong = 0;
  for (std::uint32_t bits = 0; bits < infinity; ++bits) {
    const float x = to_float(from_bits<T>(bits));
    wrong += bits_of<T>(x) != bits || bits_of<T>(-x) != (bits | 0x8000u);
    if (bits + 1 == infinity) continue;
    const float next = to_float(from_bits<T>(bits + 1));
    const float middle = x + (next - x) / 2;  // exact: floats have at least 13 bits more
    const std::uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    wrong += bits_of<T>(middle) != even;
    wrong += bits_of<T>(std::nextafter(middle, 0.0f)) != bits;
    wrong += bits_of<T>(std::nextafter(middle, next)) != bits + 1;
  }
  CHECK(wrong == 0);
  CHECK(bits_of<T>(attile::kInf) == infinity);
  CHECK(bits_of<T>(-attile::kInf) == (infinity | 0x8000u));
  CHECK(bits_of<T>(std::numeric_limits<float>::max()) == infinity);
  CHECK(std::isnan(to_float(from_float<T>(std::numeric_limits<float>::quiet_NaN()))));
}

TEST_CASE("element.fp16_rounds_to_nearest_even") {
  check_rounding<__half>(0x7C00);
  CHECK(to_float(from_float<__half>(65504.0f)) == 65504.0f);
  CHECK(std::isinf(to_float(from_float<__half>(65520.0f))));
  CHECK(to_float(from_float<__half>(0x1p-24f)) == 0x1p-24f);
}

TEST_CASE("element.bf16_rounds_to_nearest_even") {
  check_rounding<__nv_bfloat16>(0x7F80);
  CHECK(to_float(from_float<__nv_bfloat16>(1.0f + 0x1p-8f)) == 1.0f);
  CHECK(to_float(from_float<__nv_bfloat16>(3e38f)) == Approx(3e38f).epsilon(0.004));
}

TEST_CASE("element.fp32_is_left_alone") {
  CHECK(from_float<float>(0.1f) == 0.1f);
  CHECK(to_float(-0.1f) == -0.1f);
}

/// A pair is its elements, rounded each for itself, the first one in the lower half of the word.
template <class T>
void check_pair() {
  const float values[] = {0.0f, -0.0f, 1.0f, -1.5f, 0.1f, -3.14159f, 65504.0f, 1e-7f, attile::kInf};
  for (const float x : values) {
    for (const float y : values) {
      const auto pair = attile::from_floats<T>(x, y);
      CHECK(std::bit_cast<std::uint16_t>(pair[0]) == bits_of<T>(x));
      CHECK(std::bit_cast<std::uint16_t>(pair[1]) == bits_of<T>(y));
      CHECK(attile::word_of(pair) == (bits_of<T>(x) | std::uint32_t{bits_of<T>(y)} << 16));
    }
  }
}

TEST_CASE("element.pairs") {
  check_pair<__half>();
  check_pair<__nv_bfloat16>();
  const auto pair = attile::from_floats<float>(0.1f, -2.0f);
  CHECK(pair[0] == 0.1f);
  CHECK(pair[1] == -2.0f);
}

TEST_CASE("element.names") {
  CHECK(std::string(attile::element_name<float>()) == "fp32");
  CHECK(std::string(attile::element_name<__half>()) == "fp16");
  CHECK(std::string(attile::element_name<__nv_bfloat16>()) == "bf16");
  static_assert(!attile::Element<double> && !attile::Element<int> && !attile::Element<const float>);
}

}  // namespace
