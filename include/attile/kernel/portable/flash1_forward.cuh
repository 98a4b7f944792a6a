// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/launch.cuh>
#include <attile/arch/math.h>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/schedule.h>
#include <attile/kernel/forward_kernel.cuh>
#include <attile/kernel/portable/forward_traits.cuh>
#include <attile/tile/copy.cuh>
#include <attile/tile/matmul.cuh>
#include <attile/tile/online_softmax.h>
#include <attile/tile/scores.cuh>

#include <concepts>
#include <cstdint>
#include <type_traits>

// FlashAttention-1, forward (arXiv 2205.14135, Algorithm 2; the lines named are its). The outer
// loop goes over K and V, so O, l and m of every row live in device memory between two of its
// turns.

namespace attile::portable {

/// Every constant of one FlashAttention-1 forward kernel: ForwardTraits, with P in a place of its
/// own, because K is still needed for the next rows of Q.
template <int Br, int Bc, int D, Element T, Mask M = NoMask, ScoreMod S = NoScoreMod,
          Dropout P = NoDropout, int Dv = D, class TuningType = Tuning<>>
struct Flash1ForwardTraits : ForwardTraits<Br, Bc, D, T, M, S, P, Dv, TuningType> {
  using Base = ForwardTraits<Br, Bc, D, T, M, S, P, Dv, TuningType>;
  using Params = ForwardParams<Flash1ForwardTraits>;

  /// Tiles of Q that a block takes through all tiles of K and V; rows need nothing of each other.
  /// Few enough that Q, O, l and m of the rows that all blocks are at stay in the L2 cache, where
  /// whole heads do not; enough to share the reading of K and V.
  static constexpr int kSlabTiles = 4;
  /// Whether O can be kept in args.o: its sums are fp32.
  static constexpr bool kSumsInOutput = std::is_same_v<T, float>;
  static constexpr std::size_t kSharedBytes =
      Base::QTile::kBytes + Base::KTile::kBytes + Base::PTile::kBytes + Base::VTile::kBytes;
  static_assert(kSharedBytes <= arch::kMaxSharedBytes,
                "attile::flash1::ForwardTraits: the tiles of Q, K, V and P take more than the "
                "232448 bytes of shared memory that a block can have; choose a smaller Br or Bc");
};

/// What Algorithm 2 leaves behind besides O, for Algorithm 4. Device pointers of the caller.
struct Flash1State {
  float* l = nullptr;  ///< dense (batch, q_heads, q_len): sum of exp(S' - m); 0: empty row
  float* m = nullptr;  ///< the same shape: the largest S', natural units; -inf: empty row
  std::uint64_t* rng = nullptr;  ///< seed and offset that PhiloxDropout drew from; null: not wanted
};

/// Whether a dropout draws from a seed and an offset that can be saved.
template <class P>
inline constexpr bool kHasSavedState = requires(const P& dropout) {
  { dropout.current_seed() } -> std::convertible_to<std::uint64_t>;
  { dropout.current_offset() } -> std::convertible_to<std::uint64_t>;
};

template <class Traits>
struct Flash1Params {
  ForwardParams<Traits> forward;
  tile::TensorParam<float> sums;  ///< O between two tiles of K and V; may be the memory of O
  Flash1State state;
};

/// What the rows of a block keep in device memory, of all those of their head.
struct Flash1Rows {
  tile::Matrix<float> o;
  float *l, *m;
  Interval rows;

  /// O = 0, l = 0, m = -inf.
  /// Barriers one after, before l and m are read.
  template <class Traits>
  ATTILE_DEVICE void clear() const {
    typename Traits::OutputRegisters zero;
    zero.clear();
    for (int row0 = rows.begin; row0 < rows.end; row0 += Traits::kBr) tile::store(o, zero, row0);
    for (int row = rows.begin + arch::thread_index(); row < rows.end; row += Traits::kThreads) {
      l[row] = 0.0f;
      m[row] = -kInf;
    }
  }

  /// O, l and m of the rows from row0 on; O as the unnormalised sum, l as one lane's part of it.
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

  /// O, normalised, and l and m, whole.
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

  /// O in its own type, where it was summed up elsewhere; LSE = m + ln(l), where it is wanted.
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

/// The tiles of Q from `first_tile` on that a block takes: all tiles of K and V, one after another.
/// Scope    all threads of the block. `shared`: Traits::kSharedBytes, aligned to 16 bytes.
///          O in device memory is always that of a softmax over the columns so far, and a thread
///          reads back what it wrote itself; l and m of a row are written by one lane for all.
template <class Traits>
ATTILE_DEVICE void flash1_forward_slab(const Flash1Params<Traits>& params, int batch, int head,
                                       int first_tile, unsigned char* shared) {
  constexpr int kThreads = Traits::kThreads;
  constexpr int kBr = Traits::kBr;
  constexpr int kBc = Traits::kBc;
  using Output = typename Traits::OutputRegisters;
  const ForwardParams<Traits>& p = params.forward;
  tile::SharedCarver carver{shared};
  const auto q_smem = carver.take<typename Traits::QTile>();  // (Br, D)
  const auto k_smem = carver.take<typename Traits::KTile>();  // (Bc, D)
  const auto v_smem = carver.take<typename Traits::VTile>();  // (Bc, Dv)
  const auto p_smem = carver.take<typename Traits::PTile>();  // (Br, Bc)

  const int kv_head = head / (p.q_heads / p.kv_heads);
  const std::int64_t stat = (static_cast<std::int64_t>(batch) * p.q_heads + head) * p.extent.q_len;
  const auto q_gmem = p.q.slice(batch, head, p.extent.q_len, p.head_dim);
  const auto k_gmem = p.k.slice(batch, kv_head, p.extent.kv_len, p.head_dim);
  const auto v_gmem = p.v.slice(batch, kv_head, p.extent.kv_len, p.head_dim_v);
  const int last_tile = min(first_tile + Traits::kSlabTiles, ceil_div(p.extent.q_len, kBr));
  const Flash1Rows rows{params.sums.slice(batch, head, p.extent.q_len, p.head_dim_v),
                        params.state.l + stat,
                        params.state.m + stat,
                        {first_tile * kBr, min(last_tile * kBr, p.extent.q_len)}};
  const auto sampler = p.dropout.sampler(p.q_heads);

  const auto rows_of = [&](int col0) {
    return row_tiles(p.mask, batch, head, col0, kBc, kBr, p.extent).between(first_tile, last_tile);
  };
  // Where the first columns meet every tile of rows, nothing has to be initialised before.
  const TileRange first = p.extent.kv_len > 0 ? rows_of(0) : TileRange{};
  const bool fresh = first.first == first_tile && first.last == last_tile;

  const auto step = [&](auto masked, int q_tile, int col0) {
    const tile::TilePlace place{batch, head, q_tile * kBr, col0, p.extent};
    Output o_frag;
    tile::OnlineSoftmax<Output::kRegRows> softmax;
    tile::load<kThreads>(q_smem, q_gmem, place.row0);  // line 9
    if (fresh && col0 == 0) {
      o_frag.clear();
      softmax.reset();
    } else {
      rows.load(o_frag, softmax, place.row0);
    }
    arch::barrier();  // Q (the first time K and V) is written before anyone reads it

    typename Traits::ScoreRegisters s_frag;
    s_frag.clear();
    tile::matmul_nt(s_frag, q_smem, k_smem);                                           // line 10
    tile::modify_and_mask<masked.value>(s_frag, place, p.mask, p.score_mod, p.scale);  // line 11
    if constexpr (kIsIdentity<typename Traits::ScoreModType>) s_frag.scale(p.scale);   // line 10
    softmax.step(s_frag, o_frag, kLog2e);           // lines 12, 13
    if constexpr (Traits::DropoutType::kEnabled) {  // line 14
      tile::drop(s_frag, place, sampler);
      s_frag.scale(sampler.keep_scale());
    }
    tile::stage(p_smem, s_frag);
    Traits::ScoreRegisters::sync_rows();      // the lanes of a row see each other's P
    tile::matmul_nn(o_frag, p_smem, v_smem);  // line 15
    rows.store(o_frag, softmax, place.row0);  // lines 15, 16
    arch::barrier();  // everyone has read Q and P before the next ones are written; l, m are there
  };

  if (!fresh) rows.template clear<Traits>();  // line 3
  arch::barrier();                            // O, l and m are initialised before anyone reads them

  for (int col0 = 0; col0 < p.extent.kv_len; col0 += kBc) {  // line 6
    const TileRange range = rows_of(col0);
    if (range.first == range.last) continue;
    tile::load<kThreads>(k_smem, k_gmem, col0);  // line 7
    tile::load<kThreads>(v_smem, v_gmem, col0);
    visit(range, [&](auto masked, int i) { step(masked, i, col0); });  // lines 8 to 17
  }                                                                    // line 18

  rows.template finish<Traits>(p.o.slice(batch, head, p.extent.q_len, p.head_dim_v),
                               p.lse == nullptr ? nullptr : p.lse + stat);
}

/// One block for each slab of tiles of Q of each query head.
template <class Traits>
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(Traits::kThreads, Traits::kBlocksPerSm)
    flash1_forward_kernel(const ATTILE_GRID_CONSTANT Flash1Params<Traits> p) {
  const int slabs = ceil_div(p.forward.extent.q_len, Traits::kBr * Traits::kSlabTiles);
  const int slice = arch::block_index() / slabs;
  const int slab = arch::block_index() % slabs;
  const int q_heads = p.forward.q_heads;
  if constexpr (kHasSavedState<typename Traits::DropoutType>) {
    if (arch::block_index() == 0 && arch::thread_index() == 0 &&
        p.state.rng != nullptr) {  // line 1
      p.state.rng[0] = p.forward.dropout.current_seed();
      p.state.rng[1] = p.forward.dropout.current_offset();
    }
  }
  flash1_forward_slab<Traits>(p, slice / q_heads, slice % q_heads, slab * Traits::kSlabTiles,
                              arch::dynamic_shared());
}

}  // namespace attile::portable
