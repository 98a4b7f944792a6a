// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/bulk_tensor.cuh>
#include <attile/arch/opaque.h>
#include <attile/arch/thread.cuh>
#include <attile/arch/warpgroup.cuh>
#include <attile/arch/wgmma.cuh>
#include <attile/core/config.h>
#include <attile/core/work_tile.h>
#include <attile/kernel/backward/backward_kernel.cuh>
#include <attile/kernel/backward/backward_step.cuh>
#include <attile/kernel/backward/dq_accum.cuh>
#include <attile/kernel/backward/step_in_halves.cuh>
#include <attile/kernel/sm90/backward_memory.cuh>
#include <attile/kernel/sm90/backward_params.cuh>
#include <attile/kernel/sm90/backward_traits.cuh>
#include <attile/kernel/sm90/named_barrier.cuh>
#include <attile/tile/dropout.cuh>
#include <attile/tile/mma_tile.cuh>
#include <attile/tile/modifier_math.h>
#include <attile/tile/modifier_words.cuh>
#include <attile/tile/modify.cuh>
#include <attile/tile/pipeline.cuh>
#include <attile/tile/scores.cuh>
#include <attile/tile/signed_dropout.cuh>
#include <attile/tile/two_sums.cuh>
#include <attile/tile/warpgroup.cuh>

#include <type_traits>

namespace attile::sm90 {

/// The rows of K and V that a warp of a consumer warpgroup has.
inline constexpr int kWarpRows = kWarpgroupRows * arch::kWarpSize / arch::kWarpgroupSize;

/// Holds the steps that both designs have: of a warpgroup that makes S or dP, or both, of one kv
/// block (rows_per_warpgroup.cuh, product_per_warpgroup.cuh). A part is kPartRows rows of a tile of
/// Q; `row` is its first row in the tile. The lines named are those of FlashAttention-2, Algorithm
/// 2 (arXiv 2307.08691).
template <class Traits>
struct ScoreConsumer {
  using T = typename Traits::ElementType;
  using Scores = typename Traits::ScoreRegisters;
  struct None {};
  using SecondSum = std::conditional_t<Traits::kTwoSums, Scores, None>;  ///< the second sum of S
  using Rows =
      tile::TransposedRegisters<Scores>;  ///< a view of S^T by rows of S: it copies nothing
  using Sampler = typename Traits::DropoutType::Sampler;
  /// Dropout's decisions about the scores of a part.
  using Keep =
      std::conditional_t<Traits::kSignsP,
                         std::conditional_t<Traits::kKeepsSigns, tile::KeptSigns<Rows, Sampler>,
                                            tile::KeepSigns<Rows, Sampler>>,
                         tile::KeepBits<Rows, Sampler>>;
  using Stage = QStage<Traits>;
  using RowStatistics = RowValues<Rows>;
  /// The score modifier's words of a thread's columns, with kReadsColumns.
  using Columns = tile::HeldColumns<Rows, typename Traits::Word, tile::MathOf<T>>;

  const TmaBackwardParams<Traits>& p;
  const BackwardMemory<Traits>& smem;
  WorkTile kv;  ///< the work tile of the kv block
  int number;   ///< the warpgroup's, among the consumers

  /// Returns the first of its rows in the tiles of K and V.
  ATTILE_DEVICE int first_key() const {
    return Traits::kProductPerWarpgroup ? 0 : number * kWarpgroupRows;
  }
  /// Returns the row of a register tile that is row 0 of the tiles of K and V: register tiles count
  /// rows through all warpgroups, which with kProductPerWarpgroup have the same rows of K and V.
  ATTILE_DEVICE int register_row() const {
    return Traits::kProductPerWarpgroup ? number * kWarpgroupRows : 0;
  }

  /// Returns what the fast path subtracts from scale * S for the rows of a part: LSE, or with
  /// kBeginsAtHalf LSE / 2. There the accumulator of S begins at -LSE / (2 scale), in raw scores,
  /// so that its rounding errors are smaller: P = e^(scale (Q K^T - LSE / (2 scale)) - LSE / 2).
  ATTILE_DEVICE RowStatistics lse(const Stage& stage, int row) const {
    RowStatistics lse(smem.statistics(stage.state.stage).lse() + row);
    if constexpr (Traits::kBeginsAtHalf) {
      ATTILE_UNROLL
      for (float& x : lse.x) x *= 0.5f;
    }
    return lse;
  }
  /// Begins S^T of a part (line 10).
  ATTILE_DEVICE void start_scores(Scores& s, SecondSum& second, const RowStatistics& lse,
                                  const Stage& stage, int row) const {
    const auto q = smem.q().tile(stage.state.stage);
    if constexpr (Traits::kTwoSums) {
      const tile::TwoSums<Scores> sums{s, second};
      tile::start_transposed_product(sums, smem.k().tile(0), q, first_key(), row);
    } else if constexpr (Traits::kBeginsAtHalf) {
      Rows s_rows{s};
      begin_at_half(s_rows, lse, p.half_inverse_scale);
      tile::start_transposed_product<true>(s, smem.k().tile(0), q, first_key(), row);
    } else {
      tile::start_transposed_product(s, smem.k().tile(0), q, first_key(), row);
    }
  }
  /// Waits until S^T is made, and joins its sums. kPending later wgmma groups may be under way.
  template <int kPending>
  ATTILE_DEVICE void await_scores(Scores& s, SecondSum& second) const {
    tile::wait_product<kPending>(s);
    if constexpr (Traits::kTwoSums) {
      arch::fence_operand(second.x);  // the second sum is not read above the wait
      tile::TwoSums<Scores>{s, second}.join();
    }
  }
  /// Returns the coordinates of the scores of a part in its registers.
  ATTILE_DEVICE tile::TileCoord coord(const Stage& stage, int row) const {
    WorkTile at = kv;
    at.sequence = arch::opaque(kv.sequence);
    at.head = stage.head;
    at.row0 = stage.row0 + row;
    return p.coord(at, kv.kv_tile() * Traits::kBc - register_row());
  }
  /// Returns what the modifier reads for the scores of a part of a stage, row `row` on: waits for
  /// the elements and reads them, or says where the words are. Parts are counted through all tiles.
  /// Scope    all lanes of a warp.
  ATTILE_DEVICE auto read_elements(const Stage& stage, int part, int row) const {
    if constexpr (Traits::kElementStages > 0) {
      const auto elements_smem = smem.elements().consumer_wait(element_state(part));
      return tile::TransposedElements<Scores, typename Traits::ElementTile>(elements_smem);
    } else if constexpr (Traits::kWords == ModifierWords::kDiagonals) {
      const int col = Rows::col(0) - register_row();  // of this thread's first score in the tile
      return tile::DiagonalWords<typename Traits::Word>{
          smem.words(stage.state.stage) + (col - row - Rows::row(0) + Traits::kBr - 1)};
    } else {
      return tile::NoElements();
    }
  }
  /// Begins to read the words of this thread's columns, with kReadsColumns.
  ATTILE_DEVICE Columns read_columns(const Stage& stage) const {
    Columns columns{};
    if constexpr (Traits::kReadsColumns) {
      columns.read(p.policies.score_mod, coord(stage, 0), p.scale);
    }
    return columns;
  }
  /// Sets S' = score_mod(scale * S) for a part, with kReadsColumns.
  ATTILE_DEVICE void apply_columns(Rows& s, const Columns& columns, const Stage& stage,
                                   int row) const {
    if constexpr (Traits::kReadsColumns) {
      columns.apply(s, p.policies.score_mod, coord(stage, row), p.scale);
    }
  }
  /// Releases the elements of a part, when `made` has been made of them: an arrival at the barrier
  /// overtakes loads for whose results nothing has waited, and their rows would be replaced before
  /// they are read.
  ATTILE_DEVICE void release_elements(int part, Scores& made) const {
    if constexpr (Traits::kElementStages > 0) {
      arch::fence_operand(made.x);
      arch::warp_barrier();  // by all lanes
      smem.elements().consumer_release(element_state(part));
    }
  }
  ATTILE_DEVICE static auto element_state(int part) {
    constexpr int kStages = Traits::kElementStages;
    return typename Traits::ElementPipeline::State{part % kStages, part / kStages & 1};
  }
  /// Returns what adds to the gradient of a score modifier for this warp, which makes dS.
  ATTILE_DEVICE typename Traits::Gradient gradient() const {
    const int warp = arch::thread_index() % arch::kWarpgroupSize / arch::kWarpSize;
    return smem.gradient(first_key() / kWarpRows + warp);
  }
  /// Adds dS^T of a part to the gradient of a score modifier, where that is made of dS alone.
  ATTILE_DEVICE void add_gradient(Scores& ds, const Stage& stage, int row) const {
    if constexpr (Traits::kModifierGradient) {
      add_modifier_gradient(Rows{ds}, p, coord(stage, row), gradient());
    }
  }
  /// Ends the additions to the gradient of a score modifier, after all tiles.
  ATTILE_DEVICE void end_gradient() const {
    if constexpr (Traits::kModifierGradient) {
      WorkTile at = kv;
      at.sequence = arch::opaque(kv.sequence);
      gradient().end(p.policies.score_mod,
                     p.coord(at, kv.kv_tile() * Traits::kBc - register_row()));
    }
  }
  /// Returns the mask's answers about the scores of a part, where it is asked about each of them.
  /// Called while products are under way, as is `ask_dropout`.
  ATTILE_DEVICE tile::VisibleBits<Rows> ask_mask(const Stage& stage, int row) const {
    tile::VisibleBits<Rows> shown;
    using M = typename Traits::MaskType;
    if constexpr (!IntervalMask<MaskInTiles<M>> || !Traits::kPBeforeDp) {
      if (stage.edge) shown.ask(p.mask_in_tile(in_full_block(stage.edge)), coord(stage, row));
    }
    return shown;
  }
  /// Returns dropout's decisions about the scores of a part.
  template <class Sampler>
  ATTILE_DEVICE Keep ask_dropout(const Stage& stage, int row, const Sampler& sampler) const {
    if constexpr (Traits::DropoutType::kEnabled) {
      return {coord(stage, row), sampler};
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
  /// Does lines 11 and 14 for a part at once, where S and dP^T are there: replaces S, which is
  /// given by its rows, by dropout(P), but for its factor keep_scale, and dP^T by dS^T. It also
  /// adds to the gradient of a score modifier.
  template <class ScoresByRows, class Keep>
  ATTILE_DEVICE void make_p_and_ds(ScoresByRows& s_by_rows, Scores& ds, const Stage& stage, int row,
                                   const Keep& keep_bits,
                                   const tile::VisibleBits<Rows>& shown) const {
    Rows ds_by_rows{ds};
    const auto statistics = smem.statistics(stage.state.stage);
    const tile::TileCoord of_part = coord(stage, row);
    with_shown(stage.edge, s_by_rows, p, of_part, shown, [&](auto masked) {
      probabilities_and_gradient<decltype(masked)::value>(
          s_by_rows, ds_by_rows, p, of_part, statistics.lse() + row, statistics.delta() + row,
          keep_bits, shown, gradient());
    });
  }
  /// Writes dS^T of a part to a tile in shared memory.
  ATTILE_DEVICE void stage_scores(const typename Traits::DsTile& to, const Scores& x,
                                  int row) const {
    tile::stage(to, x, 1.0f, row, register_row());
  }
  /// Returns the work tile of a tile of Q.
  ATTILE_DEVICE WorkTile work_tile(const Stage& stage) const {
    WorkTile at = kv;
    at.sequence = arch::opaque(kv.sequence);
    at.head = stage.head;
    at.row0 = stage.row0;
    return at;
  }
  /// Releases a stage of Q and dO. Scope    all lanes of a warp, when the last product that reads
  /// them has been waited for.
  ATTILE_DEVICE void release(const Stage& stage) const {
    smem.dout().consumer_release(stage.state);
    smem.q().consumer_release(stage.state);
  }
};

/// Stores rows of dK or dV, times `factor`, from the registers of warpgroup `number`, by TMA by way
/// of shared memory (line 18). `smem` has been read when `arch::bulk_wait_read` of the warpgroup's
/// first thread returns. `coord`: the coordinates of the first row.
/// Scope    all threads of the warpgroup.
template <class Tile, class Registers>
ATTILE_DEVICE void store_gradient(const Tile& smem, const Registers& frag, float factor,
                                  const arch::TensorMap& map, const arch::TmaCoord& coord,
                                  int number) {
  tile::stage(smem, frag, factor, 0, number * kWarpgroupRows);
  // What each thread has written is made visible to TMA, and all have done so before one thread
  // starts the copy.
  arch::fence_async_proxy();
  consumer_barrier(number);
  if (arch::thread_index() % arch::kWarpgroupSize == 0) tile::store_by_tma(smem, map, coord);
}

/// Store a warpgroup's rows of dK, times `scale`, and of dV, times what its P lack: rows row0 on.
/// Scope    as store_gradient.
template <class Traits, class Tile, class Registers>
ATTILE_DEVICE void store_dk(const TmaBackwardParams<Traits>& p, const WorkTile& kv,
                            const Tile& smem, const Registers& frag, int row0, int number) {
  store_gradient(smem, frag, p.scale, p.dk_map,
                 p.keys(TmaBackwardParams<Traits>::Boxes::kDk, kv, row0), number);
}
template <class Traits, class Tile, class Registers>
ATTILE_DEVICE void store_dv(const TmaBackwardParams<Traits>& p, const WorkTile& kv,
                            const Tile& smem, const Registers& frag, int row0, int number) {
  float factor = 1.0f;
  if constexpr (Traits::kSignsP) {
    factor = ScoreConsumer<Traits>::Keep::kDvScale;
  } else {
    factor = p.sampler().keep_scale();
  }
  store_gradient(smem, frag, factor, p.dv_map,
                 p.keys(TmaBackwardParams<Traits>::Boxes::kDv, kv, row0), number);
}

/// Adds dQ of a tile, or of part `part` of it, from registers to dq_accum, or overwrites dq_accum
/// where `overwrites`. Scope    all threads that hold dQ; with kInOrder between begin_adding_dq and
/// end_adding_dq.
template <class Traits>
ATTILE_DEVICE void add_dq_tile(const TmaBackwardParams<Traits>& p, const WorkTile& at,
                               const typename Traits::DqRegisters& dq, bool overwrites,
                               int part = 0) {
  add_to_dq_accum<Traits>(p.dq_accum_of(at) + part * Traits::kBr * Traits::DqRegisters::kCols, dq,
                          overwrites);
}

/// Waits until a producer warp has acquired the semaphore of a step's tile of dQ, with
/// kDqSemaphoreWarps: added earlier, dQ would be summed in another order. Returns whether this kv
/// block is the first to add, which overwrites dq_accum. Scope    all lanes of a warp that adds.
template <class Traits>
ATTILE_DEVICE bool begin_adding_dq(const BackwardMemory<Traits>& smem, int step) {
  if constexpr (!Traits::kDqSemaphoreWarps) return false;
  smem.dq_acquired(step).consumer_wait();
  const bool overwrites = arch::uniform(*smem.dq_first_and_last()) != 0;
  smem.dq_acquired(step).consumer_release();
  return overwrites;
}
/// Signals that this warp has added dQ of a step, so that a producer warp can release the
/// semaphore, with kDqSemaphoreWarps. Scope    all lanes of a warp that adds.
template <class Traits>
ATTILE_DEVICE void end_adding_dq(const BackwardMemory<Traits>& smem, int step) {
  if constexpr (!Traits::kDqSemaphoreWarps) return;
  smem.dq_added(step).producer_acquire();  // else this warp could arrive twice in one phase
  smem.dq_added(step).producer_commit();
}

}  // namespace attile::sm90
