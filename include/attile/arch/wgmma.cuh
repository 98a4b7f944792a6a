// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/arch/warpgroup.cuh>
#include <attile/arch/wgmma_operand.h>
#include <attile/arch/wgmma_shapes.cuh>
#include <attile/core/config.h>

#include <cstdint>

// Matrix products that a warpgroup begins and does not wait for (wgmma; code for 90a). All its
// threads take part. Between the beginning and the wait nobody touches the sums, the left operand's
// registers, or the shared memory of the operands; the sums are lvalues that outlive the wait.
// Sums of 16 x 8 pieces: warp i of the warpgroup has rows 16 i on, and lane j of it d[h][2 k + e] =
// row j / 4 + 8 h, column 8 k + 2 (j % 4) + e (PTX ISA, "Register Fragments for
// wgmma.mma_async.m64nNk16").

namespace attile::arch {

/// d = A B + d or, where not `accumulate`, A B. A (64, 16): its rows, or the depth's where
/// kTransposedA; B (16, N): `b` has its columns as rows, or the depth's rows where kTransposedB.
template <class T, int N, bool kTransposedB, bool kTransposedA = false>
ATTILE_DEVICE void wgmma_m64k16(float (&d)[2][N / 4], std::uint64_t a, std::uint64_t b,
                                bool accumulate) {
  WgmmaShape<N>::template multiply<T, kTransposedA, kTransposedB>(d, a, b, accumulate);
}

/// The same with A in registers, two elements a word: warp i has rows 16 i on, lane j of it rows
/// j / 4 (words 0, 2) and j / 4 + 8 (1, 3), columns 2 (j % 4) and 2 (j % 4) + 1 (0, 1) and 8 more.
template <class T, int N, bool kTransposedB>
ATTILE_DEVICE void wgmma_m64k16(float (&d)[2][N / 4], const std::uint32_t (&a)[4], std::uint64_t b,
                                bool accumulate) {
  WgmmaShape<N>::template multiply<T, kTransposedB>(d, a, b, accumulate);
}

/// What this thread has written to registers is there for the products that follow.
ATTILE_DEVICE void wgmma_fence() {
#if ATTILE_HAS_WARPGROUPS
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}

/// Closes this warp's group of products: those begun since the last call, none allowed.
ATTILE_DEVICE void wgmma_commit() {
#if ATTILE_HAS_WARPGROUPS
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}

/// Waits until at most kPending of this warp's latest groups are still under way.
template <int kPending>
ATTILE_DEVICE void wgmma_wait() {
#if ATTILE_HAS_WARPGROUPS
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
#endif
}

/// Products of groups that were not waited for write these registers: the compiler must not move
/// their uses above this place, nor their last ordinary writes below it.
template <int N>
ATTILE_DEVICE void fence_operand(float (&d)[2][N]) {
#if ATTILE_HAS_WARPGROUPS
  ATTILE_UNROLL
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(d[0][i]), "+f"(d[1][i])::"memory");
#endif
}

}  // namespace attile::arch
