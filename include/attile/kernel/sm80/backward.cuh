// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/async_copy.cuh>
#include <attile/arch/atomic.cuh>
#include <attile/arch/grid_dependency.cuh>
#include <attile/arch/opaque.h>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/schedule.h>
#include <attile/core/work_tile.h>
#include <attile/kernel/backward/backward_kernel.cuh>
#include <attile/kernel/backward/backward_step.cuh>
#include <attile/kernel/backward/dq_accum.cuh>
#include <attile/kernel/backward/dq_order.cuh>
#include <attile/kernel/backward/q_tile_loop.cuh>
#include <attile/kernel/sm80/backward_traits.cuh>
#include <attile/tile/mma_operands.cuh>
#include <attile/tile/mma_tile.cuh>
#include <attile/tile/multiply.cuh>
#include <attile/tile/panel_tile.cuh>
#include <attile/tile/scores.cuh>

#include <cstdint>

// This is the backward pass of FlashAttention-2 (arXiv 2307.08691, Algorithm 2; the lines named are
// its), with matrix instructions and asynchronous copies. S and dP are computed transposed: as the
// left operand of dV = P^T dO and dK = dS^T Q they then come from registers, where a warp has whole
// rows of them. The statistics of a row are its LSE and its delta, D of the paper.

namespace attile::sm80 {

/// Holds one stage of the loop in shared memory: Q, dO and the statistics of a tile of query rows.
template <class Traits>
struct QueryStage {
  typename Traits::QTile q;               // (Br, D)
  typename Traits::DoTile dout;           // (Br, Dv)
  float* lse;                             // (Br)
  float* delta;                           // (Br)
  typename Traits::ElementTile elements;  // (Br, Bc) of the score modifier, with kElements

  ATTILE_DEVICE explicit QueryStage(unsigned char* shared)
      : q{shared},
        dout{shared + Traits::QTile::kBytes},
        lse(reinterpret_cast<float*>(shared + Traits::QTile::kBytes + Traits::DoTile::kBytes)),
        delta(lse + Traits::kBr),
        elements{reinterpret_cast<unsigned char*>(delta + Traits::kBr)} {}

  /// Begins to load the rows of a work tile. Scope    all threads of the block.
  ATTILE_DEVICE void load(const BackwardParams<Traits>& p, const WorkTile& at) const {
    constexpr int kThreads = Traits::kThreads;
    tile::load_async<kThreads>(q, p.q_of(at), at.row0);
    tile::load_async<kThreads>(dout, p.rows_of_head(p.dout, at, p.head_dim_v), at.row0);
    // The statistics, by vectors of 16 bytes: those of LSE, and with numbers from kVectors on those
    // of delta, which follows it in shared memory.
    constexpr int kVectors = Traits::kBr / 4;
    const std::int64_t first_row = p.scratch_row(at);
    for (int i = arch::thread_index(); i < 2 * kVectors; i += kThreads) {
      const float* const from =
          i < kVectors ? p.row_lse + first_row : p.delta + first_row - Traits::kBr;
      arch::async_copy_16(arch::shared_address(lse + i * 4), from + i * 4, true);
    }
    if constexpr (Traits::kReads == ModifierReads::kElements) {
      tile::load_async<kThreads>(elements, elements_of(p, at, at.kv_tile() * Traits::kBc), at.row0);
    }
  }
};

/// Calls f(score, LSE / 2 of its row) for the scores that this thread holds of S^T, with 0 for
/// an LSE that is not finite. (sm90 does not add the half again: its step subtracts the other one,
/// see begin_at_half.) Units    both raw, as K Q^T is before `scale`.
template <class Scores, class F>
ATTILE_DEVICE void for_each_with_half_lse(Scores& s, const float* lse, float half_inverse_scale,
                                          F&& f) {
  using Rows = tile::TransposedRegisters<Scores>;
  const Rows rows{s};
  ATTILE_UNROLL
  for (int r = 0; r < Rows::kRegRows; ++r) {
    const float x = lse[Rows::row(r)] * half_inverse_scale;
    const float half = x < kInf && x > -kInf ? x : 0.0f;
    ATTILE_UNROLL
    for (int c = 0; c < Rows::kRegCols; ++c) f(rows.at(r, c), half);
  }
}

/// Computes S^T = K Q^T (line 10), with kBeginsAtHalf as LSE / 2 + (K Q^T - LSE / 2).
template <class Traits>
ATTILE_DEVICE void make_scores(typename Traits::ScoreRegisters& s, const BackwardParams<Traits>& p,
                               const typename Traits::KTile& k_smem,
                               const QueryStage<Traits>& smem) {
  using Scores = typename Traits::ScoreRegisters;
  const auto with_half_lse = [&](auto f) {
    for_each_with_half_lse(s, smem.lse, p.half_inverse_scale, f);
  };
  if constexpr (Traits::kBeginsAtHalf) {
    with_half_lse([](float& x, float half) { x = -half; });
  } else {
    s.clear();
  }
  tile::multiply<typename Traits::ElementType, Traits::kProducts>(
      s, tile::SharedLeft(k_smem, Scores::warp_row()),
      tile::SharedRightTransposed(smem.q, Scores::warp_col()));
  if constexpr (Traits::kBeginsAtHalf) with_half_lse([](float& x, float half) { x += half; });
}

/// Sets S' = score_mod(scale * S) for a modifier whose data are read by columns, or are in shared
/// memory. For another one (kAny) it does nothing: `probabilities_and_gradient` applies that.
template <class Traits>
ATTILE_DEVICE void modify_scores(typename Traits::ScoreRegisters& s_frag,
                                 const BackwardParams<Traits>& p, const tile::TileCoord& coord,
                                 const QueryStage<Traits>& smem) {
  using Scores = typename Traits::ScoreRegisters;
  using Rows = tile::TransposedRegisters<Scores>;
  Rows rows{s_frag};
  const auto modify = [&](const auto& elements) {
    with_modifier<true, true>(rows, p, coord, elements, [&](const auto& modifier) {
      ATTILE_UNROLL
      for (int r = 0; r < Rows::kRegRows; ++r) {
        ATTILE_UNROLL
        for (int c = 0; c < Rows::kRegCols; ++c) {
          rows.at(r, c) = modifier(rows.at(r, c), r, c).value;
        }
      }
    });
  };
  if constexpr (Traits::kReads == ModifierReads::kElements) {
    modify(tile::TransposedElements<Scores, typename Traits::ElementTile>(smem.elements));
  } else if constexpr (Traits::kReads == ModifierReads::kColumns) {
    modify(tile::ColumnElements{});
  }
}

/// Computes dP^T = V dO^T (line 13).
template <class Traits>
ATTILE_DEVICE void make_dp(typename Traits::ScoreRegisters& dp,
                           const typename Traits::VTile& v_smem, const QueryStage<Traits>& smem) {
  using Scores = typename Traits::ScoreRegisters;
  dp.clear();
  tile::multiply<typename Traits::ElementType, Traits::kProducts>(
      dp, tile::SharedLeft(v_smem, Scores::warp_row()),
      tile::SharedRightTransposed(smem.dout, Scores::warp_col()));
}

/// Adds this tile's part of dQ = dS K (line 15), some columns at a time (kDqParts):
/// dq_accum += dq, or with `overwrite` dq_accum = dq.
template <class Traits>
ATTILE_DEVICE void add_dq(float* dq_accum, const typename Traits::PTile& ds_smem,
                          const typename Traits::KTile& k_smem, bool overwrite) {
  using T = typename Traits::ElementType;
  using Registers = typename Traits::DqRegisters;
  constexpr int kPartFloats = Traits::kBr * Registers::kCols;
  ATTILE_UNROLL_BY(1)
  for (int part = 0; part < Traits::kDqParts; ++part, dq_accum += kPartFloats) {
    Registers dq;
    dq.clear();
    tile::multiply<T, Traits::kProducts>(
        dq, tile::SharedLeftTransposed(ds_smem, Registers::warp_row()),
        tile::SharedRight(k_smem, part * Registers::kCols + Registers::warp_col()));
    add_to_dq_accum<Traits>(dq_accum, dq, overwrite);
  }
}

/// Computes dV += P^T dO (line 12) and dK += dS^T Q (line 16). Where a warp has whole rows of P^T
/// and dS^T it takes them from its registers, else all go through shared memory. dS^T is there in
/// any case in the end, for dQ. Scope    all threads of the block.
template <class Traits>
ATTILE_DEVICE void add_dk_dv(typename Traits::DkRegisters& dk_frag,
                             typename Traits::DvRegisters& dv_frag,
                             const typename Traits::ScoreRegisters& p_frag,
                             const typename Traits::ScoreRegisters& ds_frag,
                             const QueryStage<Traits>& smem, const typename Traits::PTile& p_smem,
                             const typename Traits::PTile& ds_smem) {
  using T = typename Traits::ElementType;
  using Scores = typename Traits::ScoreRegisters;
  tile::stage(ds_smem, ds_frag);
  const tile::SharedRight do_right(smem.dout, Traits::DvRegisters::warp_col());
  const tile::SharedRight q_right(smem.q, Traits::DkRegisters::warp_col());
  if constexpr (Traits::kWarpsN == 1) {
    tile::multiply<T, Traits::kProducts>(dv_frag, tile::RegisterLeft<T, Scores>(p_frag), do_right);
    tile::multiply<T, Traits::kProducts>(dk_frag, tile::RegisterLeft<T, Scores>(ds_frag), q_right);
    // dS is written before others read it; Q and dO have been read before they are overwritten.
    arch::barrier();
  } else {
    tile::stage(p_smem, p_frag);
    arch::barrier();  // P and dS are written before others read them
    tile::multiply<T, Traits::kProducts>(dv_frag, tile::SharedLeft(p_smem, Scores::warp_row()),
                                         do_right);
    tile::multiply<T, Traits::kProducts>(dk_frag, tile::SharedLeft(ds_smem, Scores::warp_row()),
                                         q_right);
  }
}

/// Stores dK and dV by way of shared memory, where they overwrite K and V (line 18).
/// Scope    all threads of the block.
template <class Traits>
ATTILE_DEVICE void store_dk_dv(const BackwardParams<Traits>& p, int kv_block,
                               const typename Traits::KTile& k_smem,
                               const typename Traits::VTile& v_smem,
                               const typename Traits::DkRegisters& dk_frag,
                               const typename Traits::DvRegisters& dv_frag) {
  arch::async_copy_wait<0>();
  arch::barrier();  // K and V have arrived and been read before dK and dV overwrite them
  tile::stage(k_smem, dk_frag, p.scale);
  tile::stage(v_smem, dv_frag, p.sampler().keep_scale());
  arch::barrier();  // dK and dV are written before others read them
  const WorkTile kv = kv_work_tile(p, kv_block);
  const int col0 = kv.kv_tile() * Traits::kBc;
  tile::store_tile<Traits::kWarps>(p.keys_of_head(p.dk, kv, p.head_dim), k_smem, col0);
  tile::store_tile<Traits::kWarps>(p.keys_of_head(p.dv, kv, p.head_dim_v), v_smem, col0);
}

/// Says which coordinates of its kv tile a loop keeps, and which it computes anew (arch::opaque),
/// so that they do not take a register that spills. It was found by trial on all architectures
/// (bench/log/tuning-sm80.md).
enum class Kept {
  kBatchAndCol0,  ///< the sequence and kv head, the first key, col0, and what follows from col0
  kBatch,         ///< the same, without what follows from col0
  /// The kv block's number, from which all else follows. The address of dQ is computed before the
  /// next tile's loads begin, and not after that.
  kKvBlock,
};
template <class Traits>
inline constexpr Kept kKept = [] {
  constexpr bool kShortFastPath =
      Traits::kDqCols <= 64 && sizeof(typename Traits::ElementType) == 2 &&
      kIsFastPath<typename Traits::Policies> && !Traits::DropoutType::kEnabled;
  if (Traits::kDqMode == DqMode::kInOrder) {
    return Traits::kBeginsAtHalf || kShortFastPath ? Kept::kBatch : Kept::kBatchAndCol0;
  }
  if (Traits::kReads != ModifierReads::kAny) return Kept::kKvBlock;
  const bool keeps_kv_block =
      Traits::kBeginsAtHalf && Traits::kDqCols <= 128 && Traits::kStages == 1;
  return keeps_kv_block ? Kept::kKvBlock : Kept::kBatchAndCol0;
}();

/// Returns the work tile of the rows that a step of `rows` has reached. `kv`: that of the kv block.
template <class Traits>
ATTILE_DEVICE WorkTile step_tile(const BackwardParams<Traits>& p, int kv_block, WorkTile kv,
                                 const QTileLoop<Traits>& rows) {
  if constexpr (kKept<Traits> == Kept::kKvBlock) {
    kv = kv_work_tile(p, arch::opaque(kv_block));
  } else {
    kv.sequence = arch::opaque(kv.sequence);
  }
  return rows.tile(kv);
}

/// Returns the coordinates of a step's scores. `col0`: the first key of its kv tile.
template <class Traits>
ATTILE_DEVICE tile::TileCoord step_coord(const BackwardParams<Traits>& p, const WorkTile& at,
                                         int col0) {
  if constexpr (kKept<Traits> == Kept::kKvBlock) return p.coord(at, at.kv_tile() * Traits::kBc);
  return p.coord(at, kKept<Traits> == Kept::kBatch ? arch::opaque(col0) : col0);
}

/// Returns what sums this warp's part of the gradient of a score modifier (GradientOf).
template <class Traits>
ATTILE_DEVICE typename Traits::Gradient gradient_of(unsigned char* shared) {
  const int warp = arch::thread_index() / arch::kWarpSize;
  return typename Traits::Gradient(shared + Traits::kGradientOffset +
                                   warp * Traits::Gradient::kWarpBytes);
}

/// Adds what is left in those sums to the gradient, after all tiles.
template <class Traits>
ATTILE_DEVICE void end_gradient(const BackwardParams<Traits>& p, int kv_block,
                                unsigned char* shared) {
  if constexpr (kHasGradient<typename Traits::ScoreModType>) {
    const WorkTile kv = kv_work_tile(p, kv_block);
    gradient_of<Traits>(shared).end(p.policies.score_mod, p.coord(kv, kv.kv_tile() * Traits::kBc));
  }
}

/// Computes dK and dV of one kv tile (lines 6 to 18), over all query heads of its kv head, and adds
/// this tile's part of dQ.
/// Scope    all threads of the block. `shared`: Traits::kKvSharedBytes, aligned to 128 bytes.
template <class Traits>
ATTILE_DEVICE void backward_kv_block(const BackwardParams<Traits>& p, int kv_block,
                                     unsigned char* shared) {
  using Scores = typename Traits::ScoreRegisters;
  using PTile = typename Traits::PTile;
  constexpr int kThreads = Traits::kThreads;
  constexpr bool kInOrder = Traits::kDqMode == DqMode::kInOrder;
  const typename Traits::KTile k_smem{shared};                          // (Bc, D)
  const typename Traits::VTile v_smem{shared + Traits::KTile::kBytes};  // (Bc, Dv)
  unsigned char* const stages = v_smem.data + Traits::VTile::kBytes;
  const PTile ds_smem{stages + Traits::kStages * Traits::kStageBytes};  // (Bc, Br): dS^T
  const PTile p_smem{ds_smem.data + PTile::kBytes};                     // (Bc, Br): P^T
  const WorkTile kv = kv_work_tile(p, kv_block);
  const int col0 = kv.kv_tile() * Traits::kBc;
  const auto sampler = p.sampler();

  tile::load_async<kThreads>(k_smem, p.k_of(kv), col0);  // line 6
  tile::load_async<kThreads>(v_smem, p.v_of(kv), col0);
  QTileLoop<Traits> next(p, kv_block, kv);  // the rows that are loaded next
  int step = 0;                             // counts them, over all query heads
  const auto stage_of = [&](int i) {
    return QueryStage<Traits>(stages + (Traits::kStages == 2 ? i % 2 : 0) * Traits::kStageBytes);
  };
  const auto load_next = [&] {
    if (next.more()) {
      WorkTile at = kv;
      at.sequence = arch::opaque(kv.sequence);
      stage_of(step).load(p, next.tile(at));
    }
    arch::async_copy_commit();
  };
  arch::await_dependencies();  // preprocessing has written what this block reads
  load_next();
  typename Traits::DkRegisters dk_frag;  // line 7
  typename Traits::DvRegisters dv_frag;
  dk_frag.clear();
  dv_frag.clear();
  gradient_of<Traits>(shared).begin();

  ATTILE_UNROLL_BY(1)
  while (next.more()) {  // lines 8 and 9
    const QueryStage<Traits> smem = stage_of(step++);
    const WorkTile at = step_tile(p, kv_block, kv, next);
    const tile::TileCoord coord = step_coord(p, at, col0);
    const auto edge = next.edge();
    if constexpr (Traits::kStages == 2) next.advance();
    arch::async_copy_wait<0>();
    arch::barrier();  // Q and dO (the first time K and V) have arrived; those before have been read
    if constexpr (Traits::kStages == 2) load_next();

    Scores p_frag, ds_frag;  // at first S^T and dP^T, in the end P^T and dS^T (lines 11, 14)
    make_scores(p_frag, p, k_smem, smem);  // line 10
    modify_scores(p_frag, p, coord, smem);
    make_dp<Traits>(ds_frag, v_smem, smem);  // line 13
    tile::TransposedRegisters<Scores> p_rows{p_frag}, ds_rows{ds_frag};
    probabilities_and_gradient(edge, p_rows, ds_rows, p, coord, smem.lse, smem.delta, sampler,
                               gradient_of<Traits>(shared), typename Traits::ReadElements());
    add_dk_dv<Traits>(dk_frag, dv_frag, p_frag, ds_frag, smem, p_smem, ds_smem);
    constexpr bool kAddressFirst = kKept<Traits> == Kept::kKvBlock;
    float* dq_accum = nullptr;
    if constexpr (kAddressFirst) dq_accum = p.dq_accum_of(at);
    if constexpr (Traits::kStages == 1) {
      if constexpr (Traits::kWarpsN > 1) arch::barrier();  // Q and dO have been read
      next.advance();
      load_next();
    }

    if constexpr (!kAddressFirst) dq_accum = p.dq_accum_of(at);
    bool overwrites = false;
    if constexpr (kInOrder) {  // each warp waits for itself
      overwrites = DqOrder<Traits>(p).acquire(at, arch::opaque(kv.kv_tile()));
    }
    add_dq<Traits>(dq_accum, ds_smem, k_smem, overwrites);  // line 15
    if constexpr (kInOrder) {
      arch::barrier();  // this part of dQ is added before the semaphore is released
      if (arch::thread_index() == 0) DqOrder<Traits>(p).release(at, arch::opaque(kv.kv_tile()));
    }
  }

  end_gradient(p, arch::opaque(kv_block), shared);
  store_dk_dv(p, arch::opaque(kv_block), k_smem, v_smem, dk_frag, dv_frag);
}

}  // namespace attile::sm80
