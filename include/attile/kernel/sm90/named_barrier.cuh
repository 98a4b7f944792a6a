// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/thread.cuh>
#include <attile/arch/warpgroup.cuh>
#include <attile/core/config.h>

namespace attile::sm90 {

/// The named barriers of a block. Barrier 0 is the one of all its threads.
enum class NamedBarrier {
  kAllConsumers = 1,  ///< all consumer warpgroups, of the backward pass
  kConsumer0 = 2,     ///< the first consumer warpgroup; those of the others follow
  kTurn0 = 5          ///< the tensor cores for the first one, of the forward pass; others follow
};

/// Waits for all threads of all consumer warpgroups.
template <class Traits>
ATTILE_DEVICE void all_consumers_barrier() {
  constexpr int kId = static_cast<int>(NamedBarrier::kAllConsumers);
  arch::barrier(kId, Traits::kConsumers * arch::kWarpgroupSize);
}

/// Waits for all threads of one consumer warpgroup.
ATTILE_DEVICE void consumer_barrier(int warpgroup) {
  constexpr int kId = static_cast<int>(NamedBarrier::kConsumer0);
  arch::barrier(kId + warpgroup, arch::kWarpgroupSize);
}

/// Waits until the consumer warpgroup before this one has released the tensor cores to it.
ATTILE_DEVICE void await_turn(int warpgroup) {
  constexpr int kId = static_cast<int>(NamedBarrier::kTurn0);
  arch::barrier(kId + warpgroup, 2 * arch::kWarpgroupSize);
}

/// Releases the tensor cores to a consumer warpgroup.
ATTILE_DEVICE void signal_turn_of(int warpgroup) {
  constexpr int kId = static_cast<int>(NamedBarrier::kTurn0);
  arch::barrier_arrive(kId + warpgroup, 2 * arch::kWarpgroupSize);
}

}  // namespace attile::sm90
