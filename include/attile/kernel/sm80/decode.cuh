// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/async_copy.cuh>
#include <attile/arch/attributes.h>
#include <attile/arch/bulk_tensor.cuh>
#include <attile/arch/grid_dependency.cuh>
#include <attile/arch/thread.cuh>
#include <attile/arch/warpgroup.cuh>
#include <attile/core/config.h>
#include <attile/core/math.h>
#include <attile/kernel/decode/decode_params.cuh>
#include <attile/kernel/decode/merge_parts.cuh>
#include <attile/kernel/decode/split_part.cuh>
#include <attile/kernel/forward/forward_kernel.cuh>
#include <attile/kernel/sm80/decode_loads.cuh>
#include <attile/kernel/sm80/decode_traits.cuh>
#include <attile/kernel/sm80/merge_warps.cuh>
#include <attile/tile/dropout.cuh>
#include <attile/tile/mma_operands.cuh>
#include <attile/tile/multiply.cuh>
#include <attile/tile/online_softmax.h>
#include <attile/tile/operand_in_unit.cuh>
#include <attile/tile/panel_tile.cuh>
#include <attile/tile/scale_to_half.cuh>
#include <attile/tile/scores.cuh>
#include <attile/tile/warpgroup.cuh>

#include <cstdint>
#include <type_traits>

// Decode: attention of few rows of queries to many keys. The rows of Q that read a kv head, up to
// Br of them (a row tile), are multiplied with all keys that they see, so that K and V are read
// once; the time is that of reading them, and the kernel is fast if all multiprocessors read all
// the time. For that the keys of a row tile may be split over blocks (Splits). What a block
// computes at a time is a part: of one row tile the kv tiles that are the block's, or all of them.
// A block computes its parts one after another; SplitSchedule says which they are. Where a row tile
// has several parts, each leaves its state (m, l and O) in scratch memory, and the block that ends
// last merges them (PartOutput).
//
// In a block the keys of a part are divided among key groups, some warps each: a group has the next
// kGroupKeys of every Bc keys, and loads them for itself. A warp has 16 rows.
// Where a row tile has no more, all warps divide the keys, too, and each keeps S, P, O, m and l of
// these rows over its own keys; else, and with Splits::kFixed, the warps of a group divide the
// rows: a row's sums then have the same order whichever rows share its tile. For a block of four
// warps in two groups, by the keys of a step and the rows:
//
//       at most 16 rows                      17 to 32 rows
//       keys 0   16   32   48                keys  0       32
//           |w 0 |w 1 |w 2 |w 3 |         rows  0 |  w 0   |  w 2   |
//                                         rows 16 |  w 1   |  w 3   |
//           '--group 0'--group 1'                 'group 0-'group 1-'
//
// Groups meet at the first tile of a part, for Q, and at its end, where the states of the warps
// that have the same rows are merged, and become O and LSE, or the state of the part; between these
// no group waits for another one.
//
// With Traits::kPairs, for fp8 on devices that cannot convert it, the two warps of a group share
// its 32 rows instead: each makes S of half of the group's keys, and O of half of the columns, so
// that a key is converted once. They tell each other the maxima, and P, through shared memory, and
// at the end of a part, half of O.
//
// Four warps of one group that divide 64 rows are a warpgroup: in code for 90a it multiplies these
// rows by wgmma, which reads K and V from shared memory once for all of them (kByWarpgroup).
//
// Loads run ahead of the products (TileLoads): each group fills its kStages stages, of which it
// reads one, with the next tiles of the part and of the part after it, so that a block whose part
// ends has the next one's first tiles in flight: those of one further part at most. The copies of a
// tile of K and V are one commit group of cp.async; with the first tile of a part come the block's
// rows of Q, for which there are two stages. Where there is one, states are merged in it
// (Traits::kMergesInQ), and Q of later parts is loaded when that has been done. K and V in fp8 lie
// in their stages as they are in device memory, and become fp16 when a warp loads the pieces of a
// product (mma_operands.cuh), and queries in bf16 once for each part (Traits::kScalesQueries).
//
// Barriers
//   barrier_of_group (a warp barrier where a group is one warp): a tile has arrived before others
//     of the group read it; all of them have read it before the next one replaces it
//   fence_async_proxy, in await_first_tile and compute_part: what a thread has copied of K, V and Q
//     is there before wgmma reads it
//   of a pair, which is barrier_of_group, in compute_tile: both have written their maxima, and then
//     P, before they are read; and in part_pairs, the same of half of O
//   of the block, in await_first_tile: Q and the first tile have arrived before others read them;
//     and where Q becomes fp16 a second one: Q in fp16 has been written before others read it
//   of the block, in part_pairs, and in merge_warps where there is one stage of Q or pairs: Q and P
//     have been read before O replaces them
//   of the block, in merge_warps: states are written before others read them; they are read before
//     the next columns' or the next part's are written, the last reads of Q are done before its
//     stage is filled again, and a part is written before a ticket says so
//   of the block, in compute_part, where the state of many rows goes to scratch memory from
//     registers: as the last one in merge_warps
//   15 (any_thread), in SplitSchedule, with more sequences than a warp has lanes: the warps' sums
//     are written before they are read; and one of the block: they are read before what follows
//   15, in SplitSchedule::keep_parts: all threads hear whether one has found another length
//   15, in PartOutput: what the thread that took the last ticket has acquired, all have
//   of the block, in PartOutput::end, with earlier keys: their LSE is read before LSE is written;
//     it has been used before that of the next part replaces it

namespace attile::sm80 {

/// Takes a tile into the state of the warp's rows, by the forward pass of FlashAttention-2 (arXiv
/// 2307.08691, Algorithm 1; the lines named are its) over each state's keys.
template <class Share, class Traits>
ATTILE_DEVICE void compute_tile(const DecodeParams<Traits>& p, const SplitPart& part,
                                const TileLoads<Traits>& loads, int tile, unsigned char* shared,
                                const float* factors, float scale, float scale_log2,
                                typename Traits::OutputRegisters& o_frag,
                                WarpSoftmax<Traits>& softmax) {
  using T = typename Traits::Product;
  using Scores = typename Share::Scores;
  constexpr bool kTogether = kByWarpgroup<Traits> && !Share::kDivides;
  if (!kTogether && Share::first_row() >= part.rows) return;
  const auto coord = Share::coord(p, part, tile * Traits::kBc);
  Scores s_frag;
  s_frag.clear();
  if constexpr (kTogether) {  // line 8
    tile::start_transposed_product(s_frag, loads.q(), loads.k());
    tile::wait_product<0>(s_frag);
  } else {
    const tile::SharedLeft q_left(loads.scaled_q(), Share::first_row());
    const auto k_right =
        tile::in_unit(tile::SharedRightTransposed(loads.k().from_row(Share::first_key())));
    tile::multiply<T, Traits::kProducts>(s_frag, q_left, k_right);
  }
  if constexpr (Traits::kScalesQueries) {
    ATTILE_UNROLL
    for (int r = 0; r < Scores::kRegRows; ++r) {
      s_frag.scale_row(r, factors[Scores::row(r) % Share::kRows]);
    }
  }
  if (part.at.kv_tiles.full(tile)) {
    tile::modify_and_mask<false>(s_frag, coord, p.policies, scale, tile::MathOf<T>());
  } else {
    tile::modify_and_mask<true>(s_frag, coord, p.policies, scale, tile::MathOf<T>());
  }
  using Factor = typename Traits::Factor;
  if constexpr (Share::kInPairs) {
    const typename Traits::PairWarps pair(shared + Traits::kStatesOffset);
    const typename Traits::PTile p_smem{shared + Traits::kPOffset};
    PairState<Traits> state;
    state.take(o_frag, softmax);
    state.softmax.template step_exactly<Factor>(s_frag, state.o, scale_log2, pair);  // line 9
    if constexpr (Traits::DropoutType::kEnabled) tile::drop_scores(s_frag, coord, p.sampler());
    tile::stage(p_smem, s_frag);
    pair.barrier();  // both have written P before either of them reads it
    const tile::SharedLeft p_left(p_smem, Traits::PairOutputs::warp_row());
    const tile::SharedRight v_right(loads.v(), Traits::PairOutputs::warp_col());
    tile::multiply<T>(state.o, p_left, tile::in_unit(v_right));  // line 10
    state.give(o_frag, softmax);
  } else {
    softmax.template step_exactly<Factor>(s_frag, o_frag, scale_log2);  // line 9
    if constexpr (Traits::DropoutType::kEnabled) tile::drop_scores(s_frag, coord, p.sampler());
    const tile::RegisterLeft<T, Scores> p_left(s_frag);
    if constexpr (kTogether) {  // line 10
      tile::start_product(o_frag, p_left, loads.v());
      tile::wait_product<0>(o_frag);
    } else {
      const auto v_right = tile::in_unit(tile::SharedRight(loads.v().from_row(Share::first_key())));
      tile::multiply<T, Traits::kProducts>(o_frag, p_left, v_right);
    }
  }
}

/// Waits for a part's Q and its first tile, and makes fp16 of queries that are scaled.
/// Scope    all threads of the block.
template <class Traits>
ATTILE_DEVICE void await_first_tile(const SplitPart& part, TileLoads<Traits>& loads,
                                    bool divides_keys, float* factors) {
  loads.await_tile();
  // wgmma reads by the async proxy what this thread has copied.
  if (kByWarpgroup<Traits> && !divides_keys) arch::fence_async_proxy();
  arch::barrier();  // Q has arrived before all groups read it, and this tile
  if constexpr (Traits::kScalesQueries) {
    const int rows = Traits::kPairs && !divides_keys ? Traits::kBr : part.rows;
    tile::scale_to_half<Traits::kThreads>(loads.q(), rows, factors);
    arch::barrier();  // Q in fp16, and its factors, are there before they are read
  }
}

/// Computes O and LSE of a row tile, or the state of a part of it. With `warms_up` it runs the code
/// before and at the first loads alone, ahead of `await_dependencies`.
/// Scope    all threads of the block.
template <class Traits>
ATTILE_DEVICE void compute_part(const DecodeParams<Traits>& p, SplitPart& part,
                                TileLoads<Traits>& loads, unsigned char* shared, bool warms_up) {
  using Outputs = typename Traits::OutputRegisters;
  // It may be in device memory.
  const float scale =
      warms_up ? 1.0f : p.score_scale(part.at) * tile::operand_unit<typename Traits::K>();
  const float scale_log2 = tile::score_scale_log2<typename Traits::ScoreModType>(scale);
  const TileRange tiles = part.at.kv_tiles;
  const bool divides_keys = sm80::divides_keys(p, part);
  Outputs o_frag;  // line 5
  WarpSoftmax<Traits> softmax;
  float* const factors = reinterpret_cast<float*>(shared + Traits::kFactorsOffset);
  o_frag.clear();
  softmax.reset();

  const bool loads_late = Traits::Params::kMayLoadLate && p.loads_late;
  ATTILE_UNROLL_BY(1)
  for (int tile = tiles.first;; ++tile) {  // line 6
    const bool is_first = tile == tiles.first;
    if (loads_late) arch::async_copy_wait<0>();  // the tile before has arrived
    // Where keys lie in pages the schedule alone warms up. This is said here and not by the caller,
    // where the compiler made two groups of the 24 loads of a merge (bench/log/tuning-decode.md).
    if (!warms_up || !Traits::Params::kPaged) loads.load_ahead();  // line 7
    // The first tiles are in flight while this reads and divides.
    if (is_first) {
      loads.complete(part);
      if (warms_up) return loads.prefetch();
      if (tile >= tiles.last) break;
      await_first_tile(part, loads, divides_keys, factors);
    } else {
      loads.await_tile();
      // The fence has a path of its own: on one with the tiles of few rows, which skip it, these
      // took longer (bench/log/tuning-decode.md).
      if (kByWarpgroup<Traits> && !divides_keys) {
        arch::fence_async_proxy();  // wgmma reads by the async proxy what this thread has copied
        loads.barrier_of_group();   // what others have copied is there
      } else {
        loads.barrier_of_group();  // the tile has arrived before others of the group read it
      }
    }
    if (divides_keys) {
      compute_tile<WarpShare<Traits, true>>(p, part, loads, tile, shared, factors, scale,
                                            scale_log2, o_frag, softmax);
    } else if constexpr (Traits::kGroupWarps > 1) {
      compute_tile<WarpShare<Traits, false>>(p, part, loads, tile, shared, factors, scale,
                                             scale_log2, o_frag, softmax);
    }
    loads.release_tile();
    // The next part's first tiles are in flight during the merge.
    if (tile + 1 >= tiles.last) break;
  }
  if constexpr (Traits::kPairs) {
    if (!divides_keys) part_pairs<Traits>(o_frag, softmax, shared);
  }
  if constexpr (Traits::kScalesQueries) {
    softmax.template remove_factor<typename Traits::Factor>(o_frag, scale_log2);
  }
  float* const states = reinterpret_cast<float*>(shared + Traits::kStatesOffset);
  const PartOutput<Traits> output(p, part, scale_log2, states + 2 * Outputs::kRows);
  // Lines 12 to 15 of a row tile's only part, or its state; then these lines of the other row
  // tiles.
  if (!output.takes_registers(divides_keys)) {
    merge_warps<Traits>(o_frag, softmax, output, part.rows, divides_keys, scale_log2, shared);
    output.end();
  } else if constexpr (PartOutput<Traits>::kTakesRegisters) {
    output.put_registers(o_frag, softmax);
    arch::barrier();  // the part is written before a ticket says so
    output.end_registers();
  }
}

/// Computes the parts of row tiles that a block has.
/// Scope    all threads of the block. `shared`: Traits::kSharedBytes, aligned to 128 bytes.
template <class Traits>
ATTILE_DEVICE void forward_block(const DecodeParams<Traits>& p, int block, unsigned char* shared) {
  // With programmatic dependent launch this block starts while the kernel before it ends. Until
  // that has ended it makes a warm-up pass, which runs the code before and at the first loads, so
  // that instructions and parameters are in the caches. The next kernel may do the same. A large
  // cache of keys, or the weights of a layer, drive them out of L2 between two calls, and they are
  // read from device memory, one line after another (bench/log/tuning-decode.md). Of device memory
  // it reads no more than lengths. Its parts are those of the call, if the kernel before does not
  // change lengths.
  TileLoads<Traits> loads(p, shared);
  bool warms_up = Traits::kWarmsUp && arch::may_begin_early();
  bool may_keep_parts = false;
  ATTILE_UNROLL_BY(1)
  for (;;) {
    if (!warms_up) {
      // The copies of the warm-up pass have landed before this one fills the same stages. Each
      // thread copies to the same addresses in both.
      arch::async_copy_wait<0>();
      arch::await_dependencies();
      arch::launch_dependents();
    }
    if (!may_keep_parts || !loads.keep_parts()) loads.begin(block, warms_up);
    for (SplitPart part; loads.begin_part(part);) {
      compute_part<Traits>(p, part, loads, shared, warms_up);
      if (warms_up) break;
    }
    if (!warms_up) return;
    warms_up = false;
    may_keep_parts = p.may_keep_parts();
  }
}

}  // namespace attile::sm80
