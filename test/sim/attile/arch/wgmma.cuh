// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/warpgroup.cuh>
#include <attile/arch/wgmma_operand.h>

#include <cstdint>
#include <source_location>

#include "sim/machine.h"
#include "sim/values.h"

// The simulated counterpart of include/attile/arch/wgmma.cuh.

namespace attile::arch {

template <class T, int N, bool kTransposedB, bool kTransposedA = false>
[[gnu::always_inline]] inline void wgmma_m64k16(
    float (&d)[2][N / 4], std::uint64_t a, std::uint64_t b, bool accumulate,
    std::source_location at = std::source_location::current()) {
  static_assert(N >= 16 && N <= 256 && N % 16 == 0);
  sim::begin_product({N, a, b, false, kTransposedA, kTransposedB, accumulate, 2,
                      sim::values_of<T>(), sim::values_of<T>()},
                     &d[0][0], nullptr, at);
}

template <class T, int N, bool kTransposedB>
[[gnu::always_inline]] inline void wgmma_m64k16(
    float (&d)[2][N / 4], const std::uint32_t (&a)[4], std::uint64_t b, bool accumulate,
    std::source_location at = std::source_location::current()) {
  static_assert(N >= 16 && N <= 256 && N % 16 == 0);
  sim::begin_product(
      {N, 0, b, true, false, kTransposedB, accumulate, 2, sim::values_of<T>(), sim::values_of<T>()},
      &d[0][0], a, at);
}

template <class TA, class TB, int N>
[[gnu::always_inline]] inline void wgmma_m64k32(
    float (&d)[2][N / 4], std::uint64_t a, std::uint64_t b, bool accumulate,
    std::source_location at = std::source_location::current()) {
  static_assert(N >= 16 && N <= 256 && N % 16 == 0);
  sim::begin_product(
      {N, a, b, false, false, false, accumulate, 1, sim::values_of<TA>(), sim::values_of<TB>()},
      &d[0][0], nullptr, at);
}

template <class TA, class TB, int N>
[[gnu::always_inline]] inline void wgmma_m64k32(
    float (&d)[2][N / 4], const std::uint32_t (&a)[4], std::uint64_t b, bool accumulate,
    std::source_location at = std::source_location::current()) {
  static_assert(N >= 16 && N <= 256 && N % 16 == 0);
  sim::begin_product(
      {N, 0, b, true, false, false, accumulate, 1, sim::values_of<TA>(), sim::values_of<TB>()},
      &d[0][0], a, at);
}

inline void wgmma_fence(std::source_location at = std::source_location::current()) {
  sim::fence_registers(at);
}

inline void wgmma_commit(std::source_location at = std::source_location::current()) {
  sim::close_products(at);
}

template <int kPending>
void wgmma_wait(std::source_location at = std::source_location::current()) {
  sim::wait_for_products(kPending, at);
}

template <int N>
void fence_operand(float (&)[2][N]) {}

}  // namespace attile::arch
