// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/mbarrier.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/philox.h>
#include <attile/kernel/sm90/forward_schedule.cuh>
#include <attile/kernel/sm90/forward_traits.cuh>
#include <attile/tile/pipeline.cuh>

namespace attile::sm90 {

/// Gives the tiles, values and barriers in a block's shared memory: docs/shared_memory.md has the
/// map, with who writes and reads each region, and its bytes.
template <class Traits>
struct ForwardMemory {
  using QPipeline = typename Traits::QPipeline;
  using KPipeline = typename Traits::KPipeline;
  using VPipeline = typename Traits::VPipeline;
  using LoadedVPipeline = typename Traits::LoadedVPipeline;

  unsigned char* data;

  ATTILE_DEVICE QPipeline q(int warpgroup) const {
    return {data + Traits::kQOffset + in_team(warpgroup) * QPipeline::kBytes,
            barriers() + 2 * (in_team(warpgroup) * Traits::kQStages)};
  }
  ATTILE_DEVICE KPipeline k() const {
    return {data, barriers() + 2 * (Traits::kConsumers * Traits::kQStages)};
  }
  ATTILE_DEVICE VPipeline v() const {
    return {data + Traits::kVOffset,
            barriers() + 2 * (Traits::kConsumers * Traits::kQStages + Traits::kStages)};
  }
  /// The score modifier's elements for the rows of a warpgroup; only with kElementStages.
  ATTILE_DEVICE typename Traits::ElementPipeline elements(int warpgroup) const {
    return {data + Traits::kElementOffset + warpgroup * Traits::kElementBytes,
            barriers() + 2 * (Traits::kConsumers * Traits::kQStages + 2 * Traits::kStages +
                              warpgroup * Traits::kElementStages)};
  }
  /// V in fp8 as it is loaded; only with kFp8Values.
  ATTILE_DEVICE LoadedVPipeline loaded_v() const {
    return {data + Traits::kLoadedVOffset,
            barriers() + Traits::kPipelineBarriers - 2 * Traits::kLoadedVStages};
  }
  /// The same stages, of V by columns.
  ATTILE_DEVICE auto loaded_v_columns() const {
    return tile::Pipeline<typename Traits::VTile, Traits::kLoadedVStages>(
        data + Traits::kLoadedVOffset,
        barriers() + Traits::kPipelineBarriers - 2 * Traits::kLoadedVStages);
  }
  /// Whether a stage of these is the one behind the last V, which has no tile.
  ATTILE_DEVICE int& is_end_of_v(int stage) const {
    return reinterpret_cast<int*>(data + Traits::kEndOfVOffset)[stage];
  }
  /// The number of the tile of K that arrives in a state of the pipeline; only with kListsBlocks.
  /// Those of twice as many tiles are kept as there are stages, so that a consumer may read it
  /// until it releases the K behind that tile.
  ATTILE_DEVICE int& kv_tile(const typename Traits::KPipeline::State& state) const {
    const int slot = state.stage + state.parity * Traits::kStages;
    return reinterpret_cast<int*>(data + Traits::kKvTileOffset)[slot];
  }
  /// Returns that number to the lane that releases the stage, which hands it to the other ones
  /// before that (arch::uniform): the release must not overtake the read.
  ATTILE_DEVICE int read_kv_tile(const typename Traits::KPipeline::State& state) const {
    return arch::thread_index() % arch::kWarpSize == 0 ? kv_tile(state) : 0;
  }
  /// The score modifier's words of a stage of K; only with kWords.
  ATTILE_DEVICE typename Traits::Word* words(int stage) const {
    return reinterpret_cast<typename Traits::Word*>(data + Traits::kWordOffset +
                                                    stage * Traits::kWordBytes);
  }
  /// What dropout's decisions about the columns of a stage of V have in common, in groups of four
  /// columns; only with kDropoutColumns.
  ATTILE_DEVICE PhiloxColumn* dropout_columns(int stage) const {
    return reinterpret_cast<PhiloxColumn*>(data + Traits::kDropoutOffset +
                                           stage * Traits::kDropoutBytes);
  }
  /// The rows that a warpgroup computes of the block's work tile `number`.
  ATTILE_DEVICE ConsumerRows<Traits>& rows(int warpgroup, unsigned number) const {
    constexpr int kSlots = Traits::kRowBuffers;
    static_assert(kSlots * sizeof(ConsumerRows<Traits>) == Traits::kRowsBytes,
                  "attile::sm90::ForwardMemory: kRowsBytes is kRowBuffers ConsumerRows");
    auto* const slots = reinterpret_cast<ConsumerRows<Traits>*>(data + Traits::kRowsOffset);
    return slots[in_team(warpgroup) * kSlots + number % kSlots];
  }
  /// Where a warpgroup stages its rows of O, kCols columns at a time.
  ATTILE_DEVICE typename Traits::OTile o(int warpgroup) const {
    return {data + Traits::kOOffset + in_team(warpgroup) * Traits::OTile::kBytes};
  }

  /// The work tile that the scheduler makes for the other threads, with kHasScheduler, and the
  /// barriers that say that it is there (full), and that the next one may take its place (empty).
  ATTILE_DEVICE WorkTile& work_tile() const {
    return *reinterpret_cast<WorkTile*>(data + Traits::kWorkTileOffset);
  }
  /// Holds the scheduler's numbers, with kKeepsNumbers; the first lane of its warp alone uses them.
  ATTILE_DEVICE ScheduleNumbers& schedule_numbers() const {
    return *reinterpret_cast<ScheduleNumbers*>(data + Traits::kNumbersOffset);
  }
  ATTILE_DEVICE arch::Mbarrier* work_tile_full() const {
    return barriers() + Traits::kPipelineBarriers;
  }
  ATTILE_DEVICE arch::Mbarrier* work_tile_empty() const { return work_tile_full() + 1; }

  /// Returns the memory of a team, of which this is the first one's.
  ATTILE_DEVICE ForwardMemory of_team(int team) const {
    return {data + team * (Traits::kSharedBytes / Traits::kTeams)};
  }

  /// Initialises all barriers. `v_is_transposed`: TensorMaps.
  /// Scope    all threads of the block.
  ATTILE_DEVICE void init(bool v_is_transposed) const {
    init_barriers(v_is_transposed);
    arch::barrier();  // nobody uses a barrier that is not there yet
  }
  /// Does so without waiting for each other.
  ATTILE_DEVICE void init_barriers(bool v_is_transposed) const {
    constexpr int kWarps = arch::kWarpgroupSize / arch::kWarpSize;
    if (arch::thread_index() == 0) {
      for (int warpgroup = 0; warpgroup < Traits::kConsumers; ++warpgroup) {
        q(warpgroup).init(kWarps);
        if constexpr (Traits::kElementStages > 0) {
          elements(warpgroup).init(kWarps, Traits::kCopiesElements ? arch::kWarpSize : 1);
        }
      }
      k().init(Traits::kConsumers * kWarps, Traits::kWords != ModifierWords::kNone ? 2 : 1);
      const bool has_transposers = Traits::kFp8Values && !v_is_transposed;
      v().init(Traits::kConsumers * kWarps, has_transposers           ? Traits::kTransposers
                                            : Traits::kDropoutColumns ? 2
                                                                      : 1);
      if constexpr (Traits::kFp8Values) {
        loaded_v().init(Traits::kTransposers);
        for (int stage = 0; stage < Traits::kLoadedVStages; ++stage) is_end_of_v(stage) = false;
      }
      if constexpr (Traits::kHasScheduler) {
        arch::mbarrier_init(work_tile_full(), 1);
        arch::mbarrier_init(work_tile_empty(), Traits::kScheduleReaders);
      }
      arch::mbarrier_publish();
    }
  }

 private:
  /// Returns the number of a consumer of the block among those of its team.
  ATTILE_DEVICE static int in_team(int warpgroup) {
    return Traits::kTeams == 1 ? warpgroup : warpgroup % Traits::kConsumers;
  }
  ATTILE_DEVICE arch::Mbarrier* barriers() const {
    return reinterpret_cast<arch::Mbarrier*>(data + Traits::kBarrierOffset);
  }
};

}  // namespace attile::sm90
