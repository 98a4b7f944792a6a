// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <source_location>

#include "sim/machine.h"
#include "sim/values.h"

// The simulated counterpart of include/attile/arch/matrix.cuh.

namespace attile::arch {

template <int kCount>
[[gnu::always_inline]] inline void load_matrices(
    std::uint32_t (&r)[kCount], std::uint32_t shared,
    std::source_location at = std::source_location::current()) {
  sim::load_matrices(r, shared, false, at);
}

template <int kCount>
[[gnu::always_inline]] inline void load_matrices_transposed(
    std::uint32_t (&r)[kCount], std::uint32_t shared,
    std::source_location at = std::source_location::current()) {
  sim::load_matrices(r, shared, true, at);
}

[[gnu::always_inline]] inline void store_matrices(
    std::uint32_t shared, const std::uint32_t (&r)[4],
    std::source_location at = std::source_location::current()) {
  sim::store_matrices(shared, r, at);
}

template <class T>
void mma_m16n8k16(float& d0, float& d1, float& d2, float& d3, const std::uint32_t (&a)[4],
                  std::uint32_t b0, std::uint32_t b1,
                  std::source_location at = std::source_location::current()) {
  float d[4] = {d0, d1, d2, d3};
  const std::uint32_t b[2] = {b0, b1};
  sim::mma_m16n8k16(d, a, b, sim::values_of<T>(), at);
  d0 = d[0], d1 = d[1], d2 = d[2], d3 = d[3];
}

inline void mma_m16n8k8_tf32(float& d0, float& d1, float& d2, float& d3,
                             const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                             std::source_location at = std::source_location::current()) {
  float d[4] = {d0, d1, d2, d3};
  const std::uint32_t b[2] = {b0, b1};
  sim::mma_m16n8k8_tf32(d, a, b, at);
  d0 = d[0], d1 = d[1], d2 = d[2], d3 = d[3];
}

}  // namespace attile::arch
