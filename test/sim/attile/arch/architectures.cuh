// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/status.h>

#include "sim/machine.h"

// The simulated counterpart of include/attile/arch/architectures.cuh: code for compute capability
// 9.0 on a device of it.

namespace attile::arch {

inline constexpr int kArchitectures[] = {900};

constexpr int shared_kb(int) { return static_cast<int>(sim::kMaxSharedBytes / 1024); }

template <class Condition>
constexpr bool compiled_for(const Condition& condition) {
  return condition(kArchitectures[0]);
}

inline int device_shared_kb() { return shared_kb(kArchitectures[0]); }

template <class... Params>
bool lacks(void (*)(Params...), int) {
  return false;
}

template <class... Params>
bool is_empty(void (*)(Params...)) {
  return false;
}

inline int device_architecture() { return kArchitectures[0]; }

template <class... Params>
Check check_architecture(void (*)(Params...), int) {
  return {};
}

}  // namespace attile::arch
