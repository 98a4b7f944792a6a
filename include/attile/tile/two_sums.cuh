// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/core/config.h>

namespace attile::tile {

/// The depth up to which a sum of large terms of one sign may be made in one piece. Tensor cores
/// cut off what does not fit into a sum, at every instruction and towards zero, so its error grows
/// with the instructions. Of S = -2.45e5 at a depth of 128 it makes P = exp(S - LSE), given LSE, be
/// off by more than twice what rounding sums are off by; at a depth of 96 by 0.6 of that. In two
/// sums of half the instructions, added with rounding, it is at most 0.7 of it up to a depth of
/// 256. (Emulated: 16 products and the sum before, each cut off two bits below the sum's last one.)
inline constexpr int kOneSumDepth = 96;

/// Two register tiles whose sum is the product: every second step of the depth goes to `odd`, so
/// that each has half of those of a head_dim that is smaller than D, too.
template <class Registers>
struct TwoSums {
  static constexpr int kCols = Registers::kCols;

  Registers& even;
  Registers& odd;

  /// even += odd.
  ATTILE_DEVICE void join() const {
    ATTILE_UNROLL
    for (int r = 0; r < Registers::kRegRows; ++r) {
      ATTILE_UNROLL
      for (int c = 0; c < Registers::kRegCols; ++c) even.x[r][c] += odd.x[r][c];
    }
  }
};

/// The sums that an accumulator of a product has.
template <class Acc>
inline constexpr int kSums = 1;
template <class Registers>
inline constexpr int kSums<const TwoSums<Registers>> = 2;

/// The one that step k of the depth is added to.
template <class Acc>
ATTILE_DEVICE auto& sum_of_step(Acc& acc, int k) {
  if constexpr (kSums<Acc> == 2) {
    return k % 2 == 0 ? acc.even : acc.odd;
  } else {
    return acc;
  }
}

}  // namespace attile::tile
