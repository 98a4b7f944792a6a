// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/async_copy.cuh>
#include <attile/arch/opaque.h>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/schedule.h>
#include <attile/core/work_tile.h>
#include <attile/kernel/forward/forward_kernel.cuh>
#include <attile/kernel/forward/forward_schedule.cuh>
#include <attile/kernel/forward/fusion.h>
#include <attile/kernel/sm80/forward_traits.cuh>
#include <attile/tile/dropout.cuh>
#include <attile/tile/mma_operands.cuh>
#include <attile/tile/mma_tile.cuh>
#include <attile/tile/multiply.cuh>
#include <attile/tile/online_softmax.h>
#include <attile/tile/panel_tile.cuh>
#include <attile/tile/scores.cuh>

#include <type_traits>

namespace attile::sm80 {

/// Holds the tiles of K and V in shared memory, and loads those of a work tile's sequence and kv
/// head.
template <class Traits>
struct KeyValueTiles {
  static constexpr int kThreads = Traits::kThreads;

  const ForwardParams<Traits>& p;
  WorkTile at;
  typename Traits::KTile k;  // (Bc, D)
  typename Traits::VTile v;  // (Bc, Dv)

  ATTILE_DEVICE KeyValueTiles(const ForwardParams<Traits>& params, const WorkTile& tile,
                              unsigned char* shared)
      : p(params), at(tile), k{shared}, v{shared + Traits::KTile::kBytes} {}

  ATTILE_DEVICE unsigned char* end() const { return v.data + Traits::VTile::kBytes; }

  /// Begin to load the tile of K, or of V, of a kv tile. Scope    all threads of the block.
  ATTILE_DEVICE void load_k(int kv_tile) const {
    tile::load_async<kThreads>(k, p.k_of(here()), kv_tile * Traits::kBc);
  }
  ATTILE_DEVICE void load_v(int kv_tile) const {
    tile::load_async<kThreads>(v, p.v_of(here()), kv_tile * Traits::kBc);
  }

 private:
  /// Returns the work tile as one that the compiler does not know, so that it computes addresses
  /// anew for each load: those that it would keep in the loop take registers that spill.
  ATTILE_DEVICE WorkTile here() const {
    WorkTile tile = at;
    tile.sequence = arch::opaque(at.sequence);
    return tile;
  }
};

/// Computes S <- S + Q K^T, in fp8 where both are.
template <class Traits>
ATTILE_DEVICE void add_scores(typename Traits::ScoreRegisters& s_frag,
                              const typename Traits::QTile& q_smem,
                              const typename Traits::KTile& k_smem) {
  using Q = typename Traits::Q;
  using Scores = typename Traits::ScoreRegisters;
  const tile::SharedLeft q_left(q_smem, Scores::warp_row());
  const auto k_right = tile::transposed_right<Q>(k_smem, Scores::warp_col());
  tile::multiply<Q, Traits::kProducts>(s_frag, q_left, k_right);
}

/// Computes O <- O + P V. Where each warp of a row has a part of P, they exchange it in `p_smem`.
template <class Traits>
ATTILE_DEVICE void add_values(typename Traits::OutputRegisters& o_frag,
                              const typename Traits::ScoreRegisters& p_frag,
                              const typename Traits::PTile& p_smem,
                              const typename Traits::RowWarps& row_warps,
                              const typename Traits::VTile& v_smem) {
  using T = typename Traits::ElementType;
  using Outputs = typename Traits::OutputRegisters;
  const tile::SharedRight v_right(v_smem, Outputs::warp_col());
  if constexpr (Traits::RowWarps::kOneWarp) {
    const tile::RegisterLeft<T, typename Traits::ScoreRegisters> p_left(p_frag);
    tile::multiply<T, Traits::kProducts>(o_frag, p_left, v_right);
  } else {
    tile::stage(p_smem, p_frag);
    row_warps.barrier();  // the warps of a row have written P before any of them reads it
    const tile::SharedLeft p_left(p_smem, Outputs::warp_row());
    tile::multiply<T, Traits::kProducts>(o_frag, p_left, v_right);
  }
}

/// Stores O by way of shared memory, so that whole rows are written. There it overwrites Q, which
/// all warps have read before the block's last barrier. O in fp32 of 16-bit inputs is stored from
/// registers. Returns the work tile, which is computed here: earlier there are no registers for it.
template <class Traits>
ATTILE_DEVICE WorkTile store_output(const ForwardParams<Traits>& p, int block,
                                    unsigned char* shared,
                                    const typename Traits::OutputRegisters& o_frag,
                                    const typename Traits::RowWarps& row_warps) {
  using Outputs = typename Traits::OutputRegisters;
  if constexpr (!Traits::kStagesOutput) {
    if constexpr (kIsEarlierKeys<typename Traits::SinkType>) {
      row_warps.barrier();  // the warps of a row have read the LSE that its LSE may replace
    }
    const WorkTile at = OneTileSchedule<Traits>(p, block).rows();
    store_fp32_output(p, p.coord(at, 0), o_frag);
    return at;
  } else {
    const typename Traits::OTile o_smem{shared};
    tile::stage(o_smem, o_frag);
    row_warps.barrier();  // the warps of a row have written its O before they read it; no others do
    const WorkTile at = OneTileSchedule<Traits>(p, block).rows();
    constexpr int kRows = Outputs::kWarpRows / Traits::kWarpsN;
    const int warp_of_row = Outputs::warp_col() / Outputs::kWarpCols;
    tile::store_rows<kRows>(p.o_of(at), o_smem, Outputs::warp_row() + warp_of_row * kRows, at.row0);
    return at;
  }
}

/// Returns a block's work tile, computed anew by each caller, so that it takes no registers between
/// two of them. `range`: its kv tiles, which are kept, as finding them takes long.
template <class Traits>
ATTILE_DEVICE WorkTile tile_anew(const ForwardParams<Traits>& p, int block,
                                 const TileRange& range) {
  WorkTile at = OneTileSchedule<Traits>(p, arch::opaque(block)).rows();
  at.kv_tiles = range;
  return at;
}

/// Computes O and LSE of one tile of query rows of one head by the forward pass of FlashAttention-2
/// (arXiv 2307.08691, Algorithm 1; the lines named are its), with matrix instructions and
/// asynchronous copies. S and O stay in the registers of the warps that have their rows, P too
/// where that is one warp. Shared memory has one tile of K and one of V: V is in flight while S is
/// computed, and the next K while P and P V are.
/// Scope    all threads of the block. `shared`: Traits::kSharedBytes, aligned to 128 bytes.
/// fusion   what is done with Q, K and O besides: see NoFusion.
template <class Traits, class Fusion = NoFusion>
ATTILE_DEVICE void forward_block(const ForwardParams<Traits>& p, int block, unsigned char* shared,
                                 const Fusion& fusion = {}) {
  static_assert(
      !Fusion::kChangesInputs || std::is_same_v<typename Traits::K, typename Traits::ElementType>,
      "attile::sm80: a fusion changes Q and K of one element type, not K in fp8");
  using T = typename Traits::ElementType;
  using Scores = typename Traits::ScoreRegisters;
  using Outputs = typename Traits::OutputRegisters;
  using RowWarps = typename Traits::RowWarps;
  constexpr int kThreads = Traits::kThreads;
  constexpr int kBc = Traits::kBc;
  const typename Traits::QTile q_smem{shared};  // (Br, D)
  const WorkTile at = OneTileSchedule<Traits>(p, block).tile();
  if (!p.has_rows(at)) return;
  const KeyValueTiles<Traits> kv_smem(p, at, shared + Traits::kQoBytes);
  const typename Traits::PTile p_smem{kv_smem.end()};  // (Br, Bc), where a row has several warps
  const RowWarps row_warps(kv_smem.end() + Traits::kPBytes);
  const typename Traits::Data data(p, shared + Traits::kDataOffset);
  const float scale = p.score_scale(at);
  const float scale_log2 = tile::score_scale_log2<typename Traits::ScoreModType>(scale);
  const TileRange range = at.kv_tiles;  // the kv tiles that the block loads
  // The kv tiles that the warp computes, of which its rows see a score. Where a row has several
  // warps, there are no registers for a range of their own, and their rows see nearly what the
  // block's do; with block lists they see the same. Nor are there any for the work tile, which each
  // step computes anew.
  constexpr bool kHasWarpRange = RowWarps::kOneWarp && !ForwardParams<Traits>::kListsBlocks;
  const TileRange warp_range =
      kHasWarpRange ? p.keys_seen(at, at.head, at.row0 + Scores::warp_row(), Scores::kWarpRows)
                    : range;

  tile::load_left_async<typename Traits::K, kThreads>(q_smem, p.q_of(at), at.row0);  // line 4
  if (range.first < range.last) {
    kv_smem.load_k(p.kv_tile(at, range.first));
    data.load(at, range.first);
  }
  arch::async_copy_commit();
  Outputs o_frag;  // line 5
  tile::OnlineSoftmax<Outputs::kRegRows> softmax;
  o_frag.clear();
  softmax.reset();
  if constexpr (Fusion::kChangesInputs) {
    arch::async_copy_wait<0>();
    arch::barrier();  // Q has arrived before it is changed; another barrier follows before S
    fusion.q_loaded(q_smem, at);
  }

  ATTILE_UNROLL_BY(1)
  for (int step = range.first; step < range.last; ++step) {  // lines 6 and 7
    const WorkTile here = kHasWarpRange ? at : tile_anew<Traits>(p, block, range);
    const int kv_tile = p.kv_tile(here, step);
    tile::TileCoord coord = p.coord(here, kv_tile * kBc);
    coord.row0 = arch::opaque(coord.row0);  // what follows from it is not kept in the loop
    const bool seen = !kHasWarpRange || warp_range.contains(step);
    arch::async_copy_wait<0>();
    arch::barrier();  // K has arrived before anyone reads it; V has been read before it is loaded
    kv_smem.load_v(kv_tile);
    arch::async_copy_commit();
    data.load_next(here, step + 1, range.last);
    const auto words = data.read(here, kv_tile);
    if constexpr (Fusion::kChangesInputs) {
      fusion.k_loaded(kv_smem.k, here, kv_tile * kBc);
      arch::barrier();  // K is changed before it is multiplied
    }

    Scores s_frag;
    if (seen) {
      s_frag.clear();
      add_scores<Traits>(s_frag, q_smem, kv_smem.k);  // line 8
    }
    words.store();
    arch::async_copy_wait<Traits::Data::kGroups>();  // all but the modifier's data of the next step
    arch::barrier();  // V has arrived before anyone reads it; K has been read before it is loaded
    if (step + 1 < range.last) kv_smem.load_k(p.kv_tile(here, step + 1));
    arch::async_copy_commit();
    if (!seen) continue;
    if constexpr (Traits::kModifiesOnce) {
      data.apply(s_frag, coord, scale, step);
      if (!p.is_full(here, warp_range, step, kv_tile)) {
        tile::hide(s_frag, coord, p.mask_in_tile(warp_range.full(step)));
      }
    } else if (p.is_full(here, warp_range, step, kv_tile)) {
      tile::modify_and_mask<false>(s_frag, coord, p.policies_in_tile(warp_range.full(step)), scale,
                                   tile::MathOf<T>());
    } else {
      tile::modify_and_mask<true>(s_frag, coord, p.policies_in_tile(warp_range.full(step)), scale,
                                  tile::MathOf<T>());
    }
    softmax.template step<Traits::kRescaleThreshold>(s_frag, o_frag, scale_log2,
                                                     row_warps);  // line 9
    // A sampler for each step: one that is kept would take registers through the loop.
    if constexpr (Traits::DropoutType::kEnabled) tile::drop_scores(s_frag, coord, p.sampler());
    add_values<Traits>(o_frag, s_frag, p_smem, row_warps, kv_smem.v);  // line 10
  }

  if (range.first >= range.last) {
    arch::async_copy_wait<0>();
    arch::barrier();  // Q has arrived before O is staged in its memory
  }
  const auto rows = [&] { return OneTileSchedule<Traits>(p, arch::opaque(block)).rows(); };
  const auto sinks = row_sinks<Outputs>(p, scale_log2, [&] { return p.coord(rows(), 0); });
  softmax.finish(o_frag, p.output_scale(rows), row_warps, sinks);  // line 12
  if constexpr (!std::is_same_v<Fusion, NoFusion>) fusion.output(o_frag, rows());
  const WorkTile end = store_output(p, arch::opaque(block), shared, o_frag, row_warps);  // line 14
  store_lse<Outputs>(p, p.coord(end, 0), softmax, scale_log2);  // lines 13, 15
}

}  // namespace attile::sm80
