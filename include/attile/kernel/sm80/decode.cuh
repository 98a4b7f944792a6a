// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/async_copy.cuh>
#include <attile/arch/attributes.h>
#include <attile/arch/bulk_tensor.cuh>
#include <attile/arch/grid_dependency.cuh>
#include <attile/arch/shared_memory.cuh>
#include <attile/arch/thread.cuh>
#include <attile/arch/warpgroup.cuh>
#include <attile/core/config.h>
#include <attile/core/math.h>
#include <attile/kernel/decode/decode_params.cuh>
#include <attile/kernel/decode/merge_parts.cuh>
#include <attile/kernel/decode/split_schedule.cuh>
#include <attile/kernel/forward/forward_kernel.cuh>
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

// Decode: few rows of queries against many keys, which is as fast as K and V are read. A block has
// parts of row tiles (SplitSchedule), one after another. Its key groups divide the keys among them:
// each has the next kGroupKeys of every Bc keys, and loads them for itself. A warp has 16 rows.
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
// With Traits::kPairs, for fp8 on devices that cannot convert it, the two warps of a group share its
// 32 rows instead: each makes S of half of its keys, and O of half of the columns, so that a key is
// converted once. They tell each other the maxima, and P, through shared memory.
//
// Four warps of one group that divide 64 rows are a warpgroup: in code for 90a it multiplies these
// rows by wgmma, which reads K and V from shared memory once for all of them (kByWarpgroup).
//
// Loads run ahead of the products (TileLoads): each group fills its kStages stages, of which it
// reads one, with the next tiles of the part and of the part after it, so that a block whose part
// ends has the next one's first tiles in flight: those of one further part at most. The copies of a
// tile of K and V are one commit group of cp.async; with the first tile of a part come the block's
// rows of Q, for which there are two stages; or there is one, which Traits::kMergesInQ, and the rows
// of a part after the block's first one come when the part before is written. K and V in fp8 lie in their stages as they are in
// device memory, and become fp16 when a warp loads the pieces of a product (mma_operands.cuh), and
// queries in bf16 once for each part (Traits::kScalesQueries).
//
// Barriers
//   barrier_of_group (a warp barrier where a group is one warp): a tile has arrived before others
//     of the group read it; all of them have read it before the next one replaces it
//   fence_async_proxy, in compute_part: what a thread has copied of K, V and Q is there before
//     wgmma reads it
//   of a pair, in compute_tile: both have written their maxima, and then P, before they are read;
//     what is at the end of a tile is before they are written again
//   of the block, in compute_part: Q and the first tile have arrived before others read them; and
//     where Q becomes fp16 a second one: Q in fp16 has been written before others read it
//   of the block, in merge_warps: Q and P have been read before states replace them, and the sums of
//     a pair likewise; states are written before others read them; they are read before
//     the next columns' or the next part's are written, the last reads of Q are done before its
//     stage is filled again, and a part is written before a ticket says so
//   15 (any_thread), in SplitSchedule, with more sequences than a warp has lanes: the warps' sums
//     are written before they are read; and one of the block: they are read before what follows
//   15, in PartOutput: what the thread that took the last ticket has acquired, all have
//   of the block, in PartOutput::end, with earlier keys: their LSE is read before LSE is written;
//     it has been used before that of the next part replaces it

namespace attile::sm80 {

/// Whether the products of 64 rows are those of a warpgroup, in code that has them.
template <class Traits>
inline constexpr bool kByWarpgroup = Traits::kIsWarpgroup&& arch::kHasWarpgroups;

/// Says whether all warps divide the keys of a part.
template <class Traits>
ATTILE_DEVICE bool divides_keys(const DecodeParams<Traits>& p, const SplitPart& part) {
  return Traits::kGroupWarps == 1 ||
         (part.rows <= Traits::kWarpRows && p.splits != Splits::Kind::kFixed);
}

/// Loads Q of the block's parts, and K and V of this thread's key group, ahead of the products.
/// Scope    all threads of the block take the same steps, at times of their group's own.
template <class Traits>
class TileLoads {
  static constexpr int kStages = Traits::kStages;
  using T = typename Traits::ElementType;
  using K = typename Traits::K;

 public:
  ATTILE_DEVICE TileLoads(const DecodeParams<Traits>& p, unsigned char* shared)
      : p_(p), shared_(shared), schedule_(p) {}

  /// Goes to the block's first part (SplitSchedule::begin).
  ATTILE_DEVICE void begin(int block, bool warms_up) {
    number_ = -1;
    loaded_ = used_ = 0;
    schedule_.begin(block, shared_, warms_up);
    enter_part();
  }

  /// Sets the block's next part; returns false after the last one. From then on load_ahead may load
  /// Q of the part after it, into the stage of the part before it.
  /// Barriers all threads are past the last barrier of merge_warps of the part before.
  ATTILE_DEVICE bool begin_part(SplitPart& part) {
    if (!has_part_) return false;
    part = part_;
    is_begun_ = true;
    q_ = q_stage();
    if constexpr (Traits::kQStages == 1) {
      // The first part's Q comes with its first tile.
      awaits_q_ = number_ > 0 && part.at.kv_tiles.first < part.at.kv_tiles.last;
      if (awaits_q_) {
        load_q(q_);
        arch::async_copy_commit();
      }
    }
    return true;
  }
  /// Sets what of a part its loads do not need (SplitSchedule::complete).
  ATTILE_DEVICE void complete(SplitPart& part) const { schedule_.complete(part); }
  /// Loads tiles while a stage is free, of the part that is computed and of the one after it.
  ATTILE_DEVICE void load_ahead() {
    for (;;) {
      for (; tile_ < part_.at.kv_tiles.last && loaded_ - used_ < kStages; ++tile_) load_tile();
      if (tile_ < part_.at.kv_tiles.last || !is_begun_) return;
      enter_part();
    }
  }
  /// Waits until this thread's copies of the next tile have landed, and those of the part's Q with
  /// its first one. Where not all stages are loaded, it waits for all that are: how many are in
  /// flight is no constant then. That is so in the last tiles of a block, and where parts have
  /// fewer tiles than there are stages. Barriers one after, before copies of other threads are
  /// read.
  ATTILE_DEVICE void await_tile() {
    const bool awaits_all = Traits::kQStages == 1 && awaits_q_;
    awaits_q_ = false;
    if (loaded_ - used_ == kStages && !awaits_all) {
      arch::async_copy_wait<kStages - 1>();
    } else {
      arch::async_copy_wait<0>();
    }
  }
  /// Frees the stage of a tile after its last read. Scope    all threads of the group.
  ATTILE_DEVICE void release_tile() {
    barrier_of_group();  // all have read the tile before the next one replaces it
    ++used_;
  }

  /// Return the part's Q, and the next tile of K and V, in shared memory. scaled_q is Q after
  /// scale_to_half, in the same memory.
  ATTILE_DEVICE typename Traits::QTile q() const { return q_; }
  ATTILE_DEVICE typename Traits::ScaledQTile scaled_q() const { return {q_.data}; }
  ATTILE_DEVICE typename Traits::KTile k() const { return {stage(used_)}; }
  ATTILE_DEVICE typename Traits::VTile v() const { return {stage(used_) + Traits::KTile::kBytes}; }

  ATTILE_DEVICE static int group() { return arch::thread_index() / Traits::kGroupThreads; }
  ATTILE_DEVICE static void barrier_of_group() {
    if constexpr (Traits::kGroupWarps == 1) {
      arch::warp_barrier();
    } else {
      arch::barrier(1 + group(), Traits::kGroupThreads);
    }
  }

 private:
  /// Goes on to the next part, if there is one.
  ATTILE_DEVICE void enter_part() {
    ++number_;
    is_begun_ = false;
    has_part_ = schedule_.next(part_);
    if (has_part_) tile_ = part_.at.kv_tiles.first;
  }
  ATTILE_DEVICE void load_tile() {
    const int key = tile_ * Traits::kBc + group() * Traits::kGroupKeys;
    const int thread = arch::thread_index() % Traits::kGroupThreads;
    const typename Traits::KTile k_smem{stage(loaded_)};
    const typename Traits::VTile v_smem{stage(loaded_) + Traits::KTile::kBytes};
    tile::load_async<Traits::kGroupThreads>(k_smem, p_.k_of(part_.at), v_smem, p_.v_of(part_.at),
                                            key, thread);
    if (tile_ == part_.at.kv_tiles.first && (Traits::kQStages > 1 || number_ == 0)) {
      load_q(q_stage());
    }
    arch::async_copy_commit();
    ++loaded_;
  }

  /// Loads the packed rows of a part, for warps that have any of them, or for the product of all;
  /// rows and columns that there are not become 0.
  ATTILE_DEVICE void load_q(const typename Traits::QTile& q_smem) const {
    using Layout = typename Traits::QTile::Layout;
    constexpr int kUnit = Layout::kUnitElements;
    const RowOrigin origin = p_.q_origin(part_.at);
    const auto row_of = [&](int r) {
      const auto [row, head] = p_.packed_heads.divmod(part_.packed_row0 + r);
      return p_.q.tensor.row(origin.batch, part_.at.head + head, std::int64_t{origin.row} + row);
    };
    // A part without rows, of a warm-up pass, leaves this memory to the schedule.
    const bool is_whole = (kByWarpgroup<Traits> || Traits::kPairs) && part_.rows > 0 &&
                          !divides_keys(p_, part_);
    const int units =
        (is_whole ? Traits::kBr : round_up(part_.rows, Traits::kWarpRows)) * Layout::kUnits;
    for (int i = arch::thread_index(); i < units; i += Traits::kThreads) {
      const int r = i / Layout::kUnits, col = i % Layout::kUnits * kUnit;
      const bool there = r < part_.rows && col < p_.head_dim;
      const T* const from = row_of(r < part_.rows ? r : 0) + (there ? col : 0);
      if (p_.q.vectors != 0) {
        tile::copy_left_async<K>(q_smem, r, i % Layout::kUnits, from, there);
      } else {
        for (int e = 0; e < kUnit; ++e) {
          tile::left_element<K>(q_smem, r, col + e) =
              there && col + e < p_.head_dim ? from[e] : from_float<T>(0.0f);
        }
      }
    }
  }

  ATTILE_DEVICE typename Traits::QTile q_stage() const {
    return {shared_ + number_ % Traits::kQStages * Traits::QTile::kBytes};
  }
  ATTILE_DEVICE unsigned char* stage(int number) const {
    return shared_ + Traits::kQBytes + group() * Traits::kGroupBytes +
           number % kStages * Traits::kStageBytes;
  }

  const DecodeParams<Traits>& p_;
  unsigned char* shared_;
  SplitSchedule<Traits> schedule_;
  SplitPart part_{};            // the part whose tiles are loaded
  bool has_part_ = false;       // whether there is one
  bool is_begun_ = false;       // whether it is also the one that is computed
  bool awaits_q_ = false;       // whether Q of the one that is computed was loaded after its tiles
  int number_ = -1;             // of that part among the block's
  int tile_ = 0;                // of that part: the next one to load
  typename Traits::QTile q_{};  // of the part that is computed
  int loaded_ = 0, used_ = 0;   // tiles
};

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
    if constexpr (Traits::DropoutType::kEnabled) tile::drop(s_frag, coord, p.sampler());
    tile::stage(p_smem, s_frag);
    pair.barrier();  // both have written P before either of them reads it
    const tile::SharedLeft p_left(p_smem, Traits::PairOutputs::warp_row());
    const auto v_right =
        tile::in_unit(tile::SharedRight(loads.v(), Traits::PairOutputs::warp_col()));
    tile::multiply<T>(state.o, p_left, v_right);  // line 10
    state.give(o_frag, softmax);
  } else {
    softmax.template step_exactly<Factor>(s_frag, o_frag, scale_log2);  // line 9
    if constexpr (Traits::DropoutType::kEnabled) tile::drop(s_frag, coord, p.sampler());
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

/// Computes O and LSE of a row tile, or the state of a part of it.
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

  ATTILE_UNROLL_BY(1)
  for (int tile = tiles.first;; ++tile) {  // line 6
    loads.load_ahead();                    // line 7
    // The first tiles are in flight while this reads and divides.
    if (tile == tiles.first) loads.complete(part);
    if (warms_up) return;
    // The next part's first tiles are in flight during the merge.
    if (tile >= tiles.last) break;
    loads.await_tile();
    if (tile == tiles.first) {
      if (kByWarpgroup<Traits> && !divides_keys) arch::fence_async_proxy();  // as below
      arch::barrier();  // Q has arrived before all groups read it, and this tile
      if constexpr (Traits::kScalesQueries) {
        const int rows = Traits::kPairs && !divides_keys ? Traits::kBr : part.rows;
        tile::scale_to_half<Traits::kThreads>(loads.q(), rows, factors);
        arch::barrier();  // Q in fp16, and its factors, are there before they are read
      }
    } else {
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
  merge_warps<Traits>(o_frag, softmax, output, part.rows, divides_keys, scale_log2, shared);
  output.end();
}

/// Computes the parts of row tiles that a block has.
/// Scope    all threads of the block. `shared`: Traits::kSharedBytes, aligned to 128 bytes.
template <class Traits>
ATTILE_DEVICE void forward_block(const DecodeParams<Traits>& p, int block, unsigned char* shared) {
  // With programmatic dependent launch this block starts while the kernel before it ends. Until
  // that has ended it makes a warm-up pass: it runs the code before and at the first loads without
  // reading device memory that the kernel before may write, so that instructions and parameters are
  // in the caches. The next kernel may do the same. A large cache of keys, or the weights of a
  // layer, drive them out of L2 between two calls, and they are read from device memory, one line
  // after another (bench/log/tuning-decode.md).
  TileLoads<Traits> loads(p, shared);
  ATTILE_UNROLL_BY(1)
  for (int pass = Traits::kWarmsUp && arch::may_begin_early() ? 0 : 1; pass < 2; ++pass) {
    const bool warms_up = pass == 0;
    if (!warms_up) {
      // The warm-up pass's copies (zeros, as it has no keys) have landed before this pass fills the
      // same stages.
      arch::async_copy_wait<0>();
      arch::await_dependencies();
      arch::launch_dependents();
    }
    loads.begin(block, warms_up);
    for (SplitPart part; loads.begin_part(part);) {
      // Where keys lie in pages, an instance of compute_part that warms up would leave loads too
      // few registers, so that the schedule alone warms up.
      if (warms_up && Traits::Params::kPaged) break;
      compute_part<Traits>(p, part, loads, shared, warms_up);
      if (warms_up) break;
    }
  }
}

}  // namespace attile::sm80
