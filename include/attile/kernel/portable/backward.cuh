// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/atomic.cuh>
#include <attile/arch/launch.cuh>
#include <attile/arch/math.h>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/schedule.h>
#include <attile/kernel/portable/backward_traits.cuh>
#include <attile/tile/copy.cuh>
#include <attile/tile/matmul.cuh>
#include <attile/tile/register_tile.cuh>
#include <attile/tile/scores.cuh>

#include <cstdint>
#include <type_traits>

// FlashAttention-2, backward (arXiv 2307.08691, Algorithm 2; the lines named are its).
// Only shared memory, plain FMAs, shuffles, and atomics where dQ is accumulated.

namespace attile::portable {

/// The pointwise middle of the backward pass, for one tile:
///   P = exp(S' - LSE),   dP = dropout(dO V^T),   dS = P * (dP - delta) * score_mod'(scale S)
/// Leaves dropout(P) in `p_frag` (from S) and dS in `ds_frag` (from dO V^T). Where P is 0 because
/// the score is hidden, so is dS.
/// Units    lse and delta: the tile's rows of the statistics. S' - LSE is taken before it is scaled
///          to log2 units: both may be large where P is not small, and would bring their roundings.
template <bool kMasked, class Traits, class Sampler>
ATTILE_DEVICE void probabilities_and_gradient(typename Traits::ScoreRegisters& p_frag,
                                              typename Traits::ScoreRegisters& ds_frag,
                                              const BackwardParams<Traits>& p,
                                              const tile::TilePlace& place, const float* lse,
                                              const float* delta, const Sampler& sampler) {
  using S = typename Traits::ScoreModType;
  using Registers = typename Traits::ScoreRegisters;
  const float score_scale = kIsIdentity<S> ? p.scale : 1.0f;
  const float keep_scale = sampler.keep_scale();
  const tile::KeepBits<Registers, Sampler> bits(place, sampler);
  ATTILE_UNROLL
  for (int r = 0; r < Registers::kRegRows; ++r) {
    if (!Registers::has_row(r)) continue;
    const float row_lse = lse[Registers::row(r)];
    const float row_delta = delta[Registers::row(r)];
    ATTILE_UNROLL
    for (int c = 0; c < Registers::kRegCols; ++c) {
      if (!Registers::has_col(c)) continue;
      const ScoreIndex i = place.at(Registers::row(r), Registers::col(c));
      float s = p_frag.x[r][c];
      float derivative = 1.0f;
      bool visible = true;
      if constexpr (kMasked || !kIsIdentity<S>) visible = place.inside(i);
      if constexpr (kMasked) visible = visible && p.mask.visible(i, place.extent);
      if constexpr (!kIsIdentity<S>) {
        if (visible) {
          const auto modified = p.score_mod(p.scale * s, i, place.extent);
          s = modified.value;
          derivative = modified.derivative;
          visible = !kMayHide<S> || s != -kInf;
        }
      }
      const float difference = s * score_scale - row_lse;
      const float prob = visible ? arch::exp2(difference * kLog2e) : 0.0f;  // line 11
      const bool keep = bits.keep(r, c);
      const float dp = keep ? ds_frag.x[r][c] * keep_scale : 0.0f;  // line 13
      p_frag.x[r][c] = keep ? prob * keep_scale : 0.0f;
      const float ds = prob * (dp - row_delta);  // line 14
      ds_frag.x[r][c] = visible ? ds * derivative : 0.0f;
    }
  }
}

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

/// Line 4, and the row statistics that the loops read: one warp for each row.
template <class Traits>
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(256, 1)
    backward_preprocess_kernel(const ATTILE_GRID_CONSTANT BackwardParams<Traits> p) {
  const int lane = arch::thread_index() % arch::kWarpSize;
  const std::int64_t at =
      static_cast<std::int64_t>(arch::block_index()) * 8 + arch::thread_index() / arch::kWarpSize;
  constexpr bool kInOrder = Traits::kDqMode == DqMode::kInOrder;
  if (kInOrder && at == 0 && lane == 0) *p.begun() = 0;
  if (at >= p.slices() * p.stat_rows()) return;
  const std::int64_t slice = at / p.stat_rows();
  const int row = static_cast<int>(at % p.stat_rows());
  float delta = 0.0f;
  float row_lse = kInf;
  if (row < p.extent.q_len) {
    const int batch = static_cast<int>(slice / p.q_heads);
    const int head = static_cast<int>(slice % p.q_heads);
    const auto* const o = p.o.tensor.row(batch, head, row);
    const auto* const dout = p.dout.tensor.row(batch, head, row);
    for (int d = lane; d < p.head_dim_v; d += arch::kWarpSize) {
      delta += to_float(dout[d]) * to_float(o[d]);  // line 4
    }
    for (int mask = arch::kWarpSize / 2; mask > 0; mask /= 2) {
      delta += arch::shuffle_xor(delta, mask);
    }
    const std::int64_t stat = slice * p.extent.q_len + row;
    const float lse = p.l == nullptr ? p.lse[stat] : p.lse[stat] + arch::log(p.l[stat]);
    if (lse != -kInf) row_lse = lse;
    if (p.dlse != nullptr) delta -= p.dlse[stat];
    // An empty row has no gradient, whatever its dLSE: P = 0 must meet a finite factor.
    if (lse == -kInf) delta = 0.0f;
    // With kInOrder the first tile of K and V writes dQ of the rows that see it.
    const int q_tile = row / Traits::kBr;
    const bool written = kInOrder && p.kv_tiles > 0 && p.rows_of(batch, head, 0).contains(q_tile);
    if (kInOrder && row % Traits::kBr == 0 && lane == 0) {
      *p.turn_of(batch, head, row) = written ? 0 : 1;
    }
    if (p.dq_sum != nullptr && !written) {  // line 3
      constexpr int kCols = Traits::DqRegisters::kCols;
      for (int d = lane; d < kCols; d += arch::kWarpSize) p.dq_sum[stat * kCols + d] = 0.0f;
    }
  }
  if (lane == 0) {
    p.row_lse[at] = row_lse;
    p.delta[at] = delta;
  }
}

/// The last of the tiles of K and V before `kv_tile` that those rows see. The first one counts for
/// all rows: the preprocess kernel stands in for it where they do not see it.
/// Scope    all lanes of the warp.
template <class Traits>
ATTILE_DEVICE int tile_before(const BackwardParams<Traits>& p, const tile::TilePlace& place,
                              int kv_tile) {
  const int lane = arch::thread_index() % arch::kWarpSize;
  for (int last = kv_tile - 1; last > 0; last -= arch::kWarpSize) {
    const int tile = last - lane;
    const bool sees =
        tile > 0 && p.rows_of(place.batch, place.head, tile).contains(place.row0 / Traits::kBr);
    const int found = arch::first_lane(sees);
    if (found < arch::kWarpSize) return last - found;
  }
  return 0;
}

/// Waits until all tiles of K and V before `kv_tile` have added their parts to dQ of the tile of
/// rows at `place`: the first warp does.
/// Barriers one after, before anyone reads dQ.
template <class Traits>
ATTILE_DEVICE void await_turn(const BackwardParams<Traits>& p, const tile::TilePlace& place,
                              int kv_tile) {
  if (kv_tile == 0 || arch::thread_index() >= arch::kWarpSize) return;
  const int before = tile_before(p, place, kv_tile);
  while (arch::load_acquire(p.turn_of(place.batch, place.head, place.row0)) != before + 1) {
  }
}

/// Says that `kv_tile` has added its part.
/// Barriers one before, after everyone has written dQ.
template <class Traits>
ATTILE_DEVICE void pass_turn(const BackwardParams<Traits>& p, const tile::TilePlace& place,
                             int kv_tile) {
  if (arch::thread_index() != 0) return;
  arch::store_release(p.turn_of(place.batch, place.head, place.row0), kv_tile + 1);
}

/// dK and dV of one tile of K and V (lines 6 to 18), over all query heads of its group; with
/// the modes of one pass also this tile's part of dQ.
/// Scope    all threads of the block. `shared`: Traits::kColumnsSharedBytes, aligned to 16 bytes.
template <class Traits>
ATTILE_DEVICE void backward_columns(const BackwardParams<Traits>& p, int batch, int kv_head,
                                    int kv_tile, unsigned char* shared) {
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
    if constexpr (kInOrder) await_turn(p, place, kv_tile);
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
      const tile::Matrix<float> sum = p.dq_sum_of(slice);
      typename Traits::DqRegisters dq_frag;
      if (kInOrder && kv_tile > 0) {
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
    if constexpr (kInOrder) pass_turn(p, place, kv_tile);
  };

  // With kInOrder from the last rows to the first: under a causal mask all tiles of K and V begin
  // with the same rows then, and follow each other one step apart.
  const int group = p.q_heads / p.kv_heads;
  for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const TileRange range = p.rows_of(batch, head, kv_tile);
    visit(kInOrder ? mirrored(range) : range, [&](auto masked, int i) {
      step(masked, head, kInOrder ? mirror(range, i) : i);
    });  // lines 8 to 17
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
    probabilities_and_gradient<masked.value>(p_frag, ds_frag, p, place, p.row_lse + stat,
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

/// One block for each tile of K and V of each kv head.
template <class Traits>
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(Traits::kThreads, Traits::kBlocksPerSm)
    backward_columns_kernel(const ATTILE_GRID_CONSTANT BackwardParams<Traits> p) {
  const int slice = arch::block_index() / p.kv_tiles;
  backward_columns<Traits>(p, slice / p.kv_heads, slice % p.kv_heads,
                           arch::block_index() % p.kv_tiles, arch::dynamic_shared());
}

/// The same for kInOrder, where a block may wait for those with smaller indices: they are given out
/// in the order in which the blocks begin, so that whoever is waited for has begun.
template <class Traits>
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(Traits::kThreads, Traits::kBlocksPerSm)
    backward_in_order_kernel(const ATTILE_GRID_CONSTANT BackwardParams<Traits> p) {
  int* const index = reinterpret_cast<int*>(arch::dynamic_shared());
  if (arch::thread_index() == 0) *index = arch::fetch_add(p.begun(), 1);
  arch::barrier();
  const int block = *index;
  arch::barrier();  // everyone has read it before the tiles are written there
  const int slice = block / p.kv_tiles;
  backward_columns<Traits>(p, slice / p.kv_heads, slice % p.kv_heads, block % p.kv_tiles,
                           arch::dynamic_shared());
}

/// One block for each tile of query rows of each head.
template <class Traits>
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(Traits::kThreads, Traits::kBlocksPerSm)
    backward_rows_kernel(const ATTILE_GRID_CONSTANT BackwardParams<Traits> p) {
  const int slice = arch::block_index() / p.q_tiles;
  const int q_tile = p.q_tiles - 1 - arch::block_index() % p.q_tiles;
  backward_rows<Traits>(p, slice / p.q_heads, slice % p.q_heads, q_tile, arch::dynamic_shared());
}

/// dQ = scale * (the fp32 sum), in the type of dQ: one warp for each row.
template <class Traits>
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(256, 1)
    backward_postprocess_kernel(const ATTILE_GRID_CONSTANT BackwardParams<Traits> p) {
  using T = typename Traits::ElementType;
  constexpr int kCols = Traits::DqRegisters::kCols;
  const std::int64_t at =
      static_cast<std::int64_t>(arch::block_index()) * 8 + arch::thread_index() / arch::kWarpSize;
  const std::int64_t slice = at / p.extent.q_len;
  const int row = static_cast<int>(at % p.extent.q_len);
  if (slice >= static_cast<std::int64_t>(p.batch) * p.q_heads) return;
  T* const dq = p.dq.tensor.row(static_cast<int>(slice / p.q_heads),
                                static_cast<int>(slice % p.q_heads), row);
  for (int d = arch::thread_index() % arch::kWarpSize; d < p.head_dim; d += arch::kWarpSize) {
    dq[d] = from_float<T>(p.scale * p.dq_sum[at * kCols + d]);
  }
}

}  // namespace attile::portable
