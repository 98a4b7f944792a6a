// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/thread.cuh>
#include <attile/arch/warpgroup.cuh>
#include <attile/core/config.h>
#include <attile/core/sequences.h>
#include <attile/core/work_tile.h>
#include <attile/kernel/sm90/dynamic_schedule.cuh>
#include <attile/kernel/sm90/forward_memory.cuh>
#include <attile/kernel/sm90/forward_params.cuh>
#include <attile/kernel/sm90/forward_schedule.cuh>
#include <attile/tile/pipeline.cuh>

// The producer warpgroup of the forward kernel: one thread for K, one for V (a warp each where keys
// lie in pages), and for each consumer
// warpgroup one for its Q and one for the elements of its score modifier, if TMA copies these. Each
// goes through the block's work tiles by itself; with kHasScheduler, which excludes elements, one
// more thread makes these (dynamic_schedule.cuh).

namespace attile::sm90 {

/// Begins the copies of one tile of K or V into an acquired stage. Where keys lie in pages a tile
/// comes in several boxes, of each of which a lane looks up the page.
/// Scope    Traits::kKvLanes lanes of a warp.
template <class Traits, class Pipeline>
ATTILE_DEVICE void load_kv_tile(const TmaForwardParams<Traits>& p, const WorkTile& at, int kv_tile,
                                const Pipeline& pipeline, const typename Pipeline::State& state,
                                const arch::TensorMap& map) {
  const int key0 = kv_tile * Traits::kBc;
  if constexpr (Problem<Traits>::kPaged) {
    const int lane = arch::thread_index() % arch::kWarpSize;
    const int step = arch::kWarpSize * p.pages.box_keys;
    ATTILE_UNROLL_BY(1)
    for (int row = lane * p.pages.box_keys; row < Traits::kBc; row += step) {
      pipeline.load(state, map, p.keys_in_page(at, key0 + row), row);
    }
  } else {
    pipeline.load(state, map, p.keys(at, key0));
  }
}

/// Loads K or V of all tiles from the first to the last that any row of each of the block's work
/// tiles sees.
/// Behind a sequence's last key TMA writes zeros (`ragged`). The mask replaces such a score by
/// -inf, whatever K is. P is 0 then, but 0 * NaN is NaN, so V must be no neighbour's there.
/// Scope    Traits::kKvLanes lanes of a warp, from the first one on.
template <class Traits, class Pipeline>
ATTILE_DEVICE void load_kv(const TmaForwardParams<Traits>& p, int block,
                           const ForwardMemory<Traits>& smem, const Pipeline& pipeline,
                           const arch::TensorMap& map) {
  constexpr int kLanes = Traits::kKvLanes;
  const bool is_first = kLanes == 1 || arch::thread_index() % arch::kWarpSize == 0;
  typename Pipeline::State state;
  auto schedule = schedule_of_thread(p, block, smem, kLanes);
  for (; schedule.more(); schedule.next()) {
    const WorkTile at = schedule.tile();
    // The step at which this thread allows the next work tile: kStages tiles are left to load, and
    // it has not yet waited for their stages (dynamic_schedule.cuh).
    [[maybe_unused]] const int allows_at =
        max(at.kv_tiles.last - Traits::kStages, at.kv_tiles.first);
    if constexpr (Traits::kHasScheduler) {
      if (allows_at >= at.kv_tiles.last) schedule.allow_next();  // there is nothing to load
    }
    for (int step = at.kv_tiles.first; step < at.kv_tiles.last; ++step) {
      if constexpr (Traits::kHasScheduler) {
        if (step == allows_at) schedule.allow_next();
      }
      if (is_first) pipeline.producer_acquire(state);
      if constexpr (kLanes > 1) arch::warp_barrier();  // the stage is empty before lanes fill it
      load_kv_tile(p, at, p.kv_tile(at, step), pipeline, state, map);
      state.advance();
    }
  }
}

/// Returns which part of the block's work tile `number` a consumer warpgroup has. Under a causal
/// mask a part sees more kv tiles than the part before it, and by this rotation no warpgroup always
/// has the longest. That is worth 0.8 % in the mean of the 18 forward benchmarks of group `peers`,
/// up to 3.5 % at D 64 and D 128 causal (H200, 2026-11-24, docs/tuning.md).
template <class Traits>
ATTILE_DEVICE int consumer_part(int warpgroup, int number) {
  return (warpgroup + number) % Traits::kConsumers;
}

/// Loads the Q of one consumer warpgroup for every work tile of the block, and writes which rows of
/// the tile they are (ConsumerRows).
/// Behind a sequence's last row come zeros and not its neighbour's rows. A warp rescales O when any
/// of its rows needs it (OnlineSoftmax), so a neighbour's scores would decide this sequence's bits.
/// Scope    one thread.
template <class Traits>
ATTILE_DEVICE void load_q(const TmaForwardParams<Traits>& p, int block,
                          const ForwardMemory<Traits>& smem, int warpgroup) {
  const auto pipeline = smem.q(warpgroup);
  typename Traits::QPipeline::State state;
  int number = 0;  // of the block's work tiles
  auto schedule = schedule_of_thread(p, block, smem, Traits::kConsumers);
  for (; schedule.more(); schedule.next(), ++number) {
    const int part = consumer_part<Traits>(warpgroup, number);
    const ConsumerRows<Traits> rows(p, schedule.tile(), part);
    if constexpr (Traits::kHasScheduler) schedule.allow_next();
    const arch::TmaCoord box = p.queries(rows.at(p));
    // This stage had Q of the work tile kQStages before this one. The consumer has released it, so
    // that it has stored O of the rows before those: the ConsumerRows that it may still read are
    // those of the last kQStages tiles, none of which is overwritten (ForwardTraits::kRowBuffers).
    pipeline.await_empty(state);
    smem.rows(warpgroup, number) = rows;
    pipeline.producer_acquire(state, p.warpgroup_rows() * p.packed_heads());
    pipeline.load(state, p.maps.q, box);
    state.advance();
  }
  pipeline.await_empty(state);
  smem.rows(warpgroup, number) = ConsumerRows<Traits>();  // the end
  static_cast<void>(pipeline.expect(state, 0));
}

/// Loads the score modifier's elements for the rows of one consumer warpgroup: those of the tiles
/// that these rows see, so that none is skipped. Scope    one thread.
template <class Traits>
ATTILE_DEVICE void load_elements(const TmaForwardParams<Traits>& p, int block,
                                 const ForwardMemory<Traits>& smem, int warpgroup) {
  const auto pipeline = smem.elements(warpgroup);
  typename Traits::ElementPipeline::State state;
  int number = 0;
  for (StaticSchedule<Traits> schedule(p, block); schedule.more(); schedule.next(), ++number) {
    const int part = consumer_part<Traits>(warpgroup, number);
    const ConsumerRows<Traits> rows(p, schedule.tile(), part);
    const WorkTile at = rows.at(p);
    const int row0 = rows.row0 * p.elements.has_rows;
    for (int step = rows.kv_tiles.first; step < rows.kv_tiles.last; ++step) {
      pipeline.producer_acquire(state, p.elements.has_rows ? kWarpgroupRows : 1);
      pipeline.load(state, p.elements.map, row0, rows.head * p.elements.has_heads,
                    rows.sequence * p.elements.has_batches, p.kv_tile(at, step) * Traits::kBc);
      state.advance();
    }
  }
}

/// Runs the producer warpgroup. Scope    all its threads.
template <class Traits>
ATTILE_DEVICE void produce(const TmaForwardParams<Traits>& p, int block,
                           const ForwardMemory<Traits>& smem) {
  const int thread = arch::thread_index() % arch::kWarpgroupSize;
  const int q_warpgroup = thread - 2 * arch::kWarpSize;
  constexpr int kLanes = Traits::kKvLanes;
  const int v_lane = thread - arch::kWarpSize;
  if (thread < kLanes) load_kv(p, block, smem, smem.k(), p.maps.k);
  if (0 <= v_lane && v_lane < kLanes) load_kv(p, block, smem, smem.v(), p.maps.v);
  if (0 <= q_warpgroup && q_warpgroup < Traits::kConsumers) load_q(p, block, smem, q_warpgroup);
  if constexpr (Traits::kHasScheduler) {
    if (thread == 3 * arch::kWarpSize) run_scheduler(p, block, smem);
  }
  if constexpr (Traits::kElementStages > 0) {
    const int warpgroup = q_warpgroup - arch::kWarpSize;
    if (0 <= warpgroup && warpgroup < Traits::kConsumers) load_elements(p, block, smem, warpgroup);
  }
}

}  // namespace attile::sm90
