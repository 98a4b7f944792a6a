// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>

namespace attile_test {

/// A derivative by central differences, and how far it may be from the true one.
struct Difference {
  double value, tolerance;

  bool accepts(double x) const { return std::abs(x - value) <= tolerance; }
};

/// f'(0) of a smooth f. With D(h) = (f(h) - f(-h)) / 2h = f' + h^2 f''' / 6 + O(h^4), D(2h) - D(h)
/// is three times the truncation of D(h), to its first order: what is next is allowed twice that
/// of the first one. Rounding adds `error` / h.
/// Units   error: of one value of f.
template <class F>
Difference central_difference(const F& f, double h, double error) {
  const double narrow = (f(h) - f(-h)) / (2 * h);
  const double wide = (f(2 * h) - f(-2 * h)) / (4 * h);
  return {narrow, std::abs(wide - narrow) + error / h};
}

}  // namespace attile_test
