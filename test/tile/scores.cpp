// SPDX-License-Identifier: MIT
#include <attile/tile/scores.cuh>

#include <cmath>
#include <limits>

#include "support/catch.h"

namespace {

using namespace attile;

TEST_CASE("scores.fast_tanh") {
  double worst = 0;
  for (int i = -400000; i <= 400000; ++i) {
    const float x = 2.5e-5f * static_cast<float>(i);
    const double wanted = std::tanh(double{0.7f} * x);
    const double got = tile::FastMath::tanh(0.7f)(x);
    if (wanted == 0) {
      CHECK(got == 0);
    } else {
      worst = std::fmax(worst, std::abs(got - wanted) / std::abs(wanted));
    }
  }
  INFO("largest relative error " << worst);
  CHECK(worst <= 0x1p-19);
}

TEST_CASE("scores.fast_tanh_at_the_limits") {
  using Limits = std::numeric_limits<float>;
  const auto tanh = tile::FastMath::tanh(1.0f);
  CHECK(tanh(1e-30f) == 1e-30f);
  CHECK(tanh(-3e-8f) == -3e-8f);
  CHECK(tanh(100.0f) == 1.0f);
  CHECK(tanh(-100.0f) == -1.0f);
  CHECK(tanh(Limits::max()) == 1.0f);
  CHECK(tanh(-Limits::max()) == -1.0f);
  CHECK(tile::FastMath::tanh(3e38f)(0.0f) == 0.0f);
  CHECK(tile::FastMath::tanh(3e38f)(1e10f) == 1.0f);
}

/// A softcap that is nearly the identity keeps small scores.
TEST_CASE("scores.a_large_cap_keeps_scores") {
  for (const float cap : {30.0f, 1e3f, 1e6f, 1e30f}) {
    const auto tile = modifier_of_tile(Softcap{cap}, {}, {4, 4}, tile::FastMath());
    for (const float s : {1e-4f, 0.5f, -3.0f, 7.0f}) {
      const double wanted = cap * std::tanh(double{s} / cap);
      CHECK(tile(s, tile.row(0), tile.col(0)).value == Approx(wanted).epsilon(2e-6));
    }
  }
}

}  // namespace
