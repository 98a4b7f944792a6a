// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/thread.cuh>
#include <attile/core/config.h>

#include <cstdint>

// Asynchronous copies from device to shared memory (compute capability 8.0 and later, "cp.async" in
// the PTX ISA). The thread that issued a copy sees its bytes after `async_copy_wait`, and the other
// threads of its block see them after a barrier behind that.

namespace attile::arch {

/// Says which bytes the level-2 cache gives up first, when it makes room: those that are read once,
/// or the oldest.
enum class Eviction { kOldest, kReadOnce };

/// Begins to copy 16 bytes from `from` to `shared`. Where `there` is false it writes zeros, and
/// reads nothing.
/// Units    `shared` as `shared_address` gives it; both aligned to 16 bytes.
template <Eviction kEviction = Eviction::kOldest>
ATTILE_DEVICE void async_copy_16(std::uint32_t shared, const void* from, bool there) {
#if __CUDA_ARCH__ >= 800
  if constexpr (kEviction == Eviction::kReadOnce) {
    std::uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0;" : "=l"(policy));
    asm volatile(
        "cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2, %3;" ::"r"(shared),
        "l"(__cvta_generic_to_global(from)), "r"(there ? 16 : 0), "l"(policy)
        : "memory");
  } else {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared),
                 "l"(__cvta_generic_to_global(from)), "r"(there ? 16 : 0)
                 : "memory");
  }
#else
  trap();
#endif
}

/// Begins to copy the first `bytes` of these 16, 0 to 16, and writes zeros behind them. Others are
/// not read.
ATTILE_DEVICE void async_copy_part_of_16(std::uint32_t shared, const void* from, int bytes) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared),
               "l"(__cvta_generic_to_global(from)), "r"(bytes)
               : "memory");
#else
  trap();
#endif
}

/// Does the same as async_copy_16 with 4 bytes, both aligned to 4.
ATTILE_DEVICE void async_copy_4(std::uint32_t shared, const void* from, bool there) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared),
               "l"(__cvta_generic_to_global(from)), "r"(there ? 4 : 0)
               : "memory");
#else
  trap();
#endif
}

/// Closes this thread's commit group, which has the copies since the last call; there may be none.
ATTILE_DEVICE void async_copy_commit() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#else
  trap();
#endif
}

/// Waits until at most kPending of this thread's latest commit groups are unfinished. Without the
/// wait the bytes of a copy could be read before they are written.
template <int kPending>
ATTILE_DEVICE void async_copy_wait() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#else
  trap();
#endif
}

}  // namespace attile::arch
