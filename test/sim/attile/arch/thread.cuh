// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>

#include <bit>
#include <cstdint>
#include <source_location>

#include "sim/machine.h"

// The simulated counterpart of include/attile/arch/thread.cuh.

namespace attile::arch {

inline constexpr int kWarpSize = sim::kWarpSize;

inline int thread_index() { return sim::thread_index(); }
inline int block_index() { return sim::block_index(); }

inline void barrier(std::source_location at = std::source_location::current()) {
  sim::block_barrier(at);
}

inline void warp_barrier(std::source_location at = std::source_location::current()) {
  sim::warp_barrier(sim::kFullMask, at);
}

inline float shuffle_xor(float x, int mask,
                         std::source_location at = std::source_location::current()) {
  const sim::Lanes lanes = sim::exchange(sim::kFullMask, std::bit_cast<std::uint32_t>(x), at);
  return std::bit_cast<float>(lanes[(sim::thread_index() % kWarpSize) ^ mask]);
}

inline int first_lane(bool x, std::source_location at = std::source_location::current()) {
  const sim::Lanes lanes = sim::exchange(sim::kFullMask, x, at);
  for (int lane = 0; lane < kWarpSize; ++lane) {
    if (lanes[lane] != 0) return lane;
  }
  return kWarpSize;
}

}  // namespace attile::arch
