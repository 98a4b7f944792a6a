// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/async_copy.cuh>
#include <attile/arch/opaque.h>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/schedule.h>
#include <attile/kernel/forward_kernel.cuh>
#include <attile/kernel/sm80/forward_traits.cuh>
#include <attile/tile/mma_tile.cuh>
#include <attile/tile/online_softmax.h>
#include <attile/tile/panel_tile.cuh>
#include <attile/tile/scores.cuh>

namespace attile::sm80 {

/// FlashAttention-2, forward, for one tile of query rows of one head (arXiv 2307.08691, Algorithm
/// 1; the lines named are its), with matrix instructions and asynchronous copies: S, P and O stay
/// in the registers of the warp that has their rows.
/// Scope    all threads of the block. `shared`: Traits::kSharedBytes, aligned to 128 bytes.
template <class Traits>
ATTILE_DEVICE void forward_tile(const ForwardParams<Traits>& p, int block, unsigned char* shared) {
  using T = typename Traits::ElementType;
  using KTile = typename Traits::KTile;
  using VTile = typename Traits::VTile;
  using Scores = typename Traits::ScoreRegisters;
  using Outputs = typename Traits::OutputRegisters;
  constexpr int kThreads = Traits::kThreads;
  constexpr int kBc = Traits::kBc;
  const typename Traits::QTile q_smem{shared};                    // (Br, D)
  const KTile k_smem{shared + Traits::kQoBytes};                  // (Bc, D)
  const VTile v_smem{shared + Traits::kQoBytes + KTile::kBytes};  // (Bc, Dv)

  const auto [batch, head, row0] = QueryTile(p, block);
  const int kv_head = head / (p.q_heads / p.kv_heads);
  const auto send_for_k = [&](int kv_tile) {
    const auto k_gmem = p.k.slice(arch::opaque(batch), kv_head, p.extent.kv_len, p.head_dim);
    tile::load_async<kThreads>(k_smem, k_gmem, kv_tile * kBc);
  };
  const auto send_for_v = [&](int kv_tile) {
    const auto v_gmem = p.v.slice(arch::opaque(batch), kv_head, p.extent.kv_len, p.head_dim_v);
    tile::load_async<kThreads>(v_smem, v_gmem, kv_tile * kBc);
  };
  const float unit = tile::score_unit<typename Traits::ScoreModType>(p.scale);
  const auto sampler = p.dropout.sampler(p.q_heads);
  const TileRange range = tiles_seen(p, batch, head, row0, Traits::kBr);  // what the block loads
  const TileRange mine = tiles_seen(p, batch, head, row0 + Scores::warp_row(), Scores::kWarpRows);

  tile::load_async<kThreads>(q_smem, p.q.slice(batch, head, p.extent.q_len, p.head_dim),
                             row0);  // line 4
  if (range.first < range.last) send_for_k(range.first);
  arch::async_copy_commit();
  Outputs o_frag;  // line 5
  tile::OnlineSoftmax<Outputs::kRegRows> softmax;
  o_frag.clear();
  softmax.reset();

  ATTILE_UNROLL_BY(1)
  for (int kv_tile = range.first; kv_tile < range.last; ++kv_tile) {  // lines 6 and 7
    const tile::TilePlace place{batch, head, row0, kv_tile * kBc, p.extent};
    const bool seen = mine.contains(kv_tile);  // by any row of this warp
    arch::async_copy_wait<0>();
    arch::barrier();  // K is there for all; V has been read
    send_for_v(kv_tile);
    arch::async_copy_commit();

    Scores s_frag;
    if (seen) {
      s_frag.clear();
      const tile::SharedLeft q_left(q_smem, Scores::warp_row());
      tile::multiply<T>(s_frag, q_left, tile::SharedRightTransposed(k_smem));  // line 8
    }
    arch::async_copy_wait<0>();
    arch::barrier();  // V is there for all; K has been read
    if (kv_tile + 1 < range.last) send_for_k(kv_tile + 1);
    arch::async_copy_commit();
    if (!seen) continue;
    if (mine.full(kv_tile)) {
      tile::modify_and_mask<false>(s_frag, place, p.mask, p.score_mod, p.scale);
    } else {
      tile::modify_and_mask<true>(s_frag, place, p.mask, p.score_mod, p.scale);
    }
    softmax.template step<Traits::kRescaleSlack>(s_frag, o_frag, unit);  // line 9
    if constexpr (Traits::DropoutType::kEnabled) tile::drop(s_frag, place, sampler);
    const tile::RegisterLeft<T, Scores> p_left(s_frag);
    tile::multiply<T>(o_frag, p_left, tile::SharedRight(v_smem));  // line 10
  }

  if (range.first >= range.last) {
    arch::async_copy_wait<0>();
    arch::barrier();  // Q has arrived in the memory that O is staged in
  }
  softmax.finish(o_frag, sampler.keep_scale());  // line 12
  const typename Traits::OTile o_smem{shared};
  if constexpr (!Traits::kSameRowsOfQAndO) arch::barrier();  // all of Q has been read
  tile::stage(o_smem, o_frag);
  arch::warp_barrier();  // the lanes of a warp see its rows of O, which are no other warp's
  const QueryTile end(p, arch::opaque(block));
  tile::store_rows<Outputs::kWarpRows>(p.o.slice(end.batch, end.head, p.extent.q_len, p.head_dim_v),
                                       o_smem, Outputs::warp_row(),
                                       end.row0);                       // line 14
  store_lse<Outputs>(p, end.batch, end.head, end.row0, softmax, unit);  // lines 13, 15
}

}  // namespace attile::sm80
