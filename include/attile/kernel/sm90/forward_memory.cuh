// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/cluster.cuh>
#include <attile/arch/mbarrier.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/kernel/sm90/forward_schedule.cuh>
#include <attile/kernel/sm90/forward_traits.cuh>
#include <attile/tile/ring.cuh>

namespace attile::sm90 {

/// A block's shared memory.
template <class Traits>
struct ForwardMemory {
  using QRing = typename Traits::QRing;
  using KRing = typename Traits::KRing;
  using VRing = typename Traits::VRing;

  unsigned char* data;

  ATTILE_DEVICE QRing q(int group) const {
    return {data + Traits::kQPlace + group * QRing::kBytes,
            barriers() + 2 * (group * Traits::kQStages)};
  }
  ATTILE_DEVICE KRing k() const {
    return {data, barriers() + 2 * (Traits::kGroups * Traits::kQStages)};
  }
  ATTILE_DEVICE VRing v() const {
    return {data + Traits::kVPlace,
            barriers() + 2 * (Traits::kGroups * Traits::kQStages + Traits::kStages)};
  }
  /// Which rows its part of Q is, of the block's tile `turn`.
  ATTILE_DEVICE GroupRows<Traits>& rows(int group, int turn) const {
    constexpr int kSlots = Traits::kRowSlots;
    static_assert(kSlots * sizeof(GroupRows<Traits>) == Traits::kRowsBytes,
                  "attile::sm90::ForwardMemory: kRowsBytes is kRowSlots GroupRows");
    return reinterpret_cast<GroupRows<Traits>*>(data +
                                                Traits::kRowsPlace)[group * kSlots + turn % kSlots];
  }
  /// Where a warpgroup brings its rows of O together, some columns at a time.
  ATTILE_DEVICE typename Traits::OTile o(int group) const {
    return {data + Traits::kOPlace + group * Traits::OTile::kBytes};
  }

  /// Of V (0), or of the Q of warpgroup i - 1: where kLands.
  ATTILE_DEVICE tile::Landing landing(int i) const {
    return tile::Landing(barriers() + Traits::kRingBarriers + i);
  }

  /// Scope    all threads of the block.
  ATTILE_DEVICE void init() const {
    if (arch::thread_index() == 0) {
      for (int group = 0; group < Traits::kGroups; ++group) q(group).init(4);
      k().init(Traits::kGroups * 4);
      v().init(Traits::kGroups * 4);
      for (int i = 0; i < Traits::kLandings; ++i) {
        arch::mbarrier_init(barriers() + Traits::kRingBarriers + i, 1);
      }
      arch::mbarrier_publish();
    }
    if constexpr (Traits::kCluster == 1) {
      arch::barrier();  // nobody uses a barrier that is not there yet
    } else {
      arch::cluster_barrier();
    }
  }

 private:
  ATTILE_DEVICE arch::Mbarrier* barriers() const {
    return reinterpret_cast<arch::Mbarrier*>(data + Traits::kBarrierPlace);
  }
};

}  // namespace attile::sm90
