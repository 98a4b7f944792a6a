// SPDX-License-Identifier: MIT
// A kernel of one's own on mma.sync and cp.async (compute capability 8.0): problem.cuh says what it
// computes. Q, K and V lie in shared memory; S, P and O stay in the registers of the warps that
// have their rows. V of a tile is on its way while S is made, and the next K while P V is.
#pragma once

#include <attile/tile_mma.cuh>

#include "problem.cuh"

namespace own::mma {

namespace tile = attile::tile;
namespace arch = attile::arch;

constexpr int kBr = 128, kBc = 48, kWarps = 4, kThreads = kWarps * arch::kWarpSize;

using QTile = tile::PanelTile<kBr, kDim, T>;
using KTile = tile::PanelTile<kBc, kDim, T>;
using Scores = tile::MmaTile<kBr, kBc, kWarps>;
using Output = tile::MmaTile<kBr, kDim, kWarps>;
using Biases = tile::PreloadedModifier<Scores, tile::TileCoord, KeyBias>;
constexpr std::size_t kSharedBytes = tile::shared_bytes<QTile, KTile, KTile>;

struct Params {
  tile::TensorParam<const T> q, k, v;
  tile::TensorParam<T> o;
  attile::DenseTiles<kBr, kBc> tiles;
  attile::Policies<attile::Causal, KeyBias> policies;
  const float* gain;  // (kDim)
  float scale;
};

/// One block for each tile of query rows of each head.
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(kThreads, 2)
    attention(const ATTILE_GRID_CONSTANT Params p) {
  tile::SharedCarver carver{arch::dynamic_shared()};
  const auto q_smem = carver.take<QTile>();
  const auto k_smem = carver.take<KTile>();
  const auto v_smem = carver.take<KTile>();
  const attile::WorkTile at = p.tiles.tile(arch::block_index(), p.policies.mask);
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
    tile::multiply<T>(s_frag, tile::SharedLeft(q_smem, Scores::warp_row()),
                      tile::SharedRightTransposed(k_smem));  // S = Q K^T
    arch::async_copy_wait<0>();
    arch::barrier();  // V has arrived before anyone reads it; K has been read before it is loaded
    const tile::TileCoord coord{at.sequence, at.head, at.row0, kv_tile * kBc, at.extent};
    const Biases biases(coord, p.policies.score_mod, p.scale);
    if (kv_tile + 1 < keys.last)
      tile::load_async<kThreads>(k_smem, of_head(p.k), (kv_tile + 1) * kBc);
    arch::async_copy_commit();
    tile::modify_and_mask(s_frag, coord, biases, p.policies, keys.full(kv_tile));
    softmax.step<8>(s_frag, o_frag, attile::kLog2e);  // (m, l); S becomes P; O is rescaled
    tile::multiply<T>(o_frag, tile::RegisterLeft<T, Scores>(s_frag),
                      tile::SharedRight(v_smem));  // O += P V
  }
  softmax.finish(o_frag);
  normalise(o_frag, p.gain);
  // Each warp stages its rows of O over its own rows of Q, which nobody else reads.
  tile::store_staged(p.o.slice(at.sequence, at.head, at.extent.q_len, kDim), q_smem, o_frag,
                     at.row0);
}

/// Launches the kernel. Errors   with a sentence, where the device or this program's code for it
/// does not run it, or a size is too large.
inline attile::Check launch(const Problem& problem, cudaStream_t stream = nullptr) {
  const Sizes& sizes = problem.sizes();
  Params p{tile::tensor_param(problem.q(), kDim),
           tile::tensor_param(problem.k(), kDim),
           tile::tensor_param(problem.v(), kDim),
           tile::tensor_param(problem.o(), kDim),
           {sizes.shape(), sizes.kv_heads, 2 * kDim * sizeof(T)},
           {},
           problem.gain(),
           kScale};
  p.policies.score_mod = problem.bias();
  if (const attile::Check ok = p.tiles.check(); !ok) return ok;
  const int blocks = p.tiles.count();
  if (const attile::Check ok = arch::check_launch(attention, kSharedBytes, blocks, 800); !ok) {
    return ok;
  }
  return {arch::launch(attention, blocks, kThreads, kSharedBytes, stream, p)};
}

}  // namespace own::mma
