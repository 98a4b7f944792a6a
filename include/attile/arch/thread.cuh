// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>

namespace attile::arch {

inline constexpr int kWarpSize = 32;

/// This thread's place in its block. Units: threads; blocks are one-dimensional.
ATTILE_DEVICE int thread_index() { return static_cast<int>(threadIdx.x); }

/// This block's place in the grid. Units: blocks; grids are one-dimensional.
ATTILE_DEVICE int block_index() { return static_cast<int>(blockIdx.x); }

/// Waits for all threads of the block; orders their shared and global accesses.
ATTILE_DEVICE void barrier() { __syncthreads(); }

/// Waits for all lanes of the warp; orders their shared and global accesses.
ATTILE_DEVICE void warp_barrier() { __syncwarp(); }

/// The value of lane (lane ^ mask). Scope: all lanes of the warp.
ATTILE_DEVICE float shuffle_xor(float x, int mask) { return __shfl_xor_sync(0xFFFFFFFFu, x, mask); }

/// Whether x holds for any lane. Scope: all lanes of the warp.
ATTILE_DEVICE bool any_lane(bool x) { return __any_sync(0xFFFFFFFFu, x) != 0; }

/// The lowest lane for which x holds; kWarpSize where there is none. Scope: all lanes of the warp.
ATTILE_DEVICE int first_lane(bool x) {
  const unsigned lanes = __ballot_sync(0xFFFFFFFFu, x);
  return lanes == 0 ? kWarpSize : __ffs(static_cast<int>(lanes)) - 1;
}

}  // namespace attile::arch
