// SPDX-License-Identifier: MIT
// Step 3: the same on tensor cores, by mma.sync in bf16. S and P stay in registers.
#pragma once

#include <attile/tile_mma.cuh>

#include "problem.cuh"

namespace tutorial::step_3 {

using T = __nv_bfloat16;
constexpr int kBr = 64, kBc = 64, kWarps = 4, kThreads = kWarps * arch::kWarpSize;

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
  const auto q = p.q.slice(at.sequence, at.head, at.extent.q_len, kDim);
  const auto k = p.k.slice(at.sequence, at.kv_head, at.extent.kv_len, kDim);
  const auto v = p.v.slice(at.sequence, at.kv_head, at.extent.kv_len, kDim);

  tile::load_async<kThreads>(q_smem, q, at.row0);
  Output o_frag;
  tile::OnlineSoftmax<Output::kRegRows> softmax;
  o_frag.clear();
  softmax.reset();
  for (int kv_tile = at.kv_tiles.first; kv_tile < at.kv_tiles.last; ++kv_tile) {
    const int col0 = kv_tile * kBc;
    tile::load_async<kThreads>(k_smem, k, col0);
    tile::load_async<kThreads>(v_smem, v, col0);
    arch::async_copy_commit();
    arch::async_copy_wait<0>();
    arch::barrier();  // the tiles have arrived before anyone reads them
    Scores s_frag;
    s_frag.clear();
    const tile::SharedLeft q_left(q_smem, Scores::warp_row());
    tile::multiply<T>(s_frag, q_left, tile::SharedRightTransposed(k_smem));  // S = Q K^T
    if (!at.kv_tiles.full(kv_tile)) {
      tile::hide(s_frag, tile::TileCoord{at.sequence, at.head, at.row0, col0, at.extent},
                 attile::Causal{});
    }
    softmax.step(s_frag, o_frag, p.scale * attile::kLog2e);  // (m, l); S becomes P
    const tile::RegisterLeft<T, Scores> p_left(s_frag);
    tile::multiply<T>(o_frag, p_left, tile::SharedRight(v_smem));  // O += P V
    arch::barrier();  // everyone has read the tiles before the next ones are loaded
  }
  softmax.finish(o_frag);
  tile::store(p.o.slice(at.sequence, at.head, at.extent.q_len, kDim), o_frag, at.row0);
}

inline attile::Check run(const Problem<T>& problem, cudaStream_t stream = nullptr) {
  const auto params = problem.params<kBr, kBc>();
  return launch(attention, params.tiles.count(), kThreads, kSharedBytes, 800, stream, params);
}

}  // namespace tutorial::step_3
