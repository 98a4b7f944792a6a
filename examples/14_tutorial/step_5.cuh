// SPDX-License-Identifier: MIT
// Step 5: products of a warpgroup (wgmma), whose operands are in shared memory, and copies by TMA.
// One thread begins the copies of a tile, and all wait for them.
#pragma once

#include <attile/tile_wgmma.cuh>

#include "problem.cuh"

namespace tutorial::step_5 {

using T = __nv_bfloat16;
constexpr int kBr = 64, kBc = 128, kWarps = 4, kThreads = arch::kWarpgroupSize;

using QTile = tile::PanelTile<kBr, kDim, T>;
using KTile = tile::PanelTile<kBc, kDim, T>;
using QPipeline = tile::Pipeline<QTile, 1>;
using KPipeline = tile::Pipeline<KTile, 1>;
using Scores = tile::MmaTile<kBr, kBc, kWarps>;
using Output = tile::MmaTile<kBr, kDim, kWarps>;
constexpr std::size_t kSharedBytes = tile::shared_bytes<QPipeline, KPipeline, KPipeline>;

/// The parameter of the kernels that load by TMA.
template <int Br, int Bc>
struct TmaParams {
  arch::TensorMap q, k, v;
  tile::TensorParam<T> o;
  attile::DenseTiles<Br, Bc> tiles;
  float scale;
};

ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(kThreads, 2)
    attention(const ATTILE_GRID_CONSTANT TmaParams<kBr, kBc> p) {
  if constexpr (!arch::kHasWarpgroups) return;
  tile::SharedCarver carver{arch::dynamic_shared()};
  const auto q_pipeline = carver.take<QPipeline>();
  const auto k_pipeline = carver.take<KPipeline>();
  const auto v_pipeline = carver.take<KPipeline>();
  tile::init_pipelines(kWarps, q_pipeline, k_pipeline, v_pipeline);
  const attile::WorkTile at = p.tiles.tile(arch::block_index(), attile::Causal{});
  const bool loads = arch::thread_index() == 0;

  QPipeline::State q_state;
  KPipeline::State state;
  if (loads) {
    q_pipeline.producer_acquire(q_state);
    q_pipeline.load(q_state, p.q, at.row0, at.head, at.sequence);
  }
  const auto q_smem = q_pipeline.consumer_wait(q_state);
  Output o_frag;
  tile::OnlineSoftmax<Output::kRegRows> softmax;
  o_frag.clear();
  softmax.reset();
  for (int kv_tile = at.kv_tiles.first; kv_tile < at.kv_tiles.last; ++kv_tile) {
    if (loads) {
      k_pipeline.producer_acquire(state);
      k_pipeline.load(state, p.k, kv_tile * kBc, at.kv_head, at.sequence);
      v_pipeline.producer_acquire(state);
      v_pipeline.load(state, p.v, kv_tile * kBc, at.kv_head, at.sequence);
    }
    arch::warp_barrier();  // the lanes of a warp begin a product together
    const auto k_smem = k_pipeline.consumer_wait(state);
    Scores s_frag;
    tile::start_transposed_product(s_frag, q_smem, k_smem);  // S = Q K^T
    tile::wait_product<0>(s_frag);
    k_pipeline.consumer_release(state);
    if (!at.kv_tiles.full(kv_tile)) {
      tile::hide(s_frag, tile::TileCoord{at.sequence, at.head, at.row0, kv_tile * kBc, at.extent},
                 attile::Causal{});
    }
    softmax.step<8>(s_frag, o_frag, p.scale * attile::kLog2e);  // (m, l); S becomes P
    const tile::RegisterLeft<T, Scores> p_left(s_frag);
    const auto v_smem = v_pipeline.consumer_wait(state);
    tile::start_product(o_frag, p_left, v_smem);  // O += P V
    tile::wait_product<0>(o_frag);
    v_pipeline.consumer_release(state);
    state.advance();
  }
  softmax.finish(o_frag);
  arch::barrier();  // all warps' products have read Q before O is staged over it
  tile::store_staged(p.o.slice(at.sequence, at.head, at.extent.q_len, kDim), q_smem, o_frag,
                     at.row0);
}

/// Returns the parameter of a kernel. Errors   with a sentence, where TMA does not take a tensor.
template <int Br, int Bc>
attile::Check make_params(TmaParams<Br, Bc>& p, const Problem<T>& problem) {
  const Sizes& s = problem.sizes();
  attile::Check ok = tile::make_map<tile::PanelTile<Br, kDim, T>>(
      p.q, problem.q(), {s.batch, s.len}, s.q_heads, kDim);
  using Keys = tile::PanelTile<Bc, kDim, T>;
  if (ok) ok = tile::make_map<Keys>(p.k, problem.k(), {s.batch, s.len}, s.kv_heads, kDim);
  if (ok) ok = tile::make_map<Keys>(p.v, problem.v(), {s.batch, s.len}, s.kv_heads, kDim);
  return ok;
}

inline attile::Check run(const Problem<T>& problem, cudaStream_t stream = nullptr) {
  TmaParams<kBr, kBc> params{
      {}, {}, {}, tile::tensor_param(problem.o(), kDim), problem.tiles<kBr, kBc>(), kScale};
  const attile::Check ok = make_params(params, problem);
  if (!ok) return ok;
  return launch(attention, params.tiles.count(), kThreads, kSharedBytes, 900, stream, params);
}

}  // namespace tutorial::step_5
