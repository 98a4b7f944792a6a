// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/bulk_tensor.cuh>
#include <attile/arch/grid_dependency.cuh>
#include <attile/arch/mbarrier.cuh>
#include <attile/arch/memory.cuh>
#include <attile/arch/opaque.h>
#include <attile/arch/shared_memory.cuh>
#include <attile/arch/thread.cuh>
#include <attile/arch/warpgroup.cuh>
#include <attile/core/config.h>
#include <attile/core/vec.h>
#include <attile/core/work_tile.h>
#include <attile/kernel/backward/backward_schedule.cuh>
#include <attile/kernel/backward/dq_mode.h>
#include <attile/kernel/backward/dq_order.cuh>
#include <attile/kernel/backward/q_tile_loop.cuh>
#include <attile/kernel/sm90/backward_memory.cuh>
#include <attile/kernel/sm90/backward_params.cuh>
#include <attile/kernel/sm90/backward_traits.cuh>
#include <attile/tile/modifier_math.h>
#include <attile/tile/modifier_words.cuh>
#include <attile/tile/pipeline.cuh>

#include <cstdint>

// The producer warpgroup of the backward pass: warp 0 loads tiles, and the others add staged dQ,
// wait for its semaphores, write its zeros, or copy the score modifier's elements. The lines named
// are those of FlashAttention-2, Algorithm 2 (arXiv 2307.08691).

namespace attile::sm90 {

/// Loads the score modifier's elements of the parts of each tile of Q, with kElementStages. Parts
/// for which the pipeline has no stage beside the others of their tile wait until these have been
/// read: they are loaded behind the next Q and dO, which must not wait that long.
/// Scope    one thread.
template <class Traits>
class PartElements {
  static constexpr int kAtOnce = min(Traits::kElementStages, Traits::kParts);

 public:
  ATTILE_DEVICE PartElements(const TmaBackwardParams<Traits>& p, const BackwardMemory<Traits>& smem)
      : p_(p), smem_(smem) {}

  /// Loads those of the tile before that are left, and the first ones of a tile's.
  ATTILE_DEVICE void load(const WorkTile& at) {
    end(at);
    load_parts(at, at.head, at.row0, 0, kAtOnce);
    head_ = at.head;
    row0_ = at.row0;
  }
  /// Loads those of the last tile that are left. `kv`: the work tile of the kv block.
  ATTILE_DEVICE void end(const WorkTile& kv) {
    if (kAtOnce < Traits::kParts && head_ >= 0) {
      load_parts(kv, head_, row0_, kAtOnce, Traits::kParts);
    }
  }

 private:
  ATTILE_DEVICE void load_parts(WorkTile at, int head, int row0, int begin, int end) {
    if constexpr (Traits::kElementStages > 0 && !Traits::kCopiesElements) {
      at.head = head;
      ATTILE_UNROLL
      for (int part = begin; part < end; ++part) {
        at.row0 = row0 + part * Traits::kPartRows;
        p_.elements.load(smem_.elements(), state_, at, at.kv_tile() * Traits::kBc);
        state_.advance();
      }
    }
  }

  const TmaBackwardParams<Traits>& p_;
  const BackwardMemory<Traits>& smem_;
  typename Traits::ElementPipeline::State state_;
  int head_ = -1, row0_ = 0;  // of the tile before
};

/// Waits until dq_accum of this block's query heads is zeros, filling what nobody has claimed, and
/// fills the chunk of a block to come (DqOrder). Scope    a warp, with kZeroFillsInPass.
template <class Traits>
ATTILE_DEVICE void zero_fill_dq(const TmaBackwardParams<Traits>& p, int kv_block,
                                const BackwardMemory<Traits>& smem) {
  const DqOrder<Traits> order(p);
  arch::await_dependencies();  // preprocessing has written the zeros, or reset the flags
  const WorkTile kv = kv_work_tile(p, kv_block);
  if (p.pass_fills(kv)) {
    order.zero_fill_chunk(kv);
    order.await_zero_fill(kv);
  }
  arrive_warp(smem.zero_filled());
  // A multiprocessor runs one block at a time. Two such rounds ahead, the chunk is filled by the
  // time its block begins, and still in L2.
  const int ahead = arch::block_index() + 2 * arch::multiprocessor_bound();
  if (p.zero_fill_flags != nullptr && ahead < p.kv_blocks()) {
    const int later = kv_block_of(p, ahead);
    if (has_keys(p, later)) {
      const WorkTile later_kv = kv_work_tile(p, later);
      if (p.pass_fills(later_kv)) order.zero_fill_chunk(later_kv);
    }
  }
}

/// Loads the elements of the parts of each tile of Q no further than the sequence goes. With
/// kZeroFillsInPass it also writes the zeros of dQ, behind the first tile, for which consumers
/// wait.
/// Scope    all lanes of a warp, with kCopiesElements.
template <class Traits>
ATTILE_DEVICE void copy_part_elements(const TmaBackwardParams<Traits>& p, int kv_block,
                                      const BackwardMemory<Traits>& smem) {
  const WorkTile kv = kv_work_tile(p, kv_block);
  typename Traits::ElementPipeline::State state;
  bool is_filled = !Traits::kZeroFillsInPass;
  ATTILE_UNROLL_BY(1)
  for (QTileLoop<Traits> loop(p, kv_block, kv);; loop.advance()) {
    if (loop.more()) {
      WorkTile at = loop.tile(kv);
      ATTILE_UNROLL_BY(1)
      for (int part = 0; part < Traits::kParts; ++part, at.row0 += Traits::kPartRows) {
        p.elements.load_within(p, smem.elements(), state, at, at.kv_tile() * Traits::kBc);
        state.advance();
      }
    }
    if (!is_filled) zero_fill_dq(p, kv_block, smem);
    is_filled = true;
    if (!loop.more()) break;
  }
}

/// Writes the score modifier's words of the diagonals of a tile of rows and its kv block.
/// Scope    all lanes of a warp, with kWritesWords.
template <class Traits>
ATTILE_DEVICE void store_words(const TmaBackwardParams<Traits>& p, const WorkTile& at,
                               typename Traits::Word* words) {
  const Extent extent = p.extent(at);
  const ScoreBlock block{{at.sequence, at.head, 0, 0}, extent, 1, 1, p.scale};
  const auto tile = p.policies.score_mod.diagonal_tile(block, tile::MathOf<typename Traits::T>());
  tile::store_diagonals<Traits::kBr, Traits::kBc>(words, tile, at.row0, at.kv_tile() * Traits::kBc,
                                                  extent);
}

/// Loads K and V of a kv block (line 6), and Q, dO, LSE and delta of every tile of rows that sees
/// it (line 9); with kElementStages also the modifier's elements of their scores. With each tile of
/// Q goes which rows they are (QStage); after the last one goes a stage that says so.
/// Behind a sequence's last row TMA writes zeros (`ragged`), and LSE and delta are +inf and 0, as
/// preprocessing writes whole tiles of them. P and dS are 0 there, because the tile is an edge and
/// the extent hides them, but 0 * NaN is NaN: so no row may be a neighbour's.
/// With kWritesWords the warp also writes the score modifier's words of the scores beside each Q.
/// Scope    one thread, or with kWritesWords all lanes of a warp.
template <class Traits>
ATTILE_DEVICE void load_tiles(const TmaBackwardParams<Traits>& p, int kv_block,
                              const BackwardMemory<Traits>& smem) {
  using Statistics = typename Traits::Statistics;
  using Boxes = typename TmaBackwardParams<Traits>::Boxes;
  const auto q_pipeline = smem.q();
  const WorkTile kv = kv_work_tile(p, kv_block);
  const bool copies = !Traits::kWritesWords || arch::thread_index() % arch::kWarpSize == 0;
  if (copies) {
    const arch::TmaCoord keys = p.keys(Boxes::kKv, kv, kv.kv_tile() * Traits::kBc);
    const tile::PipelineState<1> state;
    smem.k().producer_acquire(state);
    smem.k().load(state, p.k_map, keys);
    smem.v().producer_acquire(state);
    smem.v().load(state, p.v_map, keys);
  }
  // Behind this wait preprocessing is complete: the statistics, its zeros and what DqOrder resets
  // are there. That holds for the consumers, too, which wait for a stage of Q or its end. The warps
  // that add staged dQ wait by await_zero_filled, and with kInOrder, or where sequences are packed,
  // the block has waited in find_kv_block.
  arch::await_dependencies();
  // The next kernel may not begin earlier: it would read flags that preprocessing has not reset.
  if constexpr (Traits::kSignalsDqReady) arch::launch_dependents();
  tile::PipelineState<Traits::kStages> state;
  PartElements<Traits> elements(p, smem);
  ATTILE_UNROLL_BY(1)
  for (QTileLoop<Traits> loop(p, kv_block, kv); loop.more(); loop.advance()) {
    const WorkTile at = loop.tile(kv);
    const arch::TmaCoord rows = p.rows(Boxes::kQ, at);
    const Statistics statistics = smem.statistics(state.stage);
    q_pipeline.await_empty(state);
    if (copies) {
      arch::store(statistics.header(), Vec<int, 4>{at.head, at.row0, loop.edge(), 0});
      constexpr int kBytes = Traits::QTile::kBytes + 2 * Statistics::kRowBytes;
      arch::Mbarrier* const full = q_pipeline.expect(state, kBytes);
      q_pipeline.load(state, p.q_map, rows);
      const std::int64_t scratch_row = p.scratch_row(at);
      arch::bulk_load(arch::shared_address(statistics.lse()), p.row_lse + scratch_row,
                      Statistics::kRowBytes, full);
      arch::bulk_load(arch::shared_address(statistics.delta()), p.delta + scratch_row,
                      Statistics::kRowBytes, full);
      smem.dout().producer_acquire(state);
      smem.dout().load(state, p.do_map, p.rows(Boxes::kO, at));
      elements.load(at);
    }
    if constexpr (Traits::kWritesWords) {
      store_words(p, at, smem.words(state.stage));
      if (copies) q_pipeline.producer_commit(state);
    }
    state.advance();
  }
  elements.end(kv);
  if (!copies) return;
  q_pipeline.await_empty(state);
  arch::store(smem.statistics(state.stage).header(), Vec<int, 4>{-1, 0, 0, 0});  // the end
  static_cast<void>(q_pipeline.expect(state, 0));
  // The end has no words, but every stage has two arrivals.
  if constexpr (Traits::kWritesWords) q_pipeline.producer_commit(state);
}

/// Adds a consumer's share of staged dQ to dq_accum by TMA. With kInOrder it does so when the kv
/// tile before this one has added that share: it waits for acquire_staged_dq, and not for device
/// memory. Scope    one thread, with kBulkDq.
template <class Traits>
ATTILE_DEVICE void add_staged_dq(const TmaBackwardParams<Traits>& p, int kv_block,
                                 const BackwardMemory<Traits>& smem, int share) {
  constexpr bool kInOrder = Traits::kDqMode == DqMode::kInOrder;
  constexpr int kBytes = Traits::kDqBytes / Traits::kDqShares;
  const DqOrder<Traits> order(p);
  const int offset = share * (Traits::kBr * Traits::kQkColumns / Traits::kDqShares);
  const std::uint32_t dq = arch::shared_address(smem.dq() + offset);
  smem.await_zero_filled();
  arch::fence_async_proxy_global();  // TMA adds to zeros that threads may have written
  const WorkTile kv = kv_work_tile(p, kv_block);
  int step = 0;
  ATTILE_UNROLL_BY(1)
  for (QTileLoop<Traits> loop(p, kv_block, kv); loop.more(); loop.advance(), ++step) {
    const WorkTile at = loop.tile(kv);
    float* const accum = p.dq_accum_of(at) + offset;
    // Whether no kv tile adds before this one, and after it.
    bool overwrites = false, is_last = false;
    if constexpr (kInOrder) {
      arch::mbarrier_wait(smem.dq_share_acquired(share), step & 1);
      const Vec<int, 2> first_and_last = arch::load<2>(smem.dq_first_and_last());
      overwrites = first_and_last[0] != 0;
      is_last = first_and_last[1] != 0;
      arch::fence_async_proxy_global();  // TMA adds to what others' TMA has added before
    }
    arch::mbarrier_wait(smem.dq_staged(share), step & 1);
    arch::fence_async_proxy();  // TMA reads what the consumer has staged
    if (overwrites) {
      arch::bulk_store(accum, dq, kBytes);
    } else {
      arch::bulk_add(accum, dq, kBytes);
    }
    arch::bulk_commit();
    arch::bulk_wait_read<0>();
    arch::mbarrier_arrive(smem.dq_read(share));
    if (kInOrder && !is_last) {
      arch::bulk_wait<0>();  // it is added before the next kv tile may add
      order.release(at, at.kv_tile(), share);
    }
  }
  if constexpr (Traits::kSignalsDqReady) {
    arch::bulk_wait<0>();  // it is added before anyone is told so
    order.signal_ready(kv_block, share);
  }
}

/// Acquires the semaphores of the shares of staged dQ: of a tile while those who add it still
/// release the tile before. Each share is added when its own semaphore has been acquired, and so
/// neither a consumer nor who adds for it waits for the other one's share.
/// Scope    a warp, with kBulkDq and kInOrder.
template <class Traits>
ATTILE_DEVICE void acquire_staged_dq(const TmaBackwardParams<Traits>& p, int kv_block,
                                     const BackwardMemory<Traits>& smem) {
  const DqOrder<Traits> order(p);
  const WorkTile kv = kv_work_tile(p, kv_block);
  const int lane = arch::thread_index() % arch::kWarpSize;
  int step = 0;
  ATTILE_UNROLL_BY(1)
  for (QTileLoop<Traits> loop(p, kv_block, kv); loop.more(); loop.advance(), ++step) {
    const WorkTile at = loop.tile(kv);
    const int before = order.tile_before(at, at.kv_tile(), p.ascends(kv_block));
    const int after = order.tile_after(at, at.kv_tile(), p.ascends(kv_block));
    // Who adds a share has read dq_first_and_last before it says that the share has been read. The
    // wait also keeps dq_share_acquired from being a phase ahead of who waits for it.
    for (int share = 0; share < Traits::kDqShares; ++share) {
      arch::mbarrier_wait(smem.dq_read(share), (step & 1) ^ 1);
    }
    const Vec<int, 2> first_and_last{before == p.kv_tiles, after == p.kv_tiles};
    if (lane == 0) arch::store(smem.dq_first_and_last(), first_and_last);
    arch::warp_barrier();  // it is written before another lane says so
    // Lane n waits for share n, and arrives inside the loop: behind it lanes are together again, so
    // that each share would wait for the other one, which has 0.75 to 0.97 of the rate where blocks
    // wait for each other (H200, 2026-11-26, bench/log/tuning-sequences.md).
    bool waits = lane < Traits::kDqShares;
    while (arch::any_lane(waits)) {
      if (!waits || !order.has_added(at, before, lane)) continue;
      arch::mbarrier_arrive(smem.dq_share_acquired(lane));
      waits = false;
    }
  }
}

/// Acquires the semaphores of dQ (`acquires`), or releases them when it has been added, so that the
/// consumers, which add from registers, wait for no answer of device memory.
/// Scope    a warp, with kDqSemaphoreWarps.
template <class Traits>
ATTILE_DEVICE void run_dq_semaphore(const TmaBackwardParams<Traits>& p, int kv_block, bool acquires,
                                    const BackwardMemory<Traits>& smem) {
  const DqOrder<Traits> order(p);
  const bool first_lane = arch::thread_index() % arch::kWarpSize == 0;
  int step = 0;
  QTileLoop<Traits> loop(p, kv_block, kv_work_tile(p, kv_block));
  ATTILE_UNROLL_BY(1)
  for (; loop.more(); loop.advance(), ++step) {
    const WorkTile at = loop.tile(kv_work_tile(p, arch::opaque(kv_block)));
    if (acquires) {
      const bool overwrites = order.acquire(at, at.kv_tile(), p.ascends(kv_block));
      smem.dq_acquired(step).producer_acquire();
      if (first_lane) *smem.dq_first_and_last() = overwrites;
      smem.dq_acquired(step).producer_commit();
    } else {
      smem.dq_added(step).consumer_wait();
      if (first_lane) order.release(at, at.kv_tile());
      smem.dq_added(step).consumer_release();
    }
  }
}

/// Runs the producer warpgroup. Scope    all its threads.
template <class Traits>
ATTILE_DEVICE void produce(const TmaBackwardParams<Traits>& p, int kv_block,
                           const BackwardMemory<Traits>& smem) {
  const int warp = arch::uniform(arch::thread_index() % arch::kWarpgroupSize / arch::kWarpSize);
  if constexpr (Traits::kCopiesElements) {
    if (warp == 3) return copy_part_elements(p, kv_block, smem);
  }
  if (Traits::kZeroFillsInPass && warp == 3) return zero_fill_dq(p, kv_block, smem);
  const bool acquires = Traits::kDqMode == DqMode::kInOrder && warp == 3;
  const bool first_lane = arch::thread_index() % arch::kWarpSize == 0;
  if (warp == 0) {
    if (first_lane || Traits::kWritesWords) load_tiles(p, kv_block, smem);
  } else if (Traits::kDqSemaphoreWarps && warp <= 2) {
    run_dq_semaphore(p, kv_block, warp == 1, smem);
  } else if (Traits::kBulkDq && (acquires || warp <= Traits::kDqShares)) {
    if (acquires) acquire_staged_dq(p, kv_block, smem);
    if (first_lane && !acquires) add_staged_dq(p, kv_block, smem, warp - 1);
  }
}

}  // namespace attile::sm90
