// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>

#include <cstdint>

namespace attile::arch {

/// Returns the address that instructions on shared memory take. `p` points into the block's shared
/// memory.
/// Units: bytes.
ATTILE_DEVICE std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}

}  // namespace attile::arch
