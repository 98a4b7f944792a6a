// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/arch/bulk_tensor.cuh>
#include <attile/arch/thread.cuh>
#include <attile/arch/warpgroup.cuh>
#include <attile/core/config.h>
#include <attile/core/work_tile.h>
#include <attile/kernel/forward/forward_kernel.cuh>
#include <attile/kernel/forward/fusion.h>
#include <attile/kernel/sm90/forward_memory.cuh>
#include <attile/kernel/sm90/forward_params.cuh>
#include <attile/kernel/sm90/named_barrier.cuh>
#include <attile/tile/panel_tile.cuh>
#include <attile/tile/pipeline.cuh>

#include <type_traits>

// The epilogue of a consumer warpgroup of the forward kernel: O goes through shared memory, but for
// one in fp32.

namespace attile::sm90 {

/// Returns whether this thread is the one of its warpgroup that starts copies of O.
ATTILE_DEVICE bool is_storing_thread() { return arch::thread_index() % arch::kWarpgroupSize == 0; }

/// Does what a fusion does with O of the rows of `at`, which a warpgroup has normalised in
/// registers. Scope    all threads of the warpgroup.
template <class Traits, class Fusion>
ATTILE_DEVICE void apply_fusion(const TmaForwardParams<Traits>& p, const Fusion& fusion,
                                int warpgroup, WorkTile at,
                                typename Traits::OutputRegisters& o_frag) {
  if constexpr (!std::is_same_v<Fusion, NoFusion>) {
    static_assert(!Traits::kPacksHeads, "attile::sm90: a fusion takes rows of one head");
    p.read_origins(at);                     // ConsumerRows do not keep where keys begin
    at.row0 -= warpgroup * kWarpgroupRows;  // register tiles count rows through the block
    fusion.output(o_frag, at);
  }
}

/// Stores O of the rows of `at`, which a warpgroup has normalised in registers (FlashAttention-2,
/// Algorithm 1, line 14).
/// Scope    all threads of the warpgroup. `bulk_wait_read` of its storing thread returns when TMA
///          has read what is staged.
template <class Traits>
ATTILE_DEVICE void store_o(const TmaForwardParams<Traits>& p, const ForwardMemory<Traits>& smem,
                           int warpgroup, const WorkTile& at,
                           const typename Traits::OutputRegisters& o_frag) {
  if constexpr (!Traits::kStagesOutput) {
    store_fp32_output(p, p.coord(at, warpgroup, 0), o_frag);
  } else {
    const auto o_smem = smem.o(warpgroup);
    ATTILE_UNROLL
    for (int col0 = 0; col0 < Traits::OutputRegisters::kCols; col0 += Traits::OTile::kCols) {
      if (is_storing_thread()) arch::bulk_wait_read<0>();
      // TMA has read what was staged before: the storing thread has waited for that.
      consumer_barrier(warpgroup);
      tile::stage(o_smem, o_frag, 1.0f, -col0, warpgroup * kWarpgroupRows);
      // What each thread has written is made visible to TMA, and all have done so before one thread
      // starts the copy.
      arch::fence_async_proxy();
      consumer_barrier(warpgroup);
      if (is_storing_thread()) tile::store_by_tma(o_smem, p.maps.o, p.outputs(at, col0));
    }
  }
}

}  // namespace attile::sm90
