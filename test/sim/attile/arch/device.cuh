// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/architectures.cuh>
#include <attile/core/status.h>

#include <climits>
#include <cstddef>
#include <cstdint>

#include "sim/machine.h"

// The simulated counterpart of include/attile/arch/device.cuh: a device of compute capability 9.0.

namespace attile::arch {

/// Fewer than a launch has tiles, so that blocks of a persistent kernel compute several.
inline int multiprocessors() { return sim::kMostResident; }

inline int device_architecture() { return kArchitectures[0]; }
inline int device_shared_kb() { return shared_kb(kArchitectures[0]); }

template <class... Params>
bool lacks(void (*)(Params...), int) {
  return false;
}

template <class... Params>
bool is_empty(void (*)(Params...)) {
  return false;
}

template <class... Params>
bool has_own_code(void (*)(Params...), int architecture) {
  return architecture == device_architecture();
}

template <class... Params>
Check check_launch(void (*)(Params...), std::size_t shared_bytes, std::int64_t blocks, int = 0) {
  if (blocks > INT_MAX) return refuse("the problem has more than 2^31 - 1 tiles");
  if (shared_bytes > sim::kMaxSharedBytes) {
    return {cudaErrorInvalidConfiguration,
            "the kernel's tiles need more shared memory than a block of this device can have"};
  }
  return {};
}

}  // namespace attile::arch
