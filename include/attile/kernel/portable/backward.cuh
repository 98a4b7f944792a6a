// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/atomic.cuh>
#include <attile/arch/grid_dependency.cuh>
#include <attile/arch/launch.cuh>
#include <attile/arch/math.h>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/schedule.h>
#include <attile/kernel/backward_kernel.cuh>
#include <attile/kernel/backward_step.cuh>
#include <attile/kernel/portable/backward_traits.cuh>
#include <attile/kernel/turns.cuh>
#include <attile/tile/copy.cuh>
#include <attile/tile/matmul.cuh>
#include <attile/tile/register_tile.cuh>
#include <attile/tile/scores.cuh>

#include <cstdint>
#include <type_traits>

// FlashAttention-2, backward (arXiv 2307.08691, Algorithm 2; the lines named are its).
// Only shared memory, plain FMAs, shuffles, and atomics where dQ is accumulated and for what a
// score modifier learns.

namespace attile::portable {

/// The tiles in shared memory that both passes use.
template <class Traits>
struct BackwardTiles {
  typename Traits::QTile q;      // (Br, D)
  typename Traits::DoTile dout;  // (Br, Dv)
  typename Traits::KTile k;      // (Bc, D)
  typename Traits::VTile v;      // (Bc, Dv)
  typename Traits::PTile ds;     // (Br, Bc)
  unsigned char* rest;

  ATTILE_DEVICE explicit BackwardTiles(unsigned char* shared) {
    tile::SharedCarver carver{shared};
    q = carver.take<typename Traits::QTile>();
    dout = carver.take<typename Traits::DoTile>();
    k = carver.take<typename Traits::KTile>();
    v = carver.take<typename Traits::VTile>();
    ds = carver.take<typename Traits::PTile>();
    rest = carver.next;
  }
};

/// dK and dV of one tile of K and V (lines 6 to 18), over all query heads of its group; with
/// the modes of one pass also this tile's part of dQ.
/// Scope    all threads of the block. `shared`: Traits::kColumnsSharedBytes, aligned to 16 bytes.
template <class Traits>
ATTILE_DEVICE void backward_columns(const BackwardParams<Traits>& p, int column,
                                    unsigned char* shared) {
  const KeyTile key(p, column);
  const int batch = key.batch, kv_head = key.kv_head, kv_tile = key.index;
  constexpr int kThreads = Traits::kThreads;
  constexpr bool kInOrder = Traits::kDqMode == DqMode::kInOrder;
  const BackwardTiles<Traits> smem(shared);
  const typename Traits::PTile p_smem{reinterpret_cast<float*>(smem.rest)};  // (Br, Bc)
  const int col0 = kv_tile * Traits::kBc;
  const auto sampler = p.dropout.sampler(p.q_heads);
  const auto k_gmem = p.k.slice(batch, kv_head, p.extent.kv_len, p.head_dim);
  const auto v_gmem = p.v.slice(batch, kv_head, p.extent.kv_len, p.head_dim_v);
  tile::load<kThreads>(smem.k, k_gmem, col0);  // line 6
  tile::load<kThreads>(smem.v, v_gmem, col0);
  arch::await_dependencies();            // the statistics, the sum of dQ and the turns are there
  typename Traits::DkRegisters dk_frag;  // line 7
  typename Traits::DvRegisters dv_frag;
  dk_frag.clear();
  dv_frag.clear();

  const auto step = [&](auto masked, int head, int q_tile) {
    const tile::TilePlace place{batch, head, q_tile * Traits::kBr, col0, p.extent};
    const std::int64_t slice = static_cast<std::int64_t>(batch) * p.q_heads + head;
    const std::int64_t stat = slice * p.stat_rows() + place.row0;
    tile::load<kThreads>(smem.q, p.q.slice(batch, head, p.extent.q_len, p.head_dim),
                         place.row0);  // line 9
    tile::load<kThreads>(smem.dout, p.dout.slice(batch, head, p.extent.q_len, p.head_dim_v),
                         place.row0);
    [[maybe_unused]] bool writes = false;
    if constexpr (kInOrder) writes = begin_turn(p, place, kv_tile);  // each warp for itself
    arch::barrier();  // Q and dO (the first time K and V) are written before anyone reads them

    typename Traits::ScoreRegisters p_frag, ds_frag;
    p_frag.clear();
    ds_frag.clear();
    tile::matmul_nt(p_frag, smem.q, smem.k);      // line 10
    tile::matmul_nt(ds_frag, smem.dout, smem.v);  // line 13
    probabilities_and_gradient<masked.value>(p_frag, ds_frag, p, place, p.row_lse + stat,
                                             p.delta + stat, sampler);
    tile::stage(p_smem, p_frag);
    tile::stage(smem.ds, ds_frag);
    arch::barrier();  // P and dS are written before anyone reads them

    tile::matmul_tn(dv_frag, p_smem, smem.dout);  // line 12
    tile::matmul_tn(dk_frag, smem.ds, smem.q);    // line 16
    if constexpr (Traits::kDqMode != DqMode::kTwoPass) {
      const tile::Matrix<float> sum{p.dq_sum_of(slice, 0), Traits::kDqCols, p.extent.q_len,
                                    Traits::kDqCols, true};
      typename Traits::DqRegisters dq_frag;
      if (kInOrder && !writes) {
        tile::load(dq_frag, sum, place.row0);
      } else {
        dq_frag.clear();
      }
      tile::matmul_nn(dq_frag, smem.ds, smem.k);  // line 15
      if constexpr (kInOrder) {
        tile::store(sum, dq_frag, place.row0);
      } else {
        dq_frag.for_each([&](int r, int c, float x) {
          const std::int64_t row = place.row0 + r;
          if (row < sum.rows) arch::atomic_add(sum.data + row * sum.row_stride + c, x);
        });
      }
    }
    arch::barrier();  // everyone has read Q, dO, P and dS before the next tiles are written
    if constexpr (kInOrder) {
      if (arch::thread_index() == 0) pass_turn(p, place, kv_tile);
    }
  };

  const int group = p.q_heads / p.kv_heads;
  for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    visit(p.rows_of(batch, head, kv_tile),
          [&](auto masked, int q_tile) { step(masked, head, q_tile); });  // lines 8 to 17
  }
  tile::store(p.dk.slice(batch, kv_head, p.extent.kv_len, p.head_dim), dk_frag, col0,
              p.scale);  // line 18
  tile::store(p.dv.slice(batch, kv_head, p.extent.kv_len, p.head_dim_v), dv_frag, col0);
}

/// dQ of one tile of query rows, for kTwoPass: the same steps, over the tiles of K and V.
/// Scope    all threads of the block. `shared`: Traits::kRowsSharedBytes, aligned to 16 bytes.
template <class Traits>
ATTILE_DEVICE void backward_rows(const BackwardParams<Traits>& p, int batch, int head, int q_tile,
                                 unsigned char* shared) {
  constexpr int kThreads = Traits::kThreads;
  const BackwardTiles<Traits> smem(shared);
  const int kv_head = head / (p.q_heads / p.kv_heads);
  const int row0 = q_tile * Traits::kBr;
  const Interval rows{row0, min(row0 + Traits::kBr, p.extent.q_len)};
  const std::int64_t stat =
      (static_cast<std::int64_t>(batch) * p.q_heads + head) * p.stat_rows() + row0;
  const auto sampler = p.dropout.sampler(p.q_heads);
  const auto k_gmem = p.k.slice(batch, kv_head, p.extent.kv_len, p.head_dim);
  const auto v_gmem = p.v.slice(batch, kv_head, p.extent.kv_len, p.head_dim_v);
  tile::load<kThreads>(smem.q, p.q.slice(batch, head, p.extent.q_len, p.head_dim), row0);  // line 9
  tile::load<kThreads>(smem.dout, p.dout.slice(batch, head, p.extent.q_len, p.head_dim_v), row0);
  typename Traits::DqRegisters dq_frag;
  dq_frag.clear();

  const auto step = [&](auto masked, int kv_tile) {
    const tile::TilePlace place{batch, head, row0, kv_tile * Traits::kBc, p.extent};
    tile::load<kThreads>(smem.k, k_gmem, place.col0);  // line 6
    tile::load<kThreads>(smem.v, v_gmem, place.col0);
    arch::barrier();  // K and V (the first time Q and dO) are written before anyone reads them

    typename Traits::ScoreRegisters p_frag, ds_frag;
    p_frag.clear();
    ds_frag.clear();
    tile::matmul_nt(p_frag, smem.q, smem.k);      // line 10
    tile::matmul_nt(ds_frag, smem.dout, smem.v);  // line 13
    constexpr bool kLearn = false;                // the pass over K/V blocks has
    probabilities_and_gradient<masked.value, kLearn>(p_frag, ds_frag, p, place, p.row_lse + stat,
                                                     p.delta + stat, sampler);
    tile::stage(smem.ds, ds_frag);
    Traits::ScoreRegisters::sync_rows();        // the lanes of a row see each other's dS
    tile::matmul_nn(dq_frag, smem.ds, smem.k);  // line 15
    arch::barrier();  // everyone has read K, V and dS before the next tiles are written
  };

  const TileRange range =
      tiles_of(visible_columns(p.mask, batch, head, rows, p.extent), Traits::kBc);
  visit(range, step);
  tile::store(p.dq.slice(batch, head, p.extent.q_len, p.head_dim), dq_frag, row0, p.scale);
}

/// One block for each tile of query rows of each head.
template <class Traits>
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(Traits::kThreads, Traits::kBlocksPerSm)
    backward_rows_kernel(const ATTILE_GRID_CONSTANT BackwardParams<Traits> p) {
  const int slice = arch::block_index() / p.q_tiles;
  const int q_tile = p.q_tiles - 1 - arch::block_index() % p.q_tiles;
  arch::await_dependencies();  // so is the kernel of the statistics, which that one has awaited
  backward_rows<Traits>(p, slice / p.q_heads, slice % p.q_heads, q_tile, arch::dynamic_shared());
}

/// dQ = scale * (the fp32 sum), in the type of dQ, for one tile of query rows.
template <class Traits>
ATTILE_DEVICE void store_dq(const BackwardParams<Traits>& p, int batch, int head, int row0,
                            unsigned char*) {
  using T = typename Traits::ElementType;
  constexpr int kCols = Traits::kDqCols;
  const std::int64_t slice = static_cast<std::int64_t>(batch) * p.q_heads + head;
  const float* const sum = p.dq_sum_of(slice, row0);
  for (int i = arch::thread_index(); i < Traits::kBr * kCols; i += Traits::kThreads) {
    const int row = row0 + i / kCols;
    const int col = i % kCols;
    if (row >= p.extent.q_len || col >= p.head_dim) continue;
    p.dq.tensor.row(batch, head, row)[col] = from_float<T>(p.scale * sum[i]);
  }
}

}  // namespace attile::portable
