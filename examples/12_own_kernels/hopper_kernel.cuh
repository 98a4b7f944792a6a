// SPDX-License-Identifier: MIT
// A kernel of one's own on wgmma and TMA (compute capability 9.0, code for 90a): problem.cuh says
// what it computes. A producer warp loads Q, K and V, and the biases of the keys beside K. Two
// consumer warpgroups have 64 rows each: S of a tile is made beside P V of the tile before (arXiv
// 2407.08608, section 3.2). A block computes several work tiles, one after another.
#pragma once

#include <attile/tile_wgmma.cuh>

#include "problem.cuh"

namespace own::hopper {

namespace tile = attile::tile;
namespace arch = attile::arch;

constexpr int kConsumers = 2, kBr = kConsumers * 64, kBc = 128, kStages = 2;
constexpr int kThreads = (kConsumers + 1) * arch::kWarpgroupSize;
constexpr int kWarps = kConsumers * arch::kWarpgroupSize / arch::kWarpSize;

using QTile = tile::PanelTile<kBr, kDim, T>;  // O is staged in one, too
using KTile = tile::PanelTile<kBc, kDim, T>;
using QPipeline = tile::Pipeline<QTile, 1>;
using KPipeline = tile::Pipeline<KTile, kStages>;
using Scores = tile::MmaTile<kBr, kBc, kWarps>;
using Output = tile::MmaTile<kBr, kDim, kWarps>;
// The biases of each stage's keys; what the producer holds of them; what adds them to scores.
using BiasTile = tile::SharedTile<kStages, kBc, tile::Order::kRowMajor, tile::Padding::kNone>;
using Words = tile::ColumnWords<KeyBias::Tile, kBc>;
using Biases = tile::ColumnModifier<Scores, KeyBias::Tile, float>;
constexpr std::size_t kSharedBytes =
    tile::shared_bytes<QPipeline, KPipeline, KPipeline, QTile, BiasTile>;

struct Params {
  arch::TensorMap q, k, v;
  tile::TensorParam<T> o;
  attile::DenseTiles<kBr, kBc> tiles;
  attile::Policies<attile::Causal, KeyBias> policies;
  const float* gain;  // (kDim)
  float scale;
};

/// Calls f for each of the block's work tiles.
template <class F>
ATTILE_DEVICE void visit(const Params& p, const F& f) {
  p.tiles.visit(arch::block_index(), arch::block_count(), p.policies.mask, f);
}

struct Memory {
  QPipeline q;
  KPipeline k, v;
  QTile o;
  BiasTile biases;
};

/// Loads Q, K and V of the block's work tiles, and the biases of each tile's keys beside K.
/// Scope    all lanes of a warp.
ATTILE_DEVICE void produce(const Params& p, const Memory& smem) {
  const int lane = arch::thread_index() % arch::kWarpSize;
  QPipeline::State q_state;
  KPipeline::State state;
  visit(p, [&](const attile::WorkTile& at) {
    if (lane == 0) {
      smem.q.producer_acquire(q_state);
      smem.q.load(q_state, p.q, at.row0, at.head, at.sequence);
    }
    q_state.advance();
    const KeyBias::Tile biases{p.scale, p.policies.score_mod.of_keys(at.sequence, at.extent)};
    for (int kv_tile = at.kv_tiles.first; kv_tile < at.kv_tiles.last; ++kv_tile) {
      const Words words(biases, kv_tile * kBc, at.extent.kv_len);  // beside the wait for the stage
      smem.k.await_empty(state);
      words.store(&smem.biases.at(state.stage, 0));
      if (lane == 0) {
        smem.k.producer_acquire(state);
        smem.k.load(state, p.k, kv_tile * kBc, at.kv_head, at.sequence);
        smem.v.producer_acquire(state);
        smem.v.load(state, p.v, kv_tile * kBc, at.kv_head, at.sequence);
      }
      state.advance();
    }
  });
}

/// Computes 64 rows of each of the block's work tiles, which see at least one tile of keys, as all
/// rows do where there are as many keys. Scope    all threads of a warpgroup.
ATTILE_DEVICE void consume(const Params& p, const Memory& smem, int warpgroup) {
  QPipeline::State q_state;
  KPipeline::State state;  // that of the last tile of V, or the first one of K
  visit(p, [&](const attile::WorkTile& at) {
    const auto q_smem = smem.q.consumer_wait(q_state);
    Scores s_frag;
    Output o_frag;
    o_frag.clear();
    tile::OnlineSoftmax<Scores::kRegRows> softmax;
    softmax.reset();
    // Adds the biases, hides what the mask hides, releases K, and updates the maxima.
    const auto update_max = [&](int kv_tile, const KPipeline::State& k_state) {
      const Biases biases{{p.scale, nullptr}, &smem.biases.at(k_state.stage, 0), 0};
      const tile::TileCoord coord{at.sequence, at.head, at.row0, kv_tile * kBc, at.extent};
      tile::modify_and_mask(s_frag, coord, biases, p.policies, at.kv_tiles.full(kv_tile));
      arch::warp_barrier();  // all lanes have read the biases before they are replaced
      smem.k.consumer_release(k_state);
      return softmax.update_max<8>(s_frag, attile::kLog2e);
    };
    // S of the first tile, and P
    tile::start_transposed_product(s_frag, q_smem, smem.k.consumer_wait(state), warpgroup * 64);
    tile::wait_product<0>(s_frag);
    update_max(at.kv_tiles.first, state);  // O is 0, whatever its factor
    softmax.exponentiate(s_frag, attile::kLog2e);
    tile::RegisterLeft<T, Scores> p_left(s_frag);

    ATTILE_UNROLL_BY(1)
    for (int kv_tile = at.kv_tiles.first + 1; kv_tile < at.kv_tiles.last; ++kv_tile) {
      const auto k_smem = smem.k.consumer_wait(state.next());
      tile::start_transposed_product(s_frag, q_smem, k_smem, warpgroup * 64);
      tile::start_product(o_frag, p_left, smem.v.consumer_wait(state));
      tile::wait_product<1>(s_frag);  // S is made; P V of the tile before may be under way
      const auto rescaling = update_max(kv_tile, state.next());
      tile::wait_product<0>(o_frag);
      smem.v.consumer_release(state);
      state.advance();
      rescaling.apply(o_frag);
      softmax.exponentiate(s_frag, attile::kLog2e);
      p_left = tile::RegisterLeft<T, Scores>(s_frag);
    }
    smem.q.consumer_release(q_state);  // S of the last tile has been waited for
    q_state.advance();
    tile::start_product(o_frag, p_left, smem.v.consumer_wait(state));
    tile::wait_product<0>(o_frag);
    smem.v.consumer_release(state);
    state.advance();
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
                    carver.take<QTile>(), carver.take<BiasTile>()};
  tile::init_pipelines(kWarps, smem.q, smem.k, smem.v);
  const int warpgroup = arch::uniform(arch::thread_index() / arch::kWarpgroupSize);
  if (warpgroup == kConsumers) {
    arch::reg_dealloc<40>();
    if (arch::thread_index() % arch::kWarpgroupSize < arch::kWarpSize) produce(p, smem);
  } else {
    arch::reg_alloc<232>();
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
