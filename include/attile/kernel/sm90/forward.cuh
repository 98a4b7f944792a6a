// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/architectures.cuh>
#include <attile/arch/device.cuh>
#include <attile/arch/thread.cuh>
#include <attile/arch/warpgroup.cuh>
#include <attile/core/config.h>
#include <attile/kernel/forward/forward_kernel.cuh>
#include <attile/kernel/sm90/forward_consumer.cuh>
#include <attile/kernel/sm90/forward_memory.cuh>
#include <attile/kernel/sm90/forward_params.cuh>
#include <attile/kernel/sm90/forward_producer.cuh>
#include <attile/kernel/sm90/forward_traits.cuh>

// The forward kernel for compute capability 9.0: FlashAttention-2, Algorithm 1 (arXiv 2307.08691),
// with wgmma, TMA and warp specialisation (arXiv 2407.08608). A consumer overlaps P V of a tile
// with S of the next one. Where there are several consumers and dropout, they make S in an order.
//
//   one producer warpgroup                 kConsumers consumer warpgroups, 64 rows of Q each
//   +-------------------------------+        +-------------------------------------------------+
//   | warp 0, lane 0: load_kv (K)   |--K---->| ForwardConsumer (forward_consumer.cuh)          |
//   | warp 1, lane 0: load_kv (V)   |--V---->|   S = Q K^T    wgmma, Q and K in shared memory  |
//   | warp 2, lane i: load_q,       |--Q[i]->|   m, l, P      in registers                     |
//   |   the Q of consumer i         |--rows->|   O += P V     wgmma, P in registers            |
//   | warp 3, lane i:               |--E[i]->|   O            registers -> shared -> TMA       |
//   |   load_elements (*)           |        |                                                 |
//   +-------------------------------+        |                                                 |
//     forward_producer.cuh                   |   LSE          registers -> device memory       |
//                                            +-------------------------------------------------+
//
//   pipeline   stages      filled by        consumed by
//   K, V       kStages     load_kv          every consumer. One whose rows do not see a tile waits
//                                           for it and releases it (skips it)
//   Q[i]       kQStages    load_q, lane i   consumer i alone
//   E[i]       kElement-   load_elements,   consumer i alone: the score modifier's elements, such
//              Stages      lane i           as a bias, for each tile that its rows see
//   rows[i]    kRowBuffers   load_q, lane i   consumer i: which rows Q[i] has, and which tiles of K
//                                           and V they see. It has no barriers of its own: it is
//                                           written before Q[i] is full, and read
//                                           until O of these rows is stored, when Q[i] may hold
//                                           later rows: so there are more slots than stages of Q
//
// (*) Only with kElementStages; else threads read the elements of their scores. A stage of K is
// free when all consumers have made S of it or have skipped it, Q[i] when S of its last tile is
// made, a stage of V when all consumers have made P V of it or have skipped it. A consumer releases
// a stage by its four warps, one arrival each (tile::Pipeline). For rows that see n tiles a
// consumer does:
//
//                begin_rows   kv_loop, i = 1 .. n-1             end_rows
//   wgmma        S0           Si beside P(i-1) V(i-1)           P(n-1) V(n-1) beside S0 of the
//                                                               next rows
//   softmax      m, then P0   m beside P(i-1) V(i-1), then Pi   O and LSE beside that S0, then its
//                                                               m and P0
//
// Exponentials (P) wait for P V of the tile before; they overlap products of other consumers. Where
// there are no next rows, or they see no keys, or only ones more than kMaxSkipped tiles away,
// end_rows ends with O and LSE, and begin_rows follows again.
//
// A block is persistent (Tuning). Each of its producer threads goes through the block's work tiles
// by a StaticSchedule of its own (forward_schedule.cuh); all get the same ones, without a counter
// in device memory. Where sequences have lengths of their own, or by Tuning, warp 3 makes the work
// tiles for the others, and blocks may share a counter (dynamic_schedule.cuh). Consumers read from
// rows[i] what they are, and that there are no more. Which part of a work tile consumer i has
// rotates from tile to tile (load_q).
//
// Tiles of K and V are visited from the first to the last that any row sees, or with kDescends from
// the last to the first, or in the order of block lists: kv_tile(step).
//
// Edges. Tiles ahead of the first one that any row of the work tile sees, and behind the last one,
// are not loaded; those ahead of a consumer's first one, and behind its last one, it skips. A tile
// between these that hides all its scores is computed: P is 0, and m and l stay. In a tile that the
// mask or the last key cuts, hidden scores are replaced by -inf before the maximum: P is 0. Rows
// that see no key: see ForwardConsumer.
//
// Each consumer has a named barrier (named_barrier.cuh). Its threads wait there for each other
//   - before O is staged: else O would overwrite what TMA or another thread has still to read,
//   - after O is staged: else TMA would copy what other threads have not written yet,
//   - with packed heads after Q's unused rows are zeroed, once: else a product would read what was
//     there before.
// With kOrdersConsumers it has a second one, which protects no memory: consumers make S one after
// another, as else they would come to the softmax at the same time.
// All else is ordered by mbarriers, of the pipelines and of the work tile that one thread makes for
// others (dynamic_schedule.cuh), which smem.init() sets up ahead of a barrier of the block.

namespace attile::sm90 {

/// Computes a block's work tiles.
/// Scope    all threads of the block. `shared`: Traits::kSharedBytes, aligned to 1024 bytes.
template <class Traits>
ATTILE_DEVICE void forward_block(const TmaForwardParams<Traits>& p, int block,
                                 unsigned char* shared) {
  if constexpr (!arch::kHasWarpgroups) return;
  const ForwardMemory<Traits> smem{shared};
  if (arch::thread_index() == Traits::kConsumers * arch::kWarpgroupSize) {
    p.maps.prefetch();
    if constexpr (Traits::kElementStages > 0) {
      if (p.maps.has_keys) arch::prefetch_map(p.elements.map);
    }
  }
  smem.init();
  const int warpgroup = arch::uniform(arch::thread_index() / arch::kWarpgroupSize);
  if (warpgroup == Traits::kConsumers) {
    arch::reg_dealloc<Traits::kProducerRegisters>();
    produce(p, block, smem);
  } else {
    arch::reg_alloc<Traits::kConsumerRegisters>();
    ForwardConsumer<Traits>(p, smem, warpgroup).run();
  }
}

/// Returns whether the current device runs the kernel for arguments that passed `check_arguments`.
template <class Traits>
bool runs(const typename Traits::Args& args) requires(Traits::kDirection == Direction::kForward) {
  return arch::has_own_code(forward_kernel<Traits>, Traits::kLeastArchitecture) &&
         (args.batch == 0 || args.q_len == 0 ||
          BoxedTensors<Traits>(args, packing_of<Traits>(args)).check());
}

}  // namespace attile::sm90
