// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/architectures.cuh>
#include <attile/arch/bulk_tensor.cuh>
#include <attile/arch/mbarrier.cuh>
#include <attile/arch/memory.cuh>
#include <attile/arch/opaque.h>
#include <attile/arch/thread.cuh>
#include <attile/arch/warpgroup.cuh>
#include <attile/core/config.h>
#include <attile/core/math.h>
#include <attile/core/schedule.h>
#include <attile/core/vec.h>
#include <attile/kernel/forward_kernel.cuh>
#include <attile/kernel/sm90/forward_params.cuh>
#include <attile/kernel/sm90/forward_traits.cuh>
#include <attile/tile/copy.cuh>
#include <attile/tile/mma_tile.cuh>
#include <attile/tile/online_softmax.h>
#include <attile/tile/panel_tile.cuh>
#include <attile/tile/ring.cuh>
#include <attile/tile/scores.cuh>
#include <attile/tile/warpgroup.cuh>

namespace attile::sm90 {

/// A block's shared memory.
template <class Traits>
struct ForwardMemory {
  using QRing = typename Traits::QRing;
  using KRing = typename Traits::KRing;
  using VRing = typename Traits::VRing;

  unsigned char* data;

  ATTILE_DEVICE QRing q(int group) const {
    return {data + group * Traits::kQPlace, barriers() + group * 2};
  }
  ATTILE_DEVICE KRing k() const {
    return {data + Traits::kKPlace, barriers() + Traits::kGroups * 2};
  }
  ATTILE_DEVICE VRing v() const {
    return {data + Traits::kVPlace, barriers() + Traits::kGroups * 2 + Traits::kStages * 2};
  }
  /// Where a warpgroup brings its rows of O together.
  ATTILE_DEVICE typename Traits::OTile o(int group) const {
    constexpr std::size_t kPitch = Traits::kOwnOutput ? Traits::OTile::kBytes : Traits::kQPlace;
    return {data + Traits::kOPlace + group * kPitch};
  }

  /// Scope    all threads of the block.
  ATTILE_DEVICE void init() const {
    if (arch::thread_index() == 0) {
      for (int group = 0; group < Traits::kGroups; ++group) q(group).init(4);
      k().init(Traits::kGroups * 4);
      v().init(Traits::kGroups * 4);
      arch::mbarrier_publish();
    }
    arch::barrier();  // nobody uses a barrier that is not there yet
  }

 private:
  ATTILE_DEVICE arch::Mbarrier* barriers() const {
    return reinterpret_cast<arch::Mbarrier*>(data + Traits::kBarrierPlace);
  }
};

/// Sends for Q of all tiles that a block computes. Scope    one thread.
template <class Traits>
ATTILE_DEVICE void load_q(const ForwardParams<Traits>& p, int block,
                          const ForwardMemory<Traits>& smem) {
  tile::RingPlace<1> q_at;
  for (BlockTiles tiles{block}; tiles.more(p.tiles); ++tiles.turn) {
    const WorkTile<Traits> at(p, tiles.tile());
    const int rows = at.group_rows(p);
    const int heads = at.packed_heads(p);
    const tile::RingPlace<1> q_now = q_at;
    for (int group = 0; group < Traits::kGroups; ++group) {
      q_at = q_now;
      smem.q(group).fill(q_at, p.q_map, at.row0 + group * rows, at.head / heads, at.batch,
                         rows * heads);
    }
  }
}

/// Sends for K, or V, of all tiles that they see. Scope    one thread.
template <class Traits, class Ring>
ATTILE_DEVICE void load_keys(const ForwardParams<Traits>& p, int block, const Ring& ring,
                             const arch::TensorMap& map) {
  typename Ring::Place place;
  for (BlockTiles tiles{block}; tiles.more(p.tiles); ++tiles.turn) {
    const WorkTile<Traits> at(p, tiles.tile());
    const TileRange range = at.seen(p, 0, Traits::kGroups);
    for (int kv_tile = range.first; kv_tile < range.last; ++kv_tile) {
      ring.fill(place, map, kv_tile * Traits::kBc, at.kv_head, at.batch);
    }
  }
}

/// Packed rows may not fill a warpgroup's part of Q: what is left is zeros.
/// Scope    all threads of a warpgroup that computes.
/// Barriers `fence_async_proxy`, and what orders the warpgroup's threads, after it.
template <class Traits>
ATTILE_DEVICE void clear_unused_rows(const ForwardParams<Traits>& p,
                                     const typename Traits::QTile& q_smem) {
  using Tile = typename Traits::QTile;
  constexpr int kUnit = Tile::Layout::kUnitElements;
  constexpr int kUnits = Tile::kCols / kUnit;
  const int used = p.packing.heads * p.packing.rows * kUnits;
  const int thread = arch::thread_index() % arch::kWarpgroupSize;
  for (int i = used + thread; i < Tile::kRows * kUnits; i += arch::kWarpgroupSize) {
    arch::store(&q_smem.at(i / kUnits, i % kUnits * kUnit),
                Vec<typename Traits::ElementType, kUnit>{});
  }
}

/// Where a warpgroup is in the rings.
template <class Traits>
struct ForwardPlaces {
  tile::RingPlace<1> q;
  tile::RingPlace<Traits::kStages> k, v;

  /// Tiles that it does not want, K's and V's in turn: others may need a V of these before they
  /// free a K.
  ATTILE_DEVICE void pass(const ForwardMemory<Traits>& smem, int count) {
    ATTILE_UNROLL_BY(1)
    for (int i = 0; i < count; ++i) {
      smem.k().pass(k);
      smem.v().pass(v);
    }
  }
};

/// O by way of shared memory, so that whole rows are written; each warp its own.
template <class Traits>
ATTILE_DEVICE void store_output(const ForwardParams<Traits>& p, const WorkTile<Traits>& at,
                                int group, const typename Traits::OTile& o_smem,
                                const typename Traits::OutputRegisters& o_frag) {
  using Outputs = typename Traits::OutputRegisters;
  if constexpr (Traits::kOwnOutput) {
    arch::warp_barrier();  // the rows of the tile before have been read
  } else {
    arch::barrier(1 + group, arch::kWarpgroupSize);  // Q, whose place it is, has been read
  }
  const int first = group * kGroupRows;
  tile::stage(o_smem, o_frag, 1.0f, 0, first);
  arch::warp_barrier();  // the lanes of a warp see its rows of O, which are no other warp's
  const auto o = p.o.slice(at.batch, at.head, p.extent.q_len, p.head_dim_v);
  const int warp_row = Outputs::warp_row() - first;
  const int row0 = at.row0 + group * at.group_rows(p);
  if constexpr (Traits::kPacked) {
    const tile::PackedMatrix<typename Traits::ElementType> rows{
        o.row(row0),
        o.row_stride,
        p.o.tensor.head_stride,
        min(p.extent.q_len - row0, p.packing.rows),
        o.cols,
        o.vectors,
        p.packing.heads};
    tile::store_rows<Outputs::kWarpRows>(rows, o_smem, warp_row, 0);
  } else {
    tile::store_rows<Outputs::kWarpRows>(o, o_smem, warp_row, row0);
  }
}

/// Warpgroups that do something one after another, in a circle.
template <class Traits, bool kOn>
struct Turn {
  /// The first one's; those before are store_output's.
  static constexpr int kBarrier = 1 + Traits::kGroups;
  static constexpr int kThreads = 2 * arch::kWarpgroupSize;

  int group;

  /// The first turn is warpgroup 0's. Scope    all threads of each warpgroup that computes, once.
  ATTILE_DEVICE void init() const {
    if constexpr (kOn) {
      if (group == Traits::kGroups - 1) arch::barrier_arrive(kBarrier, kThreads);
    }
  }
  ATTILE_DEVICE void wait() const {
    if constexpr (kOn) arch::barrier(kBarrier + group, kThreads);
  }
  /// Behind what `zero`, which is 0, was made of.
  ATTILE_DEVICE void pass_on(int zero = 0) const {
    if constexpr (kOn) {
      arch::barrier_arrive(kBarrier + (group + 1) % Traits::kGroups + zero, kThreads);
    }
  }
};
template <class Traits>
using ProductsTurn = Turn<Traits, Traits::kTurns == Turns::kProducts>;
template <class Traits>
using SoftmaxTurn = Turn<Traits, Traits::kTurns == Turns::kSoftmax>;

/// A warpgroup's online softmax over the tiles that its rows see.
template <class Traits>
struct GroupSoftmax {
  using Scores = typename Traits::ScoreRegisters;
  using Softmax = tile::OnlineSoftmax<Scores::kRegRows>;

  const ForwardParams<Traits>& p;
  const WorkTile<Traits>& at;
  int group;
  TileRange mine;
  SoftmaxTurn<Traits> turn{group};
  float unit = tile::score_unit<typename Traits::ScoreModType>(p.scale);
  Softmax state{};

  /// S -> P (line 9), and what O is then to be multiplied by.
  ATTILE_DEVICE typename Softmax::Rescaling step(Scores& s_frag, int kv_tile) {
    const auto where = at.place(p, group, kv_tile * Traits::kBc);
    turn.wait();
    if (mine.full(kv_tile)) {
      tile::modify_and_mask<false>(s_frag, where, p.mask, p.score_mod, p.scale);
    } else {
      tile::modify_and_mask<true>(s_frag, where, p.mask, p.score_mod, p.scale);
    }
    const auto rescaling = state.template raise_maximum<Traits::kRescaleSlack>(s_frag, unit);
    state.exponentiate(s_frag, unit);
    if constexpr (Traits::DropoutType::kEnabled) {
      tile::drop(s_frag, where, p.dropout.sampler(p.q_heads));
    }
    turn.pass_on(state.is_negative());
    return rescaling;
  }
};

/// O and LSE of a warpgroup's rows (lines 12 to 15), behind its last use of Q.
template <class Traits>
ATTILE_DEVICE void finish_rows(const ForwardParams<Traits>& p, const ForwardMemory<Traits>& smem,
                               int tile, GroupSoftmax<Traits>& softmax,
                               typename Traits::OutputRegisters& o_frag,
                               ForwardPlaces<Traits>& place) {
  const int group = softmax.group;
  const WorkTile<Traits> at(p, tile);
  softmax.state.finish(o_frag, p.dropout.sampler(p.q_heads).keep_scale());  // line 12
  store_output(p, at, group, smem.o(group), o_frag);                        // line 14
  if constexpr (!Traits::kOwnOutput) {
    if constexpr (Traits::kPacked) {
      arch::barrier(1 + group, arch::kWarpgroupSize);  // O has been read
      clear_unused_rows(p, smem.q(group).tile(0));
    }
    arch::fence_async_proxy();  // O, and zeros, have been written before the next Q is
    arch::warp_barrier();
    smem.q(group).release(place.q);
  }
  store_lse<typename Traits::OutputRegisters>(p, at.place(p, group, 0), softmax.state,
                                              softmax.unit);  // lines 13, 15
}

/// FlashAttention-2, forward, for a warpgroup's rows of a tile (arXiv 2307.08691, Algorithm 1; the
/// lines named are its). Overlap::kSteps: the product P V of one tile and S of the next one are
/// begun together, and the softmax of that runs beside the first (arXiv 2407.08608, section 3.2).
/// Scope    all threads of a warpgroup that computes.
template <class Traits>
ATTILE_DEVICE void forward_rows(const ForwardParams<Traits>& p, const ForwardMemory<Traits>& smem,
                                int tile, int group, ForwardPlaces<Traits>& place) {
  using T = typename Traits::ElementType;
  using Scores = typename Traits::ScoreRegisters;
  using Probabilities = tile::RegisterLeft<T, Scores>;
  const WorkTile<Traits> at(p, tile);
  const TileRange range = at.seen(p, 0, Traits::kGroups);
  // Turns want all warpgroups to take the same number of tiles.
  TileRange mine = Traits::kTurns == Turns::kNone ? at.seen(p, group, 1) : range;
  if (mine.first >= mine.last) mine.first = mine.last = range.last;
  const auto q_ring = smem.q(group);
  const auto k_ring = smem.k();
  const auto v_ring = smem.v();
  const ProductsTurn<Traits> turn{group};

  typename Traits::OutputRegisters o_frag;  // line 5
  GroupSoftmax<Traits> softmax{p, at, group, mine};
  o_frag.clear();
  softmax.state.reset();
  const auto q_smem = q_ring.wait(place.q);  // line 4
  place.pass(smem, mine.first - range.first);
  if constexpr (Traits::kOverlap == Overlap::kNone) {
    ATTILE_UNROLL_BY(1)
    for (int kv_tile = mine.first; kv_tile < mine.last; ++kv_tile) {  // lines 6 and 7
      Scores s_frag;
      const auto k_smem = k_ring.wait(place.k);
      turn.wait();
      tile::start_transposed_product<T>(s_frag, q_smem, k_smem);  // line 8
      tile::wait_product<0>(s_frag);
      turn.pass_on();
      k_ring.release(place.k);
      softmax.step(s_frag, kv_tile).apply(o_frag);
      const Probabilities p_left(s_frag);
      tile::start_product<T>(o_frag, p_left, v_ring.wait(place.v));  // line 10
      tile::wait_product<0>(o_frag);
      v_ring.release(place.v);
    }
    if constexpr (Traits::kOwnOutput) q_ring.pass(place.q);
  } else if (mine.first < mine.last) {
    Scores s_frag;
    auto k_smem = k_ring.wait(place.k);
    turn.wait();
    tile::start_transposed_product<T>(s_frag, q_smem, k_smem);  // line 8
    turn.pass_on();
    tile::wait_product<0>(s_frag);
    k_ring.release(place.k);
    softmax.step(s_frag, mine.first);
    Probabilities p_left(s_frag);
    auto v_smem = v_ring.wait(place.v);

    ATTILE_UNROLL_BY(1)
    for (int kv_tile = mine.first + 1; kv_tile < mine.last; ++kv_tile) {  // lines 6 and 7
      k_smem = k_ring.wait(place.k);
      turn.wait();
      tile::start_transposed_product<T>(s_frag, q_smem, k_smem);  // line 8
      tile::start_product<T>(o_frag, p_left, v_smem);             // line 10, of the tile before
      turn.pass_on();
      tile::wait_product<1>(s_frag);
      k_ring.release(place.k);
      const auto rescaling = softmax.step(s_frag, kv_tile);
      // The compiler would put the exponentials off until the product is done. This wait, before
      // it, is made to need all of them: l is never negative.
      auto v_next = place.v.after();
      v_next.parity ^= softmax.state.is_negative();
      v_smem = v_ring.wait(v_next);
      tile::wait_product<0>(o_frag);
      v_ring.release(place.v);
      rescaling.apply(o_frag);
      p_left = Probabilities(s_frag);
    }
    if constexpr (Traits::kOwnOutput) q_ring.release(place.q);
    tile::start_product<T>(o_frag, p_left, v_smem);  // line 10, of the last tile
    tile::wait_product<0>(o_frag);
    v_ring.release(place.v);
  } else if constexpr (Traits::kOwnOutput) {
    q_ring.pass(place.q);
  }
  place.pass(smem, range.last - mine.last);
  finish_rows(p, smem, arch::opaque(tile), softmax, o_frag, place);
}

/// A block's tiles of query rows: one warpgroup sends for Q, K and V of all of them, the others
/// compute. Scope    all threads of the block. `shared`: Traits::kSharedBytes, aligned to 1024
/// bytes.
template <class Traits>
ATTILE_DEVICE void forward_block(const ForwardParams<Traits>& p, int block, unsigned char* shared) {
  if constexpr (!arch::kHasWarpgroups) return;
  const ForwardMemory<Traits> smem{shared};
  smem.init();
  const int group = arch::uniform(arch::thread_index() / arch::kWarpgroupSize);
  if (group == Traits::kGroups) {
    arch::give_registers<Traits::kLoaderRegisters>();
    const int thread = arch::thread_index() % arch::kWarpgroupSize;
    if (thread == 0) load_keys(p, block, smem.k(), p.k_map);
    if (thread == arch::kWarpSize) load_keys(p, block, smem.v(), p.v_map);
    if (thread == 2 * arch::kWarpSize) load_q(p, block, smem);
  } else {
    arch::take_registers<Traits::kGroupRegisters>();
    ForwardPlaces<Traits> place;
    ProductsTurn<Traits>{group}.init();
    SoftmaxTurn<Traits>{group}.init();
    if constexpr (Traits::kPacked) {
      clear_unused_rows(p, smem.q(group).tile(0));
      arch::fence_async_proxy();
      arch::barrier(1 + group, arch::kWarpgroupSize);  // zeros are there for the products
    }
    for (BlockTiles tiles{block}; tiles.more(p.tiles); ++tiles.turn) {
      forward_rows(p, smem, tiles.tile(), group, place);
    }
  }
}

/// Whether the current device runs the kernel for arguments that passed `check_arguments`.
template <class Traits>
bool runs(const typename Traits::Args& args) {
  return arch::device_architecture() == Traits::kLeastArchitecture &&
         !arch::is_empty(forward_kernel<Traits>) &&
         (args.batch == 0 || args.q_len == 0 ||
          BoxedInputs<Traits>(args, packing_of<Traits>(args)).boxable());
}

/// Whether packing query heads leaves enough fewer rows of tiles empty.
template <class Traits>
bool packing_pays(const typename Traits::Args& args) {
  const Packing packing(args.q_heads / args.kv_heads);
  const auto apart = ceil_div<std::int64_t>(args.q_len, Traits::kBr) * packing.heads;
  const auto packed = ceil_div<std::int64_t>(args.q_len, Traits::kGroups * packing.rows);
  return 10 * packed <= 9 * apart;  // tiles, for as many rows
}

}  // namespace attile::sm90
