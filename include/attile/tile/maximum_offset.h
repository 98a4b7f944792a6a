// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>

namespace attile::tile {

/// Says how far the m of an OnlineSoftmax is set below the largest score. Units: those of the
/// scores.
struct MaximumOffset {
  float offset;

  /// Returns the m of a largest score. Scores of 2^18 times the offset keep their own: so far apart
  /// numbers lie there that the difference could be any.
  ATTILE_HOST_DEVICE float below(float largest) const {
    const float limit = offset * 0x1p18f;
    return -limit < largest && largest < limit ? largest - offset : largest;
  }
};
struct NoMaximumOffset {
  ATTILE_HOST_DEVICE static float below(float largest) { return largest; }
};

}  // namespace attile::tile
