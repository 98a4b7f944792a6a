// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/vec.h>

#include "sim/machine.h"

// The simulated counterpart of include/attile/arch/memory.cuh. Each place that calls these is an
// instruction of its own.

namespace attile::arch {

template <int N, class T>
[[gnu::always_inline]] inline Vec<T, N> load(const T* p) {
  Vec<T, N> x;
  sim::load(&x, p, sizeof x);
  return x;
}

template <class T, int N>
[[gnu::always_inline]] inline void store(T* p, const Vec<T, N>& x) {
  sim::store(p, &x, sizeof x);
}

inline void prefetch(const void*) {}

}  // namespace attile::arch
