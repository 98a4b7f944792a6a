// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/architectures.cuh>
#include <attile/arch/atomic.cuh>
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
#include <attile/kernel/dq_mode.h>
#include <attile/kernel/query_cursor.cuh>
#include <attile/kernel/sm90/backward_memory.cuh>
#include <attile/kernel/sm90/backward_params.cuh>
#include <attile/kernel/sm90/backward_roles.cuh>
#include <attile/kernel/sm90/backward_traits.cuh>
#include <attile/kernel/sm90/clear_sum.cuh>
#include <attile/kernel/sm90/gradient_group.cuh>
#include <attile/kernel/turns.cuh>
#include <attile/kernel/work_tile.h>
#include <attile/tile/mma_tile.cuh>
#include <attile/tile/panel_tile.cuh>
#include <attile/tile/ring.cuh>
#include <attile/tile/scores.cuh>
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
ATTILE_DEVICE void prefetch_for_next(const BackwardParams<Traits>& p) {
  const int next = arch::block_index() + arch::multiprocessor_bound();
  if (next >= arch::block_count()) return;
  const int column = column_of(p, next);
  const WorkTile key = key_tile(p, column);
  const RowOrigin keys = p.policies.sequences.kv_origin(key.sequence);
  const int key0 = keys.row + key.kv_tile() * Traits::kBc;
  prefetch_tile<typename Traits::KTile>(p.k_map, key0, key.kv_head, keys.batch);
  prefetch_tile<typename Traits::VTile>(p.v_map, key0, key.kv_head, keys.batch);
  const QueryCursor<Traits> first(p, column);
  if (!first.more()) return;
  const RowOrigin rows = p.policies.sequences.q_origin(key.sequence);
  const int row0 = rows.row + first.row0();
  prefetch_tile<typename Traits::QTile>(p.q_map, row0, first.head, rows.batch);
  prefetch_tile<typename Traits::DoTile>(p.do_map, row0, first.head, rows.batch);
}

/// Sends for K and V, and for Q, dO, LSE and delta of all tiles of rows that see them. Behind a
/// sequence's last row lies its neighbour's, or what nobody has written; P and dS are 0 there, and
/// meet zeros.
/// Scope    one thread.
template <class Traits>
ATTILE_DEVICE void load_tiles(const BackwardParams<Traits>& p, int column,
                              const BackwardMemory<Traits>& smem) {
  using Statistics = typename Traits::Statistics;
  const auto k_ring = smem.k();
  const auto v_ring = smem.v();
  const auto q_ring = smem.q();
  const auto do_ring = smem.dout();
  constexpr bool kClears = !Problem<Traits>::kUniform;
  tile::Landing landing = smem.landing();
  {
    const WorkTile key = key_tile(p, column);
    const RowOrigin keys = p.policies.sequences.kv_origin(key.sequence);
    const int key0 = keys.row + key.kv_tile() * Traits::kBc;
    const int there = p.extent(key).kv_len - key.kv_tile() * Traits::kBc;
    tile::RingPlace<1> k_at, v_at;
    if (kClears && there < Traits::kBc) {
      k_ring.fill_part(k_at, p.k_map, key0, key.kv_head, keys.batch, there, landing);
      v_ring.fill_part(v_at, p.v_map, key0, key.kv_head, keys.batch, there, landing);
    } else {
      k_ring.fill(k_at, p.k_map, key0, key.kv_head, keys.batch);  // line 6
      v_ring.fill(v_at, p.v_map, key0, key.kv_head, keys.batch);
    }
  }
  // The statistics, the sum of dQ and the turns are there, also for those whom this thread tells
  // of the first tile, or that there is none.
  arch::await_dependencies();
  // Not before: the kernel behind takes flags for right that the one before has cleared.
  if constexpr (Traits::kTellsAdded) arch::launch_dependents();
  tile::RingPlace<Traits::kStages> at;
  ATTILE_UNROLL_BY(1)
  for (QueryCursor<Traits> next(p, column); next.more(); next.advance()) {
    const WorkTile rows = next.tile(key_tile(p, arch::opaque(column)));
    const RowOrigin origin = p.policies.sequences.q_origin(rows.sequence);
    const Statistics statistics = smem.statistics(at.stage);
    q_ring.await_free(at);
    arch::store(statistics.step(), Vec<int, 4>{rows.head, rows.row0, next.edge(), 0});
    const int there = p.extent(rows).q_len - rows.row0;
    const bool is_part = kClears && there < Traits::kBr;
    constexpr int kBytes = Traits::QTile::kBytes + 2 * Statistics::kRowBytes;
    arch::Mbarrier* const barrier = is_part ? landing.expect(kBytes) : q_ring.announce(at, kBytes);
    q_ring.send(barrier, at, p.q_map, origin.row + rows.row0, rows.head, origin.batch);
    const std::int64_t stat = p.scratch_row(rows);
    arch::bulk_load(arch::shared_address(statistics.lse()), p.row_lse + stat, Statistics::kRowBytes,
                    barrier);
    arch::bulk_load(arch::shared_address(statistics.delta()), p.delta + stat, Statistics::kRowBytes,
                    barrier);
    if (is_part) {
      landing.wait();
      q_ring.pass_part(at, there);
      do_ring.fill_part(at, p.do_map, origin.row + rows.row0, rows.head, origin.batch, there,
                        landing);
    } else {
      do_ring.fill(at, p.do_map, origin.row + rows.row0, rows.head, origin.batch);
    }
  }
  q_ring.await_free(at);
  arch::store(smem.statistics(at.stage).step(), Vec<int, 4>{-1, 0, 0, 0});
  static_cast<void>(q_ring.announce(at, 0));
  prefetch_for_next(p);
}

/// Has the sum of dQ of this block's heads begin as zeros, and writes another block's share of
/// them. Scope    a warp.
template <class Traits>
ATTILE_DEVICE void clear_sum(const BackwardParams<Traits>& p, int column,
                             const BackwardMemory<Traits>& smem) {
  arch::await_dependencies();  // the zeros, or the shares, are there
  if (p.shares != nullptr) {
    clear_share(p, column);
    await_zeros(p, column);
  }
  arrive_warp(smem.sum_cleared());
  // Two rounds of blocks ahead, so that it is done by then and still in L2.
  const int ahead = arch::block_index() + 2 * arch::multiprocessor_bound();
  if (p.shares != nullptr && ahead < p.columns()) clear_share(p, column_of(p, ahead));
}

/// Has what is staged of dQ added to the sum: of every tile one warpgroup's part, or kInOrder of
/// every other tile, when it is this block's turn. Scope    one thread, kInOrder a warp.
template <class Traits>
ATTILE_DEVICE void send_dq(const BackwardParams<Traits>& p, int column,
                           const BackwardMemory<Traits>& smem, int sender) {
  constexpr bool kInOrder = Traits::kDqMode == DqMode::kInOrder;
  constexpr int kParts = kInOrder ? 1 : Traits::kGroups;
  constexpr int kTurns = kInOrder ? Traits::kSenders : 1;  // of senders
  constexpr int kBytes = Traits::kDqBytes / kParts;
  const int part = kInOrder ? 0 : sender * (Traits::kBr * Traits::kQkColumns / kParts);
  const bool sends = !kInOrder || arch::thread_index() % arch::kWarpSize == 0;
  const std::uint32_t dq = arch::shared_address(smem.dq() + part);
  smem.await_zeros();
  arch::fence_async_proxy_global();  // for those who have written them
  const WorkTile key = key_tile(p, column);
  int step = 0;
  ATTILE_UNROLL_BY(1)
  for (QueryCursor<Traits> next(p, column); next.more(); next.advance(), ++step) {
    if (kInOrder && step % kTurns != sender) continue;
    const WorkTile at = next.tile(key);
    float* const sum = p.dq_sum_of(at) + part;
    bool writes = false;
    if constexpr (kInOrder) {
      writes = begin_turn(p, at, at.kv_tile(), p.ascends(column));
      arch::fence_async_proxy_global();  // for those who have added
    }
    if (!sends) continue;
    arch::mbarrier_wait(smem.dq_staged(sender), step / kTurns & 1);
    arch::fence_async_proxy();  // for those who have staged
    if (writes) {
      arch::bulk_store(sum, dq, kBytes);
    } else {
      arch::bulk_add(sum, dq, kBytes);
    }
    arch::bulk_commit();
    arch::bulk_wait_read<0>();
    arch::mbarrier_arrive(smem.dq_sent(sender));
    if constexpr (kInOrder) {
      arch::bulk_wait<0>();
      pass_turn(p, at, at.kv_tile());
    }
  }
  if constexpr (Traits::kTellsAdded) {
    arch::bulk_wait<0>();
    arch::store_release(p.added(column, sender), 1);
  }
}

/// dK and dV by way of shared memory, where they take the places of K and V (line 18).
template <class Traits>
ATTILE_DEVICE void store_dk_dv(const BackwardParams<Traits>& p, int column, int group,
                               const BackwardMemory<Traits>& smem,
                               const typename Traits::DkRegisters& dk_frag,
                               const typename Traits::DvRegisters& dv_frag) {
  computing_barrier<Traits>();  // K and V have been read
  if constexpr (Traits::kTellsAdded && !Traits::kBulkDq) {
    smem.await_zeros();  // also where nothing is added
    if (arch::thread_index() == 0) arch::store_release(p.added(column, 0), 1);
  }
  const WorkTile key = key_tile(p, column);
  const int row0 = key.kv_tile() * Traits::kBc + group * kGroupRows;
  store_dk(p, key, smem.dk(group), dk_frag, row0, group);
  store_dv(p, key, smem.dv(group), dv_frag, row0, group);
  arch::bulk_wait_read<0>();  // before shared memory goes
}

/// What a step needs of registers, beside dK and dV.
template <class Traits>
struct StepRegisters {
  typename Traits::ScoreRegisters s, ds;  ///< S, then P; dP, then dS
  typename GradientGroup<Traits>::OddScores s_odd;
  typename GradientGroup<Traits>::RowStatistics lse;
  typename GradientGroup<Traits>::Left p_left, ds_left;  ///< as operands
  typename Traits::DqRegisters dq;
  tile::VisibleBits<typename GradientGroup<Traits>::Rows> shown;  ///< by the mask
};

/// Lines 11 to 16 for part kPart of a tile, S and dP of which are under way; dK of the last part is
/// left to the caller.
template <bool kFirst, int kPart, class Traits, class Sampler>
ATTILE_DEVICE void make_part(const GradientGroup<Traits>& group, const QueryTile<Traits>& tile,
                             int step, StepRegisters<Traits>& frag,
                             typename Traits::DkRegisters& dk_frag,
                             typename Traits::DvRegisters& dv_frag, const Sampler& sampler) {
  using Group = GradientGroup<Traits>;
  using T = typename Traits::ElementType;
  constexpr int kRow = kPart * Traits::kPartRows;
  const auto& smem = group.smem;
  if constexpr (Traits::kPlain) {
    group.template make_p<1>(frag, tile, kRow);
  } else {
    group.make_p_and_ds(frag, tile, kRow, sampler);
  }
  frag.p_left = typename Group::Left(frag.s);
  tile::start_product<T>(dv_frag, frag.p_left, smem.dout().tile(tile.at.stage), kRow);  // line 12
  if constexpr (Traits::kPlain) group.template make_ds<1>(frag, tile, kRow);
  if constexpr (kPart == 0 && !kFirst) group.await_step(step - 1);
  group.stage_scores(smem.ds(step), frag.ds, kRow);
  frag.ds_left = typename Group::Left(frag.ds);
  if constexpr (kPart < Traits::kParts - 1) {
    tile::start_product<T>(dk_frag, frag.ds_left, smem.q().tile(tile.at.stage), kRow);  // line 16
    group.start(frag, tile, kRow + Traits::kPartRows);
  }
}

/// A step of a warpgroup that has rows of dK and dV to itself, and dQ of the tile before, which the
/// first step has not. The next tile.
template <bool kFirst, class Traits, class Sampler>
ATTILE_DEVICE QueryTile<Traits> step_by_rows(const GradientGroup<Traits>& group,
                                             const QueryTile<Traits>& tile,
                                             const QueryTile<Traits>& before, int step,
                                             typename Traits::DkRegisters& dk_frag,
                                             typename Traits::DvRegisters& dv_frag,
                                             const Sampler& sampler) {
  using T = typename Traits::ElementType;
  StepRegisters<Traits> frag;
  group.start(frag, tile, 0);
  make_part<kFirst, 0>(group, tile, step, frag, dk_frag, dv_frag, sampler);
  if constexpr (Traits::kParts > 1) {
    make_part<kFirst, 1>(group, tile, step, frag, dk_frag, dv_frag, sampler);
  }
  if constexpr (Traits::kParts > 2) {
    make_part<kFirst, 2>(group, tile, step, frag, dk_frag, dv_frag, sampler);
  }
  if constexpr (!kFirst) group.start_dq(frag.dq, step - 1);
  tile::start_product<T>(dk_frag, frag.ds_left, group.smem.q().tile(tile.at.stage),
                         Traits::kBr - Traits::kPartRows);
  const QueryTile<Traits> next(group.smem, tile.at.after());
  if constexpr (!kFirst) {
    group.await_dq_sent(step - 1);
    tile::wait_product<1>(frag.dq);
  }
  group.arrive_step();
  if constexpr (!kFirst) group.add_dq(before, step - 1, frag.dq);
  tile::wait_product<0>(dk_frag);
  tile::touch_sums(dv_frag);
  group.release(tile);
  return next;
}

/// Lines 8 to 17 for a warpgroup.
template <class Traits>
ATTILE_DEVICE void walk_rows(const GradientGroup<Traits>& group,
                             typename Traits::DkRegisters& dk_frag,
                             typename Traits::DvRegisters& dv_frag) {
  const auto sampler = group.p.sampler();
  QueryTile<Traits> tile(group.smem, {});
  if (tile.is_none()) return;
  QueryTile<Traits> next = step_by_rows<true>(group, tile, tile, 0, dk_frag, dv_frag, sampler);
  int step = 1;
  ATTILE_UNROLL_BY(1)
  for (; !next.is_none(); ++step) {
    const QueryTile<Traits> before = tile;
    tile = next;
    next = step_by_rows<false>(group, tile, before, step, dk_frag, dv_frag, sampler);
  }
  typename Traits::DqRegisters dq_frag;
  group.await_step(step - 1);
  group.start_dq(dq_frag, step - 1);
  group.await_dq_sent(step - 1);
  tile::wait_product<0>(dq_frag);
  group.add_dq(tile, step - 1, dq_frag);
}

/// A warpgroup's rows of dK and dV of one tile of K and V (lines 6 to 18), over all query heads of
/// its group, and its share of the tile's part of dQ.
/// Scope    all threads of the warpgroups that compute.
template <class Traits>
ATTILE_DEVICE void gradients(const BackwardParams<Traits>& p, int column, int group,
                             const BackwardMemory<Traits>& smem) {
  typename Traits::DkRegisters dk_frag;  // line 7
  typename Traits::DvRegisters dv_frag;
  dk_frag.clear();
  dv_frag.clear();
  static_cast<void>(smem.k().wait({}));
  const auto v_smem = smem.v().wait({});
  const auto walk = [&](const typename Traits::VLeft& v_left) {
    const WorkTile key = key_tile(p, column);
    walk_rows(GradientGroup<Traits>{{p, smem, key, group}, v_left}, dk_frag, dv_frag);
  };
  if constexpr (Traits::kVInRegisters) {
    walk({v_smem, Traits::DvRegisters::warp_row()});
  } else {
    walk(v_smem);
  }
  store_dk_dv(p, arch::opaque(column), group, smem, dk_frag, dv_frag);
}

/// dK and dV of one tile of K and V, and this tile's part of dQ: the threads of one warpgroup send
/// for all tiles, send dQ away and write zeros, the others compute.
/// Scope    all threads of the block. `shared`: Traits::kColumnsSharedBytes, aligned to 1024 bytes.
template <class Traits>
ATTILE_DEVICE void backward_columns(const BackwardParams<Traits>& p, int column,
                                    unsigned char* shared) {
  if constexpr (!arch::kHasWarpgroups) return;
  const BackwardMemory<Traits> smem{shared};
  smem.init();
  const int group = arch::uniform(arch::thread_index() / arch::kWarpgroupSize);
  if (group == Traits::kGroups) {
    arch::give_registers<Traits::kLoaderRegisters>();
    const int warp = arch::uniform(arch::thread_index() % arch::kWarpgroupSize / arch::kWarpSize);
    if (Traits::kClearsInPass && warp == 3) return clear_sum(p, column, smem);
    const bool first_lane = arch::thread_index() % arch::kWarpSize == 0;
    if (warp == 0) {
      if (first_lane) load_tiles(p, column, smem);
    } else if (Traits::kKeepsTurns && warp <= 2) {
      keep_turns(p, column, warp == 1, smem);
    } else if (Traits::kBulkDq && warp <= Traits::kSenders) {
      if (first_lane || Traits::kDqMode == DqMode::kInOrder) send_dq(p, column, smem, warp - 1);
    }
  } else if constexpr (Traits::kByRoles) {
    take_role(p, column, group, smem);
  } else {
    arch::take_registers<Traits::kGroupRegisters>();
    gradients(p, column, group, smem);
  }
}

/// Whether the current device runs the kernels for arguments that passed `check_arguments`.
template <class Traits>
bool runs(const typename Traits::Args& args) requires(Traits::kDirection == Direction::kBackward) {
  return arch::has_own_code(attile::detail::columns_kernel<Traits>(), Traits::kLeastArchitecture) &&
         bool(BoxedGradients<Traits>(args).check());
}

}  // namespace attile::sm90
