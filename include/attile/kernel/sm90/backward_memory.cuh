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

namespace attile::sm90 {

/// Arrives at a barrier for this warp. Scope    all lanes of the warp.
ATTILE_DEVICE void arrive_warp(arch::Mbarrier* barrier) {
  arch::warp_barrier();  // all lanes have read and written before one arrives
  if (arch::thread_index() % arch::kWarpSize == 0) arch::mbarrier_arrive(barrier);
}

/// Holds the two barriers of a slot in shared memory that some warps write and other warps read. It
/// is a stage of a pipeline that threads fill instead of TMA.
/// Scope    all lanes of a warp, for each function.
struct SlotBarriers {
  arch::Mbarrier* full;
  arch::Mbarrier* empty;
  int parity;

  /// Waits until the slot has been read, so that it can be overwritten.
  ATTILE_DEVICE void producer_acquire() const { arch::mbarrier_wait(empty, parity ^ 1); }
  /// Signals that this warp has written it.
  ATTILE_DEVICE void producer_commit() const { arrive_warp(full); }
  /// Waits until the slot has been written, so that it can be read.
  ATTILE_DEVICE void consumer_wait() const { arch::mbarrier_wait(full, parity); }
  /// Signals that this warp has read it.
  ATTILE_DEVICE void consumer_release() const { arrive_warp(empty); }
};

/// Gives the tiles, values and barriers in a block's shared memory: docs/shared_memory.md has the
/// map, with who writes and reads each region, and its bytes.
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
  /// Returns the pipeline of the score modifier's elements; only with kElementStages.
  ATTILE_DEVICE typename Traits::ElementPipeline elements() const {
    return {data + Traits::kElementOffset, barriers() + Traits::kElementBarrier};
  }
  /// Returns what a stage of Q has beside the tile.
  ATTILE_DEVICE typename Traits::Statistics statistics(int stage) const {
    return {data + Traits::kStatOffset + stage * Traits::Statistics::kBytes};
  }
  /// Returns the score modifier's words of a stage of Q; only with kWritesWords.
  ATTILE_DEVICE typename Traits::Word* words(int stage) const {
    return reinterpret_cast<typename Traits::Word*>(data + Traits::kWordOffset +
                                                    stage * Traits::kWordBytes);
  }
  /// Returns dS^T of a step, which overwrites that of two steps before.
  ATTILE_DEVICE typename Traits::DsTile ds(int step) const {
    return {data + Traits::kDsOffset + (step & 1) * Traits::DsTile::kBytes};
  }
  /// Returns what the consumer of dV hands that of dK for a part, in the order of registers, with
  /// kProductPerWarpgroup: P, its factor of dS, or S (product_per_warpgroup.cuh). Parts are counted
  /// through all tiles.
  ATTILE_DEVICE float* p(int part) const {
    return reinterpret_cast<float*>(data + Traits::kPOffset) +
           part % Traits::kPBuffers * (Traits::kPartRows * Traits::kBc);
  }
  /// Return where a warpgroup's rows of dK and dV are staged.
  ATTILE_DEVICE typename Traits::DkTile dk(int warpgroup) const {
    return {data + Traits::kDkOffset + warpgroup * Traits::DkTile::kBytes};
  }
  ATTILE_DEVICE typename Traits::DvTile dv(int warpgroup) const {
    return {data + Traits::kDvOffset + warpgroup * Traits::DvTile::kBytes};
  }
  /// Returns where dQ of a tile is staged, in the layout of dq_accum.
  ATTILE_DEVICE float* dq() const { return reinterpret_cast<float*>(data + Traits::kDqOffset); }

  /// Returns what adds to the gradient of a score modifier for a warp, of those that make dS.
  ATTILE_DEVICE typename Traits::Gradient gradient(int warp) const {
    return typename Traits::Gradient(data + Traits::kGradientOffset +
                                     warp * Traits::Gradient::kWarpBytes);
  }

  /// Returns the barrier of which phase i ends when all consumers have staged dS of step i, and
  /// read dS of step i - 1: it says that one tile of dS is full and that the other one is free.
  ATTILE_DEVICE arch::Mbarrier* step_barrier() const {
    return barriers() + 4 + 4 * Traits::kStages;
  }
  /// Return the barriers of which a phase ends when a consumer warpgroup has staged its share of
  /// dQ, when a producer warp has read it, and with kInOrder when its semaphore has been acquired.
  ATTILE_DEVICE arch::Mbarrier* dq_staged(int share) const { return step_barrier() + 1 + share; }
  ATTILE_DEVICE arch::Mbarrier* dq_read(int share) const {
    return dq_staged(Traits::kDqShares + share);
  }
  ATTILE_DEVICE arch::Mbarrier* dq_share_acquired(int share) const {
    return barrier_pair(Traits::kBarrierPairs + share, 0).full;
  }
  /// Returns the query head and the first row of a tile of dS, with kProductPerWarpgroup. Behind
  /// the last one the head is -1.
  ATTILE_DEVICE int* dq_rows(int ds_tile) const {
    return reinterpret_cast<int*>(data + Traits::kDqRowsOffset) + 4 * ds_tile;
  }
  /// Returns where a producer warp says, by the barriers of `dq_acquired` or `dq_share_acquired`,
  /// whether no kv tile adds to a tile's rows before this one, which then overwrites dq_accum, and
  /// with kBulkDq as a second number whether none does after it.
  ATTILE_DEVICE int* dq_first_and_last() const { return dq_rows(Traits::kDsTiles); }

  /// Returns the barrier of which the only phase ends when dq_accum holds zeros, with
  /// kZeroFillsInPass.
  ATTILE_DEVICE arch::Mbarrier* zero_filled() const {
    return barriers() + Traits::kElementBarrier - 1;
  }
  /// Waits until dq_accum holds zeros: written later they would erase what has been added.
  ATTILE_DEVICE void await_zero_filled() const {
    if constexpr (Traits::kZeroFillsInPass) arch::mbarrier_wait(zero_filled(), 0);
  }

  /// Return the slots of dS of a step and of P of a part, with kProductPerWarpgroup.
  ATTILE_DEVICE SlotBarriers ds_slot(int step) const {
    return barrier_pair(step % Traits::kDsTiles, step / Traits::kDsTiles);
  }
  ATTILE_DEVICE SlotBarriers p_slot(int part) const {
    return barrier_pair(Traits::kDsTiles + part % Traits::kPBuffers, part / Traits::kPBuffers);
  }
  /// Return the slots by which, with kDqSemaphoreWarps, a producer warp signals that it has
  /// acquired the semaphore of a step, and the consumers that they have added dQ.
  ATTILE_DEVICE SlotBarriers dq_acquired(int step) const {
    return barrier_pair(Traits::kBarrierPairs, step);
  }
  ATTILE_DEVICE SlotBarriers dq_added(int step) const {
    return barrier_pair(Traits::kBarrierPairs + 1, step);
  }

  /// Initialises all barriers. Scope    all threads of the block.
  ATTILE_DEVICE void init() const {
    constexpr int kWarps = arch::kWarpgroupSize / arch::kWarpSize;
    // Above 128 columns two of the three consumers release Q and dO. K and V are never released.
    constexpr int kReleasingWarps =
        (Traits::kProductPerWarpgroup ? 2 : Traits::kConsumers) * kWarps;
    if (arch::thread_index() == 0) {
      k().init(kReleasingWarps);
      v().init(kReleasingWarps);
      q().init(kReleasingWarps, Traits::kWritesWords ? 2 : 1);
      dout().init(kReleasingWarps);
      if constexpr (Traits::kElementStages > 0) {
        elements().init(Traits::kProductPerWarpgroup ? kWarps : kReleasingWarps,
                        Traits::kCopiesElements ? arch::kWarpSize : 1);
      }
      if constexpr (Traits::kProductPerWarpgroup) {
        for (int i = 0; i < Traits::kDsTiles + Traits::kPBuffers; ++i) {
          arch::mbarrier_init(barrier_pair(i, 0).full, kWarps);
          arch::mbarrier_init(barrier_pair(i, 0).empty, kWarps);
        }
      } else {
        arch::mbarrier_init(step_barrier(), kReleasingWarps);
        for (int i = 0; Traits::kBulkDq && i < Traits::kDqShares; ++i) {
          arch::mbarrier_init(dq_staged(i), kWarps);
          arch::mbarrier_init(dq_read(i), 1);
          if (Traits::kDqMode == DqMode::kInOrder) arch::mbarrier_init(dq_share_acquired(i), 1);
        }
      }
      if constexpr (Traits::kDqSemaphoreWarps) {
        constexpr int kAdders = (Traits::kProductPerWarpgroup ? 1 : Traits::kConsumers) * kWarps;
        arch::mbarrier_init(dq_acquired(0).full, 1);
        arch::mbarrier_init(dq_acquired(0).empty, kAdders);
        arch::mbarrier_init(dq_added(0).full, kAdders);
        arch::mbarrier_init(dq_added(0).empty, 1);
      }
      if constexpr (Traits::kZeroFillsInPass) arch::mbarrier_init(zero_filled(), 1);
      arch::mbarrier_publish();
      // The number that find_kv_block has stored here does not land after what TMA writes.
      arch::fence_async_proxy();
    }
    arch::barrier();  // nobody uses a barrier that is not initialised yet
  }

 private:
  /// Returns pair `i` of barriers behind those of the pipelines, for use number `use`.
  ATTILE_DEVICE SlotBarriers barrier_pair(int i, int use) const {
    return {step_barrier() + 2 * i, step_barrier() + 2 * i + 1, use & 1};
  }
  ATTILE_DEVICE arch::Mbarrier* barriers() const {
    return reinterpret_cast<arch::Mbarrier*>(data + Traits::kBarrierOffset);
  }
};

/// Holds a stage of Q that has arrived, and which rows it has, as `load_tiles` has written it.
template <class Traits>
struct QStage {
  using State = tile::PipelineState<Traits::kStages>;

  State state;
  int head, row0;  ///< the query head and its first row; head < 0 after the last tile
  /// Whether the mask or the end of a sequence hides some of its scores.
  typename BackwardParams<Traits>::Edge edge;

  /// Waits until Q and its statistics have arrived, and reads which rows they are.
  ATTILE_DEVICE QStage(const BackwardMemory<Traits>& smem, const State& q_state) : state(q_state) {
    static_cast<void>(smem.q().consumer_wait(state));
    const Vec<int, 4> arrived = arch::load<4>(smem.statistics(state.stage).header());
    head = arch::uniform(arrived[0]);
    row0 = arch::uniform(arrived[1]);
    edge = static_cast<decltype(edge)>(arch::uniform(arrived[2]));
  }
  ATTILE_DEVICE bool is_end() const { return head < 0; }
};

}  // namespace attile::sm90
