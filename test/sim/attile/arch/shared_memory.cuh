// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "sim/machine.h"

// The simulated counterpart of include/attile/arch/shared_memory.cuh.

namespace attile::arch {

inline std::uint32_t shared_address(const void* p) { return sim::shared_address(p); }

}  // namespace attile::arch
