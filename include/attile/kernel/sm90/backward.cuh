// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/device.cuh>
#include <attile/arch/thread.cuh>
#include <attile/arch/warpgroup.cuh>
#include <attile/core/config.h>
#include <attile/kernel/backward/backward_kernel.cuh>
#include <attile/kernel/sm90/backward_memory.cuh>
#include <attile/kernel/sm90/backward_params.cuh>
#include <attile/kernel/sm90/backward_producer.cuh>
#include <attile/kernel/sm90/backward_traits.cuh>
#include <attile/kernel/sm90/product_per_warpgroup.cuh>
#include <attile/kernel/sm90/rows_per_warpgroup.cuh>

// The backward pass over keys for compute capability 9.0: FlashAttention-2, Algorithm 2 (arXiv
// 2307.08691), with wgmma, TMA and specialised warps. A block has one tile of K and V (a kv block)
// and goes through the tiles of rows that see it. S and dP are made transposed, so that the
// registers of P^T and dS^T, converted to 16 bits, are the left operands of dV and dK.
//
// clang-format off
//   one producer warpgroup                 consumer warpgroups, up to 128 columns
//   +-------------------------------+        +-------------------------------------------------+
//   | warp 0: load_tiles            |--K, V->| consume (rows_per_warpgroup.cuh), 64 rows of K  |
//   |                               |-Q, dO->| and V each:                                     |
//   |                               |        |   S^T = K Q^T, dP^T = V dO^T                    |
//   | warps 1 and 2, as "who adds   |        |   P^T, dS^T in registers; dS^T -> shared memory |
//   | dQ to dq_accum" says:         |        |   dV += P^T dO, dK += dS^T Q                    |
//   |   add_staged_dq (kBulkDq), or |<--dQ---|   dQ = dS K, of the tile of rows before         |
//   |   run_dq_semaphore            |        +-------------------------------------------------+
//   | warp 3: zero_fill_dq (*), or  |        above 128 columns (kProductPerWarpgroup)
//   |   acquire_staged_dq (**);     |        +-------------------------------------------------+
//   |   copy_part_elements (***)    |        | run_consumer (product_per_warpgroup.cuh): one   |
//   +-------------------------------+        | makes S, P and dV; one dP, dS and dK; one dQ    |
//     backward_producer.cuh                  +-------------------------------------------------+
//
//             stages     up to 128 columns                   above 128 columns
//   K, V      1          load_tiles -> all consumers; dK     load_tiles -> those that make a
//                        and dV are staged in their place    product of it
//   Q, dO     kStages    load_tiles -> all consumers. LSE,   load_tiles -> the consumers of dV and
//                        delta and which rows they are       of dK, which stage dV over dO and dK
//                        come with Q (QStage)                over Q in the end
//   words     kStages    with kWritesWords: all lanes of load_tiles write the score modifier's
//                        words of diagonals beside Q -> those that make P
//   elements  kElement-  load_tiles, or copy_part_elements -> those that make P: the score
//             Stages     modifier's elements, such as a bias, of the part of a tile for which
//                        scores are made at a time
//   dS^T      2          all -> all, a step later            consumer of dK -> consumer of dQ
//                        (step_barrier)                      (ds_slot)
//   P, fp32   kPBuffers                                      consumer of dV -> that of dK (p_slot)
//   dQ, fp32  1          with kBulkDq: consumers ->
//                        add_staged_dq (dq_staged, dq_read); with kInOrder
//                        acquire_staged_dq -> add_staged_dq (dq_share_acquired)
//
//   who adds dQ to dq_accum      producer's warps 1 and 2             consumers
//   kAccumulate, to 128 columns
//     kBulkDq                    add_staged_dq, one per consumer,     stage it
//                                of which there are one or two
//     no room for staged dQ      -                                    add it by atomics
//   kAccumulate, above           -                                    that of dQ, by atomics
//   kInOrder, to 128 columns
//     kBulkDq (the fast path)    add_staged_dq, one per consumer,     stage it
//                                when acquire_staged_dq says so
//     else                       run_dq_semaphore, two                add it in turn
//   kInOrder, above              run_dq_semaphore, two                that of dQ, in turn
//   (*) With kZeroFillsInPass: with kAccumulate, but for three consumers up to 128 columns.
//   (**) With kInOrder and kBulkDq: one or two consumers up to 128 columns.
//   (***) With kCopiesElements, which in order has kDqSemaphoreWarps: the elements of the first
//   tile come before the zero fill.
//
//   a step of a consumer up to 128 columns (q_step), tile i of rows
//   wgmma      S, dP (i)        dV (i)                         dQ (i - 1), dK (i)
//   threads              P (i)         dS (i), wait (1), stage             (2)  dQ (i - 1) added
//   (1) await_step: all consumers have staged dS (i - 1) and read dS (i - 2), whose place dS (i)
//   takes. (2) The next stage of Q is waited for, and arrive_step: dS (i) is staged, and dS (i - 1)
//   read. At the end of the step Q and dO (i) are released.
// clang-format on
//
// dQ (i - 1) is made in step i, when the other consumers, too, have mostly staged their dS (i - 1):
// made in step i - 1, it would wait for the slowest one. Where registers make a tile of rows go in
// parts (kParts), S, P, dP, dS, dV and dK are made for one part after another. What both designs do
// to S and dP is in score_consumer.cuh, and the pointwise work, such as exponentials, in
// kernel/backward/step_in_halves.cuh, or where P and dS are made at once in backward_step.cuh.
//
// A block computes one kv block (kv_block_of, kernel/backward/backward_schedule.cuh):
//   - as a rule block n of the grid the n-th one,
//   - where blocks are few and a mask makes them uneven, kv heads share rounds of blocks
//     (kHeadsInFlight),
//   - with block lists the blocks that begin last take the longest ones first
//     (kSortsLastKvBlocks),
//   - with kInOrder the n-th block that begins, counted by an atomic, takes the n-th one, from a
//     head's last tile on, or in heads that ascend from its first,
//   - where sequences are packed the one that preprocessing has listed for it (list_kv_blocks); a
//     block for which there is none ends.
//
// The tiles of rows that see it, over all query heads that read it, come from QTileLoop
// (q_tile_loop.cuh), which every warp of the producer that needs them runs by itself; consumers
// read from each stage of Q which rows it has (QStage). The order in which dQ is added, and how the
// next kernel knows that it is complete, stand in kernel/backward/dq_order.cuh. One thread makes
// each element of a block's part of dQ, as one sum over all its keys, so that with kInOrder the
// order of kv blocks is all that decides its bits. That is so where block lists name a block once
// (DqOrder).
//
// Edges. Tiles of rows that see nothing of the kv block are left out by QTileLoop. A kv block that
// no row sees gets the end as its first stage of Q, and stores zeros. In a tile that the mask, the
// last row or the last key cuts (QStage::edge), P and dS are 0 where the score is hidden: on the
// fast path S is -inf there; else P and the factor of dS are replaced by 0, or without kPBeforeDp
// `visible` decides. A row that sees nothing at all has LSE = +inf here (preprocessing puts it for
// -inf), which makes P 0.
//
// Named barriers (named_barrier.cuh).
//   - Up to 128 columns all consumers wait for each other once, before dK and dV are staged over K
//     and V: else a slower warpgroup would read them as K and V. Without kBulkDq the block signals
//     only behind that barrier that dQ is ready.
//   - The threads of one consumer warpgroup wait for each other between the staging of dK or dV and
//     the store: else TMA would copy what other threads have not written.
//   - Above 128 columns those of the warpgroup that makes dQ wait for each other before one of them
//     signals that it has been added.
// Behind the barrier that follows the set-up of the mbarriers, all else within the block is ordered
// by these (docs/shared_memory.md says which region by which), and among blocks by DqOrder.

namespace attile::sm90 {

/// Computes dK and dV of one kv block, and adds its part of dQ.
/// Scope    all threads of the block. `shared`: Traits::kKvSharedBytes, aligned to 1024 bytes.
template <class Traits>
ATTILE_DEVICE void backward_kv_block(const TmaBackwardParams<Traits>& p, int kv_block,
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

/// Returns whether the current device runs the kernels for arguments that passed `check_arguments`.
template <class Traits>
bool runs(const typename Traits::Args& args) requires(Traits::kDirection == Direction::kBackward) {
  return arch::has_own_code(attile::detail::kv_kernel<Traits>(), Traits::kLeastArchitecture) &&
         bool(BoxedGradients<Traits>(without_unread_strides(args)).check());
}

}  // namespace attile::sm90
