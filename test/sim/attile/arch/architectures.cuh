// SPDX-License-Identifier: MIT
#pragma once

#include "sim/machine.h"

// The simulated counterpart of include/attile/arch/architectures.cuh: code for compute capability
// 9.0.

namespace attile::arch {

inline constexpr int kArchitectures[] = {900};

constexpr int shared_kb(int) { return static_cast<int>(sim::kMaxSharedBytes / 1024); }

template <class Condition>
constexpr bool compiled_for(const Condition& condition) {
  return condition(kArchitectures[0]);
}

}  // namespace attile::arch
