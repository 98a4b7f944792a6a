// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/arch/thread.cuh>
#include <attile/arch/warpgroup.cuh>
#include <attile/arch/wgmma_operand.h>
#include <attile/arch/wgmma_shapes.cuh>
#include <attile/core/array.h>
#include <attile/core/config.h>

#include <cstdint>

// Asynchronous matrix products of a warpgroup (wgmma; code for 90a). All its threads begin a
// product together. Between the beginning and the wait no thread may access the accumulator, the
// registers of the left operand, or the shared memory of the operands; the accumulator is an lvalue
// that outlives the wait. Warp i of the warpgroup holds the rows of the accumulator from 16 i on,
// and its lane j has in d[h][2 k + e] row j / 4 + 8 h of these, column 8 k + 2 (j % 4) + e (PTX
// ISA, "Register Fragments for wgmma.mma_async.m64nNk16").

namespace attile::arch {

/// Begins d = A B + d, or d = A B where `accumulate` is false. `a` holds A (64, 16) by rows, or by
/// rows of the depth where kTransposedA; `b` holds B (16, N) by columns, or by rows of the depth
/// where kTransposedB.
template <class T, int N, bool kTransposedB, bool kTransposedA = false>
ATTILE_DEVICE void wgmma_m64k16(Array<float, 2, N / 4>& d, std::uint64_t a, std::uint64_t b,
                                bool accumulate) {
  WgmmaShape<N>::template multiply<T, kTransposedA, kTransposedB>(d, a, b, accumulate);
}

/// Begins the same product with A in registers, two elements a word. Warp i holds the rows from 16
/// i on, and its lane j holds rows j / 4 (words 0, 2) and j / 4 + 8 (words 1, 3) of these, columns
/// 2 (j % 4) and 2 (j % 4) + 1 (words 0, 1) and those plus 8 (words 2, 3).
template <class T, int N, bool kTransposedB>
ATTILE_DEVICE void wgmma_m64k16(Array<float, 2, N / 4>& d, const std::uint32_t (&a)[4],
                                std::uint64_t b, bool accumulate) {
  WgmmaShape<N>::template multiply<T, kTransposedB>(d, a, b, accumulate);
}

/// Begins d = A B + d, or d = A B where `accumulate` is false, for 8-bit elements: A (64, 32) of TA
/// by rows, and B (32, N) of TB by columns.
template <class TA, class TB, int N>
ATTILE_DEVICE void wgmma_m64k32(Array<float, 2, N / 4>& d, std::uint64_t a, std::uint64_t b,
                                bool accumulate) {
  WgmmaShape<N>::template multiply_fp8<TA, TB>(d, a, b, accumulate);
}

/// Begins the same product with A in registers, four elements a word. Warp i holds the rows from 16
/// i on, and its lane j holds rows j / 4 (words 0, 2) and j / 4 + 8 (words 1, 3) of these, columns
/// 4 (j % 4) to 4 (j % 4) + 3 (words 0, 1) and those plus 16 (words 2, 3).
template <class TA, class TB, int N>
ATTILE_DEVICE void wgmma_m64k32(Array<float, 2, N / 4>& d, const std::uint32_t (&a)[4],
                                std::uint64_t b, bool accumulate) {
  WgmmaShape<N>::template multiply_fp8<TA, TB>(d, a, b, accumulate);
}

/// Orders this thread's accesses of registers before those of the products that follow, which could
/// otherwise read a register before it is written.
ATTILE_DEVICE void wgmma_fence() {
#if ATTILE_HAS_WARPGROUPS
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#else
  trap();
#endif
}

/// Closes this warp's commit group, which has the products since the last call; there may be none.
ATTILE_DEVICE void wgmma_commit() {
#if ATTILE_HAS_WARPGROUPS
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#else
  trap();
#endif
}

/// Waits until at most kPending of this warp's latest commit groups are unfinished. Before the wait
/// their accumulators are incomplete, and their operands may still be read.
template <int kPending>
ATTILE_DEVICE void wgmma_wait() {
#if ATTILE_HAS_WARPGROUPS
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
#else
  trap();
#endif
}

/// Keeps the compiler from moving uses of these registers above this call, and ordinary writes to
/// them below it. It does not know that products which are not waited for access the registers.
template <std::size_t N>
ATTILE_DEVICE void fence_operand(float (&d)[2][N]) {
  ATTILE_UNROLL
  for (std::size_t i = 0; i < N; ++i) asm volatile("" : "+f"(d[0][i]), "+f"(d[1][i])::"memory");
}

}  // namespace attile::arch
