// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/atomic.cuh>
#include <attile/arch/bulk_tensor.cuh>
#include <attile/arch/mbarrier.cuh>
#include <attile/arch/memory.cuh>
#include <attile/arch/opaque.h>
#include <attile/arch/shared_memory.cuh>
#include <attile/arch/tensor_map.cuh>
#include <attile/arch/thread.cuh>
#include <attile/arch/warpgroup.cuh>
#include <attile/arch/wgmma.cuh>
#include <attile/core/config.h>
#include <attile/core/vec.h>
#include <attile/kernel/backward/backward_kernel.cuh>
#include <attile/kernel/backward/backward_step.cuh>
#include <attile/kernel/backward/dq_accum.cuh>
#include <attile/kernel/backward/dq_mode.h>
#include <attile/kernel/problem/work_tile.h>
#include <attile/kernel/sm90/backward_memory.cuh>
#include <attile/kernel/sm90/backward_params.cuh>
#include <attile/kernel/sm90/backward_traits.cuh>
#include <attile/kernel/sm90/named_barrier.cuh>
#include <attile/tile/mma_tile.cuh>
#include <attile/tile/pipeline.cuh>
#include <attile/tile/scores.cuh>
#include <attile/tile/two_sums.cuh>
#include <attile/tile/warpgroup.cuh>

#include <type_traits>

namespace attile::sm90 {

/// The rows of K and V that a warp of a consumer warpgroup has.
inline constexpr int kWarpRows = kWarpgroupRows * arch::kWarpSize / arch::kWarpgroupSize;

/// Holds the steps of a warpgroup that makes S or dP of one kv block. A part is kPartRows rows of a
/// tile of Q; `row` is its first row in the tile. The lines named are those of FlashAttention-2,
/// Algorithm 2 (arXiv 2307.08691).
template <class Traits>
struct ScoreConsumer {
  using T = typename Traits::ElementType;
  using Scores = typename Traits::ScoreRegisters;
  struct None {};
  using OddScores = std::conditional_t<Traits::kTwoSums, Scores, None>;  ///< the second sum of S
  using Rows =
      tile::TransposedRegisters<Scores>;  ///< a view of S^T by rows of S: it copies nothing
  using Tile = QStage<Traits>;
  using RowStatistics = RowValues<Rows>;

  const TmaBackwardParams<Traits>& p;
  const BackwardMemory<Traits>& smem;
  WorkTile key;  ///< the work tile of the kv block
  int number;    ///< the warpgroup's, among the consumers

  /// Returns the first of its rows in the tiles of K and V.
  ATTILE_DEVICE int first_key() const {
    return Traits::kProductPerWarpgroup ? 0 : number * kWarpgroupRows;
  }
  /// Returns the row of a register tile that is row 0 of the tiles of K and V: register tiles count
  /// rows through all warpgroups, which with kProductPerWarpgroup have the same rows of K and V.
  ATTILE_DEVICE int register_row() const {
    return Traits::kProductPerWarpgroup ? number * kWarpgroupRows : 0;
  }

  /// Returns LSE of the rows of a part as the fast path subtracts it from S: half of it with
  /// kBeginsAtHalf, where the sum of S begins at -LSE / 2, so that its rounding errors are smaller.
  ATTILE_DEVICE RowStatistics lse(const Tile& rows, int row) const {
    RowStatistics lse(smem.statistics(rows.state.stage).lse() + row);
    if constexpr (Traits::kBeginsAtHalf) {
      ATTILE_UNROLL
      for (float& x : lse.x) x *= 0.5f;
    }
    return lse;
  }
  /// Begins S^T of a part (line 10).
  ATTILE_DEVICE void start_scores(Scores& s, OddScores& odd, const RowStatistics& lse,
                                  const Tile& rows, int row) const {
    const auto q = smem.q().tile(rows.state.stage);
    if constexpr (Traits::kTwoSums) {
      const tile::TwoSums<Scores> sums{s, odd};
      tile::start_transposed_product<T>(sums, smem.k().tile(0), q, first_key(), row);
    } else if constexpr (Traits::kBeginsAtHalf) {
      Rows s_rows{s};
      begin_at_half(s_rows, lse, p.half_inverse_scale);
      tile::start_transposed_product<T, true>(s, smem.k().tile(0), q, first_key(), row);
    } else {
      tile::start_transposed_product<T>(s, smem.k().tile(0), q, first_key(), row);
    }
  }
  /// Waits until S^T is made, and joins its sums. kPending later wgmma groups may be under way.
  template <int kPending>
  ATTILE_DEVICE void await_scores(Scores& s, OddScores& odd) const {
    tile::wait_product<kPending>(s);
    if constexpr (Traits::kTwoSums) {
      arch::fence_operand(odd.x);  // the second sum is not read above the wait
      tile::TwoSums<Scores>{s, odd}.join();
    }
  }
  /// Returns the coordinates of the scores of a part in its registers.
  ATTILE_DEVICE tile::TileCoord coord(const Tile& rows, int row) const {
    WorkTile at = key;
    at.sequence = arch::opaque(key.sequence);
    at.head = rows.head;
    at.row0 = rows.row0 + row;
    return p.coord(at, key.kv_tile() * Traits::kBc - register_row());
  }
  /// Returns what adds to the gradient of a score modifier for this warp, which makes dS.
  ATTILE_DEVICE typename Traits::Gradient gradient() const {
    const int warp = arch::thread_index() % arch::kWarpgroupSize / arch::kWarpSize;
    return smem.gradient(first_key() / kWarpRows + warp);
  }
  /// Adds dS^T of a part to the gradient of a score modifier, where that is made of dS alone.
  ATTILE_DEVICE void add_gradient(Scores& ds, const Tile& rows, int row) const {
    if constexpr (Traits::kModifierGradient) {
      add_modifier_gradient(Rows{ds}, p, coord(rows, row), gradient());
    }
  }
  /// Ends the additions to the gradient of a score modifier, after all tiles.
  ATTILE_DEVICE void end_gradient() const {
    if constexpr (Traits::kModifierGradient) {
      WorkTile at = key;
      at.sequence = arch::opaque(key.sequence);
      gradient().end(p.policies.score_mod,
                     p.coord(at, key.kv_tile() * Traits::kBc - register_row()));
    }
  }
  /// Returns the mask's answers about the scores of a part, where it is asked about each of them.
  /// Called while products are under way, as is `ask_dropout`.
  ATTILE_DEVICE tile::VisibleBits<Rows> ask_mask(const Tile& rows, int row) const {
    tile::VisibleBits<Rows> shown;
    using M = typename Traits::MaskType;
    if constexpr (!IntervalMask<MaskInTiles<M>> || !Traits::kTwoHalves) {
      if (rows.edge) shown.ask(p.mask_in_tile(in_full_block(rows.edge)), coord(rows, row));
    }
    return shown;
  }
  /// Returns dropout's decisions about the scores of a part.
  template <class Sampler>
  ATTILE_DEVICE tile::KeepBits<Rows, Sampler> ask_dropout(const Tile& rows, int row,
                                                          const Sampler& sampler) const {
    if constexpr (Traits::DropoutType::kEnabled) {
      return {coord(rows, row), sampler};
    } else {
      return {};
    }
  }
  /// Returns `sampler`, which takes registers through the loop, or off the fast path, where there
  /// are none, a new one. Scope    all lanes of a warp.
  template <class Sampler>
  ATTILE_DEVICE Sampler held_or_new(const Sampler& sampler) const {
    if constexpr (Traits::kFastPath) {
      return sampler;
    } else {
      return p.sampler();
    }
  }
  /// Makes of S by its rows and of dP^T of a part, which are there, dropout(P), but for its factor
  /// keep_scale, and dS^T, and adds to the gradient of a score modifier (lines 11 and 14).
  template <class ScoresByRows, class Kept>
  ATTILE_DEVICE void make_p_and_ds(ScoresByRows& p_rows, Scores& ds, const Tile& rows, int row,
                                   const Kept& kept, const tile::VisibleBits<Rows>& shown) const {
    Rows ds_rows{ds};
    const auto statistics = smem.statistics(rows.state.stage);
    const tile::TileCoord at = coord(rows, row);
    with_shown(rows.edge, p_rows, p, at, shown, [&](auto masked) {
      probabilities_and_gradient<decltype(masked)::value>(
          p_rows, ds_rows, p, at, statistics.lse() + row, statistics.delta() + row, kept, shown,
          gradient());
    });
  }
  /// Writes dS^T of a part to a tile in shared memory.
  ATTILE_DEVICE void stage_scores(const typename Traits::DsTile& to, const Scores& x,
                                  int row) const {
    tile::stage(to, x, 1.0f, row, register_row());
  }
  /// Returns the work tile of a tile of Q.
  ATTILE_DEVICE WorkTile work_tile(const Tile& rows) const {
    WorkTile at = key;
    at.sequence = arch::opaque(key.sequence);
    at.head = rows.head;
    at.row0 = rows.row0;
    return at;
  }
  /// Releases a stage of Q and dO. Scope    all lanes of a warp, when the last product that reads
  /// them has been waited for.
  ATTILE_DEVICE void release(const Tile& rows) const {
    smem.dout().consumer_release(rows.state);
    smem.q().consumer_release(rows.state);
  }
};

/// Stores rows of dK or dV from `at` on, times `factor`, from the registers of warpgroup `number`,
/// by TMA by way of shared memory (line 18). `smem` has been read when `arch::bulk_wait_read` of
/// the warpgroup's first thread returns. Scope    all threads of the warpgroup.
template <class Tile, class Registers>
ATTILE_DEVICE void store_gradient(const Tile& smem, const Registers& frag, float factor,
                                  const arch::TensorMap& map, const arch::TmaCoord& at,
                                  int number) {
  tile::stage(smem, frag, factor, 0, number * kWarpgroupRows);
  // What each thread has written is made visible to TMA, and all have done so before one thread
  // starts the copy.
  arch::fence_async_proxy();
  consumer_barrier(number);
  if (arch::thread_index() % arch::kWarpgroupSize == 0) tile::store_by_tma(smem, map, at);
}

/// Store a warpgroup's rows of dK, times `scale`, and of dV, times keep_scale: rows row0 on. Scope
/// as store_gradient.
template <class Traits, class Tile, class Registers>
ATTILE_DEVICE void store_dk(const TmaBackwardParams<Traits>& p, const WorkTile& key,
                            const Tile& smem, const Registers& frag, int row0, int number) {
  store_gradient(smem, frag, p.scale, p.dk_map, p.keys(key, row0), number);
}
template <class Traits, class Tile, class Registers>
ATTILE_DEVICE void store_dv(const TmaBackwardParams<Traits>& p, const WorkTile& key,
                            const Tile& smem, const Registers& frag, int row0, int number) {
  store_gradient(smem, frag, p.sampler().keep_scale(), p.dv_map, p.keys(key, row0), number);
}

/// Adds dQ of a tile, or of part `part` of it, from registers to dq_accum, or overwrites dq_accum
/// where `writes`. Scope    all threads that hold dQ; with kInOrder between begin_adding_dq and
/// end_adding_dq.
template <class Traits>
ATTILE_DEVICE void add_dq_tile(const TmaBackwardParams<Traits>& p, const WorkTile& at,
                               const typename Traits::DqRegisters& dq, bool writes, int part = 0) {
  add_to_dq_accum<Traits>(p.dq_accum_of(at) + part * Traits::kBr * Traits::DqRegisters::kCols, dq,
                          writes);
}

/// Waits until a producer warp has acquired the semaphore of a step's tile of dQ, with
/// kDqSemaphoreWarps: added earlier, dQ would be summed in another order. Returns whether this kv
/// block is the first to add, which overwrites dq_accum. Scope    all lanes of a warp that adds.
template <class Traits>
ATTILE_DEVICE bool begin_adding_dq(const BackwardMemory<Traits>& smem, int step) {
  if constexpr (!Traits::kDqSemaphoreWarps) return false;
  smem.dq_acquired(step).consumer_wait();
  const bool writes = arch::uniform(*smem.dq_overwrites()) != 0;
  smem.dq_acquired(step).consumer_release();
  return writes;
}
/// Signals that this warp has added dQ of a step, so that a producer warp can release the
/// semaphore, with kDqSemaphoreWarps. Scope    all lanes of a warp that adds.
template <class Traits>
ATTILE_DEVICE void end_adding_dq(const BackwardMemory<Traits>& smem, int step) {
  if constexpr (!Traits::kDqSemaphoreWarps) return;
  smem.dq_added(step).producer_acquire();  // else this warp could arrive twice in one phase
  smem.dq_added(step).producer_commit();
}

/// Holds the steps of a warpgroup that makes all products of its rows of one kv block: those rows
/// of dK and dV, over all query heads of the kv head, and its share of the block's part of dQ.
template <class Traits>
struct GradientConsumer : ScoreConsumer<Traits> {
  using Base = ScoreConsumer<Traits>;
  using typename Base::Rows;
  using typename Base::RowStatistics;
  using typename Base::Scores;
  using typename Base::T;
  using typename Base::Tile;
  using Left = tile::RegisterLeft<T, Scores>;
  using DqRegisters = typename Traits::DqRegisters;
  using Base::first_key;
  using Base::key;
  using Base::number;
  using Base::p;
  using Base::smem;

  typename Traits::VLeft v_left;  ///< its rows of V in registers, or the tile of V

  /// Begins dP^T of a part (line 13).
  ATTILE_DEVICE void start_dp(Scores& dp, const typename Traits::DoTile& dout, int row) const {
    if constexpr (Traits::kVInRegisters) {
      tile::start_transposed_product<T>(dp, v_left, dout, row);
    } else {
      tile::start_transposed_product<T>(dp, v_left, dout, first_key(), row);
    }
  }
  /// Begins S^T and dP^T of a part, reads LSE, and asks the mask and dropout.
  template <class StepRegisters, class Sampler>
  ATTILE_DEVICE void start(StepRegisters& frag, const Tile& rows, int row,
                           const Sampler& sampler) const {
    if constexpr (Traits::kFastPath) frag.lse = this->lse(rows, row);
    this->start_scores(frag.s, frag.s_odd, frag.lse, rows, row);
    frag.shown = this->ask_mask(rows, row);  // before dP takes registers, as is the next line
    frag.kept = this->ask_dropout(rows, row, sampler);
    const auto do_smem = smem.dout().consumer_wait(rows.state);  // not read before it has arrived
    start_dp(frag.ds, do_smem, row);
  }
  /// Begins dQ of a step, whose dS has been staged (line 15). The consumers share dQ by its rows,
  /// where Br = Bc and so the first of a consumer's rows of Q is first_key() too, or by its
  /// columns.
  ATTILE_DEVICE void start_dq(DqRegisters& dq, int step) const {
    const TileOrigin origin = Traits::dq_origin(arch::thread_index());
    tile::start_left_transposed_product<T>(dq, smem.ds(step),
                                           Traits::kDqWarpgroupsN == 1 ? first_key() : 0,
                                           smem.k().tile(0), arch::uniform(origin.col));
  }

  /// Waits for S^T, and makes P^T of it (line 11). Returns dropout(P)^T, but for its factor
  /// keep_scale, as the left operand of dV, and leaves P^T * score_mod'(scale S)^T, the factor of
  /// dS, in S's registers. kPending later wgmma groups may be under way.
  template <int kPending, class StepRegisters>
  ATTILE_DEVICE Left make_p(StepRegisters& frag, const Tile& rows, int row) const {
    Rows p_rows{frag.s};
    this->template await_scores<kPending>(frag.s, frag.s_odd);
    Scores kept = frag.s;
    if constexpr (Traits::kFastPath) {
      if (rows.edge) {
        tile::hide_outside_intervals(p_rows, this->coord(rows, row),
                                     p.mask_in_tile(in_full_block(rows.edge)));
      }
      fast_probabilities(p_rows, p.scale, frag.lse);
      kept = frag.s;
      tile::drop(Rows{kept}, frag.kept);
    } else {
      Rows kept_rows{kept};
      const tile::TileCoord coord = this->coord(rows, row);
      const float* const lse = smem.statistics(rows.state.stage).lse() + row;
      probabilities_and_factor(rows.edge, kept_rows, p_rows, p, coord, lse, frag.kept, frag.shown);
    }
    return Left(kept);
  }
  /// Waits for dP^T, and makes dS^T of it (line 14). kPending later wgmma groups may be under way.
  template <int kPending, class StepRegisters>
  ATTILE_DEVICE void make_ds(StepRegisters& frag, const Tile& rows, int row) const {
    tile::wait_product<kPending>(frag.ds);
    const RowStatistics delta(smem.statistics(rows.state.stage).delta() + row);
    Rows p_rows{frag.s}, ds_rows{frag.ds};
    fast_gradient<Traits::kModifierGradient>(p_rows, ds_rows, delta, frag.kept);
    this->add_gradient(frag.ds, rows, row);
  }
  /// Does both for a modifier with a gradient, which is made of S and dS: leaves dropout(P)^T in
  /// S's registers.
  template <class StepRegisters>
  ATTILE_DEVICE Left make_p_and_ds(StepRegisters& frag, const Tile& rows, int row) const {
    this->template await_scores<0>(frag.s, frag.s_odd);
    arch::fence_operand(frag.ds.x);  // dP is not read above the wait
    Rows p_rows{frag.s};
    Base::make_p_and_ds(p_rows, frag.ds, rows, row, frag.kept, frag.shown);
    return Left(frag.s);
  }
  /// Waits until all consumer warpgroups have staged dS of a step, which dQ reads, and have read dS
  /// of the step before, which the next step overwrites.
  ATTILE_DEVICE void await_step(int step) const {
    arch::mbarrier_wait(smem.step_barrier(), step & 1);
    // wgmma reads what threads have staged. A fence right after those stores would wait for them;
    // here they are done.
    arch::fence_async_proxy();
  }
  /// Signals that this warp has staged dS of its step, and read dS of the step before.
  ATTILE_DEVICE void arrive_step() const { arrive_warp(smem.step_barrier()); }
  /// Waits until a producer warp has read the staged dQ of the first `tiles` tiles, so that dQ of
  /// the next one can overwrite it: this consumer's part of it, or with kInOrder all, which has one
  /// barrier for the two warps that add alternate tiles.
  ATTILE_DEVICE void await_dq_read(int tiles) const {
    if constexpr (Traits::kBulkDq) {
      arch::mbarrier_wait(smem.dq_read(number), (tiles & 1) ^ 1);
    }
  }
  /// Adds dQ of a step's tile to dq_accum, or with kBulkDq stages it for `add_staged_dq`.
  ATTILE_DEVICE void add_dq(const Tile& rows, int step, const DqRegisters& dq) const {
    constexpr bool kInOrder = Traits::kDqMode == DqMode::kInOrder;
    if constexpr (Traits::kBulkDq) {
      float* const mine = smem.dq() + dq_accum_begin<Traits>();
      for_each_of_dq<Traits>(dq, [&](int r, int c, const Float4& x) {
        arch::store(mine + dq_accum_offset<Traits>(r, c), x);
      });
      // add_staged_dq has the fence between these stores and the copy that reads them.
      arrive_warp(smem.dq_staged(kInOrder ? step % Traits::kDqAdders : number));
    } else {
      const WorkTile at = this->work_tile(rows);
      smem.await_zero_filled();  // zeros written later would erase what is added
      const bool writes = begin_adding_dq(smem, step);
      add_dq_tile(p, at, dq, writes);
      end_adding_dq(smem, step);
    }
  }
};

}  // namespace attile::sm90
