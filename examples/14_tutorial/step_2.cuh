// SPDX-License-Identifier: MIT
// Step 2: K and V of the next tile are fetched into registers while this one is multiplied, and
// tiles that the diagonal does not cut are not masked.
#pragma once

#include "step_1.cuh"

namespace tutorial::step_2 {

using step_1::kBr, step_1::kBc, step_1::kThreads, step_1::kSharedBytes;
using step_1::QTile, step_1::KTile, step_1::VTile, step_1::PTile, step_1::Scores, step_1::Output;

ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(kThreads, 1)
    attention(const ATTILE_GRID_CONSTANT Params<float, kBr, kBc> p) {
  tile::SharedCarver carver{arch::dynamic_shared()};
  const auto q_smem = carver.take<QTile>();
  const auto k_smem = carver.take<KTile>();
  const auto v_smem = carver.take<VTile>();
  const auto p_smem = carver.take<PTile>();
  const attile::WorkTile at = p.tiles.tile(arch::block_index(), attile::Causal{});
  const auto q = p.q.slice(at.sequence, at.head, at.extent.q_len, kDim);
  const auto k = p.k.slice(at.sequence, at.kv_head, at.extent.kv_len, kDim);
  const auto v = p.v.slice(at.sequence, at.kv_head, at.extent.kv_len, kDim);

  tile::load<kThreads>(q_smem, q, at.row0);
  tile::Transfer<kThreads, KTile, float> k_transfer;
  tile::Transfer<kThreads, VTile, float> v_transfer;
  k_transfer.fetch(k, at.kv_tiles.first * kBc);
  v_transfer.fetch(v, at.kv_tiles.first * kBc);
  Output o_frag;
  tile::OnlineSoftmax<Output::kRegRows> softmax;
  o_frag.clear();
  softmax.reset();
  for (int kv_tile = at.kv_tiles.first; kv_tile < at.kv_tiles.last; ++kv_tile) {
    const int col0 = kv_tile * kBc;
    k_transfer.put(k_smem, k, col0);
    v_transfer.put(v_smem, v, col0);
    arch::barrier();  // the tiles are written before anyone reads them
    k_transfer.fetch(k, col0 + kBc);
    v_transfer.fetch(v, col0 + kBc);
    Scores s_frag;
    s_frag.clear();
    tile::matmul_nt(s_frag, q_smem, k_smem);  // S = Q K^T
    if (!at.kv_tiles.full(kv_tile)) {
      tile::hide(s_frag, tile::TileCoord{at.sequence, at.head, at.row0, col0, at.extent},
                 attile::Causal{});
    }
    softmax.step(s_frag, o_frag, p.scale * attile::kLog2e);  // (m, l); S becomes P
    tile::stage(p_smem, s_frag);
    Scores::sync_rows();                      // the lanes of a row see each other's P
    tile::matmul_nn(o_frag, p_smem, v_smem);  // O += P V
    arch::barrier();  // everyone has read the tiles before the next ones are written
  }
  softmax.finish(o_frag);
  tile::store(p.o.slice(at.sequence, at.head, at.extent.q_len, kDim), o_frag, at.row0);
}

inline attile::Check run(const Problem<float>& problem, cudaStream_t stream = nullptr) {
  const auto params = problem.params<kBr, kBc>();
  return launch(attention, params.tiles.count(), kThreads, kSharedBytes, 0, stream, params);
}

}  // namespace tutorial::step_2
