// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>

// Four warps of a block, from a multiple of four on: what wgmma and setmaxnreg are for (compute
// capability 9.0, code for the architecture "90a").

namespace attile::arch {

inline constexpr int kWarpgroupSize = 128;

/// Whether this code has their instructions.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define ATTILE_HAS_WARPGROUPS 1
#else
#define ATTILE_HAS_WARPGROUPS 0
#endif
inline constexpr bool kHasWarpgroups = ATTILE_HAS_WARPGROUPS;

/// From here on each thread of the warpgroup has kCount registers, fewer than before.
/// Units    24 to 256, a multiple of 8; the kernel's bounds must say its threads and blocks.
/// Scope    all threads of the warpgroup.
template <int kCount>
ATTILE_DEVICE void reg_dealloc() {
#if ATTILE_HAS_WARPGROUPS
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
#endif
}

/// From here on each has kCount registers, more than before: waits until that many are free.
template <int kCount>
ATTILE_DEVICE void reg_alloc() {
#if ATTILE_HAS_WARPGROUPS
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
#endif
}

}  // namespace attile::arch
