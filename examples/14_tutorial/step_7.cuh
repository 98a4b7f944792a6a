// SPDX-License-Identifier: MIT
// Step 7: S of a tile is made beside P V of the tile before (arXiv 2407.08608, section 3.2), and a
// block computes several work tiles.
#pragma once

#include "step_6.cuh"

namespace tutorial::step_7 {

using step_6::kConsumers, step_6::kBr, step_6::kBc, step_6::kThreads, step_6::kWarps;
using step_6::QTile, step_6::QPipeline, step_6::KPipeline, step_6::Scores, step_6::Output;
using step_6::T, step_6::TmaParams, step_6::Memory;
constexpr std::size_t kSharedBytes = tile::shared_bytes<QPipeline, KPipeline, KPipeline, QTile>;

/// Calls f for each of the block's work tiles.
template <class F>
ATTILE_DEVICE void visit(const TmaParams<kBr, kBc>& p, const F& f) {
  p.tiles.visit(arch::block_index(), arch::block_count(), attile::Causal{}, f);
}

/// Loads Q, K and V of the block's work tiles. Scope    one thread.
ATTILE_DEVICE void produce(const TmaParams<kBr, kBc>& p, const Memory& smem) {
  QPipeline::State q_state;
  KPipeline::State state;
  visit(p, [&](const attile::WorkTile& at) {
    smem.q.producer_acquire(q_state);
    smem.q.load(q_state, p.q, at.row0, at.head, at.sequence);
    q_state.advance();
    for (int kv_tile = at.kv_tiles.first; kv_tile < at.kv_tiles.last; ++kv_tile) {
      smem.k.producer_acquire(state);
      smem.k.load(state, p.k, kv_tile * kBc, at.kv_head, at.sequence);
      smem.v.producer_acquire(state);
      smem.v.load(state, p.v, kv_tile * kBc, at.kv_head, at.sequence);
      state.advance();
    }
  });
}

/// Computes 64 rows of each of the block's work tiles, which see at least one tile of keys, as all
/// rows do where there are as many keys. Scope    all threads of a warpgroup.
ATTILE_DEVICE void consume(const TmaParams<kBr, kBc>& p, const Memory& smem, const QTile& o_smem,
                           int warpgroup) {
  const float scale_log2 = p.scale * attile::kLog2e;
  QPipeline::State q_state;
  KPipeline::State k_state, v_state;
  visit(p, [&](const attile::WorkTile& at) {
    const attile::TileRange keys = at.kv_tiles;
    const auto q_smem = smem.q.consumer_wait(q_state);
    Scores s_frag;
    Output o_frag;
    tile::OnlineSoftmax<Output::kRegRows> softmax;
    softmax.reset();
    tile::TileCoord coord{at.sequence, at.head, at.row0, keys.first * kBc, at.extent};
    // S of the first tile, and P
    tile::start_transposed_product(s_frag, q_smem, smem.k.consumer_wait(k_state), warpgroup * 64);
    tile::wait_product<0>(s_frag);
    smem.k.consumer_release(k_state);
    k_state.advance();
    if (!keys.full(keys.first)) tile::hide(s_frag, coord, attile::Causal{});
    softmax.update_max<0>(s_frag, scale_log2);  // there is no O yet to be rescaled
    softmax.exponentiate(s_frag, scale_log2);
    tile::RegisterLeft<T, Scores> p_left(s_frag);

    ATTILE_UNROLL_BY(1)
    for (int kv_tile = keys.first + 1; kv_tile < keys.last; ++kv_tile) {
      const auto k_smem = smem.k.consumer_wait(k_state);
      const auto v_smem = smem.v.consumer_wait(v_state);
      tile::start_transposed_product(s_frag, q_smem, k_smem, warpgroup * 64);
      tile::start_product(o_frag, p_left, v_smem, 0, kv_tile - 1 > keys.first);
      tile::wait_product<1>(s_frag);  // S is made; P V of the tile before may be under way
      smem.k.consumer_release(k_state);
      k_state.advance();
      coord.col0 = kv_tile * kBc;
      if (!keys.full(kv_tile)) tile::hide(s_frag, coord, attile::Causal{});
      const auto rescaling = softmax.update_max<8>(s_frag, scale_log2);
      tile::wait_product<0>(o_frag);
      smem.v.consumer_release(v_state);
      v_state.advance();
      rescaling.apply(o_frag);
      softmax.exponentiate(s_frag, scale_log2);
      p_left = tile::RegisterLeft<T, Scores>(s_frag);
    }
    smem.q.consumer_release(q_state);  // S of the last tile has been waited for
    q_state.advance();
    tile::start_product(o_frag, p_left, smem.v.consumer_wait(v_state), 0,
                        keys.last - 1 > keys.first);
    tile::wait_product<0>(o_frag);
    smem.v.consumer_release(v_state);
    v_state.advance();
    softmax.finish(o_frag);
    tile::store_staged(p.o.slice(at.sequence, at.head, at.extent.q_len, kDim), o_smem, o_frag,
                       at.row0);
  });
}

ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(kThreads, 1)
    attention(const ATTILE_GRID_CONSTANT TmaParams<kBr, kBc> p) {
  if constexpr (!arch::kHasWarpgroups) return;
  tile::SharedCarver carver{arch::dynamic_shared()};
  const Memory smem{carver.take<QPipeline>(), carver.take<KPipeline>(), carver.take<KPipeline>()};
  const auto o_smem = carver.take<QTile>();
  tile::init_pipelines(kWarps, smem.q, smem.k, smem.v);
  const int warpgroup = arch::uniform(arch::thread_index() / arch::kWarpgroupSize);
  if (warpgroup == kConsumers) {
    arch::reg_dealloc<24>();
    if (arch::thread_index() % arch::kWarpgroupSize == 0) produce(p, smem);
  } else {
    arch::reg_alloc<240>();
    consume(p, smem, o_smem, warpgroup);
  }
}

inline attile::Check run(const Problem<T>& problem, cudaStream_t stream = nullptr) {
  TmaParams<kBr, kBc> params{
      {}, {}, {}, tile::tensor_param(problem.o(), kDim), problem.tiles<kBr, kBc>(), kScale};
  const attile::Check ok = step_5::make_params(params, problem);
  if (!ok) return ok;
  const int blocks = attile::min(params.tiles.count(), arch::multiprocessors());
  return launch(attention, blocks, kThreads, kSharedBytes, 900, stream, params);
}

}  // namespace tutorial::step_7
