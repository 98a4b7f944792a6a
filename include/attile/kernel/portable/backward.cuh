// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/atomic.cuh>
#include <attile/arch/grid_dependency.cuh>
#include <attile/arch/launch.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/work_tile.h>
#include <attile/kernel/backward/backward_kernel.cuh>
#include <attile/kernel/backward/backward_step.cuh>
#include <attile/kernel/backward/dq_order.cuh>
#include <attile/kernel/portable/backward_traits.cuh>
#include <attile/tile/copy.cuh>
#include <attile/tile/matmul.cuh>
#include <attile/tile/register_tile.cuh>

#include <cstdint>
#include <type_traits>

// This is the backward pass of FlashAttention-2 (arXiv 2307.08691, Algorithm 2; the lines named are
// its). It needs only shared memory, plain FMAs, shuffles, and atomics where dQ is accumulated and
// for the gradient of a score modifier. The statistics of a row are its LSE and its delta, D of the
// paper. The pass over keys computes dK and dV, one kv tile a block, and dQ too unless DqMode is
// kTwoPass; then a second pass computes dQ, one tile of query rows a block.

namespace attile::portable {

/// Holds the tiles in shared memory that both passes use.
template <class Traits>
struct BackwardTiles {
  typename Traits::QTile q;      // (Br, D)
  typename Traits::DoTile dout;  // (Br, Dv)
  typename Traits::KTile k;      // (Bc, D)
  typename Traits::VTile v;      // (Bc, Dv)
  typename Traits::PTile ds;     // (Br, Bc)
  unsigned char* rest;           // behind them: P (Br, Bc) of the pass over keys

  ATTILE_DEVICE explicit BackwardTiles(unsigned char* shared) {
    tile::SharedCarver carver{shared};
    q = carver.take<typename Traits::QTile>();
    dout = carver.take<typename Traits::DoTile>();
    k = carver.take<typename Traits::KTile>();
    v = carver.take<typename Traits::VTile>();
    ds = carver.take<typename Traits::PTile>();
    rest = carver.memory + carver.used;
  }
};

/// Computes dK and dV of one kv tile (lines 6 to 18), over all query heads of its kv head, and
/// unless dQ has a pass of its own adds this tile's part of it.
/// Scope    all threads of the block. `shared`: Traits::kKvSharedBytes, aligned to 16 bytes.
template <class Traits>
ATTILE_DEVICE void backward_kv_block(const BackwardParams<Traits>& p, int kv_block,
                                     unsigned char* shared) {
  const WorkTile kv = kv_work_tile(p, kv_block);
  constexpr int kThreads = Traits::kThreads;
  constexpr bool kInOrder = Traits::kDqMode == DqMode::kInOrder;
  const BackwardTiles<Traits> smem(shared);
  const typename Traits::PTile p_smem{reinterpret_cast<float*>(smem.rest)};  // (Br, Bc)
  const int col0 = kv.kv_tile() * Traits::kBc;
  const auto sampler = p.sampler();
  tile::load<kThreads>(smem.k, p.k_of(kv), col0);  // line 6
  tile::load<kThreads>(smem.v, p.v_of(kv), col0);
  // The statistics, the sum of dQ and the semaphores are written before this block reads them.
  arch::await_dependencies();
  typename Traits::DkRegisters dk_frag;  // line 7
  typename Traits::DvRegisters dv_frag;
  dk_frag.clear();
  dv_frag.clear();
  using S = typename Traits::ScoreModType;
  const std::conditional_t<kHasGradient<S>, AddsEachScore<S>, NoGradient> gradient(nullptr);

  // One iteration of the loop; `masked` says whether the mask may hide scores.
  const auto step = [&](auto masked, const WorkTile& at, bool is_full) {
    const std::int64_t first_row = p.scratch_row(at);
    tile::load<kThreads>(smem.q, p.q_of(at), at.row0);  // line 9
    tile::load<kThreads>(smem.dout, p.rows_of_head(p.dout, at, p.head_dim_v), at.row0);
    [[maybe_unused]] bool overwrites = false;
    if constexpr (kInOrder)
      overwrites = DqOrder<Traits>(p).acquire(at, at.kv_tile());  // each warp waits for itself
    arch::barrier();  // Q and dO (the first time K and V) are written before anyone reads them

    typename Traits::ScoreRegisters p_frag, ds_frag;
    p_frag.clear();
    ds_frag.clear();
    tile::matmul_nt(p_frag, smem.q, smem.k);      // line 10
    tile::matmul_nt(ds_frag, smem.dout, smem.v);  // line 13
    probabilities_and_gradient<masked.value>(p_frag, ds_frag, p, p.coord(at, col0),
                                             p.row_lse + first_row, p.delta + first_row, sampler,
                                             is_full,
                                             gradient);  // lines 11, 14
    tile::stage(p_smem, p_frag);
    tile::stage(smem.ds, ds_frag);
    arch::barrier();  // P and dS are written before anyone reads them

    tile::matmul_tn(dv_frag, p_smem, smem.dout);  // line 12
    tile::matmul_tn(dk_frag, smem.ds, smem.q);    // line 16
    if constexpr (Traits::kDqMode != DqMode::kTwoPass) {
      const tile::Matrix<float> dq_accum{p.dq_accum_of(at), Traits::kDqCols,
                                         p.extent(at).q_len - at.row0, Traits::kDqCols, true};
      typename Traits::DqRegisters dq_frag;
      if (kInOrder && !overwrites) {
        tile::load(dq_frag, dq_accum, 0);
      } else {
        dq_frag.clear();
      }
      tile::matmul_nn(dq_frag, smem.ds, smem.k);  // line 15
      if constexpr (kInOrder) {
        tile::store(dq_accum, dq_frag, 0);
      } else {
        dq_frag.for_each([&](int r, int c, float x) {
          if (r < dq_accum.rows) arch::atomic_add(dq_accum.row(r) + c, x);
        });
      }
    }
    // Everyone has read Q, dO, P and dS before the next tiles are written, and has added to dQ
    // before the semaphore is released.
    arch::barrier();
    if constexpr (kInOrder) {
      if (arch::thread_index() == 0) DqOrder<Traits>(p).release(at, at.kv_tile());
    }
  };

  WorkTile at = kv;
  for (; at.head < p.head_end(kv); ++at.head) {
    p.visit_rows(at, [&](auto masked, int q_tile, bool is_full) {  // lines 8 to 17
      at.row0 = q_tile * Traits::kBr;
      step(masked, at, is_full);
    });
  }
  tile::store(p.keys_of_head(p.dk, kv, p.head_dim), dk_frag, col0, p.scale);  // line 18
  tile::store(p.keys_of_head(p.dv, kv, p.head_dim_v), dv_frag, col0, sampler.keep_scale());
}

/// Computes dQ of one tile of query rows, for kTwoPass, by the same steps over the kv tiles.
/// Scope    all threads of the block. `shared`: Traits::kRowsSharedBytes, aligned to 16 bytes.
template <class Traits>
ATTILE_DEVICE void backward_rows(const BackwardParams<Traits>& p, WorkTile at,
                                 unsigned char* shared) {
  constexpr int kThreads = Traits::kThreads;
  const BackwardTiles<Traits> smem(shared);
  const std::int64_t first_row = p.scratch_row(at);
  const auto sampler = p.sampler();
  const auto k_gmem = p.k_of(at);
  const auto v_gmem = p.v_of(at);
  tile::load<kThreads>(smem.q, p.q_of(at), at.row0);  // line 9
  tile::load<kThreads>(smem.dout, p.rows_of_head(p.dout, at, p.head_dim_v), at.row0);
  typename Traits::DqRegisters dq_frag;
  dq_frag.clear();

  const auto step = [&](auto masked, int i) {
    const tile::TileCoord coord = p.coord(at, p.kv_tile(at, i) * Traits::kBc);
    tile::load<kThreads>(smem.k, k_gmem, coord.col0);  // line 6
    tile::load<kThreads>(smem.v, v_gmem, coord.col0);
    arch::barrier();  // K and V (the first time Q and dO) are written before anyone reads them

    typename Traits::ScoreRegisters p_frag, ds_frag;
    p_frag.clear();
    ds_frag.clear();
    tile::matmul_nt(p_frag, smem.q, smem.k);      // line 10
    tile::matmul_nt(ds_frag, smem.dout, smem.v);  // line 13
    const NoGradient gradient(nullptr);           // the pass over keys adds to that gradient
    probabilities_and_gradient<masked.value>(p_frag, ds_frag, p, coord, p.row_lse + first_row,
                                             p.delta + first_row, sampler, at.kv_tiles.full(i),
                                             gradient);  // lines 11, 14
    tile::stage(smem.ds, ds_frag);
    Traits::ScoreRegisters::sync_rows();        // a row's lanes have written dS before any reads it
    tile::matmul_nn(dq_frag, smem.ds, smem.k);  // line 15
    arch::barrier();  // everyone has read K, V and dS before the next tiles are written
  };

  at.kv_tiles = p.keys_seen(at, at.head, at.row0, Traits::kBr);
  p.visit_keys(at, step);
  tile::store(p.rows_of_head(p.dq, at, p.head_dim), dq_frag, at.row0, p.scale);
}

/// Runs the second pass of kTwoPass: one block for each tile of query rows of each head, a head's
/// last rows first.
template <class Traits>
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(Traits::kThreads, Traits::kBlocksPerSm)
    backward_q_kernel(const ATTILE_GRID_CONSTANT BackwardParams<Traits> p) {
  // The pass over keys has ended, which has waited for the statistics, before they are read.
  arch::await_dependencies();
  const WorkTile at = p.ordered_row_tile(arch::block_index(), p.q_tiles);
  backward_rows<Traits>(p, at, arch::dynamic_shared());
}

/// Stores dQ = scale * (the fp32 sum), in the type of dQ, for one tile of query rows.
template <class Traits>
ATTILE_DEVICE void store_dq(const BackwardParams<Traits>& p, const WorkTile& at, unsigned char*) {
  using T = typename Traits::ElementType;
  constexpr int kCols = Traits::kDqCols;
  const auto dq = p.rows_of_head(p.dq, at, p.head_dim);
  const float* const dq_accum = p.dq_accum_of(at);
  for (int i = arch::thread_index(); i < Traits::kBr * kCols; i += Traits::kThreads) {
    const int row = at.row0 + i / kCols;
    const int col = i % kCols;
    if (!dq.has_row(row) || col >= dq.cols) continue;
    dq.row(row)[col] = from_float<T>(p.scale * dq_accum[i]);
  }
}

}  // namespace attile::portable
