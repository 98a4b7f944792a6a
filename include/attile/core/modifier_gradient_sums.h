// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>
#include <attile/core/index.h>
#include <attile/core/modifier_gradient.h>

#include <cmath>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace attile {

/// Adds up the gradient of a score modifier: sums by the address of their element, which itself is
/// not written.
/// Units    kMagnitudes: sums of absolute values.
template <class Real, bool kMagnitudes = false>
class ModifierGradientSums {
 public:
  template <class S>
  ModifierGradientSums(const S& mod, const ScoreShape& shape) {
    for (std::int64_t n = 0; n < gradient_lines(mod, shape); ++n) {
      if constexpr (kHasGradient<S>) {
        const GradientLine line = mod.gradient_line(n, shape);
        for (int i = 0; i < line.count; ++i) addresses_.push_back(line.first + i * line.stride);
      }
    }
    for (const float* address : addresses_) sums_[address] = 0;
  }

  /// Adds x to the sum of an address. Marked for both sides, since nvcc compiles its callers, the
  /// modifiers, for both.
  struct Add {
    ModifierGradientSums* sums;
    void (*add)(ModifierGradientSums&, const float*, Real);

    ATTILE_HOST_DEVICE void operator()(const float* where, Real x) const { add(*sums, where, x); }
  };
  Add add() {
    return {this, [](ModifierGradientSums& s, const float* where, Real x) {
              s.sums_.at(where) += kMagnitudes ? std::abs(x) : x;
            }};
  }

  std::vector<double> values() const {
    std::vector<double> values;
    for (const float* address : addresses_) values.push_back(sums_.at(address));
    return values;
  }

 private:
  std::vector<const float*> addresses_;
  std::unordered_map<const float*, Real> sums_;
};

}  // namespace attile
