// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>

namespace attile::arch {

/// Returns x as an integer of which the compiler knows nothing. Values that a loop derives from it
/// are recomputed in every iteration, by a few instructions, instead of occupying registers that
/// the tiles need.
template <class T>
ATTILE_HOST_DEVICE T opaque(T x) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(T) == 8) {
    asm volatile("" : "+l"(x));
  } else {
    asm volatile("" : "+r"(x));
  }
#endif
  return x;
}

}  // namespace attile::arch
