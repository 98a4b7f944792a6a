// SPDX-License-Identifier: MIT
// Step 6: warps with roles. A producer loads ahead, two stages of K and V, and two consumer
// warpgroups with 64 rows each compute: one makes its softmax while the other one multiplies.
#pragma once

#include "step_5.cuh"

namespace tutorial::step_6 {

using step_5::T, step_5::TmaParams;
constexpr int kConsumers = 2, kBr = kConsumers * 64, kBc = 128, kStages = 2;
constexpr int kThreads = (kConsumers + 1) * arch::kWarpgroupSize;
constexpr int kWarps = kConsumers * arch::kWarpgroupSize / arch::kWarpSize;

using QTile = tile::PanelTile<kBr, kDim, T>;
using KTile = tile::PanelTile<kBc, kDim, T>;
using QPipeline = tile::Pipeline<QTile, 1>;
using KPipeline = tile::Pipeline<KTile, kStages>;
using Scores = tile::MmaTile<kBr, kBc, kWarps>;
using Output = tile::MmaTile<kBr, kDim, kWarps>;
constexpr std::size_t kSharedBytes = tile::shared_bytes<QPipeline, KPipeline, KPipeline>;

struct Memory {
  QPipeline q;
  KPipeline k, v;
};

/// Loads Q, K and V of a work tile. Scope    one thread.
ATTILE_DEVICE void produce(const TmaParams<kBr, kBc>& p, const Memory& smem,
                           const attile::WorkTile& at) {
  smem.q.producer_acquire({});
  smem.q.load({}, p.q, at.row0, at.head, at.sequence);
  KPipeline::State state;
  for (int kv_tile = at.kv_tiles.first; kv_tile < at.kv_tiles.last; ++kv_tile) {
    smem.k.producer_acquire(state);
    smem.k.load(state, p.k, kv_tile * kBc, at.kv_head, at.sequence);
    smem.v.producer_acquire(state);
    smem.v.load(state, p.v, kv_tile * kBc, at.kv_head, at.sequence);
    state.advance();
  }
}

/// Computes 64 rows of a work tile. Scope    all threads of a warpgroup.
ATTILE_DEVICE void consume(const TmaParams<kBr, kBc>& p, const Memory& smem,
                           const attile::WorkTile& at, int warpgroup) {
  const auto q_smem = smem.q.consumer_wait({});
  KPipeline::State state;
  Output o_frag;
  tile::OnlineSoftmax<Output::kRegRows> softmax;
  o_frag.clear();
  softmax.reset();
  for (int kv_tile = at.kv_tiles.first; kv_tile < at.kv_tiles.last; ++kv_tile) {
    Scores s_frag;
    tile::start_transposed_product(s_frag, q_smem, smem.k.consumer_wait(state),
                                   warpgroup * 64);  // S = Q K^T
    tile::wait_product<0>(s_frag);
    smem.k.consumer_release(state);
    if (!at.kv_tiles.full(kv_tile)) {
      tile::hide(s_frag, tile::TileCoord{at.sequence, at.head, at.row0, kv_tile * kBc, at.extent},
                 attile::Causal{});
    }
    softmax.step<8>(s_frag, o_frag, p.scale * attile::kLog2e);  // (m, l); S becomes P
    const tile::RegisterLeft<T, Scores> p_left(s_frag);
    tile::start_product(o_frag, p_left, smem.v.consumer_wait(state));  // O += P V
    tile::wait_product<0>(o_frag);
    smem.v.consumer_release(state);
    state.advance();
  }
  softmax.finish(o_frag);
  // All products of this warpgroup have read its rows of Q before O is staged over them.
  arch::barrier(1 + warpgroup, arch::kWarpgroupSize);
  tile::store_staged(p.o.slice(at.sequence, at.head, at.extent.q_len, kDim), q_smem, o_frag,
                     at.row0);
}

ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(kThreads, 1)
    attention(const ATTILE_GRID_CONSTANT TmaParams<kBr, kBc> p) {
  if constexpr (!arch::kHasWarpgroups) return;
  tile::SharedCarver carver{arch::dynamic_shared()};
  const Memory smem{carver.take<QPipeline>(), carver.take<KPipeline>(), carver.take<KPipeline>()};
  tile::init_pipelines(kWarps, smem.q, smem.k, smem.v);
  const attile::WorkTile at = p.tiles.tile(arch::block_index(), attile::Causal{});
  const int warpgroup = arch::uniform(arch::thread_index() / arch::kWarpgroupSize);
  if (warpgroup == kConsumers) {
    arch::reg_dealloc<24>();
    if (arch::thread_index() % arch::kWarpgroupSize == 0) produce(p, smem, at);
  } else {
    arch::reg_alloc<240>();
    consume(p, smem, at, warpgroup);
  }
}

inline attile::Check run(const Problem<T>& problem, cudaStream_t stream = nullptr) {
  TmaParams<kBr, kBc> params{
      {}, {}, {}, tile::tensor_param(problem.o(), kDim), problem.tiles<kBr, kBc>(), kScale};
  const attile::Check ok = step_5::make_params(params, problem);
  if (!ok) return ok;
  return launch(attention, params.tiles.count(), kThreads, kSharedBytes, 900, stream, params);
}

}  // namespace tutorial::step_6
