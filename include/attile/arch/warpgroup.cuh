// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/thread.cuh>
#include <attile/core/config.h>

// A warpgroup is four warps of a block, from a multiple of four on, which execute wgmma and
// setmaxnreg together (compute capability 9.0, code for the architecture "90a").

namespace attile::arch {

/// The threads of a warpgroup.
inline constexpr int kWarpgroupSize = 128;

/// Says whether this code has the instructions of warpgroups.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define ATTILE_HAS_WARPGROUPS 1
#else
#define ATTILE_HAS_WARPGROUPS 0
#endif
inline constexpr bool kHasWarpgroups = ATTILE_HAS_WARPGROUPS;

/// Reduces the registers of each thread of the warpgroup to kCount.
/// Units    24 to 256, a multiple of 8; the kernel's bounds must say its threads and blocks.
/// Scope    all threads of the warpgroup.
template <int kCount>
ATTILE_DEVICE void reg_dealloc() {
#if ATTILE_HAS_WARPGROUPS
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
#else
  trap();
#endif
}

/// Raises the registers of each thread of the warpgroup to kCount, and waits until that many are
/// free. Units and scope    as for `reg_dealloc`.
template <int kCount>
ATTILE_DEVICE void reg_alloc() {
#if ATTILE_HAS_WARPGROUPS
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
#else
  trap();
#endif
}

}  // namespace attile::arch
