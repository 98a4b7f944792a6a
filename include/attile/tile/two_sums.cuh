// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/core/config.h>

namespace attile::tile {

/// The largest depth at which one accumulator is accurate enough for large terms of one sign.
/// Tensor cores truncate a sum towards zero at every instruction, so that its error grows with the
/// number of instructions. For S = -2.45e5 at a depth of 128 the error of P = exp(S - LSE), given
/// LSE, is more than twice that of sums that round; at a depth of 96 it is 0.6 of that. With two
/// sums of half the instructions each, added with rounding, it is at most 0.7 of it up to a depth
/// of 256. (Emulated: 16 products and the sum before, each truncated two bits below the last bit of
/// the sum.)
inline constexpr int kOneSumDepth = 96;

/// Refers to two register tiles whose sum is the product. Every second step of the depth is added
/// to `odd`, so that each tile gets half of the steps also where head_dim is smaller than D.
template <class Registers>
struct TwoSums {
  static constexpr int kCols = Registers::kCols;
  static constexpr int kWarpRows = Registers::kWarpRows;

  Registers& even;
  Registers& odd;

  /// Adds `odd` to `even`, which then holds the product.
  ATTILE_DEVICE void join() const {
    ATTILE_UNROLL
    for (int r = 0; r < Registers::kRegRows; ++r) {
      ATTILE_UNROLL
      for (int c = 0; c < Registers::kRegCols; ++c) even.x[r][c] += odd.x[r][c];
    }
  }
};

/// The number of sums in an accumulator of a product.
template <class Acc>
inline constexpr int kSums = 1;
template <class Registers>
inline constexpr int kSums<const TwoSums<Registers>> = 2;

/// Returns the sum to which step k of the depth is added.
template <class Acc>
ATTILE_DEVICE auto& sum_of_step(Acc& acc, int k) {
  if constexpr (kSums<Acc> == 2) {
    return k % 2 == 0 ? acc.even : acc.odd;
  } else {
    return acc;
  }
}

}  // namespace attile::tile
