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

/// A tile of rows of Q, as `load_tiles` has said it.
struct QueryStep {
  int head, row0;
  bool edge;

  ATTILE_DEVICE explicit QueryStep(const int* step) {
    const Vec<int, 4> said = arch::load<4>(step);
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
  using Registers = typename Traits::DkRegisters;
  computing_barrier<Traits>();  // K and V have been read
  tile::stage(k_smem, dk_frag, p.scale);
  tile::stage(v_smem, dv_frag);
  arch::warp_barrier();  // the lanes of a warp see its rows, which are no other warp's
  const KeyTile key(p, block);
  const int col0 = key.index * Traits::kBc;
  tile::store_rows<Registers::kWarpRows>(
      p.dk.slice(key.batch, key.kv_head, p.extent.kv_len, p.head_dim), k_smem,
      Registers::warp_row(), col0);
  tile::store_rows<Registers::kWarpRows>(
      p.dv.slice(key.batch, key.kv_head, p.extent.kv_len, p.head_dim_v), v_smem,
      Registers::warp_row(), col0);
}

/// A warpgroup's rows of dK and dV of one tile of K and V (lines 6 to 18), over all query heads of
/// its group, and its share of the tile's part of dQ.
/// Scope    all threads of the warpgroups that compute.
template <class Traits>
ATTILE_DEVICE void gradients(const BackwardParams<Traits>& p, int block, int group,
                             const BackwardMemory<Traits>& smem) {
  using T = typename Traits::ElementType;
  using Scores = typename Traits::ScoreRegisters;
  using Left = tile::RegisterLeft<T, Scores>;
  constexpr bool kInOrder = Traits::kDqMode == DqMode::kInOrder;
  const KeyTile key(p, block);
  const int col0 = key.index * Traits::kBc;
  const int first = group * kGroupRows;  // of this warpgroup's rows of K and V
  const auto sampler = p.dropout.sampler(p.q_heads);
  tile::RingPlace<Traits::kStages> at;
  typename Traits::DkRegisters dk_frag;  // line 7
  typename Traits::DvRegisters dv_frag;
  dk_frag.clear();
  dv_frag.clear();
  const auto k_smem = smem.k().wait({});
  const auto v_smem = smem.v().wait({});

  ATTILE_UNROLL_BY(1)
  for (int i = 0;; ++i) {  // lines 8 and 9
    const auto q_smem = smem.q().wait(at);
    const auto statistics = smem.statistics(at.stage);
    const QueryStep step(statistics.step());
    if (step.is_end()) break;
    tile::RingPlace<Traits::kStages> do_at = at;
    const auto do_smem = smem.dout().wait(do_at);
    const typename Traits::DsTile ds_smem = smem.ds(i);
    Left p_left, ds_left;
    ATTILE_UNROLL
    for (int part = 0; part < Traits::kBr; part += Traits::kPartRows) {
      const tile::TilePlace place{arch::opaque(key.batch), step.head, step.row0 + part, col0,
                                  p.extent};
      Scores p_frag, ds_frag;
      tile::start_transposed_product<T>(p_frag, k_smem, q_smem, first, part);    // line 10
      tile::start_transposed_product<T>(ds_frag, v_smem, do_smem, first, part);  // line 13
      tile::TransposedRegisters<Scores> p_rows{p_frag}, ds_rows{ds_frag};
      if constexpr (kPlainStep<BackwardParams<Traits>>) {
        tile::wait_product<1>(p_frag);
        plain_probabilities(step.edge, p_rows, p, place, statistics.lse() + part);
        arch::wgmma_touches(p_frag.x);
        tile::wait_product<0>(ds_frag);
        plain_gradient(p_rows, ds_rows, statistics.delta() + part);
      } else {
        tile::wait_product<0>(p_frag);
        arch::wgmma_touches(ds_frag.x);
        probabilities_and_gradient(step.edge, p_rows, ds_rows, p, place, statistics.lse() + part,
                                   statistics.delta() + part, sampler);
      }
      p_left = Left(p_frag);
      tile::start_product<T>(dv_frag, p_left, do_smem, part);  // line 12
      tile::stage(ds_smem, ds_frag, 1.0f, part);
      ds_left = Left(ds_frag);
      tile::start_product<T>(dk_frag, ds_left, q_smem, part);  // line 16
    }
    arch::fence_async_proxy();
    computing_barrier<Traits>();  // dS is written before others read it; so it was the step before

    typename Traits::DqRegisters dq_frag;
    const TileOrigin origin = Traits::dq_origin(arch::thread_index());
    tile::start_left_transposed_product<T>(dq_frag, ds_smem, Traits::kDqAcross == 1 ? first : 0,
                                           k_smem, arch::uniform(origin.col));  // line 15
    tile::wait_product<1>(dk_frag);
    arch::wgmma_touches(dv_frag.x);
    const tile::TilePlace place{arch::opaque(key.batch), step.head, step.row0, col0, p.extent};
    smem.dout().release(do_at);
    smem.q().release(at);
    tile::wait_product<0>(dq_frag);
    if constexpr (kInOrder) {
      await_turn(p, place, arch::opaque(key.index));
      computing_barrier<Traits>();  // dQ has all parts before this one
    }
    add_to_sum<Traits>(p.dq_sum_of(place.batch * p.q_heads + place.head, place.row0), dq_frag,
                       kInOrder && key.index == p.kv_tiles - 1);
    if constexpr (kInOrder) {
      computing_barrier<Traits>();  // this part of dQ is added
      pass_turn(p, place, arch::opaque(key.index));
    }
  }
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
