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
  kTurn0 = 6          ///< the turn of the first one, of the forward pass; others follow
};

/// The most consumer warpgroups that the numbers above have room for.
inline constexpr int kMostConsumers =
    static_cast<int>(NamedBarrier::kTurn0) - static_cast<int>(NamedBarrier::kConsumer0);

/// Waits for all threads of all consumer warpgroups.
template <class Traits>
ATTILE_DEVICE void all_consumers_barrier() {
  static_assert(Traits::kConsumers <= kMostConsumers,
                "attile::sm90: named barriers are for up to 4 consumer warpgroups");
  constexpr int kId = static_cast<int>(NamedBarrier::kAllConsumers);
  arch::barrier(kId, Traits::kConsumers * arch::kWarpgroupSize);
}

/// Waits for all threads of one consumer warpgroup.
ATTILE_DEVICE void consumer_barrier(int warpgroup) {
  constexpr int kId = static_cast<int>(NamedBarrier::kConsumer0);
  arch::barrier(kId + warpgroup, arch::kWarpgroupSize);
}

/// Waits until it is the turn of a consumer warpgroup to begin S: until the one before it has
/// signalled that (CUTLASS has an OrderedSequenceBarrier for such an order). Scope all threads of
/// the warpgroup that has the turn.
ATTILE_DEVICE void await_turn(int warpgroup) {
  constexpr int kId = static_cast<int>(NamedBarrier::kTurn0);
  arch::barrier(kId + warpgroup, 2 * arch::kWarpgroupSize);
}

/// Signals that it is the turn of a consumer warpgroup. The last signal of a block, to its first
/// consumer, is one that nobody waits for. Scope all threads of the warpgroup before it.
ATTILE_DEVICE void signal_turn_of(int warpgroup) {
  constexpr int kId = static_cast<int>(NamedBarrier::kTurn0);
  arch::barrier_arrive(kId + warpgroup, 2 * arch::kWarpgroupSize);
}

}  // namespace attile::sm90
