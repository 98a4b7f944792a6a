// SPDX-License-Identifier: MIT
// Step 1: attention over tiles, in fp32 with FMAs.
#pragma once

#include <attile/tile.cuh>

#include "problem.cuh"

namespace tutorial::step_1 {

constexpr int kBr = 64, kBc = 32, kThreads = 128, kRowLanes = kThreads / tile::kColLanes;

constexpr tile::Order kByColumns = tile::Order::kColumnMajor, kByRows = tile::Order::kRowMajor;
using QTile = tile::SharedTile<kBr, kDim, kByColumns, tile::Padding::kNone>;
using KTile = tile::SharedTile<kBc, kDim, kByColumns>;
using VTile = tile::SharedTile<kBc, kDim, kByRows, tile::Padding::kNone>;
using PTile = tile::SharedTile<kBr, kBc, kByColumns>;
using Scores = tile::RegisterTile<kBr, kBc, kRowLanes, 4, tile::run_length(kBc, tile::kColLanes)>;
using Output = tile::RegisterTile<kBr, kDim, kRowLanes, 4, 4>;
constexpr std::size_t kSharedBytes = tile::shared_bytes<QTile, KTile, VTile, PTile>;

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
  Output o_frag;
  tile::OnlineSoftmax<Output::kRegRows> softmax;
  o_frag.clear();
  softmax.reset();
  for (int kv_tile = at.kv_tiles.first; kv_tile < at.kv_tiles.last; ++kv_tile) {
    const int col0 = kv_tile * kBc;
    tile::load<kThreads>(k_smem, k, col0);
    tile::load<kThreads>(v_smem, v, col0);
    arch::barrier();  // the tiles are written before anyone reads them
    Scores s_frag;
    s_frag.clear();
    tile::matmul_nt(s_frag, q_smem, k_smem);  // S = Q K^T
    tile::hide(s_frag, tile::TileCoord{at.sequence, at.head, at.row0, col0, at.extent},
               attile::Causal{});
    softmax.step(s_frag, o_frag, p.scale * attile::kLog2e);  // (m, l); S becomes P
    tile::stage(p_smem, s_frag);
    Scores::sync_rows();                      // the lanes of a row see each other's P
    tile::matmul_nn(o_frag, p_smem, v_smem);  // O += P V
    arch::barrier();  // everyone has read the tiles before the next ones are loaded
  }
  softmax.finish(o_frag);
  tile::store(p.o.slice(at.sequence, at.head, at.extent.q_len, kDim), o_frag, at.row0);
}

inline attile::Check run(const Problem<float>& problem, cudaStream_t stream = nullptr) {
  const auto params = problem.params<kBr, kBc>();
  return launch(attention, params.tiles.count(), kThreads, kSharedBytes, 0, stream, params);
}

}  // namespace tutorial::step_1
