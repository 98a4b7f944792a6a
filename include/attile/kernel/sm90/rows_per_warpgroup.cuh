// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/bulk_tensor.cuh>
#include <attile/arch/opaque.h>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/work_tile.h>
#include <attile/kernel/backward/backward_schedule.cuh>
#include <attile/kernel/backward/dq_order.cuh>
#include <attile/kernel/sm90/backward_memory.cuh>
#include <attile/kernel/sm90/backward_params.cuh>
#include <attile/kernel/sm90/backward_traits.cuh>
#include <attile/kernel/sm90/gradient_consumer.cuh>
#include <attile/kernel/sm90/named_barrier.cuh>
#include <attile/tile/scores.cuh>
#include <attile/tile/warpgroup.cuh>

// A consumer warpgroup of the backward pass up to 128 columns: it makes all products of its 64 rows
// of K and V, and its share of dQ. The lines named are those of FlashAttention-2, Algorithm 2
// (arXiv 2307.08691).

namespace attile::sm90 {

/// The registers of a step, beside dK and dV.
template <class Traits>
struct StepRegisters {
  using Consumer = GradientConsumer<Traits>;

  typename Traits::ScoreRegisters s, ds;  ///< S, then P; dP, then dS
  typename Consumer::SecondSum s_second;  ///< with kTwoSums, the second sum of S
  typename Consumer::RowStatistics lse;
  typename Consumer::Columns columns;
  typename Consumer::Left p_left, ds_left;  ///< P and dS as operands
  typename Traits::DqRegisters dq;
  tile::VisibleBits<typename Consumer::Rows> shown;  ///< the mask's answers
  typename Consumer::Keep keep;                      ///< dropout's decisions
};

/// Does lines 11, 12 and 14 for part kPart of a tile of rows, whose S and dP are under way, and
/// stages its dS for dQ. Unless it is the last part, it also begins dK (line 16), and S and dP of
/// the next part.
template <bool kFirst, int kPart, class Traits, class Sampler>
ATTILE_DEVICE void make_part(const GradientConsumer<Traits>& consumer, const QStage<Traits>& stage,
                             int step, StepRegisters<Traits>& frag,
                             typename Traits::DkRegisters& dk_frag,
                             typename Traits::DvRegisters& dv_frag, const Sampler& sampler) {
  using Left = typename GradientConsumer<Traits>::Left;
  constexpr int kRow = kPart * Traits::kPartRows;
  const auto& smem = consumer.smem;
  const int index = stage.state.stage;
  constexpr bool kPBeforeDp = Traits::kPBeforeDp;
  if constexpr (kPBeforeDp) {
    constexpr int kPending = Traits::kDpBehindP ? 0 : 1;                        // dP
    frag.p_left = consumer.template make_p<kPending>(frag, stage, step, kRow);  // line 11
    if constexpr (Traits::kDpBehindP) consumer.begin_dp(frag, stage, kRow);     // line 13
  } else {
    frag.p_left = consumer.make_p_and_ds(frag, stage, kRow);  // lines 11 and 14
  }
  tile::start_product(dv_frag, frag.p_left, smem.dout().tile(index), kRow);   // line 12
  if constexpr (kPBeforeDp) consumer.template make_ds<1>(frag, stage, kRow);  // line 14
  if constexpr (kPart == 0 && !kFirst) consumer.await_step(step - 1);
  consumer.stage_scores(smem.ds(step), frag.ds, kRow);
  frag.ds_left = Left(frag.ds);
  if constexpr (kPart < Traits::kParts - 1) {
    tile::start_product(dk_frag, frag.ds_left, smem.q().tile(index), kRow);  // line 16
    consumer.start(frag, stage, kRow + Traits::kPartRows, sampler);
  }
}

/// Does one tile of rows, and except in the first step dQ of the tile `before`. dQ of a tile needs
/// dS of all warpgroups, for which await_step waits a step later, when they have mostly staged it.
/// Returns the next tile, for which it waits while this stage is held: kStages must be 2 or more.
template <bool kFirst, class Traits, class Sampler>
ATTILE_DEVICE QStage<Traits> q_step(const GradientConsumer<Traits>& consumer,
                                    const QStage<Traits>& stage, const QStage<Traits>& before,
                                    int step, typename Traits::DkRegisters& dk_frag,
                                    typename Traits::DvRegisters& dv_frag, const Sampler& sampler) {
  StepRegisters<Traits> frag;
  consumer.start(frag, stage, 0, sampler);  // lines 10 and 13
  make_part<kFirst, 0>(consumer, stage, step, frag, dk_frag, dv_frag, sampler);
  if constexpr (Traits::kParts > 1) {
    make_part<kFirst, 1>(consumer, stage, step, frag, dk_frag, dv_frag, sampler);
  }
  if constexpr (Traits::kParts > 2) {
    make_part<kFirst, 2>(consumer, stage, step, frag, dk_frag, dv_frag, sampler);
  }
  if constexpr (!kFirst) consumer.start_dq(frag.dq, step - 1);  // line 15, of the tile before
  tile::start_product(dk_frag, frag.ds_left, consumer.smem.q().tile(stage.state.stage),
                      Traits::kBr - Traits::kPartRows);  // line 16
  const QStage<Traits> next(consumer.smem, stage.state.next());
  if constexpr (!kFirst) {
    consumer.await_dq_read(step - 1);
    tile::wait_product<1>(frag.dq);
  }
  consumer.arrive_step();
  if constexpr (!kFirst) consumer.add_dq(before, step - 1, frag.dq);
  tile::wait_product<0>(dk_frag);
  tile::fence_accumulators(dv_frag);
  consumer.release(stage);
  return next;
}

/// Does lines 8 to 17: the loop over the tiles of rows that see the kv block. The first step is
/// compiled by itself, because a branch around a product in the loop makes the compiler serialise
/// products (C7512).
template <class Traits>
ATTILE_DEVICE void q_loop(const GradientConsumer<Traits>& consumer,
                          typename Traits::DkRegisters& dk_frag,
                          typename Traits::DvRegisters& dv_frag) {
  const auto sampler = consumer.p.sampler();
  QStage<Traits> stage(consumer.smem, {});
  if (stage.is_end()) return;
  consumer.gradient().begin();
  QStage<Traits> next = q_step<true>(consumer, stage, stage, 0, dk_frag, dv_frag, sampler);
  int step = 1;
  ATTILE_UNROLL_BY(1)
  for (; !next.is_end(); ++step) {
    const QStage<Traits> before = stage;
    stage = next;
    next = q_step<false>(consumer, stage, before, step, dk_frag, dv_frag, sampler);
  }
  consumer.end_gradient();
  typename Traits::DqRegisters dq_frag;  // line 15, of the last tile
  consumer.await_step(step - 1);
  consumer.start_dq(dq_frag, step - 1);
  consumer.await_dq_read(step - 1);
  tile::wait_product<0>(dq_frag);
  consumer.add_dq(stage, step - 1, dq_frag);
}

/// Writes dK and dV (line 18) by way of shared memory, where they take the place of K and V.
template <class Traits>
ATTILE_DEVICE void store_dk_dv(const TmaBackwardParams<Traits>& p, int kv_block, int warpgroup,
                               const BackwardMemory<Traits>& smem,
                               const typename Traits::DkRegisters& dk_frag,
                               const typename Traits::DvRegisters& dv_frag) {
  all_consumers_barrier<Traits>();  // all have read K and V, and have added their dQ or staged it
  if constexpr (Traits::kSignalsDqReady && !Traits::kBulkDq) {
    smem.await_zero_filled();  // also where nothing is added
    if (arch::thread_index() == 0) DqOrder<Traits>(p).signal_ready(kv_block, 0);
  }
  const WorkTile kv = kv_work_tile(p, kv_block);
  const int row0 = kv.kv_tile() * Traits::kBc + warpgroup * kWarpgroupRows;
  store_dk(p, kv, smem.dk(warpgroup), dk_frag, row0, warpgroup);
  store_dv(p, kv, smem.dv(warpgroup), dv_frag, row0, warpgroup);
  arch::bulk_wait_read<0>();  // dK and dV have left before shared memory goes
}

/// Computes a warpgroup's rows of dK and dV of a kv block (lines 7, 8 and 10 to 18, but for the
/// addition of line 15 where producer warps add staged dQ), over all query heads that read it, and
/// its share of the block's part of dQ. Scope    all threads of all consumer warpgroups.
template <class Traits>
ATTILE_DEVICE void consume(const TmaBackwardParams<Traits>& p, int kv_block, int warpgroup,
                           const BackwardMemory<Traits>& smem) {
  typename Traits::DkRegisters dk_frag;  // line 7
  typename Traits::DvRegisters dv_frag;
  dk_frag.clear();
  dv_frag.clear();
  static_cast<void>(smem.k().consumer_wait({}));
  const auto v_smem = smem.v().consumer_wait({});
  using Consumer = GradientConsumer<Traits>;
  if constexpr (Traits::kVInRegisters) {
    const typename Traits::VLeft v_left(v_smem, Traits::DvRegisters::warp_row());
    const WorkTile kv = kv_work_tile(p, kv_block);
    q_loop(Consumer{{p, smem, kv, warpgroup}, v_left}, dk_frag, dv_frag);
  } else {
    const WorkTile kv = kv_work_tile(p, kv_block);
    q_loop(Consumer{{p, smem, kv, warpgroup}, v_smem}, dk_frag, dv_frag);
  }
  store_dk_dv(p, arch::opaque(kv_block), warpgroup, smem, dk_frag, dv_frag);
}

}  // namespace attile::sm90
