// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/vec.h>

#include <source_location>

#include "sim/machine.h"

// The simulated counterpart of include/attile/arch/atomic.cuh.

namespace attile::arch {

inline void atomic_add(float* address, float x,
                       std::source_location at = std::source_location::current()) {
  sim::atomic_add(address, x, at);
}

inline constexpr bool kAddsVectors = true;

inline void atomic_add(float* address, const Float4& x,
                       std::source_location at = std::source_location::current()) {
  sim::atomic_add(address, x, at);
}

inline void atomic_max(float* address, float x,
                       std::source_location at = std::source_location::current()) {
  sim::atomic_max(address, x, at);
}

inline int fetch_add(int* address, int x,
                     std::source_location at = std::source_location::current()) {
  return sim::fetch_add(address, x, at);
}

inline int fetch_add_acq_rel(int* address, int x,
                             std::source_location at = std::source_location::current()) {
  return sim::fetch_add_acq_rel(address, x, at);
}

inline int load_acquire(const int* address,
                        std::source_location at = std::source_location::current()) {
  return sim::load_acquire(address, at);
}

inline void store_release(int* address, int x,
                          std::source_location at = std::source_location::current()) {
  sim::store_release(address, x, at);
}

}  // namespace attile::arch
