// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/bulk_tensor.cuh>
#include <attile/arch/mbarrier.cuh>
#include <attile/arch/memory.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/vec.h>
#include <attile/kernel/backward/dq_mode.h>
#include <attile/kernel/sm90/backward_traits.cuh>
#include <attile/tile/pipeline.cuh>

#include <cstddef>

namespace attile::sm90 {

/// This warp arrives. Scope    all lanes of the warp.
ATTILE_DEVICE void arrive_warp(arch::Mbarrier* barrier) {
  arch::warp_barrier();
  if (arch::thread_index() % arch::kWarpSize == 0) arch::mbarrier_arrive(barrier);
}

/// The barriers of a slot in shared memory that warps write and other warps read: those of a
/// pipeline stage, without TMA.
/// Scope    of all functions    all lanes of a warp.
struct SlotBarriers {
  arch::Mbarrier* full;
  arch::Mbarrier* empty;
  int parity;

  /// Waits until the slot has been read.
  ATTILE_DEVICE void producer_acquire() const { arch::mbarrier_wait(empty, parity ^ 1); }
  /// Says that this warp has written it.
  ATTILE_DEVICE void producer_commit() const { arrive_warp(full); }
  /// Waits until the slot has been written.
  ATTILE_DEVICE void consumer_wait() const { arch::mbarrier_wait(full, parity); }
  /// Says that this warp has read it.
  ATTILE_DEVICE void consumer_release() const { arrive_warp(empty); }
};

/// A block's shared memory.
template <class Traits>
struct BackwardMemory {
  using KPipeline = typename Traits::KPipeline;
  using VPipeline = typename Traits::VPipeline;
  using QPipeline = typename Traits::QPipeline;
  using DoPipeline = typename Traits::DoPipeline;

  unsigned char* data;

  ATTILE_DEVICE KPipeline k() const { return {data, barriers()}; }
  ATTILE_DEVICE VPipeline v() const { return {data + Traits::kVOffset, barriers() + 2}; }
  ATTILE_DEVICE QPipeline q() const { return {data + Traits::kQOffset, barriers() + 4}; }
  ATTILE_DEVICE DoPipeline dout() const {
    return {data + Traits::kDoOffset, barriers() + 4 + 2 * Traits::kStages};
  }
  /// What comes with a tile of Q.
  ATTILE_DEVICE typename Traits::Statistics statistics(int stage) const {
    return {data + Traits::kStatOffset + stage * Traits::Statistics::kBytes};
  }
  /// dS^T of every other step.
  ATTILE_DEVICE typename Traits::DsTile ds(int step) const {
    return {data + Traits::kDsOffset + (step & 1) * Traits::DsTile::kBytes};
  }
  /// P of the parts of tiles in turn, as it lies in registers.
  ATTILE_DEVICE float* p(int part) const {
    return reinterpret_cast<float*>(data + Traits::kPOffset) +
           part % Traits::kPBuffers * (Traits::kPartRows * Traits::kBc);
  }
  /// A warpgroup's rows of dK and dV.
  ATTILE_DEVICE typename Traits::DkTile dk(int warpgroup) const {
    return {data + Traits::kDkOffset + warpgroup * Traits::DkTile::kBytes};
  }
  ATTILE_DEVICE typename Traits::DvTile dv(int warpgroup) const {
    return {data + Traits::kDvOffset + warpgroup * Traits::DvTile::kBytes};
  }
  /// dQ on its way to the sum, as it lies there.
  ATTILE_DEVICE float* dq() const { return reinterpret_cast<float*>(data + Traits::kDqOffset); }

  /// Ends a phase with each step of the warpgroups that compute.
  ATTILE_DEVICE arch::Mbarrier* step_barrier() const {
    return barriers() + 4 + 4 * Traits::kStages;
  }
  /// End a phase when what a sender takes of dQ is staged, and when a warpgroup's place of it, or
  /// kInOrder the first one's, has been read.
  ATTILE_DEVICE arch::Mbarrier* dq_staged(int sender) const { return step_barrier() + 1 + sender; }
  ATTILE_DEVICE arch::Mbarrier* dq_sent(int warpgroup) const {
    return dq_staged(Traits::kSenders + (Traits::kDqMode == DqMode::kInOrder ? 0 : warpgroup));
  }
  /// kProductPerWarpgroup: head and first row of every other step's dS, or -1.
  ATTILE_DEVICE int* dq_rows(int ds_tile) const {
    return reinterpret_cast<int*>(data + Traits::kDqRowsOffset) + 4 * ds_tile;
  }
  /// Whether the sum is to be written, as `dq_turn` hands it over.
  ATTILE_DEVICE int* dq_overwrites() const { return dq_rows(Traits::kDsTiles); }

  /// Ends its only phase when the sum of dQ can be added to, kZeroFillsInPass.
  ATTILE_DEVICE arch::Mbarrier* zero_filled() const {
    return barriers() + Traits::kBarriers - 1 - Traits::kHasTails;
  }
  ATTILE_DEVICE tile::TailBarrier tail() const {
    return tile::TailBarrier(barriers() + Traits::kBarriers - 1);
  }
  ATTILE_DEVICE void await_zero_fill() const {
    if constexpr (Traits::kZeroFillsInPass) arch::mbarrier_wait(zero_filled(), 0);
  }

  /// dS of a step, and P of a part, kProductPerWarpgroup.
  ATTILE_DEVICE SlotBarriers ds_slot(int step) const {
    return slot(step % Traits::kDsTiles, step / Traits::kDsTiles);
  }
  ATTILE_DEVICE SlotBarriers p_slot(int part) const {
    return slot(Traits::kDsTiles + part % Traits::kPBuffers, part / Traits::kPBuffers);
  }
  /// The turn to add dQ of a step, and that it has been added, kDqSemaphoreWarps.
  ATTILE_DEVICE SlotBarriers dq_turn(int step) const { return slot(Traits::kBarrierPairs, step); }
  ATTILE_DEVICE SlotBarriers dq_added(int step) const {
    return slot(Traits::kBarrierPairs + 1, step);
  }

  /// Scope    all threads of the block.
  ATTILE_DEVICE void init() const {
    constexpr int kGroupWarps = arch::kWarpgroupSize / arch::kWarpSize;
    constexpr int kReaders = (Traits::kProductPerWarpgroup ? 2 : Traits::kConsumers) * kGroupWarps;
    if (arch::thread_index() == 0) {
      k().init(kReaders);
      v().init(kReaders);
      q().init(kReaders);
      dout().init(kReaders);
      if constexpr (Traits::kProductPerWarpgroup) {
        for (int i = 0; i < Traits::kDsTiles + Traits::kPBuffers; ++i) {
          arch::mbarrier_init(slot(i, 0).full, kGroupWarps);
          arch::mbarrier_init(slot(i, 0).empty, kGroupWarps);
        }
      } else {
        arch::mbarrier_init(step_barrier(), kReaders);
        constexpr bool kInOrder = Traits::kDqMode == DqMode::kInOrder;
        for (int i = 0; Traits::kBulkDq && i < Traits::kSenders; ++i) {
          arch::mbarrier_init(dq_staged(i), kInOrder ? kReaders : kGroupWarps);
          if (i == 0 || !kInOrder) arch::mbarrier_init(dq_sent(i), 1);
        }
      }
      if constexpr (Traits::kDqSemaphoreWarps) {
        constexpr int kAdders =
            (Traits::kProductPerWarpgroup ? 1 : Traits::kConsumers) * kGroupWarps;
        arch::mbarrier_init(dq_turn(0).full, 1);
        arch::mbarrier_init(dq_turn(0).empty, kAdders);
        arch::mbarrier_init(dq_added(0).full, kAdders);
        arch::mbarrier_init(dq_added(0).empty, 1);
      }
      if constexpr (Traits::kZeroFillsInPass) arch::mbarrier_init(zero_filled(), 1);
      if constexpr (Traits::kHasTails) {
        arch::mbarrier_init(barriers() + Traits::kBarriers - 1, 1);
      }
      arch::mbarrier_publish();
      arch::fence_async_proxy();  // what was written here before is not written after copies
    }
    arch::barrier();  // nobody uses a barrier that is not there yet
  }

 private:
  ATTILE_DEVICE SlotBarriers slot(int i, int use) const {
    return {step_barrier() + 2 * i, step_barrier() + 2 * i + 1, use & 1};
  }
  ATTILE_DEVICE arch::Mbarrier* barriers() const {
    return reinterpret_cast<arch::Mbarrier*>(data + Traits::kBarrierOffset);
  }
};

/// A stage of Q that has arrived, and the rows that it holds, as `load_tiles` has said.
template <class Traits>
struct QStage {
  using State = tile::PipelineState<Traits::kStages>;

  State state;
  int head, row0;  ///< the query head and its first row; head < 0 behind the last tile
  bool edge;       ///< the mask hides some of its scores

  /// Waits for the stage.
  ATTILE_DEVICE QStage(const BackwardMemory<Traits>& smem, const State& q_state) : state(q_state) {
    static_cast<void>(smem.q().consumer_wait(state));
    const Vec<int, 4> said = arch::load<4>(smem.statistics(state.stage).step());
    head = arch::uniform(said[0]);
    row0 = arch::uniform(said[1]);
    edge = arch::uniform(said[2]) != 0;
  }
  ATTILE_DEVICE bool is_end() const { return head < 0; }
};

}  // namespace attile::sm90
