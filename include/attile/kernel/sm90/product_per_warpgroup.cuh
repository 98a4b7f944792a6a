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
#include <attile/kernel/backward/backward_kernel.cuh>
#include <attile/kernel/backward/backward_step.cuh>
#include <attile/kernel/backward/dq_accum.cuh>
#include <attile/kernel/backward/dq_order.cuh>
#include <attile/kernel/problem/work_tile.h>
#include <attile/kernel/sm90/backward_memory.cuh>
#include <attile/kernel/sm90/backward_params.cuh>
#include <attile/kernel/sm90/backward_traits.cuh>
#include <attile/kernel/sm90/gradient_consumer.cuh>
#include <attile/kernel/sm90/named_barrier.cuh>
#include <attile/tile/mma_tile.cuh>
#include <attile/tile/pipeline.cuh>
#include <attile/tile/scores.cuh>
#include <attile/tile/warpgroup.cuh>

// The backward pass above 128 columns: dK and dV of 64 rows of K and V take all registers of two
// warpgroups, so each of them makes one, with what leads to it, for all of the tile's rows and
// columns: S, P and dV, or dP, dS and dK. P goes from one to the other, fp32 and as it lies in
// registers; as the left operands of dV and dK neither P nor dS leaves them. A third warpgroup
// makes dQ and adds it to its sum, which takes as long as all products: nobody waits for it.

namespace attile::sm90 {

enum class Role { kDq, kDv, kDk };  ///< of a warpgroup, by its number

/// dQ of all tiles (line 15), 64 columns at a time: while some are added to the sum, the product
/// of the next ones, or of the next tile, is under way.
template <class Traits>
ATTILE_DEVICE void make_dq(const BackwardParams<Traits>& p, int kv_block,
                           const BackwardMemory<Traits>& smem) {
  using T = typename Traits::ElementType;
  constexpr int kLast = Traits::kDqParts - 1;
  typename Traits::DqRegisters dq[2];
  int head, row0;  // of the tile in hand
  bool writes;     // the sum, instead of adding to it
  const auto work_tile = [&] {
    WorkTile at = kv_work_tile(p, arch::opaque(kv_block));
    at.head = head;
    at.row0 = row0;
    return at;
  };
  const auto start = [&](int step, int part, int to) {
    tile::start_left_transposed_product<T>(dq[to % 2], smem.ds(step), 0, smem.k().tile(0),
                                           part * 64);
  };
  const auto add = [&](int part) { add_dq_tile(p, work_tile(), dq[part % 2], writes, part); };
  const auto add_last = [&](int step) {
    add(kLast);
    end_dq_turn(smem, step);
  };
  const auto next_tile = [&](int step) {
    smem.ds_slot(step).consumer_wait();
    arch::fence_async_proxy();  // for those who have staged dS
    const Vec<int, 4> said = arch::load<4>(smem.dq_rows(step % Traits::kDsTiles));
    return Vec<int, 2>{arch::uniform(said[0]), arch::uniform(said[1])};
  };
  const auto begin_tile = [&](const Vec<int, 2>& said) {
    head = said[0];
    row0 = said[1];
  };
  const auto tell = [&] {
    if constexpr (!Traits::kSignalsDqReady) return;
    smem.await_zero_fill();                         // also where nothing is added
    consumer_barrier(static_cast<int>(Role::kDq));  // all have added
    if (arch::thread_index() == 0) DqOrder<Traits>(p).signal_ready(arch::opaque(kv_block), 0);
  };
  begin_tile(next_tile(0));  // K is there: dS was made of it
  if (head < 0) return tell();
  start(0, 0, 0);
  smem.await_zero_fill();
  tile::wait_product<0>(dq[0]);
  int step = 0;
  ATTILE_UNROLL_BY(1)
  for (;; ++step) {
    writes = begin_dq_turn(smem, step);
    ATTILE_UNROLL
    for (int part = 0; part < kLast; ++part) {
      start(step, part + 1, part + 1);
      add(part);
      tile::wait_product<0>(dq[(part + 1) % 2]);
    }
    smem.ds_slot(step).consumer_release();
    const Vec<int, 2> next = next_tile(step + 1);
    if (next[0] < 0) break;
    start(step + 1, 0, kLast + 1);
    add_last(step);
    tile::wait_product<0>(dq[(kLast + 1) % 2]);
    if constexpr (kLast % 2 == 0) dq[0] = dq[1];
    begin_tile(next);
  }
  add_last(step);
  tell();
}

/// Calls f(r, c, address) for each four that a thread hands over of P: where row r and columns c to
/// c + 3 of its registers lie. The thread that takes them has the same place in its warpgroup.
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

/// S^T and P^T of part kPart of a tile, `parts` of which went before (lines 10 and 11), and begins
/// dV (line 12).
template <int kPart, class Traits, class Sampler>
ATTILE_DEVICE void make_p_part(
    const ScoreConsumer<Traits>& consumer, const QStage<Traits>& rows, int parts,
    tile::RegisterLeft<typename Traits::ElementType, typename Traits::ScoreRegisters>& left,
    typename Traits::DvRegisters& dv_frag, const Sampler& sampler) {
  using Consumer = ScoreConsumer<Traits>;
  using T = typename Traits::ElementType;
  using Scores = typename Consumer::Scores;
  constexpr int kRow = kPart * Traits::kPartRows;
  const auto& smem = consumer.smem;
  Scores s, factor;
  typename Consumer::OddScores odd;
  typename Consumer::Rows p_rows{s};
  consumer.start_scores(s, odd, consumer.lse(rows, kRow), rows, kRow);
  const SlotBarriers handover = smem.p_slot(parts + kPart);
  handover.producer_acquire();  // beside S
  const auto do_smem = smem.dout().consumer_wait(rows.state);
  const auto kept = consumer.ask_dropout(rows, kRow, sampler);
  const auto shown = consumer.ask_mask(rows, kRow);
  consumer.template await_scores<0>(s, odd);
  tile::fence_accumulators(dv_frag);
  const tile::TileCoord coord = consumer.coord(rows, kRow);
  const Scores* made = &s;
  if constexpr (Traits::kFastPath) {
    if (rows.edge) tile::hide_outside_intervals(p_rows, coord, consumer.p.policies.mask);
    fast_probabilities(p_rows, consumer.p.scale,
                       consumer.lse(rows, kRow));  // read anew: no registers
  } else {
    typename Consumer::Rows factor_rows{factor};
    with_shown(rows.edge, p_rows, consumer.p, coord, shown, [&](auto masked) {
      probabilities_and_factor<decltype(masked)::value>(
          p_rows, factor_rows, consumer.p, coord, smem.statistics(rows.state.stage).lse() + kRow,
          kept, shown);
    });
    made = &factor;
  }
  for_each_four<Scores>(smem.p(parts + kPart), [&](int r, int c, float* to) {
    arch::store(to, Float4{made->x[r][c], made->x[r][c + 1], made->x[r][c + 2], made->x[r][c + 3]});
  });
  handover.producer_commit();
  left = tile::RegisterLeft<T, Scores>(s);
  tile::start_product<T>(dv_frag, left, do_smem, kRow);
}

/// S, P and dV of all tiles.
template <class Traits>
ATTILE_DEVICE void make_dv(const BackwardParams<Traits>& p, int kv_block,
                           const BackwardMemory<Traits>& smem) {
  constexpr int kNumber = static_cast<int>(Role::kDv);
  const ScoreConsumer<Traits> consumer{p, smem, kv_work_tile(p, kv_block), kNumber};
  const auto sampler = p.sampler();
  typename Traits::DvRegisters dv_frag;
  dv_frag.clear();
  static_cast<void>(smem.k().consumer_wait({}));
  QStage<Traits> rows(smem, {});
  int parts = 0;
  ATTILE_UNROLL_BY(1)
  for (; !rows.is_end(); parts += Traits::kParts) {
    tile::RegisterLeft<typename Traits::ElementType, typename Traits::ScoreRegisters>
        left[Traits::kParts];
    make_p_part<0>(consumer, rows, parts, left[0], dv_frag, sampler);
    if constexpr (Traits::kParts > 1) {
      make_p_part<1>(consumer, rows, parts, left[1], dv_frag, sampler);
    }
    const QStage<Traits> next(smem, rows.state.next());
    tile::wait_product<0>(dv_frag);
    consumer.release(rows);
    rows = next;
  }
  // Nobody reads dO any more: of all tiles dS has been made.
  smem.p_slot(parts + Traits::kPBuffers - 1).producer_acquire();
  const WorkTile key = kv_work_tile(p, arch::opaque(kv_block));
  store_dv(p, key, smem.dv(0), dv_frag, key.kv_tile() * Traits::kBc, kNumber);
  arch::bulk_wait_read<0>();  // before shared memory goes
}

/// dP^T and dS^T of part kPart of a tile (lines 13 and 14).
template <int kPart, class Traits, class Sampler>
ATTILE_DEVICE void make_ds_part(const ScoreConsumer<Traits>& consumer, const QStage<Traits>& rows,
                                int parts, typename Traits::ScoreRegisters& ds_frag,
                                typename Traits::DkRegisters& dk_frag, const Sampler& sampler) {
  using Consumer = ScoreConsumer<Traits>;
  using T = typename Traits::ElementType;
  using Scores = typename Consumer::Scores;
  constexpr int kRow = kPart * Traits::kPartRows;
  const auto& smem = consumer.smem;
  const auto do_smem = smem.dout().consumer_wait(rows.state);
  tile::start_transposed_product<T>(ds_frag, smem.v().tile(0), do_smem, 0, kRow);
  const tile::KeepBits<typename Consumer::Rows, Sampler> kept(consumer.coord(rows, kRow), sampler);
  tile::wait_product<0>(ds_frag);
  const float* const delta = smem.statistics(rows.state.stage).delta() + kRow;
  tile::fence_accumulators(dk_frag);
  const SlotBarriers handover = smem.p_slot(parts + kPart);
  handover.consumer_wait();
  for_each_four<Scores>(smem.p(parts + kPart), [&](int r, int c, const float* from) {
    const Float4 factor = arch::load<4>(from);
    ATTILE_UNROLL
    for (int e = 0; e < 4; ++e) {
      float& ds = ds_frag.x[r][c + e];
      ds = score_gradient(factor[e], kept.keep(c + e, r) ? ds * kept.scale() : 0.0f,
                          delta[Consumer::Rows::row(c + e)]);
    }
  });
  handover.consumer_release();
}

/// dP, dS and dK of all tiles.
template <class Traits>
ATTILE_DEVICE void make_dk(const BackwardParams<Traits>& p, int kv_block,
                           const BackwardMemory<Traits>& smem) {
  using T = typename Traits::ElementType;
  using Left = tile::RegisterLeft<T, typename Traits::ScoreRegisters>;
  constexpr int kNumber = static_cast<int>(Role::kDk);
  constexpr int kParts = Traits::kParts;
  const ScoreConsumer<Traits> consumer{p, smem, kv_work_tile(p, kv_block), kNumber};
  const auto sampler = p.sampler();
  typename Traits::DkRegisters dk_frag;
  dk_frag.clear();
  static_cast<void>(smem.v().consumer_wait({}));
  const auto hand_over_ds = [&](int step, int head, int row0) {
    if (arch::thread_index() % arch::kWarpgroupSize == 0) {
      arch::store(smem.dq_rows(step % Traits::kDsTiles), Vec<int, 4>{head, row0, 0, 0});
    }
    smem.ds_slot(step).producer_commit();
  };
  QStage<Traits> rows(smem, {});
  int step = 0;
  ATTILE_UNROLL_BY(1)
  for (; !rows.is_end(); ++step) {
    typename Traits::ScoreRegisters ds_frag;
    Left left[kParts];
    smem.ds_slot(step).producer_acquire();  // here: two steps ago, and no branch behind dS
    make_ds_part<0>(consumer, rows, step * kParts, ds_frag, dk_frag, sampler);
    consumer.stage_scores(smem.ds(step), ds_frag, 0);
    if constexpr (kParts > 1) {
      left[0] = Left(ds_frag);
      tile::start_product<T>(dk_frag, left[0], smem.q().tile(rows.state.stage), 0);  // line 16
      make_ds_part<1>(consumer, rows, step * kParts, ds_frag, dk_frag, sampler);
      consumer.stage_scores(smem.ds(step), ds_frag, Traits::kPartRows);
    }
    hand_over_ds(step, rows.head, rows.row0);
    left[kParts - 1] = Left(ds_frag);
    tile::start_product<T>(dk_frag, left[kParts - 1], smem.q().tile(rows.state.stage),
                           Traits::kBr - Traits::kPartRows);
    const QStage<Traits> next(smem, rows.state.next());
    tile::wait_product<0>(dk_frag);
    consumer.release(rows);
    rows = next;
  }
  smem.ds_slot(step).producer_acquire();
  hand_over_ds(step, -1, 0);
  // Nobody reads Q any more: P of all tiles is there.
  const WorkTile key = kv_work_tile(p, arch::opaque(kv_block));
  store_dk(p, key, smem.dk(0), dk_frag, key.kv_tile() * Traits::kBc, kNumber);
  arch::bulk_wait_read<0>();  // before shared memory goes
}

/// Scope    all threads of a warpgroup that computes.
template <class Traits>
ATTILE_DEVICE void run_consumer(const BackwardParams<Traits>& p, int kv_block, int warpgroup,
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
