// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace attile::arch {

/// The threads of a warp.
inline constexpr int kWarpSize = 32;

/// Returns the index of this thread in its block. Units: threads; blocks are one-dimensional.
ATTILE_DEVICE int thread_index() { return static_cast<int>(threadIdx.x); }

/// Returns the index of this block in the grid. Units: blocks; grids are one-dimensional.
ATTILE_DEVICE int block_index() { return static_cast<int>(blockIdx.x); }

/// Returns the number of blocks of the grid.
ATTILE_DEVICE int block_count() { return static_cast<int>(gridDim.x); }

/// Returns the number of multiprocessors of the device, or a few more (PTX ISA, "%nsmid").
ATTILE_DEVICE int multiprocessor_bound() {
  int count;
  asm("mov.u32 %0, %%nsmid;" : "=r"(count));
  return count;
}

/// Ends the kernel with an error (cudaErrorLaunchFailure). A function of arch/ calls it in code for
/// an architecture that lacks its instruction. `check_launch` (device.cuh) refuses such code before
/// it is launched.
ATTILE_DEVICE void trap() { __trap(); }

/// Waits for all threads of the block, and orders their shared and global accesses.
ATTILE_DEVICE void barrier() { __syncthreads(); }

/// Waits until `threads` threads of the block have called this, or `barrier_arrive`, for barrier
/// `id`. It orders the memory accesses of all of them before those that follow the wait (PTX ISA,
/// "bar, barrier").
/// Units    0 < id < 16, as 0 is the barrier of the whole block; threads: a multiple of 32, the
///          same in all these calls.
/// Scope    whole warps.
ATTILE_DEVICE void barrier(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// Waits as `barrier` does, for threads that all call this, and returns whether x holds for any of
/// them (PTX ISA, "bar, barrier": .red.or). Units and scope    as for `barrier`.
ATTILE_DEVICE bool barrier_any(int id, int threads, bool x) {
  int any;
  asm volatile(
      "{\n"
      ".reg .pred mine, found;\n"
      "setp.ne.s32 mine, %3, 0;\n"
      "bar.red.or.pred found, %1, %2, mine;\n"
      "selp.s32 %0, 1, 0, found;\n"
      "}"
      : "=r"(any)
      : "r"(id), "r"(threads), "r"(static_cast<int>(x))
      : "memory");
  return any != 0;
}

/// Arrives at barrier `id`, and does not wait for the other threads.
/// Units    as for `barrier`.
/// Scope    whole warps.
ATTILE_DEVICE void barrier_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// In the following functions `lanes` are the lanes of the warp that take part: a bit for each, all
// by default. All of them call the function with the same `lanes`, and no other lane does.
inline constexpr unsigned kAllLanes = 0xFFFFFFFFu;

/// Waits for the lanes, and orders their shared and global accesses.
ATTILE_DEVICE void warp_barrier(unsigned lanes = kAllLanes) { __syncwarp(lanes); }

/// Returns the x of lane (lane ^ mask), which is one of `lanes`.
ATTILE_DEVICE float shuffle_xor(float x, int mask, unsigned lanes = kAllLanes) {
  return __shfl_xor_sync(lanes, x, mask);
}
ATTILE_DEVICE std::uint32_t shuffle_xor(std::uint32_t x, int mask, unsigned lanes = kAllLanes) {
  return __shfl_xor_sync(lanes, x, mask);
}

/// Returns the x of lane `from`. Scope    all lanes of the warp.
ATTILE_DEVICE float shuffle(float x, int from) { return __shfl_sync(kAllLanes, x, from); }
ATTILE_DEVICE int shuffle(int x, int from) { return __shfl_sync(kAllLanes, x, from); }

/// Returns the x of the first lane. Where all lanes have the same x, the compiler then knows it.
/// Scope    all lanes of the warp.
ATTILE_DEVICE int uniform(int x) { return __shfl_sync(kAllLanes, x, 0); }

/// Returns the x of lane `from`, word by word. Scope    all lanes of the warp.
template <class T>
ATTILE_DEVICE T shuffle_words(T x, int from) {
  static_assert(std::is_trivially_copyable_v<T>,
                "attile::arch::shuffle_words: the type is not trivially copyable");
  static_assert(sizeof(T) % sizeof(int) == 0, "attile::arch::shuffle_words: not whole words");
  int words[sizeof(T) / sizeof(int)];
  std::memcpy(words, &x, sizeof(T));
  for (int& word : words) word = shuffle(word, from);
  std::memcpy(&x, words, sizeof(T));
  return x;
}

/// Returns whether x holds for any of the lanes.
ATTILE_DEVICE bool any_lane(bool x, unsigned lanes = kAllLanes) {
  return __any_sync(lanes, x) != 0;
}

/// Returns the lowest lane for which x holds; kWarpSize where there is none.
ATTILE_DEVICE int first_lane(bool x, unsigned lanes = kAllLanes) {
  const unsigned found = __ballot_sync(lanes, x);
  return found == 0 ? kWarpSize : __ffs(static_cast<int>(found)) - 1;
}

/// Returns for how many of the lanes x holds.
ATTILE_DEVICE int count_lanes(bool x, unsigned lanes = kAllLanes) {
  return __popc(__ballot_sync(lanes, x));
}

}  // namespace attile::arch
