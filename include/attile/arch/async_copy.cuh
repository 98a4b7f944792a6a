// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>

#include <cstdint>

// Copies from device to shared memory for which no thread waits (compute capability 8.0 and later,
// "cp.async" in the PTX ISA). The thread that issued them sees them after `async_copy_wait`, the
// others of its block after a barrier behind that.

namespace attile::arch {

/// 16 bytes to `shared` from `from`; zeros, and nothing is read, where `there` is false.
/// Units    `shared` as `shared_address` gives it; both aligned to 16 bytes.
ATTILE_DEVICE void async_copy_16(std::uint32_t shared, const void* from, bool there) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared),
               "l"(__cvta_generic_to_global(from)), "r"(there ? 16 : 0)
               : "memory");
#endif
}

/// Closes this thread's group: the copies it issued since the last call, none allowed.
ATTILE_DEVICE void async_copy_commit() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/// Waits until at most kPending of this thread's latest groups are still under way.
template <int kPending>
ATTILE_DEVICE void async_copy_wait() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#endif
}

}  // namespace attile::arch
