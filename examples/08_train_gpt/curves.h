// SPDX-License-Identifier: MIT
// Loss curves, and whether two of them are the same.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace gpt {

/// The loss of each step.
using Curve = std::vector<double>;

/// The larger one; NaN where either is.
inline double larger(double a, double b) { return std::isnan(a) || a > b ? a : b; }

/// Of the first `steps` steps; NaN where a curve has one.
inline double largest_difference(const Curve& a, const Curve& b, std::size_t steps) {
  double largest = 0;
  for (std::size_t i = 0; i < std::min(steps, a.size()); ++i) {
    largest = larger(largest, std::abs(a[i] - b[i]));
  }
  return largest;
}

/// How far standard attention is from itself in the first `steps` steps, where roundings differ.
inline double spread(const Curve& standard, const std::vector<Curve>& nudged, std::size_t steps) {
  double largest = 0;
  for (const Curve& curve : nudged) {
    largest = larger(largest, largest_difference(curve, standard, steps));
  }
  return largest;
}

/// Rounding errors grow from step to step, so no fixed bound holds for two right computations. The
/// bound is measured: up to any step, a curve is no more than twice as far from standard
/// attention's as that is from its own, nudged. Ten steps more of the nudged ones count, since
/// chance decides when a difference shows first.
inline bool is_same(const Curve& curve, const Curve& standard, const std::vector<Curve>& nudged) {
  for (std::size_t step = 1; step <= curve.size(); ++step) {
    const double bound = 2 * spread(standard, nudged, step + 10);
    if (!(largest_difference(curve, standard, step) <= bound)) return false;
  }
  return true;
}

}  // namespace gpt
