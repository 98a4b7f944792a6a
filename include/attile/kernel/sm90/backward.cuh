// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/architectures.cuh>
#include <attile/arch/device.cuh>
#include <attile/arch/thread.cuh>
#include <attile/arch/warpgroup.cuh>
#include <attile/core/config.h>
#include <attile/kernel/backward/backward_kernel.cuh>
#include <attile/kernel/sm90/backward_consumer.cuh>
#include <attile/kernel/sm90/backward_memory.cuh>
#include <attile/kernel/sm90/backward_params.cuh>
#include <attile/kernel/sm90/backward_producer.cuh>
#include <attile/kernel/sm90/backward_traits.cuh>
#include <attile/kernel/sm90/product_per_warpgroup.cuh>

// The backward pass over keys for compute capability 9.0: FlashAttention-2, Algorithm 2 (arXiv
// 2307.08691), with wgmma, TMA and specialised warps. A block has one tile of K and V (a kv block)
// and goes through the tiles of rows that see it. S and dP are made transposed, so that P^T and
// dS^T are left operands of dV and dK as they lie in registers.
//
//   one producer warpgroup                 consumer warpgroups, up to 128 columns
//   +-------------------------------+        +-------------------------------------------------+
//   | warp 0: load_tiles            |--K, V->| consume (backward_consumer.cuh), 64 rows of K   |
//   |                               |-Q, dO->| and V each:                                     |
//   |                               |        |   S^T = K Q^T, dP^T = V dO^T                    |
//   | warps 1 to 3, of these what   |        |   P^T, dS^T in registers; dS^T -> shared memory |
//   | the traits say:               |        |   dV += P^T dO, dK += dS^T Q                    |
//   |   add_staged_dq (kBulkDq)     |<--dQ---|   dQ = dS K, of the tile of rows before         |
//   |   run_dq_semaphore            |        +-------------------------------------------------+
//   |     (kDqSemaphoreWarps)       |        above 128 columns (kProductPerWarpgroup)
//   |   zero_fill_dq                |        +-------------------------------------------------+
//   |     (kZeroFillsInPass)        |        | run_consumer (product_per_warpgroup.cuh): one   |
//   +-------------------------------+        | makes S, P and dV; one dP, dS and dK; one dQ    |
//     backward_producer.cuh                  +-------------------------------------------------+
//
//   pipeline, slot   stages        filled by          consumed by
//   K, V             1             load_tiles         all consumers; dK and dV take their place
//   Q, dO            kStages       load_tiles         all consumers. LSE, delta and which rows they
//                                                     are come with Q (QStage)
//   dS^T             2             all consumers      all consumers, a step later, for dQ: ordered
//                                                     by step_barrier, or with kProductPerWarpgroup
//                                                     by ds_slot
//   P                kPBuffers     consumer of dV     consumer of dK: p_slot (kProductPerWarpgroup)
//   staged dQ        1             all consumers      add_staged_dq: dq_staged, dq_read (kBulkDq)
//
// Where dQ is added, in which order, and who writes its zeros: kernel/backward/dq_order.cuh. The
// named barriers are in named_barrier.cuh.

namespace attile::sm90 {

/// Computes dK and dV of one kv block, and adds its part of dQ.
/// Scope    all threads of the block. `shared`: Traits::kKvSharedBytes, aligned to 1024 bytes.
template <class Traits>
ATTILE_DEVICE void backward_kv_block(const BackwardParams<Traits>& p, int kv_block,
                                     unsigned char* shared) {
  if constexpr (!arch::kHasWarpgroups) return;
  const BackwardMemory<Traits> smem{shared};
  smem.init();
  const int warpgroup = arch::uniform(arch::thread_index() / arch::kWarpgroupSize);
  if (warpgroup == Traits::kConsumers) {
    arch::reg_dealloc<Traits::kProducerRegisters>();
    produce(p, kv_block, smem);
  } else if constexpr (Traits::kProductPerWarpgroup) {
    run_consumer(p, kv_block, warpgroup, smem);
  } else {
    arch::reg_alloc<Traits::kConsumerRegisters>();
    consume(p, kv_block, warpgroup, smem);
  }
}

/// Whether the current device runs the kernels for arguments that passed `check_arguments`.
template <class Traits>
bool runs(const typename Traits::Args& args) requires(Traits::kDirection == Direction::kBackward) {
  return arch::has_own_code(attile::detail::kv_kernel<Traits>(), Traits::kLeastArchitecture) &&
         bool(BoxedGradients<Traits>(args).check());
}

}  // namespace attile::sm90
