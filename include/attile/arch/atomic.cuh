// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>
#include <attile/core/vec.h>

// What blocks share in device memory.

namespace attile::arch {

/// *address += x, as one relaxed atomic operation; the order among threads is not fixed.
ATTILE_DEVICE void atomic_add(float* address, float x) { atomicAdd(address, x); }

/// Whether four floats can be added by one instruction.
#if __CUDA_ARCH__ >= 900
inline constexpr bool kAddsVectors = true;
#else
inline constexpr bool kAddsVectors = false;
#endif

/// address[i] += x[i], each as `atomic_add`; aligned to 16 bytes. Only where kAddsVectors.
ATTILE_DEVICE void atomic_add(float* address, const Float4& x) {
#if __CUDA_ARCH__ >= 900
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(
                   __cvta_generic_to_global(address)),
               "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3])
               : "memory");
#endif
}

/// *address += x, likewise; returns what was there before.
ATTILE_DEVICE int fetch_add(int* address, int x) { return atomicAdd(address, x); }

/// *address. What the thread that stored this value had seen before (with `store_release`), this
/// thread sees after it, and those of its block behind the next barrier (PTX ISA, "Causality
/// order").
ATTILE_DEVICE int load_acquire(const int* address) {
  int x;
  asm volatile("ld.acquire.gpu.s32 %0, [%1];" : "=r"(x) : "l"(address) : "memory");
  return x;
}

/// *address = x, after all that this thread, and before the last barrier its block, has written.
ATTILE_DEVICE void store_release(int* address, int x) {
  asm volatile("st.release.gpu.s32 [%0], %1;" ::"l"(address), "r"(x) : "memory");
}

}  // namespace attile::arch
