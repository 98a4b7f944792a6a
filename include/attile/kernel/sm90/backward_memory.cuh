// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/bulk_tensor.cuh>
#include <attile/arch/mbarrier.cuh>
#include <attile/arch/memory.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/vec.h>
#include <attile/kernel/dq_mode.h>
#include <attile/kernel/sm90/backward_traits.cuh>
#include <attile/tile/ring.cuh>

#include <cstddef>

namespace attile::sm90 {

/// This warp arrives. Scope    all lanes of the warp.
ATTILE_DEVICE void arrive_warp(arch::Mbarrier* barrier) {
  arch::warp_barrier();
  if (arch::thread_index() % arch::kWarpSize == 0) arch::mbarrier_arrive(barrier);
}

/// A place in shared memory that one warpgroup writes and another one reads, in turns.
/// Scope    of its functions    all lanes of a warp.
struct Handover {
  arch::Mbarrier* made;
  arch::Mbarrier* taken;
  int parity;

  /// Before it is written.
  ATTILE_DEVICE void await_taken() const { arch::mbarrier_wait(taken, parity ^ 1); }
  ATTILE_DEVICE void pass_made() const { arrive_warp(made); }
  /// Before it is read.
  ATTILE_DEVICE void await_made() const { arch::mbarrier_wait(made, parity); }
  ATTILE_DEVICE void pass_taken() const { arrive_warp(taken); }
};

/// A block's shared memory.
template <class Traits>
struct BackwardMemory {
  using KRing = typename Traits::KRing;
  using VRing = typename Traits::VRing;
  using QRing = typename Traits::QRing;
  using DoRing = typename Traits::DoRing;

  unsigned char* data;

  ATTILE_DEVICE KRing k() const { return {data, barriers()}; }
  ATTILE_DEVICE VRing v() const { return {data + Traits::kVPlace, barriers() + 2}; }
  ATTILE_DEVICE QRing q() const { return {data + Traits::kQPlace, barriers() + 4}; }
  ATTILE_DEVICE DoRing dout() const {
    return {data + Traits::kDoPlace, barriers() + 4 + 2 * Traits::kStages};
  }
  /// What comes with a tile of Q.
  ATTILE_DEVICE typename Traits::Statistics statistics(int stage) const {
    return {data + Traits::kStatPlace + stage * Traits::Statistics::kBytes};
  }
  /// dS^T of every other step.
  ATTILE_DEVICE typename Traits::DsTile ds(int step) const {
    return {data + Traits::kDsPlace + (step & 1) * Traits::DsTile::kBytes};
  }
  /// P of the parts of tiles in turn, as it lies in registers.
  ATTILE_DEVICE float* p(int part) const {
    return reinterpret_cast<float*>(data + Traits::kPPlace) +
           part % Traits::kPBuffers * (Traits::kPartRows * Traits::kBc);
  }
  /// A warpgroup's rows of dK and dV.
  ATTILE_DEVICE typename Traits::DkTile dk(int group) const {
    return {data + Traits::kDkPlace + group * Traits::DkTile::kBytes};
  }
  ATTILE_DEVICE typename Traits::DvTile dv(int group) const {
    return {data + Traits::kDvPlace + group * Traits::DvTile::kBytes};
  }
  /// dQ on its way to the sum, as it lies there.
  ATTILE_DEVICE float* dq() const { return reinterpret_cast<float*>(data + Traits::kDqPlace); }

  /// Ends a phase with each step of the warpgroups that compute.
  ATTILE_DEVICE arch::Mbarrier* step_barrier() const {
    return barriers() + 4 + 4 * Traits::kStages;
  }
  /// End a phase when what a sender takes of dQ is staged, and when a warpgroup's place of it, or
  /// kInOrder the first one's, has been read.
  ATTILE_DEVICE arch::Mbarrier* dq_staged(int sender) const { return step_barrier() + 1 + sender; }
  ATTILE_DEVICE arch::Mbarrier* dq_sent(int group) const {
    return dq_staged(Traits::kSenders + (Traits::kDqMode == DqMode::kInOrder ? 0 : group));
  }
  /// kByRoles: head and first row of every other step's dS, or -1.
  ATTILE_DEVICE int* dq_rows(int ds_tile) const {
    return reinterpret_cast<int*>(data + Traits::kDqRowsPlace) + 4 * ds_tile;
  }
  /// Whether the sum is to be written, as `turn_handover` hands it over.
  ATTILE_DEVICE int* writes_sum() const { return dq_rows(Traits::kDsTiles); }

  /// Ends its only phase when the sum of dQ can be added to, kClearsInPass.
  ATTILE_DEVICE arch::Mbarrier* sum_cleared() const {
    return barriers() + Traits::kBarriers - 1 - Traits::kLands;
  }
  ATTILE_DEVICE tile::Landing landing() const {
    return tile::Landing(barriers() + Traits::kBarriers - 1);
  }
  ATTILE_DEVICE void await_zeros() const {
    if constexpr (Traits::kClearsInPass) arch::mbarrier_wait(sum_cleared(), 0);
  }

  /// dS of a step, and P of a part, kByRoles.
  ATTILE_DEVICE Handover ds_handover(int step) const {
    return handover(step % Traits::kDsTiles, step / Traits::kDsTiles);
  }
  ATTILE_DEVICE Handover p_handover(int part) const {
    return handover(Traits::kDsTiles + part % Traits::kPBuffers, part / Traits::kPBuffers);
  }
  /// The turn to add dQ of a step, and that it has been added, kKeepsTurns.
  ATTILE_DEVICE Handover turn_handover(int step) const {
    return handover(Traits::kBarrierPairs, step);
  }
  ATTILE_DEVICE Handover added_handover(int step) const {
    return handover(Traits::kBarrierPairs + 1, step);
  }

  /// Scope    all threads of the block.
  ATTILE_DEVICE void init() const {
    constexpr int kGroupWarps = arch::kWarpgroupSize / arch::kWarpSize;
    constexpr int kReaders = (Traits::kByRoles ? 2 : Traits::kGroups) * kGroupWarps;
    if (arch::thread_index() == 0) {
      k().init(kReaders);
      v().init(kReaders);
      q().init(kReaders);
      dout().init(kReaders);
      if constexpr (Traits::kByRoles) {
        for (int i = 0; i < Traits::kDsTiles + Traits::kPBuffers; ++i) {
          arch::mbarrier_init(handover(i, 0).made, kGroupWarps);
          arch::mbarrier_init(handover(i, 0).taken, kGroupWarps);
        }
      } else {
        arch::mbarrier_init(step_barrier(), kReaders);
        constexpr bool kInOrder = Traits::kDqMode == DqMode::kInOrder;
        for (int i = 0; Traits::kBulkDq && i < Traits::kSenders; ++i) {
          arch::mbarrier_init(dq_staged(i), kInOrder ? kReaders : kGroupWarps);
          if (i == 0 || !kInOrder) arch::mbarrier_init(dq_sent(i), 1);
        }
      }
      if constexpr (Traits::kKeepsTurns) {
        constexpr int kAdders = (Traits::kByRoles ? 1 : Traits::kGroups) * kGroupWarps;
        arch::mbarrier_init(turn_handover(0).made, 1);
        arch::mbarrier_init(turn_handover(0).taken, kAdders);
        arch::mbarrier_init(added_handover(0).made, kAdders);
        arch::mbarrier_init(added_handover(0).taken, 1);
      }
      if constexpr (Traits::kClearsInPass) arch::mbarrier_init(sum_cleared(), 1);
      if constexpr (Traits::kLands) {
        arch::mbarrier_init(barriers() + Traits::kBarriers - 1, 1);
      }
      arch::mbarrier_publish();
      arch::fence_async_proxy();  // what was written here before is not written after copies
    }
    arch::barrier();  // nobody uses a barrier that is not there yet
  }

 private:
  ATTILE_DEVICE Handover handover(int i, int turn) const {
    return {step_barrier() + 2 * i, step_barrier() + 2 * i + 1, turn & 1};
  }
  ATTILE_DEVICE arch::Mbarrier* barriers() const {
    return reinterpret_cast<arch::Mbarrier*>(data + Traits::kBarrierPlace);
  }
};

/// A tile of rows of Q that has come, and what `load_tiles` has said of it.
template <class Traits>
struct QueryTile {
  using Place = tile::RingPlace<Traits::kStages>;

  Place at;
  int head, row0;
  bool edge;

  ATTILE_DEVICE QueryTile(const BackwardMemory<Traits>& smem, const Place& place) : at(place) {
    static_cast<void>(smem.q().wait(at));
    const Vec<int, 4> said = arch::load<4>(smem.statistics(at.stage).step());
    head = arch::uniform(said[0]);
    row0 = arch::uniform(said[1]);
    edge = arch::uniform(said[2]) != 0;
  }
  ATTILE_DEVICE bool is_none() const { return head < 0; }
};

}  // namespace attile::sm90
