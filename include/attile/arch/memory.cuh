// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>
#include <attile/core/vec.h>

// Loads and stores of vectors in device or shared memory, each by one instruction.

namespace attile::arch {

/// Loads N neighbours from p on. Units: p is aligned to sizeof(T) * N bytes, which is 2 to 16.
template <int N, class T>
ATTILE_DEVICE Vec<T, N> load(const T* p) {
  return *reinterpret_cast<const Vec<T, N>*>(p);
}

/// Stores x to p[0], p[1], ... Units: as for `load`.
template <class T, int N>
ATTILE_DEVICE void store(T* p, const Vec<T, N>& x) {
  *reinterpret_cast<Vec<T, N>*>(p) = x;
}

/// Begins to bring the 128 bytes around `from` into the level-2 cache, where all reads and writes
/// of device memory meet: no result depends on it, whoever writes there now.
ATTILE_DEVICE void prefetch(const void* from) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(from)));
}

}  // namespace attile::arch
