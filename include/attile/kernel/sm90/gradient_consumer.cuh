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

/// What a warpgroup that makes S or dP has to do with one tile of K and V.
template <class Traits>
struct ScoreConsumer {
  using T = typename Traits::ElementType;
  using Scores = typename Traits::ScoreRegisters;
  struct None {};
  using OddScores = std::conditional_t<Traits::kTwoSums, Scores, None>;  ///< S's second sum
  using Rows = tile::TransposedRegisters<Scores>;
  using Tile = QStage<Traits>;
  using RowStatistics = RowValues<Rows>;

  const BackwardParams<Traits>& p;
  const BackwardMemory<Traits>& smem;
  WorkTile key;  ///< the block's
  int number;    ///< of the warpgroup

  /// The first of its rows of K and V.
  ATTILE_DEVICE int first_key() const {
    return Traits::kProductPerWarpgroup ? 0 : number * kWarpgroupRows;
  }
  /// Where its registers count from, of those rows.
  ATTILE_DEVICE int register_row() const {
    return Traits::kProductPerWarpgroup ? number * kWarpgroupRows : 0;
  }

  /// LSE of the rows of Q from `part` on as P of a plain step is made of it: half, where S begins
  /// at the other one.
  ATTILE_DEVICE RowStatistics lse(const Tile& rows, int part) const {
    RowStatistics lse(smem.statistics(rows.state.stage).lse() + part);
    if constexpr (Traits::kBeginsAtHalf) {
      ATTILE_UNROLL
      for (float& x : lse.x) x *= 0.5f;
    }
    return lse;
  }
  /// Begins S^T for the rows of Q from `part` on (line 10).
  ATTILE_DEVICE void start_scores(Scores& s, OddScores& odd, const RowStatistics& lse,
                                  const Tile& rows, int part) const {
    const auto q = smem.q().tile(rows.state.stage);
    if constexpr (Traits::kTwoSums) {
      const tile::TwoSums<Scores> sums{s, odd};
      tile::start_transposed_product<T>(sums, smem.k().tile(0), q, first_key(), part);
    } else if constexpr (Traits::kBeginsAtHalf) {
      Rows s_rows{s};
      begin_at_half(s_rows, lse, p.half_inverse_scale);
      tile::start_transposed_product<T, true>(s, smem.k().tile(0), q, first_key(), part);
    } else {
      tile::start_transposed_product<T>(s, smem.k().tile(0), q, first_key(), part);
    }
  }
  /// Waits for S^T, behind which kPending groups of products may be under way.
  template <int kPending>
  ATTILE_DEVICE void await_scores(Scores& s, OddScores& odd) const {
    tile::wait_product<kPending>(s);
    if constexpr (Traits::kTwoSums) {
      arch::fence_operand(odd.x);
      tile::TwoSums<Scores>{s, odd}.join();
    }
  }
  /// Where the scores of its registers stand, for the rows of Q from `part` on.
  ATTILE_DEVICE tile::TileCoord coord(const Tile& rows, int part) const {
    WorkTile at = key;
    at.sequence = arch::opaque(key.sequence);
    at.head = rows.head;
    at.row0 = rows.row0 + part;
    return p.coord(at, key.kv_tile() * Traits::kBc - register_row());
  }
  /// What the mask and dropout say of the same scores. Asked while products are under way.
  ATTILE_DEVICE tile::VisibleBits<Rows> ask_mask(const Tile& rows, int part) const {
    tile::VisibleBits<Rows> shown;
    if constexpr (kAsksEachScore<typename Traits::MaskType, typename Traits::ScoreModType>) {
      if (rows.edge) shown.ask(p.policies.mask, coord(rows, part));
    }
    return shown;
  }
  template <class Sampler>
  ATTILE_DEVICE tile::KeepBits<Rows, Sampler> ask_dropout(const Tile& rows, int part,
                                                          const Sampler& sampler) const {
    if constexpr (Traits::DropoutType::kEnabled) {
      return {coord(rows, part), sampler};
    } else {
      return {};
    }
  }
  ATTILE_DEVICE void stage_scores(const typename Traits::DsTile& to, const Scores& x,
                                  int part) const {
    tile::stage(to, x, 1.0f, part, register_row());
  }
  /// The work tile of a tile of rows.
  ATTILE_DEVICE WorkTile work_tile(const Tile& rows) const {
    WorkTile at = key;
    at.sequence = arch::opaque(key.sequence);
    at.head = rows.head;
    at.row0 = rows.row0;
    return at;
  }
  /// Releases the tile of Q and dO. Scope    all lanes of a warp, behind the last product of it.
  ATTILE_DEVICE void release(const Tile& rows) const {
    smem.dout().consumer_release(rows.state);
    smem.q().consumer_release(rows.state);
  }
};

/// Sends keys row0 on of dK or dV times `factor` away by way of shared memory (line 18): what
/// warpgroup `number` has of it. By a copy, or where keys of another sequence may follow by the
/// threads, which write this one's alone. `target`: the keys of the head that `key` is of.
/// Scope    all threads of the warpgroup; its first one is later told by `arch::bulk_wait_read`
///          that `smem` has been read.
template <bool kUniform, class Tile, class Registers, class T>
ATTILE_DEVICE void store_gradient(const Tile& smem, const Registers& frag, float factor,
                                  const arch::TensorMap& map, const tile::Matrix<T>& target,
                                  const WorkTile& key, int row0, int number) {
  tile::stage(smem, frag, factor, 0, number * kWarpgroupRows);
  arch::fence_async_proxy();
  consumer_barrier(number);
  if constexpr (kUniform) {
    if (arch::thread_index() % arch::kWarpgroupSize != 0) return;
    tile::store_by_tma(smem, map, 0, row0, key.kv_head, key.sequence);
  } else {
    constexpr int kWarpRows = kWarpgroupRows * arch::kWarpSize / arch::kWarpgroupSize;
    const int warp = arch::thread_index() % arch::kWarpgroupSize / arch::kWarpSize;
    tile::store_rows<kWarpRows>(target, smem, warp * kWarpRows, row0);
  }
}

/// What warpgroup `number` has of dK, and of dV: keys row0 on.
template <class Traits, class Tile, class Registers>
ATTILE_DEVICE void store_dk(const BackwardParams<Traits>& p, const WorkTile& key, const Tile& smem,
                            const Registers& frag, int row0, int number) {
  const auto target = p.keys_of_head(p.dk, key, p.head_dim);
  store_gradient<BackwardParams<Traits>::kUniform>(smem, frag, p.scale, p.dk_map, target, key, row0,
                                                   number);
}
template <class Traits, class Tile, class Registers>
ATTILE_DEVICE void store_dv(const BackwardParams<Traits>& p, const WorkTile& key, const Tile& smem,
                            const Registers& frag, int row0, int number) {
  const auto target = p.keys_of_head(p.dv, key, p.head_dim_v);
  store_gradient<BackwardParams<Traits>::kUniform>(smem, frag, 1.0f, p.dv_map, target, key, row0,
                                                   number);
}

/// Adds what a warpgroup has of dQ of a tile to the sum, or writes it there: of its own columns, or
/// of part `part`. Scope    all threads that hold dQ, kInOrder when it is their turn.
template <class Traits>
ATTILE_DEVICE void add_dq_tile(const BackwardParams<Traits>& p, const WorkTile& at,
                               const typename Traits::DqRegisters& dq, bool writes, int part = 0) {
  add_to_dq_accum<Traits>(p.dq_accum_of(at) + part * Traits::kBr * Traits::DqRegisters::kCols, dq,
                          writes);
}

/// Waits until it is this block's turn to add dQ of the tile of a step, kDqSemaphoreWarps; whether
/// it writes the sum. Scope    of both    all lanes of a warp that adds.
template <class Traits>
ATTILE_DEVICE bool begin_dq_turn(const BackwardMemory<Traits>& smem, int step) {
  if constexpr (!Traits::kDqSemaphoreWarps) return false;
  smem.dq_turn(step).consumer_wait();
  const bool writes = arch::uniform(*smem.dq_overwrites()) != 0;
  smem.dq_turn(step).consumer_release();
  return writes;
}
template <class Traits>
ATTILE_DEVICE void end_dq_turn(const BackwardMemory<Traits>& smem, int step) {
  if constexpr (!Traits::kDqSemaphoreWarps) return;
  smem.dq_added(step).producer_acquire();
  smem.dq_added(step).producer_commit();
}

/// What one warpgroup makes of its rows of one tile of K and V: those rows of dK and dV, over all
/// query heads of the group, and its share of the tile's part of dQ.
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

  typename Traits::VLeft v_left;

  /// Begins dP^T (line 13).
  ATTILE_DEVICE void start_dp(Scores& dp, const typename Traits::DoTile& dout, int part) const {
    if constexpr (Traits::kVInRegisters) {
      tile::start_transposed_product<T>(dp, v_left, dout, part);
    } else {
      tile::start_transposed_product<T>(dp, v_left, dout, first_key(), part);
    }
  }
  /// Begins S^T and dP^T, reads LSE, and asks the mask.
  template <class StepRegisters>
  ATTILE_DEVICE void start(StepRegisters& frag, const Tile& rows, int part) const {
    if constexpr (Traits::kFastPath) frag.lse = this->lse(rows, part);
    this->start_scores(frag.s, frag.s_odd, frag.lse, rows, part);
    frag.shown = this->ask_mask(rows, part);  // before dP takes registers
    const auto do_smem = smem.dout().consumer_wait(rows.state);
    start_dp(frag.ds, do_smem, part);
  }
  /// Begins dQ, of the dS that was staged at a step (line 15).
  ATTILE_DEVICE void start_dq(DqRegisters& dq, int step) const {
    const TileOrigin origin = Traits::dq_origin(arch::thread_index());
    tile::start_left_transposed_product<T>(dq, smem.ds(step),
                                           Traits::kDqWarpsN == 1 ? first_key() : 0,
                                           smem.k().tile(0), arch::uniform(origin.col));
  }

  /// S^T, behind which kPending groups of products may be under way, -> P^T (line 11).
  template <int kPending, class StepRegisters>
  ATTILE_DEVICE void make_p(StepRegisters& frag, const Tile& rows, int part) const {
    Rows p_rows{frag.s};
    this->template await_scores<kPending>(frag.s, frag.s_odd);
    if (rows.edge) tile::hide_outside_intervals(p_rows, this->coord(rows, part), p.policies.mask);
    fast_probabilities(p_rows, p.scale, frag.lse);
  }
  /// dP^T, behind which kPending groups may be, -> dS^T (line 14).
  template <int kPending, class StepRegisters>
  ATTILE_DEVICE void make_ds(StepRegisters& frag, const Tile& rows, int part) const {
    tile::wait_product<kPending>(frag.ds);
    const RowStatistics delta(smem.statistics(rows.state.stage).delta() + part);
    Rows p_rows{frag.s}, ds_rows{frag.ds};
    fast_gradient(p_rows, ds_rows, delta);
  }
  /// Both of a step that is not plain.
  template <class StepRegisters, class Sampler>
  ATTILE_DEVICE void make_p_and_ds(StepRegisters& frag, const Tile& rows, int part,
                                   const Sampler& sampler) const {
    Rows p_rows{frag.s}, ds_rows{frag.ds};
    const auto statistics = smem.statistics(rows.state.stage);
    const auto kept = this->ask_dropout(rows, part, sampler);
    this->template await_scores<0>(frag.s, frag.s_odd);
    arch::fence_operand(frag.ds.x);
    const tile::TileCoord coord = this->coord(rows, part);
    with_shown(rows.edge, p_rows, p, coord, frag.shown, [&](auto masked) {
      probabilities_and_gradient<decltype(masked)::value>(
          p_rows, ds_rows, p, coord, statistics.lse() + part, statistics.delta() + part, kept,
          frag.shown);
    });
  }
  /// Waits until all warpgroups have staged what they make at a step, and have read what was staged
  /// at the one before.
  ATTILE_DEVICE void await_step(int step) const {
    arch::mbarrier_wait(smem.step_barrier(), step & 1);
    arch::fence_async_proxy();  // here, where fewer stores are under way than behind the staging
  }
  ATTILE_DEVICE void arrive_step() const { arrive_warp(smem.step_barrier()); }
  /// Waits until dQ of all tiles, which are that many, has been taken.
  ATTILE_DEVICE void await_dq_sent(int tiles) const {
    if constexpr (Traits::kBulkDq) {
      arch::mbarrier_wait(smem.dq_sent(number), (tiles & 1) ^ 1);
    }
  }
  /// Adds dQ of the tile of a step to the sum, or stages it for a sender to do so.
  ATTILE_DEVICE void add_dq(const Tile& rows, int step, const DqRegisters& dq) const {
    constexpr bool kInOrder = Traits::kDqMode == DqMode::kInOrder;
    if constexpr (Traits::kBulkDq) {
      float* const mine = smem.dq() + dq_accum_begin<Traits>();
      for_each_of_dq<Traits>(dq, [&](int r, int c, const Float4& x) {
        arch::store(mine + dq_accum_offset<Traits>(r, c), x);
      });
      // The fence is the sender's.
      arrive_warp(smem.dq_staged(kInOrder ? step % Traits::kSenders : number));
    } else {
      const WorkTile at = this->work_tile(rows);
      smem.await_zero_fill();
      const bool writes = begin_dq_turn(smem, step);
      add_dq_tile(p, at, dq, writes);
      end_dq_turn(smem, step);
    }
  }
};

}  // namespace attile::sm90
