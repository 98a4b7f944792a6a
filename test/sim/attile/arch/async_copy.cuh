// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "sim/machine.h"

// The simulated counterpart of include/attile/arch/async_copy.cuh.

namespace attile::arch {

enum class Eviction { kOldest, kReadOnce };

template <Eviction = Eviction::kOldest>
[[gnu::always_inline]] inline void async_copy_16(std::uint32_t shared, const void* from,
                                                 bool there) {
  sim::async_copy(shared, from, 16, there);
}
[[gnu::always_inline]] inline void async_copy_part_of_16(std::uint32_t shared, const void* from,
                                                         int bytes) {
  if (bytes > 0) sim::async_copy(shared, from, static_cast<std::size_t>(bytes), true);
  if (bytes < 16)
    sim::async_copy(shared + bytes, nullptr, static_cast<std::size_t>(16 - bytes), false);
}
[[gnu::always_inline]] inline void async_copy_4(std::uint32_t shared, const void* from,
                                                bool there) {
  sim::async_copy(shared, from, 4, there);
}

inline void async_copy_commit() { sim::async_commit(); }

template <int kPending>
void async_copy_wait() {
  sim::async_wait(kPending);
}

}  // namespace attile::arch
