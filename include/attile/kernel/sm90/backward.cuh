// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/bulk_tensor.cuh>
#include <attile/arch/mbarrier.cuh>
#include <attile/arch/memory.cuh>
#include <attile/arch/opaque.h>
#include <attile/arch/thread.cuh>
#include <attile/arch/warpgroup.cuh>
#include <attile/core/config.h>
#include <attile/core/math.h>
#include <attile/core/vec.h>
#include <attile/kernel/backward_kernel.cuh>
#include <attile/kernel/backward_step.cuh>
#include <attile/kernel/dq_sum.cuh>
#include <attile/kernel/query_cursor.cuh>
#include <attile/kernel/sm90/backward_params.cuh>
#include <attile/kernel/sm90/backward_traits.cuh>
#include <attile/tile/mma_tile.cuh>
#include <attile/tile/panel_tile.cuh>
#include <attile/tile/ring.cuh>
#include <attile/tile/scores.cuh>
#include <attile/tile/warpgroup.cuh>

#include <cstdint>

// FlashAttention-2, backward (arXiv 2307.08691, Algorithm 2; the lines named are its), with the
// products of warpgroups. S and dP are made transposed.

namespace attile::sm90 {

/// A block's shared memory.
template <class Traits>
struct BackwardMemory {
  using KRing = typename Traits::KRing;
  using VRing = typename Traits::VRing;
  using QRing = typename Traits::QRing;
  using DoRing = typename Traits::DoRing;

  unsigned char* data;

  ATTILE_DEVICE KRing k() const { return {data, barriers()}; }
  ATTILE_DEVICE VRing v() const { return {data + Traits::kVPlace, barriers() + 2}; }
  ATTILE_DEVICE QRing q() const { return {data + Traits::kQPlace, barriers() + 4}; }
  ATTILE_DEVICE DoRing dout() const {
    return {data + Traits::kDoPlace, barriers() + 4 + 2 * Traits::kStages};
  }
  /// What comes with a tile of Q.
  ATTILE_DEVICE typename Traits::Statistics statistics(int stage) const {
    return {data + Traits::kStatPlace + stage * Traits::Statistics::kBytes};
  }
  /// dS^T of every other step.
  ATTILE_DEVICE typename Traits::DsTile ds(int step) const {
    return {data + Traits::kDsPlace + step % Traits::kDsTiles * Traits::DsTile::kBytes};
  }

  /// P^T likewise, kByColumns.
  ATTILE_DEVICE typename Traits::DsTile p(int step) const {
    return {data + Traits::kPPlace + step % Traits::kDsTiles * Traits::DsTile::kBytes};
  }
  /// dQ on its way to the sum, as it lies there.
  ATTILE_DEVICE float* dq() const { return reinterpret_cast<float*>(data + Traits::kDqPlace); }

  /// Scope    all threads of the block.
  ATTILE_DEVICE void init() const {
    constexpr int kReaders = Traits::kComputing / arch::kWarpSize;
    if (arch::thread_index() == 0) {
      k().init(kReaders);
      v().init(kReaders);
      q().init(kReaders);
      dout().init(kReaders);
      arch::mbarrier_publish();
      arch::fence_async_proxy();  // what was written here before is not written after copies
    }
    arch::barrier();  // nobody uses a barrier that is not there yet
  }

 private:
  ATTILE_DEVICE arch::Mbarrier* barriers() const {
    return reinterpret_cast<arch::Mbarrier*>(data + Traits::kBarrierPlace);
  }
};

/// Sends for K and V, and for Q, dO, LSE and delta of all tiles of rows that see them. Scope    one
/// thread.
template <class Traits>
ATTILE_DEVICE void load_tiles(const BackwardParams<Traits>& p, int block,
                              const BackwardMemory<Traits>& smem) {
  using Statistics = typename Traits::Statistics;
  const auto k_ring = smem.k();
  const auto v_ring = smem.v();
  const auto q_ring = smem.q();
  const auto do_ring = smem.dout();
  {
    const KeyTile key(p, block);
    tile::RingPlace<1> k_at, v_at;
    k_ring.fill(k_at, p.k_map, key.index * Traits::kBc, key.kv_head, key.batch);  // line 6
    v_ring.fill(v_at, p.v_map, key.index * Traits::kBc, key.kv_head, key.batch);
  }
  tile::RingPlace<Traits::kStages> at;
  ATTILE_UNROLL_BY(1)
  for (QueryCursor<Traits> next(p, block); next.more(); next.advance()) {
    const int batch = KeyTile(p, arch::opaque(block)).batch;
    const Statistics statistics = smem.statistics(at.stage);
    q_ring.await_free(at);
    arch::store(statistics.step(), Vec<int, 4>{next.head, next.row0(), next.edge(), 0});
    arch::Mbarrier* const barrier =
        q_ring.announce(at, Traits::QTile::kBytes + 2 * Statistics::kRowBytes);
    q_ring.send(barrier, at, p.q_map, next.row0(), next.head, batch);
    const std::int64_t stat =
        (static_cast<std::int64_t>(batch) * p.q_heads + next.head) * p.stat_rows() + next.row0();
    arch::bulk_load(arch::shared_address(statistics.lse()), p.row_lse + stat, Statistics::kRowBytes,
                    barrier);
    arch::bulk_load(arch::shared_address(statistics.delta()), p.delta + stat, Statistics::kRowBytes,
                    barrier);
    do_ring.fill(at, p.do_map, next.row0(), next.head, batch);
  }
  q_ring.await_free(at);
  arch::store(smem.statistics(at.stage).step(), Vec<int, 4>{-1, 0, 0, 0});
  static_cast<void>(q_ring.announce(at, 0));
}

/// A tile of rows of Q that has come, and what `load_tiles` has said of it.
template <class Traits>
struct QueryTile {
  using Place = tile::RingPlace<Traits::kStages>;

  Place at;
  int head, row0;
  bool edge;

  ATTILE_DEVICE QueryTile(const BackwardMemory<Traits>& smem, const Place& place) : at(place) {
    static_cast<void>(smem.q().wait(at));
    const Vec<int, 4> said = arch::load<4>(smem.statistics(at.stage).step());
    head = arch::uniform(said[0]);
    row0 = arch::uniform(said[1]);
    edge = arch::uniform(said[2]) != 0;
  }
  ATTILE_DEVICE bool is_end() const { return head < 0; }
};

/// Waits for all warpgroups that compute.
template <class Traits>
ATTILE_DEVICE void computing_barrier() {
  arch::barrier(1, Traits::kComputing);
}

/// dK and dV by way of shared memory, where they take the places of K and V (line 18).
template <class Traits>
ATTILE_DEVICE void store_dk_dv(const BackwardParams<Traits>& p, int block,
                               const typename Traits::KTile& k_smem,
                               const typename Traits::VTile& v_smem,
                               const typename Traits::DkRegisters& dk_frag,
                               const typename Traits::DvRegisters& dv_frag) {
  constexpr int kWarps = Traits::kComputing / arch::kWarpSize;
  constexpr int kRows = Traits::kBc / kWarps;
  const int first = arch::thread_index() / arch::kWarpSize * kRows;
  const int other = Traits::kByColumns ? arch::thread_index() / arch::kWarpgroupSize : 0;
  computing_barrier<Traits>();  // K and V have been read
  tile::stage(k_smem, dk_frag, p.scale, other * Traits::DkRegisters::kCols, other * kGroupRows);
  tile::stage(v_smem, dv_frag, 1.0f, other * Traits::DvRegisters::kCols, other * kGroupRows);
  if constexpr (Traits::kByColumns) {
    computing_barrier<Traits>();  // a row's columns are two warpgroups'
  } else {
    arch::warp_barrier();  // the lanes of a warp see its rows, which are no other warp's
  }
  const KeyTile key(p, block);
  const int col0 = key.index * Traits::kBc;
  tile::store_rows<kRows>(p.dk.slice(key.batch, key.kv_head, p.extent.kv_len, p.head_dim), k_smem,
                          first, col0);
  tile::store_rows<kRows>(p.dv.slice(key.batch, key.kv_head, p.extent.kv_len, p.head_dim_v), v_smem,
                          first, col0);
}

/// What one warpgroup makes of one tile of K and V: its rows, or its columns, of dK and dV, over
/// all query heads of the group, and its share of the tile's part of dQ.
template <class Traits>
struct GradientGroup {
  using T = typename Traits::ElementType;
  using Scores = typename Traits::ScoreRegisters;
  using Left = tile::RegisterLeft<T, Scores>;
  using Rows = tile::TransposedRegisters<Scores>;
  using DqRegisters = typename Traits::DqRegisters;
  using Tile = QueryTile<Traits>;

  const BackwardParams<Traits>& p;
  const BackwardMemory<Traits>& smem;
  KeyTile key;
  int number;  ///< of the warpgroup

  /// The first of its rows of K and V, and of those of Q from `part` on.
  ATTILE_DEVICE int first_key() const { return Traits::kByColumns ? 0 : number * kGroupRows; }
  ATTILE_DEVICE int first_row(int part) const {
    return part + (Traits::kByColumns ? number * Traits::kPartRows : 0);
  }
  /// Begins S^T for the rows of Q from `part` on (line 10).
  ATTILE_DEVICE void start_scores(Scores& s, const typename Traits::QTile& q, int part) const {
    tile::start_transposed_product<T>(s, smem.k().tile(0), q, first_key(), first_row(part));
  }
  /// Begins dP^T (line 13).
  ATTILE_DEVICE void start_dp(Scores& dp, const typename Traits::DoTile& dout, int part) const {
    tile::start_transposed_product<T>(dp, smem.v().tile(0), dout, first_key(), first_row(part));
  }
  /// Begins dV and dK of its columns, of the P and dS in shared memory (lines 12 and 16).
  ATTILE_DEVICE void start_columns(typename Traits::DkRegisters& dk,
                                   typename Traits::DvRegisters& dv,
                                   const typename Traits::QTile& q,
                                   const typename Traits::DoTile& dout, int step) const {
    tile::start_shared_product<T>(dv, smem.p(step), dout, number * Traits::DvRegisters::kCols);
    tile::start_shared_product<T>(dk, smem.ds(step), q, number * Traits::DkRegisters::kCols);
  }
  /// Begins dQ (line 15).
  ATTILE_DEVICE void start_dq(DqRegisters& dq, const typename Traits::DsTile& ds_smem) const {
    const TileOrigin origin = Traits::dq_origin(arch::thread_index());
    tile::start_left_transposed_product<T>(dq, ds_smem, Traits::kDqAcross == 1 ? first_key() : 0,
                                           smem.k().tile(0), arch::uniform(origin.col));
  }
  /// Where the scores of its registers stand, for those rows of Q.
  ATTILE_DEVICE tile::TilePlace place(const Tile& tile, int part) const {
    const int before = Traits::kByColumns ? number * kGroupRows : 0;  // rows of other registers
    return {arch::opaque(key.batch), tile.head, tile.row0 + first_row(part),
            key.index * Traits::kBc - before, p.extent};
  }
  ATTILE_DEVICE void stage_scores(const typename Traits::DsTile& to, const Scores& x,
                                  int part) const {
    tile::stage(to, x, 1.0f, first_row(part), Traits::kByColumns ? number * kGroupRows : 0);
  }

  /// S^T, behind which kPending groups of products may be under way, -> P^T (line 11).
  template <int kPending>
  ATTILE_DEVICE void make_p(Scores& p_frag, const Tile& tile, int part) const {
    Rows p_rows{p_frag};
    const RowValues<Rows> lse(smem.statistics(tile.at.stage).lse() + first_row(part));
    tile::wait_product<kPending>(p_frag);
    plain_probabilities(tile.edge, p_rows, p, place(tile, part), lse);
  }
  /// dP^T, likewise, -> dS^T (line 14).
  template <int kPending>
  ATTILE_DEVICE void make_ds(const Scores& p_frag, Scores& ds_frag, const Tile& tile,
                             int part) const {
    const RowValues<Rows> delta(smem.statistics(tile.at.stage).delta() + first_row(part));
    tile::wait_product<kPending>(ds_frag);
    Rows p_rows{const_cast<Scores&>(p_frag)}, ds_rows{ds_frag};
    plain_gradient(p_rows, ds_rows, delta);
  }
  /// Both of a step that is not plain, behind all products.
  template <class Sampler>
  ATTILE_DEVICE void make_p_and_ds(Scores& p_frag, Scores& ds_frag, const Tile& tile, int part,
                                   const Sampler& sampler) const {
    tile::TransposedRegisters<Scores> p_rows{p_frag}, ds_rows{ds_frag};
    const auto statistics = smem.statistics(tile.at.stage);
    tile::wait_product<0>(p_frag);
    arch::wgmma_touches(ds_frag.x);
    probabilities_and_gradient(tile.edge, p_rows, ds_rows, p, place(tile, part),
                               statistics.lse() + first_row(part),
                               statistics.delta() + first_row(part), sampler);
  }
  /// The tile of Q and dO is no longer needed.
  ATTILE_DEVICE void release(const Tile& tile) const {
    typename Tile::Place q_at = tile.at, do_at = tile.at;
    smem.dout().release(do_at);
    smem.q().release(q_at);
  }
  /// Puts dQ where `send_dq` takes it from.
  ATTILE_DEVICE void stage_dq(const DqRegisters& dq) const {
    float* const mine = smem.dq() + dq_begin<Traits>();
    for_each_of_dq<Traits>(
        dq, [&](int r, int c, const Float4& x) { arch::store(mine + dq_place<Traits>(r, c), x); });
  }
  /// Has it added to the sum.
  ATTILE_DEVICE void send_dq(int head, int row0) const {
    constexpr int kValues = Traits::kBr * Traits::kQkColumns / Traits::kGroups;
    const int group = arch::uniform(arch::thread_index() / arch::kWarpgroupSize);
    arch::fence_async_proxy();
    arch::barrier(2 + group, arch::kWarpgroupSize);  // dQ is staged before it is taken
    if (arch::thread_index() % arch::kWarpgroupSize != 0) return;
    float* const sum = p.dq_sum_of(key.batch * p.q_heads + head, row0);
    arch::bulk_add(sum + group * kValues, arch::shared_address(smem.dq() + group * kValues),
                   kValues * sizeof(float));
    arch::bulk_commit();
  }
  /// It has been taken. Barriers    one after, before others stage theirs again.
  ATTILE_DEVICE void await_dq_sent() const {
    if (arch::thread_index() % arch::kWarpgroupSize == 0) arch::bulk_wait_read<0>();
  }
  /// Adds dQ, which is there, to the sum.
  ATTILE_DEVICE void add_dq(const Tile& tile, const DqRegisters& dq) const {
    constexpr bool kInOrder = Traits::kDqMode == DqMode::kInOrder;
    const tile::TilePlace here{arch::opaque(key.batch), tile.head, tile.row0, 0, p.extent};
    if constexpr (kInOrder) {
      await_turn(p, here, arch::opaque(key.index));
      computing_barrier<Traits>();  // dQ has all parts before this one
    }
    add_to_sum<Traits>(p.dq_sum_of(here.batch * p.q_heads + here.head, here.row0), dq,
                       kInOrder && key.index == p.kv_tiles - 1);
    if constexpr (kInOrder) {
      computing_barrier<Traits>();  // this part of dQ is added
      pass_turn(p, here, arch::opaque(key.index));
    }
  }
};

/// Lines 8 to 17 for a warpgroup. Products begin as soon as their operands are there, so that the
/// arithmetic of a tile runs beside them: P is made beside dP, dS beside dV, and dQ of the tile
/// before is added to its sum beside S. No product is under way from one step to the next, which
/// the compiler would not have.
/// Scope    all threads of the warpgroups that compute.
template <class Traits>
ATTILE_DEVICE void walk_rows(const GradientGroup<Traits>& group,
                             typename Traits::DkRegisters& dk_frag,
                             typename Traits::DvRegisters& dv_frag) {
  using Group = GradientGroup<Traits>;
  using T = typename Traits::ElementType;
  constexpr bool kAhead = Traits::kAhead;
  constexpr bool kByColumns = Traits::kByColumns;
  constexpr bool kDqFirst = Traits::kDqFirst;
  const auto sampler = group.p.dropout.sampler(group.p.q_heads);
  const BackwardMemory<Traits>& smem = group.smem;
  tile::RingPlace<Traits::kStages> at;
  int head = -1, row0 = 0;  // of the tile whose dQ is on its way
  bool more = !QueryTile<Traits>(smem, at).is_end();
  ATTILE_UNROLL_BY(1)
  for (int i = 0; more; ++i) {
    const auto ds_smem = smem.ds(i);
    const auto q_smem = smem.q().tile(at.stage);
    const auto do_smem = smem.dout().tile(at.stage);
    typename Group::Scores s_frag[kAhead ? 2 : 1], ds_frag;
    typename Group::Left p_left[kAhead ? 2 : 1], ds_left;
    typename Traits::DqRegisters dq_frag;
    group.start_scores(s_frag[0], q_smem, 0);
    if (Traits::kBulkDq && head >= 0) group.send_dq(head, row0);
    const QueryTile<Traits> tile(smem, at);
    static_cast<void>(smem.dout().wait(at));
    ATTILE_UNROLL
    for (int i_part = 0; i_part < Traits::kParts; ++i_part) {
      const int part = i_part * Traits::kPartRows;
      const bool last = i_part == Traits::kParts - 1;
      auto& p_frag = s_frag[kAhead ? i_part % 2 : 0];
      group.start_dp(ds_frag, do_smem, part);
      if (kAhead && !last) group.start_scores(s_frag[1], q_smem, part + Traits::kPartRows);
      if constexpr (Traits::kPlain) {
        if (!kAhead) {
          group.template make_p<1>(p_frag, tile, part);
        } else if (!last) {
          group.template make_p<2>(p_frag, tile, part);
        } else {
          group.template make_p<3>(p_frag, tile, part);
        }
      } else {
        group.make_p_and_ds(p_frag, ds_frag, tile, part, sampler);
      }
      if constexpr (kByColumns) {
        group.stage_scores(smem.p(i), p_frag, part);
      } else {
        auto& its_left = p_left[kAhead ? i_part % 2 : 0];
        its_left = typename Group::Left(p_frag);
        tile::start_product<T>(dv_frag, its_left, do_smem, part);  // line 12
      }
      if constexpr (Traits::kPlain) {
        if (kByColumns) {
          group.template make_ds<0>(p_frag, ds_frag, tile, part);
        } else if (kAhead && !last) {
          group.template make_ds<2>(p_frag, ds_frag, tile, part);
        } else {
          group.template make_ds<1>(p_frag, ds_frag, tile, part);
        }
      }
      group.stage_scores(ds_smem, ds_frag, part);
      if constexpr (!kByColumns) {
        ds_left = typename Group::Left(ds_frag);
        if (!kDqFirst || !last) tile::start_product<T>(dk_frag, ds_left, q_smem, part);  // line 16
        if (!kAhead && !last) group.start_scores(p_frag, q_smem, part + Traits::kPartRows);
      }
    }
    if constexpr (Traits::kBulkDq) group.await_dq_sent();
    arch::fence_async_proxy();
    computing_barrier<Traits>();  // dS is written before others read it; so it was the step before
    if constexpr (!kDqFirst) tile::wait_product<1>(dv_frag);
    group.start_dq(dq_frag, ds_smem);
    if constexpr (kByColumns) {
      group.start_columns(dk_frag, dv_frag, q_smem, do_smem, i);
    } else if constexpr (kDqFirst) {
      tile::start_product<T>(dk_frag, ds_left, q_smem, Traits::kBr - Traits::kPartRows);
    }
    more = !QueryTile<Traits>(smem, at.after()).is_end();
    tile::wait_product<kByColumns ? 2 : kDqFirst ? 1 : 0>(dq_frag);
    if constexpr (Traits::kBulkDq) {
      group.stage_dq(dq_frag);
    } else {
      group.add_dq(tile, dq_frag);
    }
    tile::wait_product<0>(dk_frag);
    arch::wgmma_touches(dv_frag.x);
    group.release(tile);
    head = tile.head;
    row0 = tile.row0;
    at.next();
  }
  if (Traits::kBulkDq && head >= 0) {
    group.send_dq(head, row0);
    group.await_dq_sent();
  }
}

/// A warpgroup's rows of dK and dV of one tile of K and V (lines 6 to 18), over all query heads of
/// its group, and its share of the tile's part of dQ.
/// Scope    all threads of the warpgroups that compute.
template <class Traits>
ATTILE_DEVICE void gradients(const BackwardParams<Traits>& p, int block, int group,
                             const BackwardMemory<Traits>& smem) {
  typename Traits::DkRegisters dk_frag;  // line 7
  typename Traits::DvRegisters dv_frag;
  dk_frag.clear();
  dv_frag.clear();
  const auto k_smem = smem.k().wait({});
  const auto v_smem = smem.v().wait({});
  walk_rows(GradientGroup<Traits>{p, smem, KeyTile(p, block), group}, dk_frag, dv_frag);
  store_dk_dv(p, arch::opaque(block), k_smem, v_smem, dk_frag, dv_frag);
}

/// dK and dV of one tile of K and V, and this tile's part of dQ: one warpgroup sends for all tiles,
/// the others compute.
/// Scope    all threads of the block. `shared`: Traits::kColumnsSharedBytes, aligned to 1024 bytes.
template <class Traits>
ATTILE_DEVICE void backward_columns(const BackwardParams<Traits>& p, int block,
                                    unsigned char* shared) {
  if constexpr (!arch::kHasWarpgroups) return;
  const BackwardMemory<Traits> smem{shared};
  smem.init();
  const int group = arch::uniform(arch::thread_index() / arch::kWarpgroupSize);
  if (group == Traits::kGroups) {
    arch::give_registers<Traits::kLoaderRegisters>();
    if (arch::thread_index() % arch::kWarpgroupSize == 0) load_tiles(p, block, smem);
  } else {
    arch::take_registers<Traits::kGroupRegisters>();
    gradients(p, block, group, smem);
  }
}

}  // namespace attile::sm90
