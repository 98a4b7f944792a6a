// SPDX-License-Identifier: MIT
#include <attile/core/element.h>
#include <attile/core/fp8.h>
#include <attile/core/math.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

#include "support/catch.h"

namespace {

using attile::from_float;
using attile::Scales;
using attile::to_float;
using E4m3 = __nv_fp8_e4m3;
using E5m2 = __nv_fp8_e5m2;

template <class F>
F fp8_of_code(unsigned code) {
  return std::bit_cast<F>(static_cast<std::uint8_t>(code));
}
template <class F>
unsigned fp8_code_of(float x) {
  return std::bit_cast<std::uint8_t>(from_float<F>(x));
}

/// The number of a code by the definition of its format.
double defined(unsigned code, int mantissa_bits, int bias) {
  const int exponent = static_cast<int>(code & 0x7F) >> mantissa_bits;
  const int mantissa = static_cast<int>(code) & ((1 << mantissa_bits) - 1);
  const int one = exponent == 0 ? 0 : 1 << mantissa_bits;
  const double magnitude =
      std::ldexp(one + mantissa, (exponent == 0 ? 1 : exponent) - bias - mantissa_bits);
  return code >= 0x80 ? -magnitude : magnitude;
}

/// All codes up to `largest` are what the format says; those above are infinities, if it has any,
/// and NaN.
template <class F>
void check_fp8_numbers(int mantissa_bits, int bias, unsigned largest, bool has_infinity) {
  int wrong = 0;
  for (unsigned code = 0; code < 256; ++code) {
    const float x = to_float(fp8_of_code<F>(code));
    const unsigned magnitude = code & 0x7F;
    if (magnitude <= largest) {
      wrong += x != defined(code, mantissa_bits, bias) || std::signbit(x) != (code >= 0x80);
      wrong += fp8_code_of<F>(x) != code;
    } else if (has_infinity && magnitude == largest + 1) {
      wrong += x != (code >= 0x80 ? -attile::kInf : attile::kInf);
    } else {
      wrong += !std::isnan(x);
    }
    // CUDA's own conversion says the same.
    const float by_cuda = static_cast<float>(fp8_of_code<F>(code));
    wrong += x != by_cuda && !(std::isnan(x) && std::isnan(by_cuda));
  }
  CHECK(wrong == 0);
}

/// What lies between two neighbours goes to the nearer one, from the middle to the even one.
template <class F>
void check_fp8_rounding(unsigned largest) {
  int wrong = 0;
  for (unsigned code = 0; code < largest; ++code) {
    const float x = to_float(fp8_of_code<F>(code)), next = to_float(fp8_of_code<F>(code + 1));
    const float middle = x + (next - x) / 2;
    wrong += fp8_code_of<F>(middle) != (code % 2 == 0 ? code : code + 1);
    wrong += fp8_code_of<F>(std::nextafter(middle, 0.0f)) != code;
    wrong += fp8_code_of<F>(std::nextafter(middle, next)) != code + 1;
    wrong += fp8_code_of<F>(-middle) != (0x80 | (code % 2 == 0 ? code : code + 1));
    wrong +=
        fp8_code_of<F>(x * (1 + 1e-6f)) != code || fp8_code_of<F>(next * (1 - 1e-6f)) != code + 1;
  }
  CHECK(wrong == 0);
}

/// Numbers of every size, of both signs, go where CUDA's own conversion takes them.
template <class F>
void check_against_cuda(__nv_fp8_interpretation_t interpretation) {
  int wrong = 0;
  for (std::uint64_t word = 0; word < 0x1'0000'0000; word += 4099) {
    const float x = attile::float_of(static_cast<std::uint32_t>(word));
    if (std::isnan(x)) continue;
    const unsigned by_cuda = __nv_cvt_float_to_fp8(x, __NV_SATFINITE, interpretation);
    wrong += fp8_code_of<F>(x) != by_cuda;
  }
  CHECK(wrong == 0);
}

TEST_CASE("fp8.numbers") {
  check_fp8_numbers<E4m3>(3, 7, 0x7E, false);
  check_fp8_numbers<E5m2>(2, 15, 0x7B, true);
  CHECK(to_float(fp8_of_code<E4m3>(0x7E)) == 448.0f);
  CHECK(to_float(fp8_of_code<E4m3>(1)) == 0x1p-9f);
  CHECK(to_float(fp8_of_code<E5m2>(0x7B)) == 57344.0f);
  CHECK(to_float(fp8_of_code<E5m2>(1)) == 0x1p-16f);
}

TEST_CASE("fp8.rounds_to_nearest_even") {
  check_fp8_rounding<E4m3>(0x7E);
  check_fp8_rounding<E5m2>(0x7B);
  check_against_cuda<E4m3>(__NV_E4M3);
  check_against_cuda<E5m2>(__NV_E5M2);
}

template <class F>
void check_fp8_saturation(unsigned largest) {
  const float most = to_float(fp8_of_code<F>(largest));
  for (const float x : {most, most * 1.0625f, most * 2, 3e38f, attile::kInf}) {
    CHECK(fp8_code_of<F>(x) == largest);
    CHECK(fp8_code_of<F>(-x) == (0x80 | largest));
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(fp8_code_of<F>(nan) == 0x7F);
  CHECK(fp8_code_of<F>(-nan) == 0x7F);
  CHECK(fp8_code_of<F>(attile::float_of(0x7F800001u)) == 0x7F);
  CHECK(std::isnan(to_float(from_float<F>(nan))));
  // A number too small for any code keeps its sign.
  CHECK(fp8_code_of<F>(1e-30f) == 0);
  CHECK(fp8_code_of<F>(-1e-40f) == 0x80);
}

TEST_CASE("fp8.saturates_and_keeps_nan") {
  check_fp8_saturation<E4m3>(0x7E);
  check_fp8_saturation<E5m2>(0x7B);
}

TEST_CASE("fp8.scales") {
  const float scales[] = {1, 2, 3, 4, 5, 6};
  CHECK(Scales{}.at(3, 5) == 1.0f);
  CHECK(Scales{scales}.at(3, 5) == 1.0f);
  CHECK(Scales{scales + 2}.at(0, 0) == 3.0f);
  CHECK(Scales{scales, 3, 1}.at(1, 2) == 6.0f);
  CHECK(Scales{scales, 0, 1}.at(7, 2) == 3.0f);
  CHECK(std::is_same_v<attile::ScalesOf<E4m3>, Scales>);
  CHECK(std::is_same_v<attile::ScalesOf<float>, attile::NoScales>);
  CHECK(attile::NoScales{}.at(1, 2) == 1.0f);
}

TEST_CASE("fp8.elements") {
  using attile::Elements;
  using Bf16 = __nv_bfloat16;
  CHECK(std::string(attile::element_name<E4m3>()) == "e4m3");
  CHECK(std::string(attile::element_name<E5m2>()) == "e5m2");
  static_assert(attile::InputElement<E4m3> && attile::InputElement<float>);
  static_assert(!attile::Element<E4m3> && !attile::InputElement<std::uint8_t>);
  static_assert(Elements<__half, E4m3, E5m2>::kFp8Cache);
  static_assert(Elements<Bf16, E5m2, E5m2>::kFp8Cache);
  static_assert(!Elements<Bf16, E5m2, E5m2>::kAllEqual);
  static_assert(!Elements<float, E4m3, E4m3>::kFp8Cache);
  static_assert(!Elements<Bf16, E4m3, Bf16>::kFp8Cache);
  static_assert(!Elements<Bf16, E4m3, E4m3, __half>::kFp8Cache && !Elements<Bf16>::kFp8Cache);
  static_assert(std::is_same_v<Elements<Bf16, E4m3, E4m3>::Operand, Bf16>);
}

TEST_CASE("fp8.queries") {
  using attile::Elements;
  using Bf16 = __nv_bfloat16;
  using All = Elements<E4m3, E5m2, E4m3, Bf16>;
  static_assert(All::kFp8Queries && All::kAllFp8 && !All::kFp8Cache && !All::kInputsEqual);
  static_assert(std::is_same_v<All::Operand, __half>);
  static_assert(All::kFp8Sums == attile::Fp8Sums::kPromoted);
  using Same = Elements<E4m3, E4m3, E4m3, float>;
  static_assert(Same::kAllFp8 && !Same::kInputsEqual && !Same::kOnlyOutputIsFloat);
  // The mix of a 16-bit V, whose type O has.
  using Mix = Elements<E5m2, E5m2, Bf16, Bf16>;
  static_assert(Mix::kFp8Queries && !Mix::kAllFp8 && std::is_same_v<Mix::Operand, Bf16>);
  static_assert(Elements<E5m2, E5m2, Bf16, float>::kFp8Queries);
  static_assert(!Elements<E5m2, E5m2, Bf16, __half>::kFp8Queries);
  static_assert(!Elements<E5m2, E5m2, float, float>::kFp8Queries);
  static_assert(!Elements<E5m2, Bf16, Bf16, Bf16>::kFp8Queries);
  static_assert(!Elements<E5m2, Bf16, E5m2, Bf16>::kFp8Queries);

  attile::ForwardArgs<All> args{};
  static_assert(std::is_same_v<decltype(args.q_scale), Scales>);
  static_assert(std::is_same_v<decltype(args.v_col_stride), std::int64_t>);
  CHECK(args.v_col_stride == 1);
  using Half = attile::ForwardArgs<__half>;
  static_assert(std::is_same_v<decltype(Half::q_scale), attile::NoScales>);
  static_assert(std::is_same_v<decltype(Half::v_col_stride), attile::UnitStride>);
}

}  // namespace
