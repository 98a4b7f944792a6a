// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/thread.cuh>
#include <attile/arch/warpgroup.cuh>
#include <attile/core/config.h>
#include <attile/core/work_tile.h>
#include <attile/kernel/sm90/dynamic_schedule.cuh>
#include <attile/kernel/sm90/forward_memory.cuh>
#include <attile/kernel/sm90/forward_params.cuh>
#include <attile/kernel/sm90/forward_schedule.cuh>
#include <attile/kernel/sm90/fp8_v_producer.cuh>
#include <attile/kernel/sm90/kv_loader.cuh>
#include <attile/kernel/sm90/word_writer.cuh>
#include <attile/tile/pipeline.cuh>

#include <cstdint>

// The producer warpgroup of the forward kernel. What its warps do, and how many lanes; a warp each
// loads K and V where keys lie in pages, and else one lane:
//
//                          warp 0   warp 1       warp 2                  warp 3
//   most                   K        V            Q, a lane for each      elements likewise, or
//                                                consumer warpgroup      all lanes words, or
//                                                                        dropout's columns
//   with a scheduler       K        V            Q, likewise             scheduler
//     and words            K        V            words                   scheduler, Q
//     and copied elements  K, V     Q, likewise  elements, all lanes     scheduler
//   V in fp8               K, V     transposes   Q, likewise             transposes or schedules
//   each of two teams      K, V,    scheduler,
//                          words    Q
//
// Each goes through the block's work tiles by itself; with kHasScheduler one warp, the scheduler,
// makes these for the others (dynamic_schedule.cuh). "Words" are those of a score modifier
// (ModifierWords), "elements" its elements, of which TMA copies tiles, or where sequences have
// lengths of their own a warp (kCopiesElements). V in fp8 that has been transposed ahead of the
// kernel is loaded as in 16 bits (fp8_v_producer.cuh).

namespace attile::sm90 {

/// Writes which tile a stage of K has, with kListsBlocks, before its copy is begun.
template <class Traits>
ATTILE_DEVICE void write_kv_tile(const ForwardMemory<Traits>& smem,
                                 const typename Traits::KPipeline::State& state, int kv_tile) {
  if constexpr (Traits::kListsBlocks) {
    const auto pipeline = smem.k();
    pipeline.await_empty(state);  // consumers have read the number that is there
    if (arch::thread_index() % arch::kWarpSize == 0) smem.kv_tile(state) = kv_tile;
  }
}

/// Loads K or V of all tiles from the first to the last that any row of each of the block's work
/// tiles sees. The call for K also loads V behind each K where V is in fp8 and not transposed
/// ahead, or with kLoadsKvTogether: then there is no call for V. `pipeline`, `map`: those
/// of K or of V; `kOfKeys`: whether of K. With kHasScheduler it allows the next work tile.
/// Behind a sequence's last key TMA writes zeros (`ragged`). The mask replaces such a score by
/// -inf, whatever K is. P is 0 then, but 0 * NaN is NaN, so V must be no neighbour's there.
///
/// Scope    Traits::kKvLanes lanes of a warp, or of K kKeyLanes, from the first one on.
template <bool kOfKeys, class Traits, class Pipeline>
ATTILE_DEVICE void load_kv(const TmaForwardParams<Traits>& p, int block,
                           const ForwardMemory<Traits>& smem, const Pipeline& pipeline,
                           const arch::TensorMap& map) {
  constexpr bool kWritesWords = kOfKeys && Traits::kWordsByKeyLanes;
  constexpr int kLanes = kOfKeys ? Traits::kKeyLanes : Traits::kKvLanes;
  KvLoader<Traits> loader(p);
  typename Pipeline::State state;
  [[maybe_unused]] typename Traits::LoadedVPipeline::State v_state;
  auto schedule = schedule_of_thread(p, block, smem, kLanes);
  for (; schedule.more(); schedule.next()) {
    const WorkTile at = schedule.tile();
    // The step at which this thread allows the next work tile: at most kStages tiles are left to
    // load, and it has not yet waited for their stages (docs/deadlock.md, rule 4).
    [[maybe_unused]] const int allows_at =
        max(at.kv_tiles.last - Traits::kStages, at.kv_tiles.first);
    if constexpr (Traits::kHasScheduler) {
      if (allows_at >= at.kv_tiles.last) schedule.allow_next();  // there is nothing to load
    }
    int kv_tile = 0;
    ATTILE_UNROLL_BY(1)
    for (int step = at.kv_tiles.first; step < at.kv_tiles.last; ++step) {
      if constexpr (Traits::kHasScheduler) {
        if (step == allows_at) schedule.allow_next();
      }
      if constexpr (Traits::kListsBlocks) {  // an entry of the list is read once
        constexpr int kInBlock = Traits::MaskType::kKvBlock / Traits::kBc;
        kv_tile = step % kInBlock == 0 ? p.kv_tile(at, step) : kv_tile + 1;
      } else {
        kv_tile = p.kv_tile(at, step);
      }
      if constexpr (kOfKeys) write_kv_tile(smem, state, kv_tile);
      loader.go_to(at, step, kv_tile);
      if constexpr (kWritesWords) {
        const bool is_first = arch::thread_index() % arch::kWarpSize == 0;
        WordWriter<Traits>(p, at).write(smem, state, at.row0, kv_tile * Traits::kBc, [&] {
          if (is_first) loader.load(pipeline, state, map);
        });
        if (is_first) loader.load(smem.v(), state, p.maps.v);
      } else {
        loader.load(pipeline, state, map);
        if constexpr (kOfKeys && Traits::kLoadsKvTogether) loader.load(smem.v(), state, p.maps.v);
      }
      state.advance();
      if constexpr (Traits::kFp8Values) {
        if (!is_transposed_ahead(p)) load_fp8_v(p, smem, loader, v_state, at, step);
      }
    }
  }
  if constexpr (Traits::kFp8Values) {
    // Where V is transposed ahead nobody waits for it.
    if (!is_transposed_ahead(p)) send_end_of_v(smem, v_state);
  }
}

/// Loads the Q of one consumer warpgroup for work tile `number` of the block, and writes which rows
/// of the tile they are (ConsumerRows).
/// Behind a sequence's last row come zeros and not its neighbour's rows, whose scores could make a
/// warp rescale O.
///
/// Scope    one thread.
template <class Traits>
ATTILE_DEVICE void send_rows(const TmaForwardParams<Traits>& p, const ForwardMemory<Traits>& smem,
                             const typename Traits::QPipeline::State& state, const WorkTile& tile,
                             const ConsumerRows<Traits>& rows, int warpgroup, int number) {
  const auto pipeline = smem.q(warpgroup);
  const arch::TmaCoord box = p.queries(rows.at(p, tile.q_origin));
  // This stage had Q of the work tile kQStages before this one. The consumer has released it, so
  // that it has stored O of the rows before those: the ConsumerRows that it may still read are
  // those of the last kQStages tiles, none of which is overwritten (ForwardTraits::kRowBuffers).
  pipeline.await_empty(state);
  smem.rows(warpgroup, number) = rows;  // before Q is full, else the consumer could read old rows
  if constexpr (ConsumerRows<Traits>::kKeepsFirstRow) {  // its constructor would spill
    smem.rows(warpgroup, number).lengths.first_row =
        row_number(p.policies.sequences, tile.q_origin);
  }
  pipeline.producer_acquire(state, p.warpgroup_rows() * p.packed_heads());  // waits no more
  pipeline.load(state, p.maps.q, box);
}

/// Tells a consumer that the block has no work tile `number`. Scope    one thread.
template <class Traits>
ATTILE_DEVICE void send_end(const ForwardMemory<Traits>& smem,
                            const typename Traits::QPipeline::State& state, int warpgroup,
                            int number) {
  const auto pipeline = smem.q(warpgroup);
  pipeline.await_empty(state);
  smem.rows(warpgroup, number) = ConsumerRows<Traits>();  // the end, likewise
  static_cast<void>(pipeline.expect(state, 0));
}

/// Loads the Q of one consumer warpgroup for every work tile of the block. Scope    one thread.
template <class Traits>
ATTILE_DEVICE void load_q(const TmaForwardParams<Traits>& p, int block,
                          const ForwardMemory<Traits>& smem, int warpgroup) {
  typename Traits::QPipeline::State state;
  int number = 0;  // of the block's work tiles
  auto schedule = schedule_of_thread(p, block, smem, Traits::kConsumers);
  for (; schedule.more(); schedule.next(), ++number) {
    const int part = consumer_part<Traits>(warpgroup, number);
    const ConsumerRows<Traits> rows(p, schedule.tile(), part);
    if constexpr (Traits::kHasScheduler) schedule.allow_next();
    send_rows(p, smem, state, schedule.tile(), rows, warpgroup, number);
    state.advance();
  }
  send_end(smem, state, warpgroup, number);
}

/// Loads the Q of all consumers of a team for its work tiles, and with kHasScheduler makes these.
/// Scope    all lanes of a warp.
template <class Traits>
ATTILE_DEVICE void load_q_of_team(const TmaForwardParams<Traits>& p, int block,
                                  const ForwardMemory<Traits>& smem) {
  typename Traits::QPipeline::State state;
  int number = 0;
  const auto load = [&](const WorkTile& at) {
    constexpr int kQStages = Traits::kQStages;
    if constexpr (Traits::kKeepsNumbers) number = smem.schedule_numbers().tiles++;
    if constexpr (Traits::kSparesProducer) state = {number % kQStages, number / kQStages & 1};
    ATTILE_UNROLL_BY(1)
    for (int warpgroup = 0; warpgroup < Traits::kConsumers; ++warpgroup) {
      if (at.sequence < 0) {
        send_end(smem, state, warpgroup, number);
      } else {
        const int part = consumer_part<Traits>(warpgroup, number);
        send_rows(p, smem, state, at, ConsumerRows<Traits>(p, at, part), warpgroup, number);
      }
    }
    state.advance();
    ++number;
  };
  if constexpr (Traits::kHasScheduler) {
    run_scheduler(p, block, smem, load, number);
  } else if (arch::thread_index() % arch::kWarpSize == 0) {
    StaticSchedule<Traits> schedule(p, block);
    for (; schedule.more(); schedule.next()) load(schedule.tile());
    load(WorkTile{.sequence = -1});
  }
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
    ATTILE_UNROLL_BY(1)
    for (int step = rows.kv_tiles.first; step < rows.kv_tiles.last; ++step) {
      p.elements.load(pipeline, state, at, p.kv_tile(at, step) * Traits::kBc);
      state.advance();
    }
  }
}

/// Does so for the rows of all consumers, tile by tile, no further than a sequence goes. A lane
/// holds for one consumer which tiles its rows see, and how many it has got.
/// Scope    all lanes of a warp, with kCopiesElements.
template <class Traits>
ATTILE_DEVICE void copy_elements(const TmaForwardParams<Traits>& p, int block,
                                 const ForwardMemory<Traits>& smem) {
  constexpr int kStages = Traits::kElementStages;
  const int own = arch::thread_index() % arch::kWarpSize % Traits::kConsumers;
  int own_tiles = 0;  // that consumer `own` has got
  int number = 0;
  auto schedule = schedule_of_thread(p, block, smem, arch::kWarpSize);
  for (; schedule.more(); schedule.next(), ++number) {
    const WorkTile& at = schedule.tile();
    schedule.allow_next();
    const TileRange own_range =
        ConsumerRows<Traits>(p, at, consumer_part<Traits>(own, number)).kv_tiles;
    ATTILE_UNROLL_BY(1)
    for (int step = at.kv_tiles.first; step < at.kv_tiles.last; ++step) {
      const bool own_sees = own_range.first <= step && step < own_range.last;
      ATTILE_UNROLL_BY(1)
      for (int i = 0; i < Traits::kConsumers; ++i) {
        if (!arch::shuffle(own_sees, i)) continue;
        const int tiles = arch::shuffle(own_tiles, i);
        WorkTile rows = at;
        rows.row0 += consumer_part<Traits>(i, number) * p.warpgroup_rows();
        p.elements.load_within(p, smem.elements(i), {tiles % kStages, tiles / kStages & 1}, rows,
                               p.kv_tile(at, step) * Traits::kBc);
      }
      own_tiles += own_sees;
    }
  }
}

/// Writes the words of each tile of K. Consumers wait for both producers of its stage: the thread
/// that loads K, and this warp.
/// Scope    all lanes of a warp, with kWords and one team.
template <class Traits>
ATTILE_DEVICE void load_words(const TmaForwardParams<Traits>& p, int block,
                              const ForwardMemory<Traits>& smem) {
  typename Traits::KPipeline::State state;
  auto schedule = schedule_of_thread(p, block, smem, arch::kWarpSize);
  for (; schedule.more(); schedule.next()) {
    const WorkTile at = schedule.tile();
    if constexpr (Traits::kHasScheduler) schedule.allow_next();
    const WordWriter<Traits> words(p, at);
    ATTILE_UNROLL_BY(1)
    for (int step = at.kv_tiles.first; step < at.kv_tiles.last; ++step) {
      words.write(smem, state, at.row0, p.kv_tile(at, step) * Traits::kBc, [] {});
      state.advance();
    }
  }
}

/// Writes what dropout's decisions about the columns of each tile of V have in common beside the
/// tile. Consumers wait for both producers of its stage: the thread that loads V, and this warp.
/// Scope    all lanes of a warp, with kDropoutColumns.
template <class Traits>
ATTILE_DEVICE void write_dropout_columns(const TmaForwardParams<Traits>& p, int block,
                                         const ForwardMemory<Traits>& smem) {
  const auto pipeline = smem.v();
  typename Traits::VPipeline::State state;
  for (StaticSchedule<Traits> schedule(p, block); schedule.more(); schedule.next()) {
    const WorkTile at = schedule.tile();
    ATTILE_UNROLL_BY(1)
    for (int step = at.kv_tiles.first; step < at.kv_tiles.last; ++step) {
      const int lane = arch::thread_index() % arch::kWarpSize;
      const auto sampler = p.sampler();
      const std::uint32_t first = sampler.col_group(p.kv_tile(at, step) * Traits::kBc);
      pipeline.await_empty(state);
      ATTILE_UNROLL_BY(1)
      for (int i = lane; i < Traits::kBc / 4; i += arch::kWarpSize) {
        smem.dropout_columns(state.stage)[i] = sampler.column(at.sequence, at.head, first + i);
      }
      arch::warp_barrier();  // all lanes have written
      if (lane == 0) pipeline.producer_commit(state);
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
  if (thread < kLanes) load_kv<true>(p, block, smem, smem.k(), p.maps.k);
  if constexpr (Traits::kFp8Values) {
    const int warp = arch::uniform(thread / arch::kWarpSize);
    if (!is_transposed_ahead(p)) {
      if (warp == 1) transpose_v(p, smem, 0);
      if (warp == 3 && Traits::kTransposers == 2) transpose_v(p, smem, 1);
    } else if constexpr (Traits::kTransposesAhead) {
      if (v_lane == 0) load_transposed_v(p, block, smem);
    }
  } else if constexpr (!Traits::kLoadsKvTogether) {
    if (0 <= v_lane && v_lane < kLanes) load_kv<false>(p, block, smem, smem.v(), p.maps.v);
  }
  if constexpr (Traits::kHasScheduler && Traits::kWords != ModifierWords::kNone) {
    const int warp = arch::uniform(thread / arch::kWarpSize);
    if (warp == 2) load_words(p, block, smem);
    if (warp == 3) load_q_of_team(p, block, smem);
    return;
  }
  if constexpr (Traits::kLoadsKvTogether) {  // so that warp 1 loads Q, and warp 2 elements
    if (0 <= v_lane && v_lane < Traits::kConsumers) load_q(p, block, smem, v_lane);
    if (arch::uniform(thread / arch::kWarpSize) == 2) copy_elements(p, block, smem);
  } else {
    if (0 <= q_warpgroup && q_warpgroup < Traits::kConsumers) load_q(p, block, smem, q_warpgroup);
  }
  if constexpr (Traits::kHasScheduler) {
    if (thread >= 3 * arch::kWarpSize) run_scheduler(p, block, smem, [](const WorkTile&) {});
  }
  if constexpr (Traits::kElementStages > 0 && !Traits::kCopiesElements) {
    const int warpgroup = q_warpgroup - arch::kWarpSize;
    if (0 <= warpgroup && warpgroup < Traits::kConsumers) load_elements(p, block, smem, warpgroup);
  }
  if constexpr (Traits::kWords != ModifierWords::kNone) {
    if (thread >= 3 * arch::kWarpSize) load_words(p, block, smem);
  }
  if constexpr (Traits::kDropoutColumns) {
    if (thread >= 3 * arch::kWarpSize) write_dropout_columns(p, block, smem);
  }
}

/// Runs one of the two producer warps of a team. Scope    all lanes of the warp.
template <class Traits>
ATTILE_DEVICE void produce_for_team(const TmaForwardParams<Traits>& p, int block,
                                    const ForwardMemory<Traits>& smem, int warp) {
  const int lane = arch::thread_index() % arch::kWarpSize;
  if (warp == 0) {
    if (Traits::kKeyLanes > 1 || lane == 0) load_kv<true>(p, block, smem, smem.k(), p.maps.k);
    return;
  }
  load_q_of_team(p, block, smem);
}

}  // namespace attile::sm90
