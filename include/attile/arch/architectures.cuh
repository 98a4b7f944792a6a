// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>

// The architectures for which a program is compiled. They are numbered as in __CUDA_ARCH__: 100 *
// major + 10 * minor of a compute capability.

namespace attile::arch {

/// The architectures for which nvcc compiles this file; only 0 without a CUDA compiler. All files
/// of a program that run the same kernels must be compiled for the same ones.
inline constexpr int kArchitectures[] = {
#if defined(__CUDA_ARCH_LIST__)
    __CUDA_ARCH_LIST__
#elif ATTILE_CUDA_COMPILER
    750, 800, 860, 900  // the compiler does not say: one of each kind
#else
    0
#endif
};

/// Returns the most shared memory that a block of an architecture can have. Units: KB of 1024
/// bytes.
/// Source   CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
constexpr int shared_kb(int architecture) {
  if (architecture == 800 || architecture == 870) return 163;
  return architecture >= 900 && architecture < 1200 ? 227 : 99;
}

/// Returns whether one of kArchitectures fulfils a condition.
template <class Condition>
constexpr bool compiled_for(const Condition& condition) {
  for (const int architecture : kArchitectures) {
    if (condition(architecture)) return true;
  }
  return false;
}

}  // namespace attile::arch
