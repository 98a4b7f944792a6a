// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/math.h>
#include <attile/core/config.h>
#include <attile/core/math.h>

// P of a backward pass from LSE in log2 units: an instruction less for each score than from LSE in
// natural units (`probability` in backward_step.cuh), and as accurate but for one rounding.

namespace attile {

/// Converts LSE to log2 units: of(LSE) = LSE * scale_log2 / scale, so that
///   P = exp2(S * scale_log2 - of(LSE)).
/// scale * log2(e), rounded, is scale_log2, which has a relative error. Both terms have the same
/// one, and so has their difference; what is left is the rounding of the result.
/// A sink may have made LSE as large as a number can be: from kMost on, which no score reaches
/// (docs/contract.md), P is 0 in any case, and below -kMost, where all scores are -inf, too.
/// Units    LSE: natural, of scale * S, or +inf of a row whose P is 0.
struct Log2Lse {
  static constexpr float kMost = 0x1.62e4p127f;  // times log2(e) it is a number

  float scale_log2;
  float high, low;  ///< their sum is scale_log2 / scale

  explicit Log2Lse(float scale) : scale_log2(scale * kLog2e) {
    const double ratio = static_cast<double>(scale_log2) / scale;
    high = static_cast<float>(ratio);
    low = static_cast<float>(ratio - high);
  }
  ATTILE_HOST_DEVICE float of(float lse) const {
    if (lse >= kMost) return kInf;
    if (lse < -kMost) lse = -kMost;
    const float product = lse * high;
    const float error = arch::fma(lse, high, -product);
    return product + arch::fma(lse, low, error);
  }
};

/// Returns what `probability` of step_in_halves.cuh returns, of LSE in log2 units.
/// Units    scale_log2: of a Log2Lse. lse: what its `of` returns.
template <class Keep>
ATTILE_DEVICE float log2_probability(float s, float scale_log2, float lse, const Keep&,
                                     bool is_kept) {
  const float p = arch::exp2(arch::fma(s, scale_log2, -lse));
  return !Keep::kSigns || is_kept ? p : -p;
}

}  // namespace attile
