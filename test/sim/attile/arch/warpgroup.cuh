// SPDX-License-Identifier: MIT
#pragma once

#include <source_location>

#include "sim/machine.h"

// The simulated counterpart of include/attile/arch/warpgroup.cuh.

namespace attile::arch {

inline constexpr int kWarpgroupSize = 128;

inline constexpr bool kHasWarpgroups = true;

template <int kCount>
void reg_dealloc(std::source_location at = std::source_location::current()) {
  sim::set_registers(kCount, false, at);
}

template <int kCount>
void reg_alloc(std::source_location at = std::source_location::current()) {
  sim::set_registers(kCount, true, at);
}

}  // namespace attile::arch
