// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/schedule.h>
#include <attile/core/work_tile.h>
#include <attile/kernel/forward/forward_kernel.cuh>
#include <attile/kernel/forward/forward_schedule.cuh>
#include <attile/kernel/portable/forward_traits.cuh>
#include <attile/tile/copy.cuh>
#include <attile/tile/dropout.cuh>
#include <attile/tile/matmul.cuh>
#include <attile/tile/online_softmax.h>
#include <attile/tile/register_tile.cuh>
#include <attile/tile/scores.cuh>

namespace attile::portable {

/// Computes O and LSE of one tile of query rows of one head by the forward pass of FlashAttention-2
/// (arXiv 2307.08691, Algorithm 1; the lines named are its). It needs only shared memory, plain
/// FMAs and shuffles.
/// Scope    all threads of the block. `shared`: Traits::kSharedBytes, aligned to 16 bytes.
template <class Traits>
ATTILE_DEVICE void forward_block(const ForwardParams<Traits>& p, int block, unsigned char* shared) {
  using T = typename Traits::ElementType;
  constexpr int kThreads = Traits::kThreads;
  constexpr int kBc = Traits::kBc;
  tile::SharedCarver carver{shared};
  const auto q_smem = carver.take<typename Traits::QTile>();                  // (Br, D)
  const auto k_smem = carver.take<typename Traits::KTile>(Traits::kKpBytes);  // (Bc, D)
  const auto v_smem = carver.take<typename Traits::VTile>();                  // (Bc, Dv)
  const typename Traits::PTile p_smem{k_smem.data};                           // (Br, Bc)

  const WorkTile at = OneTileSchedule<Traits>(p, block).tile();
  if (!p.has_rows(at)) return;
  const TileRange range = at.kv_tiles;
  const auto k_gmem = p.k_of(at);
  const auto v_gmem = p.v_of(at);
  const float scale = p.score_scale(at);
  const float scale_log2 = tile::score_scale_log2<typename Traits::ScoreModType>(scale);
  const auto sampler = p.sampler();
  tile::Transfer<kThreads, typename Traits::KTile, typename Traits::Elements::K> k_transfer;
  tile::Transfer<kThreads, typename Traits::VTile, typename Traits::Elements::V> v_transfer;

  tile::load<kThreads>(q_smem, p.q_of(at), at.row0);  // line 4
  typename Traits::OutputRegisters o_frag;            // line 5
  tile::OnlineSoftmax<Traits::OutputRegisters::kRegRows> softmax;
  o_frag.clear();
  softmax.reset();

  if constexpr (Traits::kPrefetch) {
    // A list of no blocks names no first tile. Without lists rows that are not there are not read.
    const bool has_first = !p.kListsBlocks || range.first < range.last;
    if (has_first) k_transfer.fetch(k_gmem, p.kv_tile(at, range.first) * kBc);
  }

  // One iteration of the loop, step i of `range`; `masked` says whether the mask may hide scores.
  const auto step = [&](auto masked, int i) {
    const tile::TileCoord coord = p.coord(at, p.kv_tile(at, i) * kBc);
    if constexpr (Traits::kPrefetch) {
      v_transfer.fetch(v_gmem, coord.col0);  // line 7; V is in flight while S is computed
      k_transfer.put(k_smem, k_gmem, coord.col0);
    } else {
      tile::load<kThreads>(k_smem, k_gmem, coord.col0);  // line 7
      tile::load<kThreads>(v_smem, v_gmem, coord.col0);
    }
    arch::barrier();  // Q, K and, without prefetch, V are written before anyone reads them

    typename Traits::ScoreRegisters s_frag;
    s_frag.clear();
    tile::matmul_nt(s_frag, q_smem, k_smem);  // line 8
    if constexpr (Traits::kPrefetch) v_transfer.put(v_smem, v_gmem, coord.col0);
    tile::modify_and_mask<masked.value>(s_frag, coord, p.policies_in_tile(range.full(i)), scale,
                                        tile::MathOf<T>());
    softmax.step(s_frag, o_frag, scale_log2);  // line 9
    if constexpr (Traits::DropoutType::kEnabled) tile::drop_scores(s_frag, coord, sampler);

    arch::barrier();  // V is written before anyone reads it; K is read before P overwrites it
    tile::stage(p_smem, s_frag);
    if constexpr (Traits::kPrefetch) {
      if (i + 1 < range.last) k_transfer.fetch(k_gmem, p.kv_tile(at, i + 1) * kBc);
    }
    Traits::ScoreRegisters::sync_rows();      // the lanes of a row have written P before it is read
    tile::matmul_nn(o_frag, p_smem, v_smem);  // line 10
    arch::barrier();  // everyone has read P and V before the next tiles are written
  };
  p.visit_keys(at, step);  // lines 6 to 11

  const auto sinks =
      row_sinks<typename Traits::OutputRegisters>(p, scale_log2, [&] { return p.coord(at, 0); });
  softmax.finish(o_frag, p.output_scale([&] { return at; }), sinks);  // line 12
  tile::store(p.o_of(at), o_frag, at.row0);                           // line 14
  store_lse<typename Traits::OutputRegisters>(p, p.coord(at, 0), softmax,
                                              scale_log2);  // lines 13, 15
}

}  // namespace attile::portable
