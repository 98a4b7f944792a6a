// SPDX-License-Identifier: MIT
#pragma once

// Rows of scores, their softmax in fp64, and how far fp32 may be from it: for host and device.
#include <attile/core/math.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "support/random.h"

namespace attile_test {

struct ScoreRow {
  std::string name;
  std::vector<float> x;
  float unit = attile::kLog2e;
};

inline std::vector<ScoreRow> score_rows() {
  std::vector<ScoreRow> rows;
  const auto add = [&](const std::string& name, int n, float unit, auto score) {
    ScoreRow row{name + ", n = " + std::to_string(n), {}, unit};
    const Random random(rows.size() + 1);
    for (int i = 0; i < n; ++i) row.x.push_back(score(i, random.normal(i)));
    rows.push_back(std::move(row));
  };
  for (const int n : {0, 1, 2, 3, 15, 16, 17, 57, 64, 1000}) {
    add("normal", n, attile::kLog2e, [](int, float z) { return 2 * z; });
    add("raw products", n, 0.125f * attile::kLog2e, [](int, float z) { return 5 + 30 * z; });
    add("far above 0", n, attile::kLog2e, [](int, float z) { return 1e5f + z; });
    add("far below 0", n, attile::kLog2e, [](int, float z) { return -1e5f + z; });
    add("wide", n, attile::kLog2e, [](int, float z) { return 40 * z; });
    add("rising", n, attile::kLog2e, [](int i, float z) { return 3 * static_cast<float>(i) + z; });
    add("falling", n, attile::kLog2e, [](int i, float z) { return z - static_cast<float>(i); });
    add("first hidden", n, attile::kLog2e,
        [&](int i, float z) { return 3 * i < 2 * n ? -attile::kInf : z; });
    add("some hidden", n, attile::kLog2e,
        [](int i, float z) { return i % 3 == 0 ? -attile::kInf : z - 50; });
    add("all hidden", n, attile::kLog2e, [](int, float) { return -attile::kInf; });
  }
  return rows;
}

/// Zeros for a row that hides all.
inline std::vector<double> exact_softmax(const ScoreRow& row) {
  const double scale = double{row.unit} * std::log(2.0);
  double m = -attile::kInf, l = 0;
  for (const float x : row.x) m = std::max(m, double{x});
  std::vector<double> y;
  for (const float x : row.x) y.push_back(x == -attile::kInf ? 0.0 : std::exp(scale * (x - m)));
  for (const double p : y) l += p;
  for (double& p : y) p /= l == 0 ? 1 : l;
  return y;
}

/// One rounding of fp32, relative.
inline constexpr double kUnitRoundoff = 0x1p-24;

/// What the sum l of n terms may be wrong by, relative: six roundings for each term (the rescaling:
/// a product, a sum, an exp2 of relative error 2^-22) and those of the exponents, (m - x) * unit,
/// whose mean is at most log2(n).
inline double sum_tolerance(std::size_t n) {
  return kUnitRoundoff * (8 * static_cast<double>(n) + 16);
}

/// What y_i may be wrong by: l, its own exponent, and the smallest normal number, which the device
/// flushes to 0.
inline double tolerance(const ScoreRow& row, std::size_t i, double exact) {
  double m = -attile::kInf;
  for (const float x : row.x) m = std::max(m, double{x});
  const double exponent = exact == 0 ? 0 : (m - row.x[i]) * row.unit;
  return exact * (sum_tolerance(row.x.size()) + 2 * exponent * kUnitRoundoff) + 0x1p-125;
}

/// The index of the first value out of bounds (NaN is), or -1.
inline int first_wrong(const ScoreRow& row, const float* y) {
  const std::vector<double> exact = exact_softmax(row);
  for (std::size_t i = 0; i < exact.size(); ++i) {
    if (!(std::abs(y[i] - exact[i]) <= tolerance(row, i, exact[i]))) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace attile_test
