// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/math.h>
#include <attile/core/config.h>
#include <attile/core/math.h>
#include <attile/tile/online_softmax.h>

namespace attile::tile {

/// Holds the LSE of two merged partial results over disjoint keys, and the weights that merge them:
/// O = weight_a O_a + weight_b O_b.
struct Merged {
  float lse;
  float weight_a, weight_b;
};

/// Merges two softmax states, given as the natural-log LSE of normalised partial results. The merge
/// is associative up to rounding; an empty part (LSE = -inf) has weight 0, and two empty parts are
/// empty together.
ATTILE_HOST_DEVICE Merged merge_lse(float lse_a, float lse_b) {
  const CommonMaximum common = common_maximum(lse_a, lse_b, kLog2e);
  const float sum = common.weight_a + common.weight_b;
  if (sum == 0.0f) return {-kInf, 0.0f, 0.0f};
  return {common.m + arch::log(sum), common.weight_a / sum, common.weight_b / sum};
}

}  // namespace attile::tile
