// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/launch.cuh>
#include <attile/arch/math.h>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/device_policy.h>
#include <attile/core/schedule.h>
#include <attile/core/work_tile.h>
#include <attile/kernel/portable/flash1_params.cuh>
#include <attile/tile/copy.cuh>
#include <attile/tile/dropout.cuh>
#include <attile/tile/matmul.cuh>
#include <attile/tile/online_softmax.h>
#include <attile/tile/scores.cuh>

// This is the forward pass of FlashAttention-1 (arXiv 2205.14135, Algorithm 2; the lines named are
// its). The outer loop goes over K and V, so O, l and m of every row are in device memory between
// two of its iterations.

namespace attile::portable {

/// Gives access to O, l and m in device memory: those of a whole head, of which a block has `rows`.
struct Flash1Rows {
  tile::Matrix<float> o;
  float *l, *m;
  Interval rows;
  float sink;  ///< -inf for none

  /// Returns l and m of rows that have seen no key: 0 and -inf, or with a sink 1 and its logit.
  ATTILE_DEVICE float first_l() const { return sink == -kInf ? 0.0f : 1.0f; }
  ATTILE_DEVICE float first_m() const { return sink; }

  /// Writes O = 0, and l and m of rows that have seen no key.
  /// Barriers one after, before l and m are read.
  template <class Traits>
  ATTILE_DEVICE void clear() const {
    typename Traits::OutputRegisters zero;
    zero.clear();
    for (int row0 = rows.begin; row0 < rows.end; row0 += Traits::kBr) tile::store(o, zero, row0);
    for (int row = rows.begin + arch::thread_index(); row < rows.end; row += Traits::kThreads) {
      l[row] = first_l();
      m[row] = first_m();
    }
  }

  /// Sets O, l and m in registers to those of rows that have seen no key.
  template <class Output, class Softmax>
  ATTILE_DEVICE void begin(Output& o_frag, Softmax& softmax) const {
    o_frag.clear();
    ATTILE_UNROLL
    for (int r = 0; r < Output::kRegRows; ++r) {
      softmax.l[r] = o_frag.col(0) == 0 ? first_l() : 0.0f;
      softmax.m[r] = first_m();
    }
  }

  /// Loads O, l and m of the rows from row0 on: O as the unnormalised sum, l into one lane of each
  /// row and 0 into the others.
  template <class Output, class Softmax>
  ATTILE_DEVICE void load(Output& o_frag, Softmax& softmax, int row0) const {
    tile::load(o_frag, o, row0);
    ATTILE_UNROLL
    for (int r = 0; r < Output::kRegRows; ++r) {
      const int row = row0 + o_frag.row(r);
      const bool inside = o_frag.has_row(r) && row < rows.end;
      const float row_l = inside ? l[row] : 0.0f;
      o_frag.scale_row(r, row_l);
      softmax.l[r] = o_frag.col(0) == 0 ? row_l : 0.0f;
      softmax.m[r] = inside ? m[row] : -kInf;
    }
  }

  /// Stores O, normalised, and the whole l and m of the rows from row0 on.
  template <class Output, class Softmax>
  ATTILE_DEVICE void store(Output& o_frag, Softmax& softmax, int row0) const {
    softmax.finish(o_frag);
    tile::store(o, o_frag, row0);
    ATTILE_UNROLL
    for (int r = 0; r < Output::kRegRows; ++r) {
      const int row = row0 + o_frag.row(r);
      if (!o_frag.has_row(r) || o_frag.col(0) != 0 || row >= rows.end) continue;
      l[row] = softmax.l[r];
      m[row] = softmax.m[r];
    }
  }

  /// Stores O in its own type, where the sums are elsewhere, and LSE = m + ln(l), where it is
  /// wanted.
  template <class Traits, class T>
  ATTILE_DEVICE void finish(const tile::Matrix<T>& o_out, float* lse) const {
    if constexpr (!Traits::kSumsInOutput) {
      typename Traits::OutputRegisters o_frag;
      for (int row0 = rows.begin; row0 < rows.end; row0 += Traits::kBr) {
        tile::load(o_frag, o, row0);
        tile::store(o_out, o_frag, row0);
      }
    }
    if (lse == nullptr) return;
    for (int row = rows.begin + arch::thread_index(); row < rows.end; row += Traits::kThreads) {
      lse[row] = m[row] + arch::log(l[row]);
    }
  }
};

/// Computes the tiles of Q of a slab against all tiles of K and V, one after another.
/// Scope    all threads of the block. `shared`: Traits::kSharedBytes, aligned to 16 bytes.
///          O in device memory is always that of a softmax over the keys so far, and a thread
///          reads back what it wrote itself; l and m of a row are written by one lane for all.
template <class Traits>
ATTILE_DEVICE void flash1_forward_slab(const Flash1Params<Traits>& p, const WorkTile& slab,
                                       unsigned char* shared) {
  constexpr int kThreads = Traits::kThreads;
  constexpr int kBr = Traits::kBr;
  constexpr int kBc = Traits::kBc;
  using Output = typename Traits::OutputRegisters;
  tile::SharedCarver carver{shared};
  const auto q_smem = carver.take<typename Traits::QTile>();  // (Br, D)
  const auto k_smem = carver.take<typename Traits::KTile>();  // (Bc, D)
  const auto v_smem = carver.take<typename Traits::VTile>();  // (Bc, Dv)
  const auto p_smem = carver.take<typename Traits::PTile>();  // (Br, Bc)

  const Extent extent = p.extent(slab);
  const auto q_gmem = p.q_of(slab);
  const auto k_gmem = p.k_of(slab);
  const auto v_gmem = p.v_of(slab);
  const int first_tile = slab.row0 / kBr;
  // Past a shorter sequence's end there are no tiles.
  const int last_tile =
      max(min(first_tile + Traits::kSlabTiles, ceil_div(extent.q_len, kBr)), first_tile);
  const Flash1Rows rows{p.rows_of_head(p.sums, slab, p.head_dim_v),
                        p.first_row(p.l, slab.sequence, slab.head),
                        p.first_row(p.m, slab.sequence, slab.head),
                        {slab.row0, min(last_tile * kBr, extent.q_len)},
                        p.policies.sink.logit(slab.head)};
  const auto sampler = p.sampler();

  const auto rows_of = [&](int col0) {
    return row_tiles(p.policies.mask, slab.sequence, slab.head, col0, kBc, kBr, extent)
        .between(first_tile, last_tile);
  };
  // Where every tile of rows sees the first kv tile, nothing has to be initialised before.
  const TileRange first = extent.kv_len > 0 ? rows_of(0) : TileRange{};
  const bool fresh = first.first == first_tile && first.last == last_tile;

  const auto step = [&](auto masked, int q_tile, int col0) {
    WorkTile at = slab;
    at.row0 = q_tile * kBr;
    const tile::TileCoord coord = p.coord(at, col0);
    Output o_frag;
    tile::OnlineSoftmax<Output::kRegRows> softmax;
    tile::load<kThreads>(q_smem, q_gmem, coord.row0);  // line 9
    if (fresh && col0 == 0) {
      rows.begin(o_frag, softmax);
    } else {
      rows.load(o_frag, softmax, coord.row0);
    }
    arch::barrier();  // Q (the first time K and V) is written before anyone reads it

    typename Traits::ScoreRegisters s_frag;
    s_frag.clear();
    tile::matmul_nt(s_frag, q_smem, k_smem);  // line 10
    tile::modify_and_mask<masked.value>(s_frag, coord, p.policies, p.scale,
                                        tile::MathOf<typename Traits::ElementType>());  // line 11
    if constexpr (kIsIdentity<typename Traits::ScoreModType>) s_frag.scale(p.scale);    // line 10
    softmax.step(s_frag, o_frag, kLog2e);           // lines 12, 13
    if constexpr (Traits::DropoutType::kEnabled) {  // line 14
      tile::drop_scores(s_frag, coord, sampler);
      s_frag.scale(sampler.keep_scale());
    }
    tile::stage(p_smem, s_frag);
    Traits::ScoreRegisters::sync_rows();      // the lanes of a row have written P before it is read
    tile::matmul_nn(o_frag, p_smem, v_smem);  // line 15
    rows.store(o_frag, softmax, coord.row0);  // lines 15, 16
    arch::barrier();  // everyone has read Q and P before the next ones are written, l and m too
  };

  if (!fresh) rows.template clear<Traits>();  // line 3, where m and l may begin with a sink
  arch::barrier();                            // O, l and m are initialised before anyone reads them

  for (int col0 = 0; col0 < extent.kv_len; col0 += kBc) {  // line 6
    const TileRange range = rows_of(col0);
    if (range.first == range.last) continue;
    tile::load<kThreads>(k_smem, k_gmem, col0);  // line 7
    tile::load<kThreads>(v_smem, v_gmem, col0);
    visit(range, [&](auto masked, int i) { step(masked, i, col0); });  // lines 8 to 17
  }                                                                    // line 18

  float* const lse = p.lse.data == nullptr ? nullptr : p.first_row(p.lse, slab.sequence, slab.head);
  rows.template finish<Traits>(p.o_of(slab), lse);
}

/// Runs FlashAttention-1's forward pass: one block for each slab of tiles of Q of each query head.
template <class Traits>
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(Traits::kThreads, Traits::kBlocksPerSm)
    flash1_forward_kernel(const ATTILE_GRID_CONSTANT Flash1Params<Traits> p) {
  detail::require_device_policies<typename Traits::Policies>();
  if constexpr (kHasSavedState<typename Traits::DropoutType>) {
    if (arch::block_index() == 0 && arch::thread_index() == 0 && p.rng != nullptr) {  // line 1
      p.rng[0] = p.policies.dropout.current_seed();
      p.rng[1] = p.policies.dropout.current_offset();
    }
  }
  flash1_forward_slab<Traits>(p, p.slab(arch::block_index()), arch::dynamic_shared());
}

}  // namespace attile::portable
