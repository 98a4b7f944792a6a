// SPDX-License-Identifier: MIT
#include <attile/core/score_mod.h>
#include <attile/tile/modifier_math.h>

#include <cmath>
#include <limits>

#include "support/catch.h"

namespace {

using namespace attile;

TEST_CASE("modifier_math.fast_tanh") {
  const auto tanh = tile::FastMath::tanh(3.0f, 0.7f);
  const auto near = tanh.near();
  double worst = 0;
  int same = 0, nears = 0;
  for (int i = -400000; i <= 400000; ++i) {
    const float x = 2.5e-5f * static_cast<float>(i);
    const double wanted = 3.0 * std::tanh(double{0.7f} * x);
    const double got = tanh(x);
    if (wanted == 0) {
      CHECK(got == 0);
    } else {
      worst = std::fmax(worst, std::abs(got - wanted) / std::abs(wanted));
    }
    if (std::abs(x) <= near.limit) {
      ++nears;
      same += near(x) == tanh(x);  // which of them a score meets depends on other scores
    }
  }
  INFO("largest relative error " << worst);
  CHECK(worst <= 0x1p-21);
  CHECK(nears > 60000);
  CHECK(same == nears);
}

TEST_CASE("modifier_math.fast_tanh_at_the_limits") {
  using Limits = std::numeric_limits<float>;
  const auto tanh = tile::FastMath::tanh(1.0f, 1.0f);
  CHECK(tanh(1e-30f) == Approx(1e-30f).epsilon(2e-6));
  CHECK(tanh(-3e-8f) == Approx(-3e-8f).epsilon(2e-6));
  CHECK(tanh(100.0f) == 1.0f);
  CHECK(tanh(-100.0f) == -1.0f);
  CHECK(tanh(Limits::max()) == 1.0f);
  CHECK(tanh(-Limits::max()) == -1.0f);
  CHECK(tile::FastMath::tanh(1.0f, 3e38f)(0.0f) == 0.0f);
  CHECK(tile::FastMath::tanh(1.0f, 3e38f)(1e10f) == 1.0f);
}

/// Without moderate factors nothing takes the short way.
TEST_CASE("modifier_math.near_tanh_needs_moderate_factors") {
  CHECK(tile::FastMath::tanh(30.0f, 1.0f / 30).near().limit == Approx(18.0f));
  CHECK(tile::FastMath::tanh(1.0f, 3e38f).near().limit < 0);
  CHECK(tile::FastMath::tanh(1e30f, 1e-30f).near().limit < 0);
  CHECK(tile::FastMath::tanh(3e38f, 0.1f).near().limit < 0);
}

/// A softcap that is nearly the identity keeps small scores.
TEST_CASE("modifier_math.a_large_cap_keeps_scores") {
  for (const float cap : {30.0f, 1e3f, 1e6f, 1e30f}) {
    const ScoreBlock block{{}, {4, 4}, 1, 1, 0.5f};
    const auto tile = modifier_of_tile(Softcap{cap}, block, tile::FastMath());
    for (const float s : {1e-4f, 0.5f, -3.0f, 7.0f}) {
      const double wanted = cap * std::tanh(0.5 * s / cap);
      CHECK(tile(s, tile.row(0), tile.col(0)).value == Approx(wanted).epsilon(2e-6));
    }
  }
}

}  // namespace
