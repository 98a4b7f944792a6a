// SPDX-License-Identifier: MIT
// Step 4: V of a tile arrives while S is made, and the next K while P V is; a warp has 32 rows; O
// is rescaled only where a maximum has grown much; whole rows of O are written.
#pragma once

#include <attile/tile_mma.cuh>

#include "problem.cuh"

namespace tutorial::step_4 {

using T = __nv_bfloat16;
constexpr int kBr = 128, kBc = 48, kWarps = 4, kThreads = kWarps * arch::kWarpSize;

using QTile = tile::PanelTile<kBr, kDim, T>;
using KTile = tile::PanelTile<kBc, kDim, T>;
using Scores = tile::MmaTile<kBr, kBc, kWarps>;
using Output = tile::MmaTile<kBr, kDim, kWarps>;
constexpr std::size_t kSharedBytes = tile::shared_bytes<QTile, KTile, KTile>;

ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(kThreads, 2)
    attention(const ATTILE_GRID_CONSTANT Params<T, kBr, kBc> p) {
  tile::SharedCarver carver{arch::dynamic_shared()};
  const auto q_smem = carver.take<QTile>();
  const auto k_smem = carver.take<KTile>();
  const auto v_smem = carver.take<KTile>();
  const attile::WorkTile at = p.tiles.tile(arch::block_index(), attile::Causal{});
  const attile::TileRange keys = at.kv_tiles;
  // K and V of the head, found anew for each tile, which leaves registers to the tiles.
  const auto of_head = [&](const tile::TensorParam<const T>& x) {
    return x.slice(arch::opaque(at.sequence), at.kv_head, at.extent.kv_len, kDim);
  };

  tile::load_async<kThreads>(q_smem, p.q.slice(at.sequence, at.head, at.extent.q_len, kDim),
                             at.row0);
  tile::load_async<kThreads>(k_smem, of_head(p.k), keys.first * kBc);
  arch::async_copy_commit();
  Output o_frag;
  tile::OnlineSoftmax<Output::kRegRows> softmax;
  o_frag.clear();
  softmax.reset();
  ATTILE_UNROLL_BY(1)
  for (int kv_tile = keys.first; kv_tile < keys.last; ++kv_tile) {
    arch::async_copy_wait<0>();
    arch::barrier();  // K has arrived before anyone reads it; V has been read before it is loaded
    tile::load_async<kThreads>(v_smem, of_head(p.v), kv_tile * kBc);
    arch::async_copy_commit();
    Scores s_frag;
    s_frag.clear();
    const tile::SharedLeft q_left(q_smem, Scores::warp_row());
    tile::multiply<T>(s_frag, q_left, tile::SharedRightTransposed(k_smem));  // S = Q K^T
    arch::async_copy_wait<0>();
    arch::barrier();  // V has arrived before anyone reads it; K has been read before it is loaded
    if (kv_tile + 1 < keys.last) {
      tile::load_async<kThreads>(k_smem, of_head(p.k), (kv_tile + 1) * kBc);
    }
    arch::async_copy_commit();
    if (!keys.full(kv_tile)) {
      tile::hide(s_frag, tile::TileCoord{at.sequence, at.head, at.row0, kv_tile * kBc, at.extent},
                 attile::Causal{});
    }
    softmax.step<8>(s_frag, o_frag, p.scale * attile::kLog2e);  // (m, l); S becomes P
    const tile::RegisterLeft<T, Scores> p_left(s_frag);
    tile::multiply<T>(o_frag, p_left, tile::SharedRight(v_smem));  // O += P V
  }
  softmax.finish(o_frag);
  // Each warp stages its rows of O over its own rows of Q, which nobody else reads.
  tile::store_staged(p.o.slice(at.sequence, at.head, at.extent.q_len, kDim), q_smem, o_frag,
                     at.row0);
}

inline attile::Check run(const Problem<T>& problem, cudaStream_t stream = nullptr) {
  const auto params = problem.params<kBr, kBc>();
  return launch(attention, params.tiles.count(), kThreads, kSharedBytes, 800, stream, params);
}

}  // namespace tutorial::step_4
