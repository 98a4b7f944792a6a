// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/mbarrier.cuh>
#include <attile/arch/memory.cuh>
#include <attile/arch/thread.cuh>
#include <attile/arch/wgmma.cuh>
#include <attile/core/config.h>
#include <attile/core/vec.h>
#include <attile/core/work_tile.h>
#include <attile/kernel/backward/dq_accum.cuh>
#include <attile/kernel/backward/dq_mode.h>
#include <attile/kernel/backward/step_in_halves.cuh>
#include <attile/kernel/sm90/backward_memory.cuh>
#include <attile/kernel/sm90/score_consumer.cuh>
#include <attile/tile/dropout.cuh>
#include <attile/tile/scores.cuh>
#include <attile/tile/signed_dropout.cuh>
#include <attile/tile/warpgroup.cuh>

namespace attile::sm90 {

/// Holds the steps of a warpgroup that makes all products of its 64 rows of K and V of one kv
/// block, up to 128 columns: those rows of dK and dV, summed over all query heads that read the kv
/// head, and its share of the dQ that the block adds.
template <class Traits>
struct GradientConsumer : ScoreConsumer<Traits> {
  using Base = ScoreConsumer<Traits>;
  using typename Base::Rows;
  using typename Base::RowStatistics;
  using typename Base::Scores;
  using typename Base::Stage;
  using typename Base::T;
  using Left = tile::RegisterLeft<T, Scores>;
  using DqRegisters = typename Traits::DqRegisters;
  using Base::first_key;
  using Base::kv;
  using Base::number;
  using Base::p;
  using Base::smem;

  typename Traits::VLeft v_left;  ///< its rows of V in registers, or the tile of V

  /// Begins dP^T of a part (line 13).
  ATTILE_DEVICE void start_dp(Scores& dp, const typename Traits::DoTile& dout, int row) const {
    if constexpr (Traits::kVInRegisters) {
      tile::start_transposed_product(dp, v_left, dout, row);
    } else {
      tile::start_transposed_product(dp, v_left, dout, first_key(), row);
    }
  }
  /// Begins S^T and, unless kDpBehindP, dP^T of a part, reads LSE, and asks the mask and dropout.
  template <class StepRegisters, class Sampler>
  ATTILE_DEVICE void start(StepRegisters& frag, const Stage& stage, int row,
                           const Sampler& sampler) const {
    if constexpr (Traits::kFastPath) frag.lse = this->lse(stage, row);
    // All parts have the same columns.
    if (Traits::kReadsColumns && row == 0) frag.columns = this->read_columns(stage);
    this->start_scores(frag.s, frag.s_second, frag.lse, stage, row);
    frag.shown = this->ask_mask(stage, row);  // before dP takes registers, as is the next line
    frag.keep = this->ask_dropout(stage, row, sampler);
    if constexpr (!Traits::kDpBehindP) begin_dp(frag, stage, row);
  }
  /// Waits for dO, and begins dP^T of a part.
  template <class StepRegisters>
  ATTILE_DEVICE void begin_dp(StepRegisters& frag, const Stage& stage, int row) const {
    const auto do_smem = smem.dout().consumer_wait(stage.state);  // not read before it has arrived
    start_dp(frag.ds, do_smem, row);
  }
  /// Begins dQ of a step, whose dS has been staged (line 15). The consumers share dQ by its rows,
  /// where Br = Bc and so the first of a consumer's rows of Q is first_key() too, or by its
  /// columns.
  ATTILE_DEVICE void start_dq(DqRegisters& dq, int step) const {
    const TileOrigin origin = Traits::dq_origin(arch::thread_index());
    tile::start_left_transposed_product(dq, smem.ds(step),
                                        Traits::kDqWarpgroupsN == 1 ? first_key() : 0,
                                        smem.k().tile(0), arch::uniform(origin.col));
  }

  /// Waits for S^T, and makes P^T of it (line 11), before dP is there. Returns dropout(P)^T, but
  /// for its factor keep_scale, as the left operand of dV, and leaves P^T * score_mod'(scale S)^T,
  /// the factor of dS, in S's registers. kPending later wgmma groups may be under way.
  template <int kPending, class StepRegisters>
  ATTILE_DEVICE Left make_p(StepRegisters& frag, const Stage& stage, int step, int row) const {
    const int part = step * Traits::kParts + row / Traits::kPartRows;
    const auto elements = this->read_elements(stage, part, row);
    Rows s_by_rows{frag.s};
    this->template await_scores<kPending>(frag.s, frag.s_second);
    Scores p_dropped = frag.s;
    if constexpr (Traits::kFastPath) {
      this->apply_columns(s_by_rows, frag.columns, stage, row);
      if (stage.edge) {
        tile::hide_outside_intervals(s_by_rows, this->coord(stage, row),
                                     p.mask_in_tile(in_full_block(stage.edge)));
      }
      fast_probabilities<Traits::kLog2Lse>(s_by_rows, p, this->coord(stage, row), frag.lse,
                                           frag.keep);
      p_dropped = frag.s;
      if constexpr (!Traits::kSignsP) tile::zero_dropped(Rows{p_dropped}, frag.keep);
    } else {
      Rows p_dropped_by_rows{p_dropped};
      const tile::TileCoord coord = this->coord(stage, row);
      const float* const lse = smem.statistics(stage.state.stage).lse() + row;
      const auto make = [&](const auto& read) {
        probabilities_and_factor(stage.edge, p_dropped_by_rows, s_by_rows, p, coord, lse, frag.keep,
                                 frag.shown, read);
      };
      if constexpr (Traits::kReadsColumns) {
        make(frag.columns);
      } else {
        make(elements);
      }
    }
    this->release_elements(part, p_dropped);
    return left_of(p_dropped);
  }
  /// Returns dropout(P)^T as an operand, of P^T as make_p has it.
  ATTILE_DEVICE static Left left_of(const Scores& p_dropped) {
    if constexpr (Traits::kSignsP) {
      return tile::positive_left<Left>(p_dropped);
    } else {
      return Left(p_dropped);
    }
  }
  /// Waits for dP^T, and makes dS^T of it and of the factor that make_p has left (line 14).
  /// kPending later wgmma groups may be under way.
  template <int kPending, class StepRegisters>
  ATTILE_DEVICE void make_ds(StepRegisters& frag, const Stage& stage, int row) const {
    tile::wait_product<kPending>(frag.ds);
    const RowStatistics delta(smem.statistics(stage.state.stage).delta() + row);
    Rows s_by_rows{frag.s}, ds_by_rows{frag.ds};
    gradient_of_factor<Traits::kModifierGradient>(s_by_rows, ds_by_rows, delta, frag.keep);
    this->add_gradient(frag.ds, stage, row);
  }
  /// Does both without kPBeforeDp: waits for S^T and dP^T, and makes P^T and dS^T at once. Returns
  /// the left operand of dV, as make_p does, and leaves dropout(P)^T in S's registers.
  template <class StepRegisters>
  ATTILE_DEVICE Left make_p_and_ds(StepRegisters& frag, const Stage& stage, int row) const {
    this->template await_scores<0>(frag.s, frag.s_second);
    arch::fence_operand(frag.ds.x);  // dP is not read above the wait
    Rows s_by_rows{frag.s};
    Base::make_p_and_ds(s_by_rows, frag.ds, stage, row, frag.keep, frag.shown);
    return Left(frag.s);
  }
  /// Waits until all consumer warpgroups have staged dS of a step, which dQ reads, and have read dS
  /// of the step before, which the next step overwrites.
  ATTILE_DEVICE void await_step(int step) const {
    arch::mbarrier_wait(smem.step_barrier(), step & 1);
    // wgmma reads, by the async proxy, what threads of all warpgroups have staged. The proxy fence
    // may stand on the side that reads: the barrier has put the stores before it, and it puts them
    // before the products that this thread begins. Right after the stores it would wait for them;
    // here they are done.
    arch::fence_async_proxy();
  }
  /// Signals that this warp has staged dS of its step, and read dS of the step before. The barrier
  /// of the warp in it also stands between the tiles of a score modifier's gradient (GradientSums).
  ATTILE_DEVICE void arrive_step() const { arrive_warp(smem.step_barrier()); }
  /// Waits until a producer warp has read this consumer's share of the staged dQ of the first
  /// `tiles` tiles, so that dQ of the next one can overwrite it.
  ATTILE_DEVICE void await_dq_read(int tiles) const {
    if constexpr (Traits::kBulkDq) {
      arch::mbarrier_wait(smem.dq_read(number), (tiles & 1) ^ 1);
    }
  }
  /// Adds dQ of a step's tile to dq_accum, or with kBulkDq stages it for `add_staged_dq`.
  ATTILE_DEVICE void add_dq(const Stage& stage, int step, const DqRegisters& dq) const {
    if constexpr (Traits::kBulkDq) {
      float* const mine = smem.dq() + dq_accum_begin<Traits>();
      for_each_of_dq<Traits>(dq, [&](int r, int c, const Float4& x) {
        arch::store(mine + dq_accum_offset<Traits>(r, c), x);
      });
      // add_staged_dq has the fence between these stores and the copy that reads them.
      arrive_warp(smem.dq_staged(number));
    } else {
      const WorkTile at = this->work_tile(stage);
      smem.await_zero_filled();  // zeros written later would erase what is added
      const bool overwrites = begin_adding_dq(smem, step);
      add_dq_tile(p, at, dq, overwrites);
      end_adding_dq(smem, step);
    }
  }
};

}  // namespace attile::sm90
