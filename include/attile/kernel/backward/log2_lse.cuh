// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/math.h>
#include <attile/core/config.h>
#include <attile/core/math.h>

// P of a backward pass from LSE in log2 units: an instruction less for each score than from LSE in
// natural units (`probability` in backward_step.cuh), and as accurate but for one rounding.

namespace attile {

/// Converts LSE to the log2 units of scores times `scale_log2`, which is scale * log2(e), rounded.
/// Where P is not small scale * S and LSE are nearly the same, so that the error of that rounding
/// is one of LSE, and is put right there. What is left is the rounding of the result.
struct Log2Lse {
  float scale_log2;
  float high, low;  ///< their sum is scale_log2 / scale

  explicit Log2Lse(float scale) : scale_log2(scale * kLog2e) {
    const double ratio = static_cast<double>(scale_log2) / scale;
    high = static_cast<float>(ratio);
    low = static_cast<float>(ratio - high);
  }
  ATTILE_DEVICE float of(float lse) const {
    if (lse == kInf) return lse;
    const float product = lse * high;
    const float error = arch::fma(lse, high, -product);
    return product + arch::fma(lse, low, error);
  }
};

/// Does what fast_probabilities does, with `scale_log2` and the LSE of a Log2Lse.
template <class Registers, class Coord, class RowStatistics, class Keep>
ATTILE_DEVICE void fast_log2_probabilities(Registers& p_frag, float scale_log2, const Coord& coord,
                                           const RowStatistics& lse, const Keep& keep) {
  keep.for_each(coord, [&](int r, int c, bool is_kept) {
    float& x = p_frag.at(r, c);
    const float exponent = arch::fma(x, scale_log2, -lse.x[r]);
    if constexpr (Keep::kSigns) {
      const float p = arch::exp2(exponent + keep.log2_factor());
      x = is_kept ? p : -p;
    } else {
      x = arch::exp2(exponent);
    }
  });
}

}  // namespace attile
