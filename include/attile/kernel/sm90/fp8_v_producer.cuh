// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/bulk_tensor.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/work_tile.h>
#include <attile/kernel/sm90/forward_memory.cuh>
#include <attile/kernel/sm90/forward_params.cuh>
#include <attile/kernel/sm90/forward_schedule.cuh>
#include <attile/kernel/sm90/kv_loader.cuh>
#include <attile/tile/pipeline.cuh>
#include <attile/tile/transpose.cuh>

// What the producer warpgroup of the forward kernel does with V in fp8: products want it
// transposed, so that warps transpose each tile on its way, unless the whole of V has been
// transposed ahead of the kernel (transpose_v.cuh).

namespace attile::sm90 {

/// Returns whether V in fp8 has been transposed ahead of the kernel.
template <class Traits>
ATTILE_DEVICE bool is_transposed_ahead(const TmaForwardParams<Traits>& p) {
  return Traits::kTransposesAhead && p.maps.v_is_transposed;
}

/// Loads V in fp8 of the tile to which `loader` has gone, for the warps that transpose it
/// (transpose_v), into stages of its own. Scope    as load_kv.
template <class Traits>
ATTILE_DEVICE void load_fp8_v(const TmaForwardParams<Traits>& p, const ForwardMemory<Traits>& smem,
                              KvLoader<Traits>& loader,
                              typename Traits::LoadedVPipeline::State& v_state, const WorkTile& at,
                              int step) {
  if constexpr (Traits::kTakesColumns) {
    if (p.maps.v_by_columns) {
      const int key0 = p.kv_tile(at, step) * Traits::kBc;
      smem.loaded_v().producer_acquire(v_state);
      smem.loaded_v_columns().load(v_state, p.maps.v, {key0, 0, 0, at.kv_head, at.sequence});
      v_state.advance();
      return;
    }
  }
  loader.load(smem.loaded_v(), v_state, p.maps.v);
  v_state.advance();
}

/// Tells the warps that transpose V that no more follows. Scope    as load_kv.
template <class Traits>
ATTILE_DEVICE void send_end_of_v(const ForwardMemory<Traits>& smem,
                                 const typename Traits::LoadedVPipeline::State& v_state) {
  if (Traits::kKvLanes > 1 && arch::thread_index() % arch::kWarpSize != 0) return;
  const auto v = smem.loaded_v();
  v.await_empty(v_state);
  smem.is_end_of_v(v_state.stage) = true;
  static_cast<void>(v.expect(v_state, 0));
}

/// Loads the tiles of V in fp8 that has been transposed ahead of the kernel, as load_kv loads V of
/// 16 bits. Scope    one thread.
template <class Traits>
ATTILE_DEVICE void load_transposed_v(const TmaForwardParams<Traits>& p, int block,
                                     const ForwardMemory<Traits>& smem) {
  const auto pipeline = smem.v();
  typename Traits::VPipeline::State state;
  for (StaticSchedule<Traits> schedule(p, block); schedule.more(); schedule.next()) {
    const WorkTile at = schedule.tile();
    ATTILE_UNROLL_BY(1)
    for (int step = at.kv_tiles.first; step < at.kv_tiles.last; ++step) {
      pipeline.producer_acquire(state);
      pipeline.load(state, p.maps.v,
                    {p.kv_tile(at, step) * Traits::kBc, 0, 0, at.kv_head, at.sequence});
      state.advance();
    }
  }
}

/// Transposes the tiles of V in fp8 that load_kv loads.
/// Scope    all lanes of a warp, one of Traits::kTransposers, each of which writes a part of a
/// tile.
template <class Traits>
ATTILE_DEVICE void transpose_v(const TmaForwardParams<Traits>& p, const ForwardMemory<Traits>& smem,
                               int number) {
  const auto loaded = smem.loaded_v();
  const auto pipeline = smem.v();
  typename Traits::LoadedVPipeline::State to_read;
  typename Traits::VPipeline::State to_write;
  for (;;) {
    const auto v_smem = loaded.consumer_wait(to_read);
    if (smem.is_end_of_v(to_read.stage)) return;
    pipeline.await_empty(to_write);
    const auto transposed = pipeline.tile(to_write.stage);
    bool is_reordered = false;
    if constexpr (Traits::kTakesColumns) {
      is_reordered = p.maps.v_by_columns;
      if (is_reordered) {
        const auto columns = smem.loaded_v_columns().tile(to_read.stage);
        tile::reorder_operand<Traits::kTransposers, Traits::kReorderedPieces>(transposed, columns,
                                                                              number);
      }
    }
    if (!is_reordered) {
      tile::transpose_operand<Traits::kTransposers, Traits::kTransposedPieces>(transposed, v_smem,
                                                                               number);
    }
    arch::fence_async_proxy();  // products read by the async proxy what this lane has written
    arch::warp_barrier();       // all lanes have read the one tile, and written the other
    loaded.consumer_release(to_read);
    if (arch::thread_index() % arch::kWarpSize == 0) {
      static_cast<void>(pipeline.expect(to_write, 0));  // this warp's part is there
    }
    to_read.advance();
    to_write.advance();
  }
}

}  // namespace attile::sm90
