// SPDX-License-Identifier: MIT
// `quantize` on the CPU, and what every executor refuses.
#include "support/quantize.h"

#include <attile/host/quantize.h>

#include <string>

#include "support/catch.h"

namespace {

using namespace attile_test;

TEST_CASE("quantize.against_plain_loops") {
  check_quantize(
      [](auto& problem) { return std::string(attile::host::quantize(problem.args()).why); });
}

TEST_CASE("quantize.refuses") {
  using F = __nv_fp8_e4m3;
  using Problem = QuantizeProblem<__half, attile::Elements<F, F, F, __half>>;
  Problem problem(quantize_cases()[1]);
  const auto why = [&](const auto& change) {
    auto args = problem.args();
    change(args);
    return std::string(attile::check_arguments(args).why);
  };
  CHECK(why([](auto&) {}) == "");
  CHECK(why([](auto& a) { a.q = {}, a.q_out = {}; }) == "");
  CHECK(why([](auto& a) { a.batch = attile::kUnset; }) == "batch is not given");
  CHECK(why([](auto& a) { a.head_dim = 0; }) == "head_dim is not given");
  CHECK(why([](auto& a) { a.q_heads = 5; }) == "q_heads must be a multiple of kv_heads");
  CHECK(why([](auto& a) { a.q = {}; }) == "q is null, and q_out is not");
  CHECK(why([](auto& a) { a.k_out = {}; }) == "k_out is null");
  CHECK(why([](auto& a) { a.v_scale = {}; }) == "v_scale is null");
  CHECK(why([](auto& a) { a.k_out.row_stride = 1; }) ==
        "k_out overlaps itself: two of its rows share memory (see its strides)");
  CHECK(why([](auto& a) { a.q_scale.batch_stride = 1; }) ==
        "q_scale overlaps itself: strides are 0 where scales are one, and else do not overlap");
  CHECK(why([](auto& a) { a.k_scale = a.q_scale; }) ==
        "two of the tensors and scales that are written share their memory");
  CHECK(why([](auto& a) { a.v_out.data = const_cast<F*>(reinterpret_cast<const F*>(a.v.data)); }) ==
        "v_out is the memory of v: fp8 cannot be written in place");
  CHECK(why([](auto& a) {
          a.q_scale.data = reinterpret_cast<float*>(reinterpret_cast<char*>(a.q_scale.data) + 2);
        }) == "q_scale is not aligned to 4 bytes");
  attile::QuantizeArgs<float, attile::Elements<F, F, __half, __half>> mix{};
  float v = 0;
  mix.batch = mix.q_heads = mix.kv_heads = mix.q_len = mix.kv_len = mix.head_dim = 1;
  mix.v.data = &v;
  CHECK(std::string(attile::check_arguments(mix).why) ==
        "v is given, and its type in the forward pass is not fp8");
}

TEST_CASE("quantize.scales_fit") {
  CHECK(attile::fitting_scale(0.0f, 0.0f) == 1.0f);
  CHECK(attile::fitting_scale(448.0f, 1.0f) == 1.0f);
  CHECK(attile::fitting_scale(0x1p-60f, 0x1p-69f) == 0x1p-48f);
  CHECK(attile::fitting_scale(0x1p100f, 0x1p91f) == 0x1p48f);
  CHECK(attile::finite_magnitude(-2.5f) == 2.5f);
  CHECK(attile::finite_magnitude(-attile::kInf) == 0.0f);
  CHECK(attile::finite_magnitude(std::nanf("")) == 0.0f);
}

}  // namespace
