// SPDX-License-Identifier: MIT
#include <attile/core/score_mod.h>

#include <cmath>
#include <vector>

#include "support/catch.h"
#include "support/policies.h"

namespace {

using namespace attile;
using attile_test::Bend;

const float kSlopes[] = {0.5f, 0.25f, 0.125f, 1.0f, 2.0f, 4.0f, 8.0f, 16.0f};

/// Holds the derivative against central differences in fp64.
template <class S>
void check_derivative(const S& mod) {
  constexpr double h = 1e-5;
  const Extent e{7, 9};
  for (const ScoreIndex at : {ScoreIndex{0, 0, 0, 0}, {1, 3, 6, 2}, {1, 2, 3, 8}}) {
    for (const double s : {-40.0, -3.0, -0.5, 0.0, 1e-3, 0.7, 2.0, 10.0, 60.0}) {
      const double difference = (mod(s + h, at, e).value - mod(s - h, at, e).value) / (2 * h);
      CHECK(mod(s, at, e).derivative == Approx(difference).margin(1e-8).epsilon(1e-7));
    }
  }
}

TEST_CASE("score_mod.derivatives") {
  check_derivative(NoScoreMod{});
  check_derivative(Alibi{kSlopes, 4});
  for (const float cap : {0.5f, 3.0f, 50.0f}) check_derivative(Softcap{cap});
  const std::vector<float> bias(2 * 4 * 7 * 9, 0.75f);
  check_derivative(AdditiveBias<float>{bias.data(), 4 * 7 * 9, 7 * 9, 9, 1});
  check_derivative(Then<Softcap, Alibi>{{5.0f}, {kSlopes, 0}});
  check_derivative(Then<Alibi, Softcap>{{kSlopes, 0}, {5.0f}});
  check_derivative(Then<Then<Bend, Softcap>, Bend>{{{}, {7.0f}}, {}});
  check_derivative(Bend{});
}

TEST_CASE("score_mod.softcap") {
  const auto f = [](double s, float cap) { return Softcap{cap}(s, {}, {}).value; };
  CHECK(f(2.0, 4.0f) == Approx(4 * std::tanh(0.5)));
  CHECK(f(1e6, 30.0f) == 30.0);
  CHECK(f(-1e6, 30.0f) == -30.0);
  CHECK(f(1e-3, 1e6f) == Approx(1e-3));
}

TEST_CASE("score_mod.alibi") {
  const Extent e{3, 5};  // row i is aligned with column i + 2
  const Alibi shared{kSlopes, 0};
  CHECK(shared(1.0f, {0, 0, 0, 2}, e).value == 1.0f);
  CHECK(shared(1.0f, {0, 0, 0, 0}, e).value == 0.0f);
  CHECK(shared(1.0f, {0, 0, 0, 4}, e).value == 0.0f);
  CHECK(shared(1.0f, {1, 1, 2, 0}, e).value == 0.0f);
  const Alibi by_batch{kSlopes, 4};
  CHECK(by_batch(1.0f, {1, 0, 0, 1}, e).value == -1.0f);
  CHECK(by_batch(1.0f, {1, 3, 0, 1}, e).value == -15.0f);
}

TEST_CASE("score_mod.bias") {
  std::vector<float> values(24);
  for (int i = 0; i < 24; ++i) values[i] = static_cast<float>(i);
  const auto at = [](const AdditiveBias<float>& bias, ScoreIndex i) {
    return bias(100.0f, i, {}).value - 100.0f;
  };
  const AdditiveBias<float> dense{values.data(), 12, 6, 3, 1};  // (2, 2, 2, 3)
  CHECK(at(dense, {1, 1, 1, 2}) == 23.0f);
  CHECK(at(dense, {0, 1, 0, 2}) == 8.0f);
  const AdditiveBias<float> of_columns{values.data(), 0, 0, 0, 1};
  CHECK(at(of_columns, {1, 1, 1, 2}) == 2.0f);
  const AdditiveBias<float> transposed{values.data(), 0, 0, 1, 2};
  CHECK(at(transposed, {1, 1, 1, 2}) == 5.0f);
  const __nv_bfloat16 half = from_float<__nv_bfloat16>(0.5f);
  CHECK(AdditiveBias<__nv_bfloat16>{&half}(1.0f, {}, {}).value == 1.5f);
  const float hidden = -kInf;
  CHECK(AdditiveBias<float>{&hidden}(1.0f, {}, {}).value == -kInf);
}

TEST_CASE("score_mod.bias_beyond_2_to_the_31") {
  // Reads the last element of an array that would be that large.
  const float value = 3.0f;
  const std::int64_t stride = std::int64_t{1} << 20;
  const float* first = reinterpret_cast<const float*>(reinterpret_cast<std::uintptr_t>(&value) -
                                                      4000u * stride * sizeof(float));
  const AdditiveBias<float> bias{first, 0, 0, stride, 1};
  CHECK(bias(0.0f, {0, 0, 4000, 0}, {}).value == 3.0f);
}

TEST_CASE("score_mod.then_applies_the_second_to_the_first") {
  const Extent e{1, 5};
  const Then<Softcap, Alibi> mod{{2.0f}, {kSlopes, 0}};
  CHECK(mod(3.0, {0, 0, 0, 0}, e).value == Approx(2 * std::tanh(1.5) - 0.5 * 4));
  const Then<Alibi, Softcap> other{{kSlopes, 0}, {2.0f}};
  CHECK(other(3.0, {0, 0, 0, 0}, e).value == Approx(2 * std::tanh((3.0 - 0.5 * 4) / 2)));
}

TEST_CASE("score_mod.traits") {
  static_assert(kIsIdentity<NoScoreMod> && !kIsIdentity<Softcap>);
  static_assert(!kMayHide<NoScoreMod> && !kMayHide<Softcap> && !kMayHide<Alibi>);
  static_assert(kMayHide<AdditiveBias<float>>);
  static_assert(kMayHide<Then<Softcap, AdditiveBias<float>>>);
  static_assert(kMayHide<Then<AdditiveBias<float>, Softcap>>);
  static_assert(!kMayHide<Then<Softcap, Alibi>>);
  static_assert(ScoreMod<Bend>);
  struct OnlyFloat {
    ModifiedScore<float> operator()(float s, ScoreIndex, Extent) const { return {s, 1.0f}; }
  };
  static_assert(ScoreMod<OnlyFloat>);
  static_assert(!ScoreMod<int>);
  SUCCEED();
}

}  // namespace
