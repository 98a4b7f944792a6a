// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/thread.cuh>
#include <attile/arch/warpgroup.cuh>
#include <attile/core/config.h>
#include <attile/core/sequences.h>
#include <attile/kernel/problem/work_tile.h>
#include <attile/kernel/sm90/dynamic_schedule.cuh>
#include <attile/kernel/sm90/forward_memory.cuh>
#include <attile/kernel/sm90/forward_params.cuh>
#include <attile/kernel/sm90/forward_schedule.cuh>
#include <attile/tile/pipeline.cuh>
#include <attile/tile/transpose.cuh>

#include <type_traits>

// The producer warpgroup of the forward kernel: one thread for K, one for V (a warp each where keys
// lie in pages), and for each consumer
// warpgroup one for its Q and one for the elements of its score modifier, if TMA copies these. Each
// goes through the block's work tiles by itself; with kHasScheduler, which excludes elements, one
// more thread makes these (dynamic_schedule.cuh).

namespace attile::sm90 {

/// Begins the copies of one tile of K or V into an acquired stage. Where keys lie in pages a tile
/// comes in several boxes, of each of which a lane looks up the page.
/// Scope    all lanes of a warp where keys lie in pages, else one.
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
/// Scope    Traits::kKLanes lanes of a warp, from the first one on.
template <class Traits, class Pipeline>
ATTILE_DEVICE void load_kv(const TmaForwardParams<Traits>& p, int block,
                           const ForwardMemory<Traits>& smem, const Pipeline& pipeline,
                           const arch::TensorMap& map) {
  constexpr int kLanes = Traits::kKLanes;
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

/// Goes through the tiles of K and V of all of a block's work tiles, as load_kv does.
/// Scope    all lanes of a warp.
template <class Traits>
class KvCursor {
 public:
  ATTILE_DEVICE KvCursor(const TmaForwardParams<Traits>& p, int block,
                         const ForwardMemory<Traits>& smem)
      : schedule_(schedule_of_thread(p, block, smem, arch::kWarpSize)) {
    enter();
  }
  ATTILE_DEVICE bool more() const { return schedule_.more(); }
  ATTILE_DEVICE WorkTile tile() const { return at_; }
  ATTILE_DEVICE int step() const { return step_; }
  /// Goes on to the next tile, whose work tile may have to be waited for.
  ATTILE_DEVICE void next() {
    if (++step_ < at_.kv_tiles.last) {
      allow();
    } else {
      schedule_.next();
      enter();
    }
  }

 private:
  /// Begins the work tile that the schedule is at, or the first one after it that sees keys.
  ATTILE_DEVICE void enter() {
    for (; schedule_.more(); schedule_.next()) {
      at_ = schedule_.tile();
      step_ = at_.kv_tiles.first;
      allows_at_ = max(at_.kv_tiles.last - Traits::kStages, step_);
      allow();
      if (step_ < at_.kv_tiles.last) return;
    }
  }
  ATTILE_DEVICE void allow() const {
    if constexpr (Traits::kHasScheduler) {
      if (step_ == allows_at_) schedule_.allow_next();
    }
  }

  using Schedule =
      std::conditional_t<Traits::kHasScheduler, ScheduleReader<Traits>, StaticSchedule<Traits>>;
  Schedule schedule_;
  WorkTile at_;
  int step_ = 0, allows_at_ = 0;
};

/// Loads V in fp8 of the same tiles, and transposes it. It loads up to kLoadedVStages tiles ahead;
/// but it asks for a work tile only when there is a stage for that one's first tile, so that at
/// most kLoadedVStages - 1 tiles wait to be transposed while it waits for the work tile. Scope all
/// lanes of a warp.
template <class Traits>
ATTILE_DEVICE void load_and_transpose_v(const TmaForwardParams<Traits>& p, int block,
                                        const ForwardMemory<Traits>& smem) {
  const bool is_first = arch::thread_index() % arch::kWarpSize == 0;
  const auto loaded = smem.loaded_v();
  const auto pipeline = smem.v();
  typename Traits::LoadedVPipeline::State to_load, to_read;
  typename Traits::VPipeline::State to_write;
  KvCursor<Traits> cursor(p, block, smem);
  int ahead = 0;       // tiles that are loaded and not transposed
  bool is_new = true;  // the cursor's tile is not loaded
  for (;;) {
    while (ahead < Traits::kLoadedVStages && cursor.more()) {
      if (!is_new) cursor.next();
      is_new = cursor.more();
      if (!is_new) break;
      if (is_first) loaded.producer_acquire(to_load);
      arch::warp_barrier();  // the stage is empty, and expects its bytes, before lanes fill it
      if (Problem<Traits>::kPaged || is_first) {
        load_kv_tile(p, cursor.tile(), p.kv_tile(cursor.tile(), cursor.step()), loaded, to_load,
                     p.maps.v);
      }
      to_load.advance();
      is_new = false;
      ++ahead;
    }
    if (ahead == 0) return;
    const auto v_smem = loaded.consumer_wait(to_read);
    pipeline.await_empty(to_write);
    tile::transpose_operand(pipeline.tile(to_write.stage), v_smem);
    arch::fence_async_proxy();  // products read by the async proxy what this lane has written
    arch::warp_barrier();       // all lanes have read the one tile, and written the other
    loaded.consumer_release(to_read);
    if (is_first) static_cast<void>(pipeline.expect(to_write, 0));  // it is full
    to_read.advance();
    to_write.advance();
    --ahead;
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
  const int v_lane = thread - arch::kWarpSize;
  if (thread < Traits::kKLanes) load_kv(p, block, smem, smem.k(), p.maps.k);
  if (0 <= v_lane && v_lane < Traits::kVLanes) {
    if constexpr (Traits::kFp8Values) {
      load_and_transpose_v(p, block, smem);
    } else {
      load_kv(p, block, smem, smem.v(), p.maps.v);
    }
  }
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
