// SPDX-License-Identifier: MIT
#pragma once

#include <source_location>

#include "sim/machine.h"

// The simulated counterpart of include/attile/arch/cluster.cuh.

namespace attile::arch {

inline constexpr int kMaxClusterBlocks = 8;

inline int cluster_rank() { return sim::cluster_rank(); }
inline int cluster_size() { return sim::cluster_size(); }

inline void cluster_arrive(std::source_location at = std::source_location::current()) {
  sim::cluster_arrive(at);
}

inline void cluster_wait(std::source_location at = std::source_location::current()) {
  sim::cluster_wait(at);
}

inline void cluster_barrier(std::source_location at = std::source_location::current()) {
  sim::cluster_arrive(at);
  sim::cluster_wait(at);
}

}  // namespace attile::arch
