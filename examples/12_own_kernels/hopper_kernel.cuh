// SPDX-License-Identifier: MIT
// A kernel of one's own on wgmma and TMA (compute capability 9.0, code for 90a): problem.cuh says
// what it computes. One thread of a producer warpgroup loads Q, K and V. Three consumer warpgroups
// have 64 rows each: S of a tile is made beside P V of the tile before (arXiv 2407.08608, section
// 3.2). A block computes several work tiles, one after another.
#pragma once

#include <attile/tile_wgmma.cuh>

#include "problem.cuh"

namespace own::hopper {

namespace tile = attile::tile;
namespace arch = attile::arch;

constexpr int kConsumers = 3, kBr = kConsumers * 64, kBc = 64, kStages = 4;
constexpr int kThreads = (kConsumers + 1) * arch::kWarpgroupSize;
constexpr int kWarps = kConsumers * arch::kWarpgroupSize / arch::kWarpSize;

using QTile = tile::PanelTile<kBr, kDim, T>;  // O is staged in one, too
using KTile = tile::PanelTile<kBc, kDim, T>;
using QPipeline = tile::Pipeline<QTile, 1>;
using KPipeline = tile::Pipeline<KTile, kStages>;
using Scores = tile::MmaTile<kBr, kBc, kWarps>;
using Output = tile::MmaTile<kBr, kDim, kWarps>;
using Biases = tile::PreloadedModifier<Scores, tile::TileCoord, KeyBias>;
using Softmax = tile::OnlineSoftmax<Scores::kRegRows>;
constexpr std::size_t kSharedBytes = tile::shared_bytes<QPipeline, KPipeline, KPipeline, QTile>;

struct Params {
  arch::TensorMap q, k, v;
  tile::TensorParam<T> o;
  attile::DenseTiles<kBr, kBc> tiles;
  attile::Policies<attile::Causal, KeyBias> policies;
  const float* gain;  // (kDim)
  float scale;
};

struct Memory {
  QPipeline q;
  KPipeline k, v;
  QTile o;
};

/// Loads Q, K and V of the block's work tiles. Scope    one thread.
ATTILE_DEVICE void produce(const Params& p, const Memory& smem) {
  QPipeline::State q_state;
  KPipeline::State state;
  p.tiles.visit(arch::block_index(), arch::block_count(), p.policies.mask,
                [&](const attile::WorkTile& at) {
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
ATTILE_DEVICE void consume(const Params& p, const Memory& smem, int warpgroup) {
  QPipeline::State q_state;
  KPipeline::State k_state, v_state;
  p.tiles.visit(
      arch::block_index(), arch::block_count(), p.policies.mask, [&](const attile::WorkTile& at) {
        const attile::TileRange keys = at.kv_tiles;
        const auto q_smem = smem.q.consumer_wait(q_state);
        Scores s_frag;
        Output o_frag;
        Softmax softmax;
        softmax.reset();
        tile::TileCoord coord{at.sequence, at.head, at.row0, keys.first * kBc, at.extent};
        tile::start_transposed_product(s_frag, q_smem, smem.k.consumer_wait(k_state),
                                       warpgroup * 64);
        const Biases first(coord, p.policies.score_mod, p.scale);
        tile::wait_product<0>(s_frag);
        smem.k.consumer_release(k_state);
        k_state.advance();
        tile::modify_and_mask(s_frag, coord, first, p.policies, keys.full(keys.first));
        softmax.update_max<0>(s_frag, attile::kLog2e);  // there is no O yet to be rescaled
        softmax.exponentiate(s_frag, attile::kLog2e);
        tile::RegisterLeft<T, Scores> p_left(s_frag);

        ATTILE_UNROLL_BY(1)
        for (int kv_tile = keys.first + 1; kv_tile < keys.last; ++kv_tile) {
          const auto k_smem = smem.k.consumer_wait(k_state);
          const auto v_smem = smem.v.consumer_wait(v_state);
          coord.col0 = kv_tile * kBc;
          tile::start_transposed_product(s_frag, q_smem, k_smem, warpgroup * 64);
          tile::start_product(o_frag, p_left, v_smem, 0, kv_tile - 1 > keys.first);
          const Biases biases(coord, p.policies.score_mod, p.scale);
          tile::wait_product<1>(s_frag);  // S is made; P V of the tile before may be under way
          smem.k.consumer_release(k_state);
          k_state.advance();
          tile::modify_and_mask(s_frag, coord, biases, p.policies, keys.full(kv_tile));
          const auto rescaling = softmax.update_max<8>(s_frag, attile::kLog2e);
          tile::wait_product<0>(o_frag);
          smem.v.consumer_release(v_state);
          v_state.advance();
          rescaling.apply(o_frag);
          softmax.exponentiate(s_frag, attile::kLog2e);
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
        normalise(o_frag, p.gain);
        tile::store_staged(p.o.slice(at.sequence, at.head, at.extent.q_len, kDim), smem.o, o_frag,
                           at.row0);
      });
}

ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(kThreads, 1)
    attention(const ATTILE_GRID_CONSTANT Params p) {
  if constexpr (!arch::kHasWarpgroups) return;
  tile::SharedCarver carver{arch::dynamic_shared()};
  const Memory smem{carver.take<QPipeline>(), carver.take<KPipeline>(), carver.take<KPipeline>(),
                    carver.take<QTile>()};
  tile::init_pipelines(kWarps, smem.q, smem.k, smem.v);
  const int warpgroup = arch::uniform(arch::thread_index() / arch::kWarpgroupSize);
  if (warpgroup == kConsumers) {
    arch::reg_dealloc<32>();
    if (arch::thread_index() % arch::kWarpgroupSize == 0) produce(p, smem);
  } else {
    arch::reg_alloc<160>();
    consume(p, smem, warpgroup);
  }
}

/// Launches the kernel. Errors   with a sentence, where the device or this program's code for it
/// does not run it, or TMA does not take a tensor.
inline attile::Check launch(const Problem& problem, cudaStream_t stream = nullptr) {
  const Sizes& s = problem.sizes();
  Params p{{},
           {},
           {},
           tile::tensor_param(problem.o(), kDim),
           {s.shape(), s.kv_heads, 2 * kDim * sizeof(T)},
           {},
           problem.gain(),
           kScale};
  p.policies.score_mod = problem.bias();
  attile::Check ok = p.tiles.check();
  const int blocks = attile::min(p.tiles.count(), arch::multiprocessors());
  if (ok) ok = arch::check_launch(attention, kSharedBytes, blocks, 900);
  if (ok) ok = tile::make_map<QTile>(p.q, problem.q(), {s.batch, s.len}, s.q_heads, kDim);
  if (ok) ok = tile::make_map<KTile>(p.k, problem.k(), {s.batch, s.len}, s.kv_heads, kDim);
  if (ok) ok = tile::make_map<KTile>(p.v, problem.v(), {s.batch, s.len}, s.kv_heads, kDim);
  if (!ok) return ok;
  return {arch::launch(attention, blocks, kThreads, kSharedBytes, stream, p)};
}

}  // namespace own::hopper
