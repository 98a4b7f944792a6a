// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/architectures.cuh>
#include <attile/arch/bulk_tensor.cuh>
#include <attile/arch/device.cuh>
#include <attile/arch/grid_dependency.cuh>
#include <attile/arch/mbarrier.cuh>
#include <attile/arch/memory.cuh>
#include <attile/arch/opaque.h>
#include <attile/arch/shared_memory.cuh>
#include <attile/arch/thread.cuh>
#include <attile/arch/warpgroup.cuh>
#include <attile/arch/wgmma.cuh>
#include <attile/core/config.h>
#include <attile/core/vec.h>
#include <attile/kernel/backward_kernel.cuh>
#include <attile/kernel/query_cursor.cuh>
#include <attile/kernel/sm90/backward_memory.cuh>
#include <attile/kernel/sm90/backward_params.cuh>
#include <attile/kernel/sm90/backward_traits.cuh>
#include <attile/kernel/sm90/gradient_group.cuh>
#include <attile/tile/mma_tile.cuh>
#include <attile/tile/panel_tile.cuh>
#include <attile/tile/ring.cuh>
#include <attile/tile/warpgroup.cuh>

#include <cstdint>

// FlashAttention-2, backward (arXiv 2307.08691, Algorithm 2; the lines named are its), with the
// products of warpgroups. S and dP are made transposed.

namespace attile::sm90 {

/// Has L2 fetch one tile.
template <class Tile>
ATTILE_DEVICE void prefetch_tile(const arch::TensorMap& map, int row0, int head, int batch) {
  for (int col = 0; col < Tile::kCols; col += Tile::Layout::kPanelColumns) {
    arch::bulk_prefetch(map, {col, 0, row0, head, batch});
  }
}

/// Has L2 fetch what that block begins with which comes to this multiprocessor, or to another one,
/// about when this block ends: a block has it all to itself, and nothing to do until its first
/// tiles are there.
template <class Traits>
ATTILE_DEVICE void prefetch_for_next(const BackwardParams<Traits>& p, int block) {
  const int away = arch::multiprocessor_bound();
  const int next = Traits::kDqMode == DqMode::kInOrder ? block - away : block + away;
  if (next < 0 || next >= arch::block_count()) return;
  const KeyTile key(p, next);
  prefetch_tile<typename Traits::KTile>(p.k_map, key.index * Traits::kBc, key.kv_head, key.batch);
  prefetch_tile<typename Traits::VTile>(p.v_map, key.index * Traits::kBc, key.kv_head, key.batch);
  const QueryCursor<Traits> first(p, next);
  if (!first.more()) return;
  prefetch_tile<typename Traits::QTile>(p.q_map, first.row0(), first.head, key.batch);
  prefetch_tile<typename Traits::DoTile>(p.do_map, first.row0(), first.head, key.batch);
}

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
  // The statistics, the sum of dQ and the turns are there, also for those whom this thread tells
  // of the first tile, or that there is none.
  arch::await_dependencies();
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
  prefetch_for_next(p, arch::opaque(block));
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

/// What a step needs of registers, beside dK and dV.
template <class Traits>
struct StepRegisters {
  typename Traits::ScoreRegisters s, ds;  ///< S, then P; dP, then dS
  typename GradientGroup<Traits>::OddScores s_odd;
  typename GradientGroup<Traits>::Left p_left, ds_left;  ///< as operands
  typename Traits::DqRegisters dq;
};

/// Lines 11 to 16 for part kPart of a tile, S and dP of which are under way.
template <int kPart, class Traits, class Sampler>
ATTILE_DEVICE void make_part(const GradientGroup<Traits>& group, const QueryTile<Traits>& tile,
                             int step, StepRegisters<Traits>& frag,
                             typename Traits::DkRegisters& dk_frag,
                             typename Traits::DvRegisters& dv_frag, const Sampler& sampler) {
  using Group = GradientGroup<Traits>;
  using T = typename Traits::ElementType;
  constexpr bool kLast = kPart == Traits::kParts - 1;
  constexpr int kRow = kPart * Traits::kPartRows;
  const auto& smem = group.smem;
  const auto q_smem = smem.q().tile(tile.at.stage);
  const auto do_smem = smem.dout().tile(tile.at.stage);
  if constexpr (Traits::kPlain) {
    group.make_p(frag.s, frag.s_odd, tile, kRow);
  } else {
    group.make_p_and_ds(frag.s, frag.s_odd, frag.ds, tile, kRow, sampler);
  }
  if constexpr (Traits::kByColumns) {
    group.stage_scores(smem.p(step), frag.s, kRow);
  } else {
    frag.p_left = typename Group::Left(frag.s);
    tile::start_product<T>(dv_frag, frag.p_left, do_smem, kRow);  // line 12
  }
  if constexpr (Traits::kPlain) {
    group.template make_ds<Traits::kByColumns ? 0 : 1>(frag.s, frag.ds, tile, kRow);
  }
  group.stage_scores(smem.ds(step), frag.ds, kRow);
  if constexpr (Traits::kByColumns) return;
  frag.ds_left = typename Group::Left(frag.ds);
  if constexpr (!Traits::kDqFirst || !kLast) {
    tile::start_product<T>(dk_frag, frag.ds_left, q_smem, kRow);  // line 16
  }
  if constexpr (!kLast) {
    group.start_scores(frag.s, frag.s_odd, q_smem, kRow + Traits::kPartRows);
    group.start_dp(frag.ds, do_smem, kRow + Traits::kPartRows);
  }
}

/// Lines 8 to 17 for a warpgroup. Products begin as soon as their operands are there, so that the
/// arithmetic of a tile runs beside them: P is made beside dP, dS beside dV, and dQ of the tile
/// before is added to its sum beside S. No product is under way from one step to the next, which
/// the compiler would not have.
/// Scope    all threads of the warpgroups that compute.
template <class Traits>
ATTILE_DEVICE void walk_rows(const GradientGroup<Traits>& group,
                             typename Traits::DkRegisters& dk_frag,
                             typename Traits::DvRegisters& dv_frag) {
  using T = typename Traits::ElementType;
  constexpr bool kByColumns = Traits::kByColumns;
  constexpr bool kDqFirst = Traits::kDqFirst;
  const auto sampler = group.p.dropout.sampler(group.p.q_heads);
  const BackwardMemory<Traits>& smem = group.smem;
  tile::RingPlace<Traits::kStages> at;
  int head = -1, row0 = 0;  // of the tile whose dQ is on its way
  bool more = !QueryTile<Traits>(smem, at).is_end();
  ATTILE_UNROLL_BY(1)
  for (int i = 0; more; ++i) {
    const auto q_smem = smem.q().tile(at.stage);
    StepRegisters<Traits> frag;
    group.start_scores(frag.s, frag.s_odd, q_smem, 0);
    const auto do_smem = smem.dout().wait(at);
    group.start_dp(frag.ds, do_smem, 0);
    if (Traits::kBulkDq && head >= 0) group.send_dq(head, row0);
    const QueryTile<Traits> tile(smem, at);
    make_part<0>(group, tile, i, frag, dk_frag, dv_frag, sampler);
    if constexpr (Traits::kParts > 1) {
      make_part<1>(group, tile, i, frag, dk_frag, dv_frag, sampler);
    }
    if constexpr (Traits::kParts > 2) {
      make_part<2>(group, tile, i, frag, dk_frag, dv_frag, sampler);
    }
    arch::fence_async_proxy();
    computing_barrier<Traits>();  // dS is written before others read it; so it was the step before
    if constexpr (!kDqFirst) tile::wait_product<1>(dv_frag);
    group.start_dq(frag.dq, smem.ds(i));
    if constexpr (kByColumns) {
      group.start_columns(dk_frag, dv_frag, q_smem, do_smem, i);
    } else if constexpr (kDqFirst) {
      tile::start_product<T>(dk_frag, frag.ds_left, q_smem, Traits::kBr - Traits::kPartRows);
    }
    more = !QueryTile<Traits>(smem, at.after()).is_end();
    if constexpr (Traits::kBulkDq) group.await_dq_sent();
    tile::wait_product<kByColumns ? 2 : kDqFirst ? 1 : 0>(frag.dq);
    if constexpr (Traits::kBulkDq) {
      group.stage_dq(frag.dq);
    } else {
      group.add_dq(tile, frag.dq);
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
  const auto walk = [&](const typename Traits::VLeft& v_left) {
    walk_rows(GradientGroup<Traits>{p, smem, KeyTile(p, block), group, v_left}, dk_frag, dv_frag);
  };
  if constexpr (Traits::kVInRegisters) {
    walk({v_smem, Traits::DvRegisters::warp_row()});
  } else {
    walk(v_smem);
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

/// Whether the current device runs the kernels for arguments that passed `check_arguments`.
template <class Traits>
bool runs(const typename Traits::Args& args) requires(Traits::kDirection == Direction::kBackward) {
  return arch::device_architecture() == Traits::kLeastArchitecture &&
         !arch::is_empty(attile::detail::columns_kernel<Traits>()) &&
         BoxedGradientInputs<Traits>(args).boxable();
}

}  // namespace attile::sm90
