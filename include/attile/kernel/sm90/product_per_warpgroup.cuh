// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/bulk_tensor.cuh>
#include <attile/arch/memory.cuh>
#include <attile/arch/opaque.h>
#include <attile/arch/thread.cuh>
#include <attile/arch/warpgroup.cuh>
#include <attile/arch/wgmma.cuh>
#include <attile/core/config.h>
#include <attile/core/vec.h>
#include <attile/core/work_tile.h>
#include <attile/kernel/backward/backward_kernel.cuh>
#include <attile/kernel/backward/dq_accum.cuh>
#include <attile/kernel/backward/dq_order.cuh>
#include <attile/kernel/backward/step_in_halves.cuh>
#include <attile/kernel/sm90/backward_memory.cuh>
#include <attile/kernel/sm90/backward_params.cuh>
#include <attile/kernel/sm90/backward_traits.cuh>
#include <attile/kernel/sm90/named_barrier.cuh>
#include <attile/kernel/sm90/score_consumer.cuh>
#include <attile/tile/mma_operands.cuh>
#include <attile/tile/mma_tile.cuh>
#include <attile/tile/scores.cuh>
#include <attile/tile/warpgroup.cuh>

// The consumer warpgroups of the backward pass above 128 columns. One warpgroup has no registers
// for both dK and dV of 64 rows of K and V. So one makes S, P and dV, and another one dP, dS and
// dK, for all rows and columns of the tile. The first hands the second what dS is made of:
//
//                         on the fast path     else                     with kGradientOfScores
//   dV's hands over       P                    f = P * score_mod'       S
//   dK's makes of it      dS = P (dP - delta)  dS = f (dP - delta)      P and dS
//
// What is handed over goes through shared memory, in fp32 and in the order of registers; as left
// operands of dV and dK, P and dS stay in registers. A third warpgroup makes dQ and adds it to
// dq_accum. Its additions take as long as all products of the block; the other two run up to two
// tiles ahead of them. The lines named are those of FlashAttention-2, Algorithm 2 (arXiv
// 2307.08691).

namespace attile::sm90 {

/// Says by a consumer warpgroup's number which gradient it makes. kDq must be 0, because
/// dq_accum_begin counts the threads that hold dQ from the block's first one, and
/// Traits::kRoleRegisters has this order.
enum class Role { kDq, kDv, kDk };

/// Makes dQ of all tiles of Q (line 15), a part of 64 columns at a time: while one part is added to
/// dq_accum, the product of the next one, or of the next tile, is under way.
/// Scope    all threads of the warpgroup, as for make_dv and make_dk.
template <class Traits>
ATTILE_DEVICE void make_dq(const TmaBackwardParams<Traits>& p, int kv_block,
                           const BackwardMemory<Traits>& smem) {
  constexpr int kLast = Traits::kDqParts - 1;
  typename Traits::DqRegisters dq[2];
  int head, row0;   // of the tile whose dQ is made
  bool overwrites;  // whether dQ overwrites dq_accum, instead of being added
  const auto work_tile = [&] {
    WorkTile at = kv_work_tile(p, arch::opaque(kv_block));
    at.head = head;
    at.row0 = row0;
    return at;
  };
  const auto start = [&](int step, int part, int to) {
    tile::start_left_transposed_product(dq[to % 2], smem.ds(step), 0, smem.k().tile(0), part * 64);
  };
  const auto add = [&](int part) { add_dq_tile(p, work_tile(), dq[part % 2], overwrites, part); };
  const auto add_last = [&](int step) {
    add(kLast);
    end_adding_dq(smem, step);
  };
  const auto next_tile = [&](int step) {
    smem.ds_slot(step).consumer_wait();  // dS and dq_rows are written before they are read
    arch::fence_async_proxy();           // wgmma reads dS, which threads have staged
    const Vec<int, 4> arrived = arch::load<4>(smem.dq_rows(step % Traits::kDsTiles));
    return Vec<int, 2>{arch::uniform(arrived[0]), arch::uniform(arrived[1])};
  };
  const auto begin_tile = [&](const Vec<int, 2>& arrived) {
    head = arrived[0];
    row0 = arrived[1];
  };
  const auto finish = [&] {
    if constexpr (Traits::kSignalsDqReady) {
      smem.await_zero_filled();                       // also where nothing is added
      consumer_barrier(static_cast<int>(Role::kDq));  // all have added before one signals it
      if (arch::thread_index() == 0) DqOrder<Traits>(p).signal_ready(arch::opaque(kv_block), 0);
    }
  };
  begin_tile(next_tile(0));  // K has arrived, because dS was made of it
  if (head < 0) return finish();
  start(0, 0, 0);
  smem.await_zero_filled();  // zeros written later would erase what is added
  tile::wait_product<0>(dq[0]);
  int step = 0;
  ATTILE_UNROLL_BY(1)
  for (;; ++step) {
    overwrites = begin_adding_dq(smem, step);
    ATTILE_UNROLL
    for (int part = 0; part < kLast; ++part) {
      start(step, part + 1, part + 1);
      add(part);
      tile::wait_product<0>(dq[(part + 1) % 2]);
    }
    smem.ds_slot(step).consumer_release();  // the last product that reads dS is done
    const Vec<int, 2> next = next_tile(step + 1);
    if (next[0] < 0) break;
    start(step + 1, 0, kLast + 1);
    add_last(step);
    tile::wait_product<0>(dq[(kLast + 1) % 2]);
    if constexpr (kLast % 2 == 0) dq[0] = dq[1];
    begin_tile(next);
  }
  add_last(step);
  finish();
}

/// Calls f(r, c, address) for each four values of P that a thread stores or loads: columns c to
/// c + 3 of row r of its registers. The thread of one warpgroup that stores them and that of the
/// other that loads them have the same number in their warpgroups.
template <class Registers, class F>
ATTILE_DEVICE void for_each_four(float* p, F&& f) {
  float* const mine = p + arch::thread_index() % arch::kWarpgroupSize * 4;
  ATTILE_UNROLL
  for (int c = 0; c < Registers::kRegCols; c += 4) {
    ATTILE_UNROLL
    for (int r = 0; r < Registers::kRegRows; ++r) {
      f(r, c, mine + (r * Registers::kRegCols + c) * arch::kWarpgroupSize);
    }
  }
}

/// Presents S by its rows as one warpgroup hands it to another: threads with the same number in
/// their warpgroups have the same scores, and read each when they need it, as there are no
/// registers for all, nor for four at once (for_each_four). What is written, P, is dropped.
template <class Registers>
struct HandedScores {
  using Rows = tile::TransposedRegisters<Registers>;
  static constexpr int kRegRows = Rows::kRegRows;
  static constexpr int kRegCols = Rows::kRegCols;

  struct Score {
    const float* from;
    ATTILE_DEVICE operator float() const { return *from; }
    ATTILE_DEVICE void operator=(float) const {}
  };

  float* data;  ///< of a part

  ATTILE_DEVICE static int row(int r) { return Rows::row(r); }
  ATTILE_DEVICE static int col(int c) { return Rows::col(c); }
  ATTILE_DEVICE static constexpr int row_offset(int r) { return Rows::row_offset(r); }
  ATTILE_DEVICE static constexpr int col_offset(int c) { return Rows::col_offset(c); }
  ATTILE_DEVICE static constexpr bool has_row(int) { return true; }
  ATTILE_DEVICE static constexpr bool has_col(int) { return true; }
  ATTILE_DEVICE Score at(int r, int c) const { return {address(r, c)}; }

  ATTILE_DEVICE void store(Registers& s) const {
    ATTILE_UNROLL
    for (int r = 0; r < kRegRows; ++r) {
      ATTILE_UNROLL
      for (int c = 0; c < kRegCols; ++c) *address(r, c) = Rows{s}.at(r, c);
    }
  }

 private:
  ATTILE_DEVICE float* address(int r, int c) const {
    return data + (r * kRegCols + c) * arch::kWarpgroupSize +
           arch::thread_index() % arch::kWarpgroupSize;
  }
};

/// Makes S^T and P^T of part kPart of a tile (lines 10 and 11), hands P, its factor of dS or S to
/// the warpgroup that makes dS, and begins dV (line 12). `parts`: the number of parts of all tiles
/// before.
template <int kPart, class Traits, class Sampler>
ATTILE_DEVICE void make_p_part(
    const ScoreConsumer<Traits>& consumer, const QStage<Traits>& stage, int parts,
    tile::RegisterLeft<typename Traits::ElementType, typename Traits::ScoreRegisters>& left,
    typename Traits::DvRegisters& dv_frag, const Sampler& sampler) {
  using Consumer = ScoreConsumer<Traits>;
  using T = typename Traits::ElementType;
  using Scores = typename Consumer::Scores;
  constexpr int kRow = kPart * Traits::kPartRows;
  const auto& smem = consumer.smem;
  Scores s, factor;
  typename Consumer::SecondSum second;
  typename Consumer::Rows s_by_rows{s};
  consumer.start_scores(s, second, consumer.lse(stage, kRow), stage, kRow);
  const SlotBarriers slot = smem.p_slot(parts + kPart);
  slot.producer_acquire();  // P that was there has been read. S is under way during the wait
  const auto do_smem = smem.dout().consumer_wait(stage.state);  // not read before it has arrived
  const auto keep_bits = consumer.ask_dropout(stage, kRow, consumer.held_or_new(sampler));
  const auto shown = consumer.ask_mask(stage, kRow);
  const auto elements = consumer.read_elements(stage, parts + kPart, kRow);
  consumer.template await_scores<0>(s, second);
  tile::fence_accumulators(dv_frag);  // dV of the part before is made, too
  const tile::TileCoord coord = consumer.coord(stage, kRow);
  const auto hand = [&](const Scores& made) {
    for_each_four<Scores>(smem.p(parts + kPart), [&](int r, int c, float* to) {
      arch::store(to, Float4{made.x[r][c], made.x[r][c + 1], made.x[r][c + 2], made.x[r][c + 3]});
    });
    slot.producer_commit();
  };
  if constexpr (Traits::kGradientOfScores) {
    HandedScores<Scores>{smem.p(parts + kPart)}.store(s);
    slot.producer_commit();
  }
  if constexpr (Traits::kFastPath) {
    if (stage.edge) {
      tile::hide_outside_intervals(s_by_rows, coord,
                                   consumer.p.mask_in_tile(in_full_block(stage.edge)));
    }
    // LSE is read again, as no registers are left.
    fast_probabilities<Traits::kLog2Lse>(s_by_rows, consumer.p, consumer.coord(stage, kRow),
                                         consumer.lse(stage, kRow), keep_bits);
    hand(s);
  } else {
    typename Consumer::Rows factor_by_rows{factor};
    probabilities_and_factor(stage.edge, s_by_rows, factor_by_rows, consumer.p, coord,
                             smem.statistics(stage.state.stage).lse() + kRow, keep_bits, shown,
                             elements);
    consumer.release_elements(parts + kPart, s);
    if constexpr (!Traits::kGradientOfScores) hand(factor);
  }
  if constexpr (Traits::kFastPath) tile::zero_dropped(s_by_rows, keep_bits);
  left = tile::RegisterLeft<T, Scores>(s);
  tile::start_product(dv_frag, left, do_smem, kRow);
}

/// Makes S, P and dV of all tiles of Q, and stores dV.
template <class Traits>
ATTILE_DEVICE void make_dv(const TmaBackwardParams<Traits>& p, int kv_block,
                           const BackwardMemory<Traits>& smem) {
  constexpr int kNumber = static_cast<int>(Role::kDv);
  const ScoreConsumer<Traits> consumer{p, smem, kv_work_tile(p, kv_block), kNumber};
  const auto sampler = p.sampler();
  typename Traits::DvRegisters dv_frag;
  dv_frag.clear();
  static_cast<void>(smem.k().consumer_wait({}));  // S does not read K before it has arrived
  QStage<Traits> stage(smem, {});
  int parts = 0;
  ATTILE_UNROLL_BY(1)
  for (; !stage.is_end(); parts += Traits::kParts) {
    tile::RegisterLeft<typename Traits::ElementType, typename Traits::ScoreRegisters>
        left[Traits::kParts];
    make_p_part<0>(consumer, stage, parts, left[0], dv_frag, sampler);
    if constexpr (Traits::kParts > 1) {
      make_p_part<1>(consumer, stage, parts, left[1], dv_frag, sampler);
    }
    const QStage<Traits> next(smem, stage.state.next());
    tile::wait_product<0>(dv_frag);  // dO is read before its stage is filled again
    consumer.release(stage);
    stage = next;
  }
  // dV is staged over dO. The consumer of dK has read dO of a part before it reads P, so that when
  // it has read the last P nobody reads dO any more.
  smem.p_slot(parts + Traits::kPBuffers - 1).producer_acquire();
  const WorkTile kv = kv_work_tile(p, arch::opaque(kv_block));
  store_dv(p, kv, smem.dv(0), dv_frag, kv.kv_tile() * Traits::kBc, kNumber);  // line 18
  arch::bulk_wait_read<0>();  // dV has left before shared memory goes
}

/// Makes dP^T and dS^T of part kPart of a tile (lines 13 and 14). `parts`: as for make_p_part.
template <int kPart, class Traits, class Sampler>
ATTILE_DEVICE void make_ds_part(const ScoreConsumer<Traits>& consumer, const QStage<Traits>& stage,
                                int parts, typename Traits::ScoreRegisters& ds_frag,
                                typename Traits::DkRegisters& dk_frag, const Sampler& sampler) {
  using Consumer = ScoreConsumer<Traits>;
  using Scores = typename Consumer::Scores;
  constexpr int kRow = kPart * Traits::kPartRows;
  const auto& smem = consumer.smem;
  const auto do_smem = smem.dout().consumer_wait(stage.state);  // not read before it has arrived
  tile::start_transposed_product(ds_frag, smem.v().tile(0), do_smem, 0, kRow);
  const tile::KeepBits<typename Consumer::Rows, Sampler> keep_bits(consumer.coord(stage, kRow),
                                                                   consumer.held_or_new(sampler));
  tile::VisibleBits<typename Consumer::Rows> shown;
  if constexpr (Traits::kGradientOfScores) shown = consumer.ask_mask(stage, kRow);
  tile::wait_product<0>(ds_frag);
  const float* const delta = smem.statistics(stage.state.stage).delta() + kRow;
  tile::fence_accumulators(dk_frag);  // dK of the part before is made, too
  const SlotBarriers slot = smem.p_slot(parts + kPart);
  slot.consumer_wait();  // P is written before it is read
  if constexpr (Traits::kGradientOfScores) {
    HandedScores<Scores> scores{smem.p(parts + kPart)};
    consumer.make_p_and_ds(scores, ds_frag, stage, kRow, keep_bits, shown);
    slot.consumer_release();
    return;
  }
  for_each_four<Scores>(smem.p(parts + kPart), [&](int r, int c, const float* from) {
    const Float4 factor = arch::load<4>(from);
    ATTILE_UNROLL
    for (int e = 0; e < 4; ++e) {
      float& ds = ds_frag.x[r][c + e];
      ds = factor[e] * keep_bits.dp_minus_delta(c + e, r, ds, delta[Consumer::Rows::row(c + e)]);
      // add_gradient takes a dS of 0 for that of a hidden score, which may have no element of the
      // gradient: NaN or inf in dP must not make it anything else.
      if (Traits::kModifierGradient && factor[e] == 0.0f) ds = 0.0f;
    }
  });
  slot.consumer_release();
  consumer.add_gradient(ds_frag, stage, kRow);
}

/// Makes dP, dS and dK of all tiles of Q, hands dS to the warpgroup that makes dQ, and stores dK.
template <class Traits>
ATTILE_DEVICE void make_dk(const TmaBackwardParams<Traits>& p, int kv_block,
                           const BackwardMemory<Traits>& smem) {
  using T = typename Traits::ElementType;
  using Left = tile::RegisterLeft<T, typename Traits::ScoreRegisters>;
  constexpr int kNumber = static_cast<int>(Role::kDk);
  constexpr int kParts = Traits::kParts;
  const ScoreConsumer<Traits> consumer{p, smem, kv_work_tile(p, kv_block), kNumber};
  const auto sampler = p.sampler();
  typename Traits::DkRegisters dk_frag;
  dk_frag.clear();
  static_cast<void>(smem.v().consumer_wait({}));  // dP does not read V before it has arrived
  const auto commit_ds = [&](int step, int head, int row0) {
    if (arch::thread_index() % arch::kWarpgroupSize == 0) {
      arch::store(smem.dq_rows(step % Traits::kDsTiles), Vec<int, 4>{head, row0, 0, 0});
    }
    // The barrier of the warp in it also stands between the tiles of a modifier's gradient
    // (GradientSums).
    smem.ds_slot(step).producer_commit();
  };
  QStage<Traits> stage(smem, {});
  consumer.gradient().begin();
  int step = 0;
  ATTILE_UNROLL_BY(1)
  for (; !stage.is_end(); ++step) {
    typename Traits::ScoreRegisters ds_frag;
    Left left[kParts];
    // The consumer of dQ has read dS of two steps ago before it is overwritten. The wait stands
    // here because a branch after dS keeps registers.
    smem.ds_slot(step).producer_acquire();
    make_ds_part<0>(consumer, stage, step * kParts, ds_frag, dk_frag, sampler);
    consumer.stage_scores(smem.ds(step), ds_frag, 0);
    if constexpr (kParts > 1) {
      left[0] = Left(ds_frag);
      tile::start_product(dk_frag, left[0], smem.q().tile(stage.state.stage), 0);  // line 16
      make_ds_part<1>(consumer, stage, step * kParts, ds_frag, dk_frag, sampler);
      consumer.stage_scores(smem.ds(step), ds_frag, Traits::kPartRows);
    }
    commit_ds(step, stage.head, stage.row0);
    left[kParts - 1] = Left(ds_frag);
    tile::start_product(dk_frag, left[kParts - 1], smem.q().tile(stage.state.stage),
                        Traits::kBr - Traits::kPartRows);  // line 16
    const QStage<Traits> next(smem, stage.state.next());
    tile::wait_product<0>(dk_frag);  // Q is read before its stage is filled again
    consumer.release(stage);
    stage = next;
  }
  consumer.end_gradient();
  smem.ds_slot(step).producer_acquire();  // dq_rows of two steps ago has been read
  commit_ds(step, -1, 0);
  // dK is staged over Q. Its other reader, the consumer of dV, has made S of all parts, as their P
  // is there.
  const WorkTile kv = kv_work_tile(p, arch::opaque(kv_block));
  store_dk(p, kv, smem.dk(0), dk_frag, kv.kv_tile() * Traits::kBc, kNumber);  // line 18
  arch::bulk_wait_read<0>();  // dK has left before shared memory goes
}

/// Runs a consumer warpgroup, which takes its role and its registers by its number.
/// Scope    all threads of the warpgroup.
template <class Traits>
ATTILE_DEVICE void run_consumer(const TmaBackwardParams<Traits>& p, int kv_block, int warpgroup,
                                const BackwardMemory<Traits>& smem) {
  constexpr auto kRegisters = [](Role role) {
    return Traits::kRoleRegisters[static_cast<int>(role)];
  };
  switch (static_cast<Role>(warpgroup)) {
    case Role::kDq:
      arch::reg_dealloc<kRegisters(Role::kDq)>();
      return make_dq(p, kv_block, smem);
    case Role::kDv:
      arch::reg_alloc<kRegisters(Role::kDv)>();
      return make_dv(p, kv_block, smem);
    case Role::kDk:
      arch::reg_alloc<kRegisters(Role::kDk)>();
      return make_dk(p, kv_block, smem);
  }
}

}  // namespace attile::sm90
