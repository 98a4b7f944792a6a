// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>
#include <attile/core/vec.h>

// Atomic and ordered accesses of memory that blocks share in device memory.

namespace attile::arch {

/// Adds x to *address as one relaxed atomic operation; the order among threads is not fixed.
ATTILE_DEVICE void atomic_add(float* address, float x) { atomicAdd(address, x); }

/// Says whether one instruction can add four floats.
#if __CUDA_ARCH__ >= 900
inline constexpr bool kAddsVectors = true;
#else
inline constexpr bool kAddsVectors = false;
#endif

/// Adds x[i] to address[i], each as by `atomic_add`: by one instruction where kAddsVectors.
/// Units    `address` is aligned to 16 bytes.
ATTILE_DEVICE void atomic_add(float* address, const Float4& x) {
#if __CUDA_ARCH__ >= 900
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(
                   __cvta_generic_to_global(address)),
               "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3])
               : "memory");
#else
  for (int i = 0; i < 4; ++i) atomic_add(address + i, x[i]);
#endif
}

/// Makes *address the larger one of itself and x as one relaxed atomic operation.
/// Units    neither is negative: the words of such numbers have their order.
ATTILE_DEVICE void atomic_max(float* address, float x) {
  atomicMax(reinterpret_cast<int*>(address), __float_as_int(x));
}

/// Adds x to *address as one relaxed atomic operation, and returns the value before.
ATTILE_DEVICE int fetch_add(int* address, int x) { return atomicAdd(address, x); }

/// Adds x to *address, and returns the value before. It is both a `store_release` of the sum and a
/// `load_acquire` of the value before: who finds what others have added has seen what they had.
ATTILE_DEVICE int fetch_add_acq_rel(int* address, int x) {
  int before;
  asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(__cvta_generic_to_global(address)), "r"(x)
               : "memory");
  return before;
}

/// Returns *address, and makes visible what the thread that stored the value (`store_release`) had
/// seen before: to this thread after the load, and to the others of its block behind the next
/// barrier (PTX ISA, "Causality order"). A plain load would let them read it too early.
ATTILE_DEVICE int load_acquire(const int* address) {
  int x;
  asm volatile("ld.acquire.gpu.s32 %0, [%1];" : "=r"(x) : "l"(address) : "memory");
  return x;
}

/// Stores x to *address after all earlier writes of this thread, and after those of its block
/// before the last barrier. A thread could otherwise read x before those writes are visible.
ATTILE_DEVICE void store_release(int* address, int x) {
  asm volatile("st.release.gpu.s32 [%0], %1;" ::"l"(address), "r"(x) : "memory");
}

}  // namespace attile::arch
