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
#include <attile/kernel/backward_kernel.cuh>
#include <attile/kernel/backward_step.cuh>
#include <attile/kernel/dq_mode.h>
#include <attile/kernel/dq_sum.cuh>
#include <attile/kernel/query_cursor.cuh>
#include <attile/kernel/sm90/backward_memory.cuh>
#include <attile/kernel/sm90/backward_params.cuh>
#include <attile/kernel/sm90/backward_traits.cuh>
#include <attile/kernel/turns.cuh>
#include <attile/kernel/work_tile.h>
#include <attile/tile/mma_tile.cuh>
#include <attile/tile/ring.cuh>
#include <attile/tile/scores.cuh>
#include <attile/tile/two_sums.cuh>
#include <attile/tile/warpgroup.cuh>

#include <type_traits>

namespace attile::sm90 {

/// Waits for all warpgroups that compute.
template <class Traits>
ATTILE_DEVICE void computing_barrier() {
  arch::barrier(1, Traits::kComputing);
}

/// What a warpgroup that makes S or dP has to do with one tile of K and V.
template <class Traits>
struct ScoreGroup {
  using T = typename Traits::ElementType;
  using Scores = typename Traits::ScoreRegisters;
  struct None {};
  using OddScores = std::conditional_t<Traits::kTwoSums, Scores, None>;  ///< S's second sum
  using Rows = tile::TransposedRegisters<Scores>;
  using Tile = QueryTile<Traits>;
  using RowStatistics = RowValues<Rows>;

  const BackwardParams<Traits>& p;
  const BackwardMemory<Traits>& smem;
  WorkTile key;  ///< the block's
  int number;    ///< of the warpgroup

  /// The first of its rows of K and V.
  ATTILE_DEVICE int first_key() const { return Traits::kByRoles ? 0 : number * kGroupRows; }
  /// Where its registers count from, of those rows.
  ATTILE_DEVICE int register_row() const { return Traits::kByRoles ? number * kGroupRows : 0; }

  /// LSE of the rows of Q from `part` on as P of a plain step is made of it: half, where S begins
  /// at the other one.
  ATTILE_DEVICE RowStatistics lse(const Tile& tile, int part) const {
    RowStatistics lse(smem.statistics(tile.at.stage).lse() + part);
    if constexpr (Traits::kBeginsAtHalf) {
      ATTILE_UNROLL
      for (float& x : lse.x) x *= 0.5f;
    }
    return lse;
  }
  /// Begins S^T for the rows of Q from `part` on (line 10).
  ATTILE_DEVICE void start_scores(Scores& s, OddScores& odd, const RowStatistics& lse,
                                  const Tile& tile, int part) const {
    const auto q = smem.q().tile(tile.at.stage);
    if constexpr (Traits::kTwoSums) {
      const tile::TwoSums<Scores> sums{s, odd};
      tile::start_transposed_product<T>(sums, smem.k().tile(0), q, first_key(), part);
    } else if constexpr (Traits::kBeginsAtHalf) {
      Rows s_rows{s};
      begin_at_half(s_rows, lse, p.half_unit);
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
      arch::wgmma_touches(odd.x);
      tile::TwoSums<Scores>{s, odd}.join();
    }
  }
  /// Where the scores of its registers stand, for the rows of Q from `part` on.
  ATTILE_DEVICE tile::TilePlace place(const Tile& tile, int part) const {
    WorkTile at = key;
    at.sequence = arch::opaque(key.sequence);
    at.head = tile.head;
    at.row0 = tile.row0 + part;
    return p.place(at, key.kv_tile() * Traits::kBc - register_row());
  }
  /// What the mask and dropout say of the same scores. Asked while products are under way.
  ATTILE_DEVICE tile::VisibleBits<Rows> ask_mask(const Tile& tile, int part) const {
    tile::VisibleBits<Rows> shown;
    if constexpr (kAsksEachScore<typename Traits::MaskType, typename Traits::ScoreModType>) {
      if (tile.edge) shown.ask(p.policies.mask, place(tile, part));
    }
    return shown;
  }
  template <class Sampler>
  ATTILE_DEVICE tile::KeepBits<Rows, Sampler> ask_dropout(const Tile& tile, int part,
                                                          const Sampler& sampler) const {
    if constexpr (Traits::DropoutType::kEnabled) {
      return {place(tile, part), sampler};
    } else {
      return {};
    }
  }
  ATTILE_DEVICE void stage_scores(const typename Traits::DsTile& to, const Scores& x,
                                  int part) const {
    tile::stage(to, x, 1.0f, part, register_row());
  }
  /// The work tile of the rows of Q that have come.
  ATTILE_DEVICE WorkTile rows(const Tile& tile) const {
    WorkTile at = key;
    at.sequence = arch::opaque(key.sequence);
    at.head = tile.head;
    at.row0 = tile.row0;
    return at;
  }
  /// The tile of Q and dO is no longer needed.
  ATTILE_DEVICE void release(const Tile& tile) const {
    typename Tile::Place q_at = tile.at, do_at = tile.at;
    smem.dout().release(do_at);
    smem.q().release(q_at);
  }
};

/// Waits for the threads of warpgroup `number`.
ATTILE_DEVICE void group_barrier(int number) { arch::barrier(2 + number, arch::kWarpgroupSize); }

/// Sends keys row0 on of dK or dV times `factor` away by way of shared memory (line 18): what
/// warpgroup `number` has of it. By a copy, or where keys of another sequence may follow by the
/// threads, which write this one's alone. `target`: the keys of the head that `key` is of.
/// Scope    all threads of the warpgroup; its first one is later told by `arch::bulk_wait_read`
///          that `smem` has been read.
template <bool kUniform, class Tile, class Registers, class T>
ATTILE_DEVICE void store_gradient(const Tile& smem, const Registers& frag, float factor,
                                  const arch::TensorMap& map, const tile::Matrix<T>& target,
                                  const WorkTile& key, int row0, int number) {
  tile::stage(smem, frag, factor, 0, number * kGroupRows);
  arch::fence_async_proxy();
  group_barrier(number);
  if constexpr (kUniform) {
    if (arch::thread_index() % arch::kWarpgroupSize != 0) return;
    tile::send_tile(smem, map, 0, row0, key.kv_head, key.sequence);
  } else {
    constexpr int kWarpRows = kGroupRows * arch::kWarpSize / arch::kWarpgroupSize;
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
ATTILE_DEVICE void add_dq_to_sum(const BackwardParams<Traits>& p, const WorkTile& at,
                                 const typename Traits::DqRegisters& dq, bool writes,
                                 int part = 0) {
  add_to_sum<Traits>(p.dq_sum_of(at) + part * Traits::kBr * Traits::DqRegisters::kCols, dq, writes);
}

/// Waits until it is this block's turn to add dQ of the tile of a step, kKeepsTurns; whether it
/// writes the sum. Scope    of both    all lanes of a warp that adds.
template <class Traits>
ATTILE_DEVICE bool take_turn(const BackwardMemory<Traits>& smem, int step) {
  if constexpr (!Traits::kKeepsTurns) return false;
  smem.turn_handover(step).await_made();
  const bool writes = arch::uniform(*smem.writes_sum()) != 0;
  smem.turn_handover(step).pass_taken();
  return writes;
}
template <class Traits>
ATTILE_DEVICE void end_turn(const BackwardMemory<Traits>& smem, int step) {
  if constexpr (!Traits::kKeepsTurns) return;
  smem.added_handover(step).await_taken();
  smem.added_handover(step).pass_made();
}

/// For those who add, who wait for no answer of device memory: one warp awaits the turn for each
/// tile, another one passes it when dQ has been added. Scope    a warp.
template <class Traits>
ATTILE_DEVICE void keep_turns(const BackwardParams<Traits>& p, int column, bool awaits,
                              const BackwardMemory<Traits>& smem) {
  const bool first_lane = arch::thread_index() % arch::kWarpSize == 0;
  int step = 0;
  ATTILE_UNROLL_BY(1)
  for (QueryCursor<Traits> next(p, column); next.more(); next.advance(), ++step) {
    const WorkTile at = next.tile(key_tile(p, arch::opaque(column)));
    if (awaits) {
      const bool writes = begin_turn(p, at, at.kv_tile(), p.ascends(column));
      smem.turn_handover(step).await_taken();
      if (first_lane) *smem.writes_sum() = writes;
      smem.turn_handover(step).pass_made();
    } else {
      smem.added_handover(step).await_made();
      if (first_lane) pass_turn(p, at, at.kv_tile());
      smem.added_handover(step).pass_taken();
    }
  }
}

/// What one warpgroup makes of its rows of one tile of K and V: those rows of dK and dV, over all
/// query heads of the group, and its share of the tile's part of dQ.
template <class Traits>
struct GradientGroup : ScoreGroup<Traits> {
  using Group = ScoreGroup<Traits>;
  using typename Group::Rows;
  using typename Group::RowStatistics;
  using typename Group::Scores;
  using typename Group::T;
  using typename Group::Tile;
  using Left = tile::RegisterLeft<T, Scores>;
  using DqRegisters = typename Traits::DqRegisters;
  using Group::first_key;
  using Group::key;
  using Group::number;
  using Group::p;
  using Group::smem;

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
  ATTILE_DEVICE void start(StepRegisters& frag, const Tile& tile, int part) const {
    if constexpr (Traits::kPlain) frag.lse = this->lse(tile, part);
    this->start_scores(frag.s, frag.s_odd, frag.lse, tile, part);
    frag.shown = this->ask_mask(tile, part);  // before dP takes registers
    const auto do_smem = smem.dout().wait(tile.at);
    start_dp(frag.ds, do_smem, part);
  }
  /// Begins dQ, of the dS that was staged at a step (line 15).
  ATTILE_DEVICE void start_dq(DqRegisters& dq, int step) const {
    const TileOrigin origin = Traits::dq_origin(arch::thread_index());
    tile::start_left_transposed_product<T>(dq, smem.ds(step),
                                           Traits::kDqAcross == 1 ? first_key() : 0,
                                           smem.k().tile(0), arch::uniform(origin.col));
  }

  /// S^T, behind which kPending groups of products may be under way, -> P^T (line 11).
  template <int kPending, class StepRegisters>
  ATTILE_DEVICE void make_p(StepRegisters& frag, const Tile& tile, int part) const {
    Rows p_rows{frag.s};
    this->template await_scores<kPending>(frag.s, frag.s_odd);
    if (tile.edge) tile::hide_outside_intervals(p_rows, this->place(tile, part), p.policies.mask);
    plain_probabilities(p_rows, p.scale, frag.lse);
  }
  /// dP^T, behind which kPending groups may be, -> dS^T (line 14).
  template <int kPending, class StepRegisters>
  ATTILE_DEVICE void make_ds(StepRegisters& frag, const Tile& tile, int part) const {
    tile::wait_product<kPending>(frag.ds);
    const RowStatistics delta(smem.statistics(tile.at.stage).delta() + part);
    Rows p_rows{frag.s}, ds_rows{frag.ds};
    plain_gradient(p_rows, ds_rows, delta);
  }
  /// Both of a step that is not plain.
  template <class StepRegisters, class Sampler>
  ATTILE_DEVICE void make_p_and_ds(StepRegisters& frag, const Tile& tile, int part,
                                   const Sampler& sampler) const {
    Rows p_rows{frag.s}, ds_rows{frag.ds};
    const auto statistics = smem.statistics(tile.at.stage);
    const auto kept = this->ask_dropout(tile, part, sampler);
    this->template await_scores<0>(frag.s, frag.s_odd);
    arch::wgmma_touches(frag.ds.x);
    const tile::TilePlace place = this->place(tile, part);
    with_shown(tile.edge, p_rows, p, place, frag.shown, [&](auto masked) {
      probabilities_and_gradient<decltype(masked)::value>(
          p_rows, ds_rows, p, place, statistics.lse() + part, statistics.delta() + part, kept,
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
  ATTILE_DEVICE void add_dq(const Tile& tile, int step, const DqRegisters& dq) const {
    constexpr bool kInOrder = Traits::kDqMode == DqMode::kInOrder;
    if constexpr (Traits::kBulkDq) {
      float* const mine = smem.dq() + dq_begin<Traits>();
      for_each_of_dq<Traits>(dq, [&](int r, int c, const Float4& x) {
        arch::store(mine + dq_place<Traits>(r, c), x);
      });
      // The fence is the sender's.
      arrive_warp(smem.dq_staged(kInOrder ? step % Traits::kSenders : number));
    } else {
      const WorkTile at = this->rows(tile);
      smem.await_zeros();
      const bool writes = take_turn(smem, step);
      add_dq_to_sum(p, at, dq, writes);
      end_turn(smem, step);
    }
  }
};

}  // namespace attile::sm90
