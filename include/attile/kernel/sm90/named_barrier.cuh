// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/thread.cuh>
#include <attile/arch/warpgroup.cuh>
#include <attile/core/config.h>

namespace attile::sm90 {

/// The named barriers of a block. Barrier 0 is the one of all its threads.
enum class NamedBarrier {
  kConsumers = 1,  ///< all consumer warpgroups
  kConsumer0 = 2   ///< the first consumer warpgroup; those of the others follow
};

/// Waits for all threads of all consumer warpgroups.
template <class Traits>
ATTILE_DEVICE void consumers_barrier() {
  constexpr int kId = static_cast<int>(NamedBarrier::kConsumers);
  arch::barrier(kId, Traits::kConsumers * arch::kWarpgroupSize);
}

/// Waits for all threads of one consumer warpgroup.
ATTILE_DEVICE void consumer_barrier(int warpgroup) {
  constexpr int kId = static_cast<int>(NamedBarrier::kConsumer0);
  arch::barrier(kId + warpgroup, arch::kWarpgroupSize);
}

}  // namespace attile::sm90
