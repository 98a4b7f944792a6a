// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/device.cuh>
#include <attile/arch/thread.cuh>
#include <attile/arch/warpgroup.cuh>
#include <attile/core/config.h>
#include <attile/kernel/forward/forward_kernel.cuh>
#include <attile/kernel/forward/fusion.h>
#include <attile/kernel/sm90/forward_consumer.cuh>
#include <attile/kernel/sm90/forward_memory.cuh>
#include <attile/kernel/sm90/forward_params.cuh>
#include <attile/kernel/sm90/forward_producer.cuh>
#include <attile/kernel/sm90/forward_traits.cuh>

// The forward kernel for compute capability 9.0: FlashAttention-2, Algorithm 1 (arXiv 2307.08691),
// with wgmma, TMA and warp specialisation (arXiv 2407.08608). A consumer overlaps P V of a tile
// with S of the next one. With kOrdersConsumers consumers begin S one after another.
//
//   one producer warpgroup                 kConsumers consumer warpgroups, 64 rows of Q each
//   +-------------------------------+        +-------------------------------------------------+
//   | warp 0, lane 0: load_kv (K)   |--K---->| ForwardConsumer (forward_consumer.cuh)          |
//   | warp 1, lane 0: load_kv (V)   |--V---->|   S = Q K^T    wgmma, Q and K in shared memory  |
//   | warp 2, lane i: load_q,       |--Q[i]->|   m, l, P      in registers                     |
//   |   the Q of consumer i         |--rows->|   O += P V     wgmma, P in registers            |
//   | warp 3, lane i:               |--E[i]->|   O            registers -> shared -> TMA (***) |
//   |   load_elements (*)           |        |   LSE          registers -> device memory       |
//   | warp 3: run_scheduler (**),   |        +-------------------------------------------------+
//   |   work tiles -> the lanes     |
//   |   named above                 |
//   +-------------------------------+
//     forward_producer.cuh
//
//   pipeline   stages      filled by        consumed by
//   K, V       kStages     load_kv          every consumer. One whose rows do not see a tile waits
//                                           for it and releases it (skips it). With kWords warp 3
//                                           (load_words) writes what the score modifier reads
//                                           for columns or diagonals beside K: K is full when both
//                                           are there. So does it with kDropoutColumns, beside V
//                                           (write_dropout_columns)
//   loaded V   kLoadedV-   load_kv          transpose_v, which fills V: only with V in fp8
//              Stages
//   Q[i]       kQStages    load_q, lane i   consumer i alone
//   E[i]       kElement-   load_elements,   consumer i alone: the score modifier's elements, such
//              Stages      lane i, or       as a bias, for each tile that its rows see
//                          copy_elements
//   rows[i]    kRow-       load_q, lane i   consumer i: which rows Q[i] has, and which tiles of K
//              Buffers                      and V they see. It has no barriers of its own: it is
//                                           written before Q[i] is full, and read until O of these
//                                           rows is stored, when Q[i] may hold later rows: so there
//                                           are more of them than stages of Q
//   work tile  1           run_scheduler    load_kv of K and of V, and load_q of every consumer or
//                                           with kWords load_words; copy_elements; with teams
//                                           load_kv alone (work_tile_full, work_tile_empty)
//
//   (*) Only with kElementStages; else threads read the elements of their scores.
//   (**) run_scheduler runs only with kHasScheduler, which excludes kDropoutColumns. With kWords
//   beside it warp 2 writes the words, and warp 3 also loads the Q of all consumers
//   (load_q_of_team). With kElementStages beside it, which is where sequences have lengths of their
//   own, warp 0 loads K and V, warp 1 Q, and warp 2 copies the elements (copy_elements).
//   (***) O in fp32: registers -> device memory.
//
// With V in fp8 (kFp8Values) a product wants it transposed. Warp 0 loads V, too, into stages of its
// own, and warp 1, and warp 3 where it has no scheduler, write its transpose into the
// stages of V (transpose_v); where V is transposed ahead (transpose_v.cuh), lane 0 of warp 1
// loads it. P is e4m3, and O an fp32 sum of the products (ForwardOutput).
//
// A stage of K is free when all consumers have made S of it, and with kWords have applied the score
// modifier, or have skipped it; a stage of V when all have made P V of it or have skipped it. Q[i]
// is free when S of its last tile is made, or, where its rows see no tile, at once: then it is not
// read. A consumer releases a stage by its four warps, one arrival each (tile::Pipeline).
//
// For rows that see n tiles a consumer does:
//
//                begin_rows   kv_loop, i = 1 .. n-1             end_rows
//   wgmma        S0           Si beside P(i-1) V(i-1)           P(n-1) V(n-1) beside S0 of the
//                                                               next rows
//   softmax      m, then P0   m beside P(i-1) V(i-1), then Pi   O and LSE beside that S0, then its
//                                                               m and P0
//
// The maximum m is found beside P V of the tile before. The exponentials, which make P, wait for
// that product, unlike those of arXiv 2407.08608, section 3.2, and run beside products of other
// consumers: to wait for it behind them was slower (bench/log/tuning-sm90.md). Without kOverlaps
// P V of a tile comes behind its own softmax, and products run beside the softmax of other
// consumers alone. end_rows does not begin the next rows if there are none, if they see no keys, or
// if more than kMaxSkipped tiles lie between; then begin_rows begins them.
//
// With kPersistent (Tuning) a block computes several work tiles, else one. Each of its producer
// threads goes through the block's work tiles by a StaticSchedule of its own
// (forward_schedule.cuh); all get the same ones, without a counter in device memory. With
// kHasScheduler, that is where sequences have lengths of their own, or by Tuning, warp 3 makes the
// work tiles for the others, and blocks may share a counter (dynamic_schedule.cuh). Consumers learn
// from rows[i] which rows they have, and when there are no more. Which part of a work tile consumer
// i has rotates from tile to tile (load_q).
//
// Teams. A block may have two teams (Tuning). Each has two consumers and pipelines of its own, and
// acts as a block of its own in a grid of twice as many: in block b of n the first team is number b
// and the second one 2 n - 1 - b, so that a team with the longest work tiles lies beside one with
// the shortest. Two warps of the producer warpgroup are a team's: lane 0 of one loads K and V in
// turn (load_kv), beside which with kWords all its lanes write the words, and the other one loads
// Q, and with kHasScheduler makes the work tiles (load_q_of_team). Four consumers overlap more than
// three of one tile, each of which waits for all tiles that any of its rows sees; but their
// registers suffice for Bc = 64 and D, Dv <= 64 alone.
//
// Tiles of K and V are visited from the first to the last that any row sees, or with kDescends from
// the last to the first, or in the order of block lists: kv_tile(step). With block lists load_kv
// writes that number beside K, ahead of its copy, and the lane that releases K reads it; with teams
// (kReadsTilesLate) only where scores may be hidden, behind that release (ForwardMemory::kv_tile).
//
// Edges. Tiles ahead of the first one that any row of the work tile sees, and behind the last one,
// are not loaded; those ahead of a consumer's first one, and behind its last one, it skips. A tile
// between these that hides all its scores is computed: P is 0, and m and l stay. In a tile that the
// mask or the last key cuts, hidden scores are replaced by -inf before the maximum: P is 0. Rows
// that see no key: see ForwardConsumer.
//
// Each consumer has a named barrier (named_barrier.cuh). Its threads wait there for each other
//   - before O is staged: TMA has to have read what was staged before, and one thread has waited
//     for that,
//   - after O is staged: else TMA would copy what other threads have not written yet,
//   - with packed heads after Q's unused rows are zeroed, once: else a product would read what was
//     there before.
// With kOrdersConsumers it has a second one, which protects no memory: consumers begin S one after
// another, as else they would come to the softmax at the same time.
// All else is ordered by mbarriers, of the pipelines and of the work tile that one thread makes for
// others (dynamic_schedule.cuh), which smem.init() sets up ahead of a barrier of the block.
// docs/shared_memory.md says of each region of shared memory by which.
//
// Skipping. K's and V's pipelines have all tiles from the first to the last that any row of the
// work tile sees. A stage is loaded again only when every consumer has released it, so a consumer
// waits for the tiles that other consumers' rows see, too, and releases them: `skip_before` ahead
// of its own, and `skip_after` after them.
//
// Deadlock. docs/deadlock.md proves that nobody waits for ever. The proof stands on five rules,
// each of which is named beside the code that obeys it:
//   1  a consumer releases K in order, and K of a tile before it waits for V of that tile
//      (ForwardConsumer::release_k_and_q);
//   2  it skips K and V alternately, and in `end_rows` at most kMaxSkipped of K before any V
//      (skip_kv, end_rows);
//   3  while it waits for a V it holds at most the V before (kv_loop);
//   4  load_kv allows the next work tile before it waits for the stages of the last kStages tiles
//      of this one (load_kv);
//   5  with kOrdersConsumers each consumer has a turn at each tile of K, which it passes on when S
//      is made or begun, and of a tile that it skips at once (skip_k, signal_next_turn).

namespace attile::sm90 {

/// Computes a block's work tiles.
/// Scope    all threads of the block. `shared`: Traits::kSharedBytes, aligned to 1024 bytes.
/// fusion   what is done with O besides: see NoFusion. Q and K stay as TMA loads them.
template <class Traits, class Fusion = NoFusion>
ATTILE_DEVICE void forward_block(const TmaForwardParams<Traits>& p, int block,
                                 unsigned char* shared, const Fusion& fusion = {}) {
  static_assert(!Fusion::kChangesInputs,
                "attile::sm90: a fusion of this family changes O alone; sm80 takes one that "
                "changes Q and K");
  if constexpr (!arch::kHasWarpgroups) return;
  constexpr int kConsumers = Traits::kTeams * Traits::kConsumers;
  const ForwardMemory<Traits> smem{shared};
  if (arch::thread_index() == kConsumers * arch::kWarpgroupSize) {
    p.maps.template prefetch<Traits>();
    if constexpr (Traits::kElementStages > 0) {
      if (p.maps.has_keys) arch::prefetch_map(p.elements.map);
    }
  }
  for (int team = 1; team < Traits::kTeams; ++team) smem.of_team(team).init_barriers(false);
  smem.init(is_transposed_ahead(p));
  const int warpgroup = arch::uniform(arch::thread_index() / arch::kWarpgroupSize);
  if (warpgroup == kConsumers) {
    arch::reg_dealloc<Traits::kProducerRegisters>();
    if constexpr (Traits::kTeams == 1) {
      produce(p, block, smem);
    } else {
      const int warp = arch::uniform(arch::thread_index() % arch::kWarpgroupSize / arch::kWarpSize);
      const int team = warp / 2;
      const auto number = static_cast<int>(snake(block, arch::block_count(), team));
      produce_for_team(p, number, smem.of_team(team), warp % 2);
    }
  } else {
    arch::reg_alloc<Traits::kConsumerRegisters>();
    if constexpr (Traits::kTeams == 1) {
      ForwardConsumer<Traits, Fusion>(p, smem, warpgroup, fusion).run();
    } else {
      const ForwardMemory<Traits> of_team = smem.of_team(warpgroup / Traits::kConsumers);
      ForwardConsumer<Traits, Fusion>(p, of_team, warpgroup, fusion).run();
    }
  }
}

/// Returns whether the current device runs the kernel for arguments that passed `check_arguments`.
template <class Traits>
bool runs(const typename Traits::Args& args) requires(Traits::kDirection == Direction::kForward) {
  return arch::has_own_code(forward_kernel<Traits>, Traits::kLeastArchitecture) &&
         (args.batch == 0 || args.q_len == 0 ||
          BoxedTensors<Traits>(without_unread_strides(args), packing_of<Traits>(args)).check());
}

}  // namespace attile::sm90
