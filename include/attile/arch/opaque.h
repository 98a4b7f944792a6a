// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>

namespace attile::arch {

/// An integer, of which the compiler knows nothing: what a loop derives from it is worked out in
/// every step, for a few instructions, instead of waiting in registers that the tiles need.
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
