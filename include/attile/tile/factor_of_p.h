// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>

// Two ways in which an OnlineSoftmax makes P larger than 1, for types with few exponents. An offset
// of m costs instructions only where m changes. A factor of P costs some for each row and step, but
// leaves m alone, and so LSE.

namespace attile::tile {

/// Says how far the m of an OnlineSoftmax is set below the largest score. Units: those of the
/// scores.
struct MaximumOffset {
  float offset;

  /// Returns the m of a largest score. From 2^18 offsets on m is the score itself. Before, the
  /// difference is rounded by at most 1/64 of the offset: of 8 log2 units by 1/8, of the 0.85 that
  /// P then has below the largest number of e4m3.
  ATTILE_HOST_DEVICE float below(float largest) const {
    const float limit = offset * 0x1p18f;
    return -limit < largest && largest < limit ? largest - offset : largest;
  }
};
struct NoMaximumOffset {
  ATTILE_HOST_DEVICE static float below(float largest) { return largest; }
};

/// Says which factor P has, so that a type with few exponents holds small P: 2^Log2. Unlike an
/// offset of m it leaves the rounding of m alone, and LSE with it. From |m * scale_log2| = 2^21 on,
/// where rounding moves the exponent of P by up to 1/8 and more, P has no factor.
template <int Log2>
struct FactorOfP {
  static constexpr int kLog2 = Log2;

  ATTILE_HOST_DEVICE static bool applies(float m, float scale_log2) {
    const float base = m * scale_log2;
    return kLog2 > 0 && -0x1p21f < base && base < 0x1p21f;
  }
  /// Returns what sums of P are multiplied by where the factor begins or ends to apply.
  ATTILE_HOST_DEVICE static float change(bool applied, bool applies) {
    constexpr float kFactor = static_cast<float>(1 << kLog2);
    return applied == applies ? 1.0f : applies ? kFactor : 1.0f / kFactor;
  }
};

}  // namespace attile::tile
