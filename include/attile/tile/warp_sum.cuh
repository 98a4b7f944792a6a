// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>

namespace attile::tile {

/// Returns the sum of x over the lanes of a warp, or over those of the same number modulo kStride,
/// to each of them. Units    kStride: a power of two. Scope    all lanes of a warp.
template <int kStride = 1, class X>
ATTILE_DEVICE X warp_sum(X x) {
  ATTILE_UNROLL
  for (int mask = arch::kWarpSize / 2; mask >= kStride; mask /= 2) x += arch::shuffle_xor(x, mask);
  return x;
}

}  // namespace attile::tile
