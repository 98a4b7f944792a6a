// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/boxed_tensor.h>
#include <attile/arch/mbarrier.cuh>
#include <attile/arch/shared_memory.cuh>

#include <cstdint>

#include "sim/machine.h"

// The simulated counterpart of include/attile/arch/bulk_tensor.cuh.

namespace attile::arch {

struct TensorMap {
  BoxedTensor tensor;
};

[[gnu::always_inline]] inline void bulk_load(std::uint32_t shared, const TensorMap& map,
                                             const TmaCoord& at, Mbarrier* barrier) {
  sim::bulk_load(shared, map.tensor, at, barrier);
}

[[gnu::always_inline]] inline void bulk_load_multicast(std::uint32_t shared, const TensorMap& map,
                                                       const TmaCoord& at, Mbarrier* barrier,
                                                       std::uint16_t blocks) {
  sim::bulk_load_multicast(shared, map.tensor, at, barrier, blocks);
}

inline void prefetch_map(const TensorMap&) {}

/// As a box of rows of 16 bytes: those have no swizzle.
[[gnu::always_inline]] inline void bulk_load(std::uint32_t shared, const void* from, int bytes,
                                             Mbarrier* barrier) {
  const int rows = bytes / 16;
  sim::bulk_load(shared, {from, {8, rows, 1, 1, 1}, {2, 16, 16, 16, 16}, {8, rows, 1, 1, 1}}, {},
                 barrier);
}

[[gnu::always_inline]] inline void bulk_store(const TensorMap& map, const TmaCoord& at,
                                              std::uint32_t shared) {
  sim::bulk_store(map.tensor, at, shared);
}

[[gnu::always_inline]] inline void bulk_store(float* to, std::uint32_t shared, int bytes) {
  sim::bulk_store(to, shared, bytes);
}

[[gnu::always_inline]] inline void bulk_add(float* to, std::uint32_t shared, int bytes) {
  sim::bulk_add(to, shared, bytes);
}

inline void bulk_commit() { sim::bulk_commit(); }

template <int kPending>
void bulk_wait_read() {
  sim::bulk_wait_read(kPending);
}

template <int kPending>
void bulk_wait() {
  sim::bulk_wait(kPending);
}

inline void fence_async_proxy() { sim::fence_async_proxy(); }

inline void fence_async_proxy_global() {}  // of device memory one proxy is known here

}  // namespace attile::arch
