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
// clang-format off
//   one producer warpgroup                 consumer warpgroups, up to 128 columns
//   +-------------------------------+        +-------------------------------------------------+
//   | warp 0: load_tiles            |--K, V->| consume (backward_consumer.cuh), 64 rows of K   |
//   |                               |-Q, dO->| and V each:                                     |
//   |                               |        |   S^T = K Q^T, dP^T = V dO^T                    |
//   | warps 1 to 3, of these as the |        |   P^T, dS^T in registers; dS^T -> shared memory |
//   | second table below says:      |        |   dV += P^T dO, dK += dS^T Q                    |
//   |   add_staged_dq               |<--dQ---|   dQ = dS K, of the tile of rows before         |
//   |   run_dq_semaphore            |        +-------------------------------------------------+
//   |   zero_fill_dq                |        above 128 columns (kProductPerWarpgroup)
//   |                               |        +-------------------------------------------------+
//   |                               |        | run_consumer (product_per_warpgroup.cuh): one   |
//   +-------------------------------+        | makes S, P and dV; one dP, dS and dK; one dQ    |
//     backward_producer.cuh                  +-------------------------------------------------+
//
//             stages     up to 128 columns                   above 128 columns
//   K, V      1          load_tiles -> all consumers; dK     load_tiles -> those that make a
//                        and dV are staged in their place    product of it
//   Q, dO     kStages    load_tiles -> all consumers. LSE,   load_tiles -> the consumers of dV and
//                        delta and which rows they are       of dK, which stage dV over dO and dK
//                        come with Q (QStage)                over Q in the end
//   dS^T      2          all -> all, a step later            consumer of dK -> consumer of dQ
//                        (step_barrier)                      (ds_slot)
//   P, fp32   kPBuffers                                      consumer of dV -> that of dK (p_slot)
//   dQ, fp32  1          with kBulkDq: consumers ->
//                        add_staged_dq (dq_staged, dq_read)
//
//   who adds dQ to dq_accum
//   kAccumulate   up to 128 columns: add_staged_dq, a warp for each consumer (kBulkDq). Where
//                 shared memory has no room for staged dQ: the consumers, by atomics. Above: the
//                 consumer of dQ, by atomics. Warp 3 runs zero_fill_dq, but not with three
//                 consumers up to 128 columns.
//   kInOrder      up to 128 columns on the fast path: add_staged_dq, two warps that take tiles of
//                 rows alternately. Else, and above: the consumers, or that of dQ, for which two
//                 warps run run_dq_semaphore.
//
//   a step of a consumer up to 128 columns (q_step), tile i of rows
//   wgmma    S, dP (i)          dV (i)                  dQ (i - 1), dK (i)
//   else               P (i)           dS (i), staged                      dQ (i - 1) added
// clang-format on
//
// dQ of a tile needs dS of all consumers, which they have staged a step later, so that nobody waits
// for the slowest one in the same step. Where registers make a tile of rows go in parts (kParts),
// S, P, dP, dS, dV and dK are made for one part after another. The products and exponentials of a
// step are in gradient_consumer.cuh.
//
// In which order dQ is added, and how the kernel behind knows that it is complete:
// kernel/backward/dq_order.cuh. A block's kv block follows from its number, or in order from when
// it begins (kv_block_of in kernel/backward/backward_schedule.cuh); the tiles of rows that see it,
// over all query heads that read it, from QTileLoop (q_tile_loop.cuh).
//
// Named barriers (named_barrier.cuh): that of all consumers, once, before dK and dV are staged over
// K and V, and before the block signals that dQ is ready; that of one consumer warpgroup, between
// its staging of dK or dV and the store that reads it, and above 128 columns between its additions
// to dq_accum and that signal. All else is ordered by mbarriers (backward_memory.cuh).

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
