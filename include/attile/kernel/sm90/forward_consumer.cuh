// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/bulk_tensor.cuh>
#include <attile/arch/thread.cuh>
#include <attile/arch/warpgroup.cuh>
#include <attile/core/config.h>
#include <attile/core/schedule.h>
#include <attile/core/work_tile.h>
#include <attile/kernel/forward/forward_kernel.cuh>
#include <attile/kernel/forward/fusion.h>
#include <attile/kernel/sm90/forward_epilogue.cuh>
#include <attile/kernel/sm90/forward_memory.cuh>
#include <attile/kernel/sm90/forward_modifier.cuh>
#include <attile/kernel/sm90/forward_output.cuh>
#include <attile/kernel/sm90/forward_params.cuh>
#include <attile/kernel/sm90/forward_schedule.cuh>
#include <attile/kernel/sm90/named_barrier.cuh>
#include <attile/tile/copy.cuh>
#include <attile/tile/dropout.cuh>
#include <attile/tile/mma_operands.cuh>
#include <attile/tile/mma_tile.cuh>
#include <attile/tile/online_softmax.h>
#include <attile/tile/panel_tile.cuh>
#include <attile/tile/pipeline.cuh>
#include <attile/tile/scores.cuh>
#include <attile/tile/warpgroup.cuh>

// A consumer warpgroup of the forward kernel. The lines named are those of FlashAttention-2,
// Algorithm 1 (arXiv 2307.08691).

namespace attile::sm90 {

/// Computes the rows of one consumer warpgroup, of all work tiles of its block. "Rows" here are
/// those of one ConsumerRows: the part of a work tile that this consumer has, 64 rows of registers.
///
/// `kv_loop` is the loop over tiles of K and V. Step i makes S of tile i, m and P of it, and
/// O += P V of tile i - 1, after which O is rescaled to the m of tile i. S of tile i and P V of
/// tile i - 1 run at the same time (arXiv 2407.08608, section 3.2), and the maximum of S is found
/// beside P V. `begin_rows` goes before the loop and makes S and P of the rows' first tile.
/// `end_rows` comes after it and makes P V of their last tile, and beside that S of the next rows'
/// first tile (5.7 % of a forward pass, bench/log/tuning-sm90.md). Without kOverlaps P V of each
/// tile comes behind its own softmax: of the first where its S is made, of others in their step.
///
/// Register tiles count rows through all warpgroups of a block (tile::MmaTile), and
/// TmaForwardParams::coord subtracts the 64 * warpgroup_ rows that precede this consumer's.
///
/// How tiles are skipped stands in forward.cuh ("Skipping"), and why nobody waits for ever in
/// docs/deadlock.md, whose rules are named below.
/// Where kv_tiles is empty, as no row of these sees a key, begin_rows writes O = 0 and LSE = -inf,
/// or with a sink LSE = sink. A row that sees none in tiles that are visited has m = -inf, l = 0
/// and P = 0 to the end, of which OnlineSoftmax makes the same (`finish`, `lse`). A tile that the
/// mask hides from a row leaves its m and l as they were.
template <class Traits, class Fusion = NoFusion>
class ForwardConsumer {
  static_assert(Traits::kTeams * Traits::kConsumers <= kMostConsumers,
                "attile::sm90: named barriers are for up to 4 consumer warpgroups");
  using Scores = typename Traits::ScoreRegisters;
  using Outputs = typename Traits::OutputRegisters;
  using Probabilities = tile::RegisterLeft<typename Traits::ProbabilityType, Scores>;
  using Softmax = tile::OnlineSoftmax<Scores::kRegRows>;
  using Rows = ConsumerRows<Traits>;
  using Sampler = typename Traits::DropoutType::Sampler;
  struct NotListed {};

 public:
  /// Scope    all threads of the warpgroup, as for all that follows.
  ATTILE_DEVICE ForwardConsumer(const TmaForwardParams<Traits>& p,
                                const ForwardMemory<Traits>& smem, int warpgroup,
                                const Fusion& fusion)
      : p_(p), smem_(smem), fusion_(fusion), warpgroup_(warpgroup), sampler_(p.sampler()) {
    if constexpr (Traits::kPacksHeads) {
      ATTILE_UNROLL
      for (int stage = 0; stage < Traits::kQStages; ++stage) {
        // Packed heads may leave the last rows of the tile unused, which no copy writes.
        tile::clear_rows_from(smem.q(warpgroup).tile(stage), p.packing.heads * p.packing.rows,
                              arch::thread_index() % arch::kWarpgroupSize, arch::kWarpgroupSize);
      }
      consumer_barrier(warpgroup_);  // all zeros are written before a product reads them
    }
  }

  ATTILE_DEVICE void run() {
    if (warpgroup_ == Traits::kConsumers - 1) signal_next_turn();  // the first one begins
    while (begin_rows()) {
      do {
        kv_loop();
      } while (end_rows());
    }
    if (is_storing_thread()) arch::bulk_wait_read<0>();  // O has left before shared memory goes
  }

 private:
  /// Goes to the next rows that see keys, and makes P of their first tile; false where no rows are
  /// left. Rows that see no key have O = 0 and LSE = -inf (or the sink), and are written here.
  ATTILE_DEVICE bool begin_rows() {
    for (;; ++number_) {
      const Rows& next = rows_with_q(number_);
      if (next.is_end()) return false;
      reset_state();
      // Before the skips, so that the next Q is loaded while this consumer waits for their tiles.
      if (next.empty()) skip_q();
      skip_kv(next.skip_before);
      if (!next.empty()) break;
      if (!next.exist(p_)) continue;
      output_.o_frag.clear();
      store_output(next);
    }
    start_scores();  // line 8; from here on as in end_rows, where C7514 says why
    const int kv_tile = kv_tile_of(kv_tiles_.first);
    const auto modifier = modifier_of(kv_tile);
    tile::wait_product<0>(s_frag_);
    signal_next_turn();
    if constexpr (Traits::kWords == ModifierWords::kNone) release_k_and_q(kv_tiles_.first);
    // There is no O yet to be rescaled.
    mask_and_update_max(kv_tiles_.first, kv_tile, modifier, rescale_thresholds());
    smem_.v().consumer_wait(v_state_);
    make_probabilities(kv_tile);
    if constexpr (!Traits::kOverlaps) multiply_values(false);
    return true;
  }

  /// Does lines 6 to 11: lines 8 and 9 for all tiles of K and V but the rows' first one, whose P is
  /// there, and line 10 for all but their last one, which end_rows does; without kOverlaps for all
  /// but their first one. Line 10 stands twice: the product, of the tile before with kOverlaps, and
  /// the factor, which belongs to this tile's m. (The paper prints the inverse of the factor.)
  ATTILE_DEVICE void kv_loop() {
    ATTILE_UNROLL_BY(1)
    for (int step = kv_tiles_.first + 1; step < kv_tiles_.last; ++step) {
      int kv_tile = 0;  // with block lists it comes beside K, for which start_scores waits
      if constexpr (!Traits::kListsBlocks) kv_tile = kv_tile_of(step);
      start_scores_and_output(step);  // line 8, of this tile, and line 10, of the tile before
      if constexpr (Traits::kListsBlocks) kv_tile = kv_tile_of(step);
      const auto thresholds = rescale_thresholds();
      const auto modifier = modifier_of(kv_tile);
      tile::wait_product<Traits::kOverlaps ? 1 : 0>(s_frag_);  // S is made; P V may be under way
      signal_next_turn();
      if constexpr (Traits::kWords == ModifierWords::kNone) release_k_and_q(step);
      const auto rescaling = mask_and_update_max(step, kv_tile, modifier, thresholds);  // line 9
      if constexpr (!Traits::kWaitsLate) {
        smem_.v().consumer_wait(Traits::kOverlaps ? v_state_.next() : v_state_);  // rule 3
      }
      if constexpr (Traits::kOverlaps) end_output<0>();
      output_.rescale(rescaling);   // line 10: O <- diag(e^(m_old - m_new)) O
      make_probabilities(kv_tile);  // line 9
      if constexpr (Traits::kWaitsLate) smem_.v().consumer_wait(v_state_);
      if constexpr (!Traits::kOverlaps) multiply_values(true);  // line 10, of this tile
    }
  }

  /// Finishes the rows: with kOverlaps P V of their last tile; O and LSE (lines 12 to 15). If the
  /// next rows see keys, and at most kMaxSkipped tiles are to be skipped until then, it begins them
  /// too: S of their first tile is made while O leaves, and P of it is there in the end. Returns
  /// whether it has begun them.
  ATTILE_DEVICE bool end_rows() {
    if constexpr (Traits::kOverlaps) start_output(kv_tiles_.last - 1 > kv_tiles_.first);  // line 10
    const Rows& done = rows();
    const int skip_after = done.skip_after;
    const bool may_skip_k = skip_after <= Traits::kMaxSkipped;  // rule 2
    int to_skip = 0;
    bool goes_on = may_skip_k;
    if (may_skip_k) {
      skip_k(skip_after);
      const Rows& next = rows_with_q(number_ + 1);
      to_skip = skip_after + next.skip_before;
      goes_on = !next.empty() && to_skip <= Traits::kMaxSkipped;
    }
    ++number_;  // from here on rows() are the next ones
    if (!goes_on) {
      if constexpr (Traits::kOverlaps) end_output<0>();
      if (may_skip_k) {  // K after these rows has been skipped above
        skip_v(skip_after);
      } else {
        skip_kv(skip_after);
      }
      store_output(done);
      return false;
    }
    skip_k(to_skip - skip_after);
    start_scores();      // line 8, of the next rows
    signal_next_turn();  // here, as others would else wait for the store of O, too
    if constexpr (Traits::kOverlaps) end_output<1>();  // O is made; S may be under way
    skip_v(to_skip);
    store_output(done);
    reset_state();
    // As begin_rows ends: with a function for both nvcc 13.0 serialises the products (C7514).
    const int kv_tile = kv_tile_of(kv_tiles_.first);
    const auto modifier = modifier_of(kv_tile);
    tile::wait_product<0>(s_frag_);
    if constexpr (Traits::kWords == ModifierWords::kNone) release_k_and_q(kv_tiles_.first);
    mask_and_update_max(kv_tiles_.first, kv_tile, modifier, rescale_thresholds());
    smem_.v().consumer_wait(v_state_);
    make_probabilities(kv_tile);
    if constexpr (!Traits::kOverlaps) multiply_values(false);
    return true;
  }

  // The steps of the algorithm.

  /// Begins S = Q K^T (line 8).
  ATTILE_DEVICE void start_scores() {
    const auto k_smem = smem_.k().consumer_wait(k_state_);
    if constexpr (Traits::kReadsTilesEarly) listed_ = smem_.read_kv_tile(k_state_);
    await_own_turn();
    tile::start_transposed_product(s_frag_, smem_.q(warpgroup_).tile(q_state_.stage), k_smem);
  }
  /// Begins O += P V (line 10), or with `adds` false O = P V, of the rows' first tile (line 5). V
  /// has arrived: the wait for it stands beside make_probabilities.
  ATTILE_DEVICE void start_output(bool adds) {
    output_.start(p_left_, smem_.v().tile(v_state_.stage), adds, s_frag_);
  }
  /// Begins S of a step's tile, and with kOverlaps O += P V of the tile before. Where that is made
  /// in parts, all but the last one are made beside S.
  ATTILE_DEVICE void start_scores_and_output(int step) {
    if constexpr (!Traits::kOverlaps) {
      start_scores();
    } else if constexpr (Traits::kOutputParts > 1) {
      const auto v_smem = smem_.v().tile(v_state_.stage);
      output_.start_part(0, p_left_, v_smem, s_frag_);
      start_scores();
      output_.template make_parts<1>(p_left_, v_smem, s_frag_);
    } else {
      start_scores();
      start_output(step - 1 > kv_tiles_.first);
    }
  }
  /// Waits for O, behind which kPending products have been begun, and releases V.
  template <int kPending>
  ATTILE_DEVICE void end_output() {
    output_.template end<kPending>(s_frag_);
    release_v();
  }
  /// Does line 10 whole, without kOverlaps.
  ATTILE_DEVICE void multiply_values(bool adds) {
    start_output(adds);
    end_output<0>();
  }
  /// Returns the coordinates of the scores of a tile in this consumer's registers.
  ATTILE_DEVICE auto coord(int kv_tile) const {
    return p_.coord(rows().at(p_), warpgroup_, kv_tile * Traits::kBc);
  }
  ATTILE_DEVICE auto modifier_of(int kv_tile) const {
    const int part = consumer_part<Traits>(warpgroup_, number_);
    return tile_modifier<Traits>(p_, smem_, k_state_.stage, part, coord(kv_tile), scales().scale);
  }
  /// Applies score modifier and mask to S, and updates m, and l with it (line 9), of rows in which
  /// a score exceeds the row's threshold; others keep their m, and P may exceed 1
  /// (kRescaleThreshold). Returns what O has to be multiplied by.
  template <class AnyModifier>
  ATTILE_DEVICE typename Softmax::Rescaling mask_and_update_max(
      int step, int kv_tile, const AnyModifier& modifier,
      const typename Softmax::Thresholds& thresholds) {
    if constexpr (Traits::kElementStages > 0) {
      const auto elements = smem_.elements(warpgroup_).consumer_wait(element_state_);
      const tile::ElementReader<Scores, typename Traits::ElementTile> reader(elements);
      modify_and_mask(step, kv_tile,
                      tile::ElementModifier<AnyModifier, decltype(reader)>{modifier, reader});
      arch::fence_operand(s_frag_.x);  // S has taken the elements: an arrival overtakes loads
      arch::warp_barrier();
      smem_.elements(warpgroup_).consumer_release(element_state_);
      element_state_.advance();
    } else if (!kSkipsFull<Traits> || !kv_tiles_.full(step)) {
      modify_and_mask(step, kv_tile, modifier);
    }
    if constexpr (Traits::kWords != ModifierWords::kNone) {
      arch::fence_operand(s_frag_.x);  // S has taken the words: an arrival overtakes loads
      arch::warp_barrier();
      release_k_and_q(step);
    }
    return softmax_.template update_max_above<Scores>(Softmax::lane_maxima(s_frag_, thresholds),
                                                      thresholds, scales().scale_log2,
                                                      p_.maximum_offset(rows()));
  }
  template <class AnyModifier>
  ATTILE_DEVICE void modify_and_mask(int step, int kv_tile, const AnyModifier& modifier) {
    const WorkTile at = rows().at(p_);
    const auto read = [&] { return arch::uniform(smem_.read_kv_tile(k_state_.previous())); };
    const auto seen = p_.seen_tile(at, kv_tiles_, step, kv_tile, read);
    const auto coord = p_.coord(at, warpgroup_, seen.kv_tile * Traits::kBc);
    tile::modify_and_mask(s_frag_, coord, modifier, p_.policies_in_tile(seen.in_full_block),
                          seen.full);
  }
  /// Makes P of S, adds to l (line 9), and makes dropout(P) the left operand of P V.
  ATTILE_DEVICE void make_probabilities(int kv_tile) {
    softmax_.exponentiate(s_frag_, scales().scale_log2);
    constexpr bool kDropsScores = Traits::DropoutType::kEnabled && !Traits::kMasksP;
    if constexpr (kDropsScores) tile::drop_scores(s_frag_, coord(kv_tile), sampler_);
    p_left_ = Probabilities(s_frag_);
    if constexpr (Traits::kMasksP) {
      drop_probabilities(p_left_, smem_, v_state_.stage, coord(kv_tile), sampler_);
    }
  }

  // The order of consumers, with kOrdersConsumers (rule 5).

  ATTILE_DEVICE void await_own_turn() const {
    if constexpr (Traits::kOrdersConsumers) await_turn(warpgroup_);
  }
  ATTILE_DEVICE void signal_next_turn() const {
    if constexpr (Traits::kOrdersConsumers) signal_turn_of((warpgroup_ + 1) % Traits::kConsumers);
  }

  /// Writes O and LSE of `done`, rows whose last product is complete (lines 12 to 15).
  ATTILE_DEVICE void store_output(const Rows& done) {
    const WorkTile at = done.at(p_);
    const auto& scales = p_.scales_of(done);
    const auto first = [&] { return p_.coord(at, warpgroup_, 0); };
    const auto sinks = row_sinks<Outputs>(p_, scales.scale_log2, first);
    softmax_.finish(output_.o_frag, done.output_scale(sampler_.keep_scale()), sinks);  // line 12
    apply_fusion(p_, fusion_, warpgroup_, at, output_.o_frag);
    store_o(p_, smem_, warpgroup_, at, output_.o_frag);  // line 14
    store_lse<Outputs>(p_, first(), softmax_, scales.scale_log2,
                       Rows::kKeepsFirstRow ? &at : nullptr);  // lines 13 and 15
  }

  // The pipelines. These releases and skips advance the states.

  /// Waits for the next Q, that of work tile `number`, and returns its rows (line 4).
  ATTILE_DEVICE const Rows& rows_with_q(int number) const {
    static_cast<void>(smem_.q(warpgroup_).consumer_wait(q_state_));
    return smem_.rows(warpgroup_, number);
  }
  /// Releases K of a step, whose S is made (rule 1), and Q after the last tile of these rows.
  ATTILE_DEVICE void release_k_and_q(int step) {
    smem_.k().consumer_release(k_state_);
    k_state_.advance();
    if (step + 1 != kv_tiles_.last) return;
    smem_.q(warpgroup_).consumer_release(q_state_);
    q_state_.advance();
  }
  ATTILE_DEVICE void release_v() {
    smem_.v().consumer_release(v_state_);
    v_state_.advance();
  }
  ATTILE_DEVICE void skip_q() {
    smem_.q(warpgroup_).consumer_skip(q_state_);
    q_state_.advance();
  }
  ATTILE_DEVICE void skip_k(int tiles) {
    ATTILE_UNROLL_BY(1)
    for (int i = 0; i < tiles; ++i) {
      await_own_turn();
      signal_next_turn();  // rule 5: before the wait for the tile
      smem_.k().consumer_skip(k_state_);
      k_state_.advance();
    }
  }
  ATTILE_DEVICE void skip_v(int tiles) {
    ATTILE_UNROLL_BY(1)
    for (int i = 0; i < tiles; ++i) {
      smem_.v().consumer_skip(v_state_);
      v_state_.advance();
    }
  }
  ATTILE_DEVICE void skip_kv(int tiles) {
    ATTILE_UNROLL_BY(1)
    for (int i = 0; i < tiles; ++i) {
      skip_k(1);  // rule 2: another consumer may need this V before it releases its next K
      skip_v(1);
    }
  }

  /// The rows that are computed. They are read back from shared memory, which spares registers.
  ATTILE_DEVICE const Rows& rows() const { return smem_.rows(warpgroup_, number_); }
  /// Returns the tile of K and V of a step; with block lists S has been begun. Scope    all lanes.
  ATTILE_DEVICE int kv_tile_of(int step) const {
    if constexpr (Traits::kReadsTilesEarly) return arch::uniform(listed_);
    if constexpr (Traits::kReadsTilesLate) return 0;  // modify_and_mask reads it
    if constexpr (Traits::kFromDiagonal) return p_.from_diagonal(rows().lengths.tile, step);
    return p_.kv_tile(rows().at(p_), step);
  }
  /// Sets m = -inf and l = 0 for the rows that are computed next (line 5).
  ATTILE_DEVICE void reset_state() {
    kv_tiles_ = rows().kv_tiles;
    softmax_.reset();
    output_.reset();
  }
  ATTILE_DEVICE typename Softmax::Thresholds rescale_thresholds() const {
    return softmax_.template thresholds<Scores>(scales().rescale_threshold);
  }
  ATTILE_DEVICE const auto& scales() const { return p_.scales_of(rows()); }

  const TmaForwardParams<Traits>& p_;
  const ForwardMemory<Traits>& smem_;
  [[no_unique_address]] HeldFusion<Fusion> fusion_;
  int warpgroup_;
  [[no_unique_address]] Sampler sampler_;
  int number_ = 0;      // of the block's work tiles, the one whose rows are computed
  TileRange kv_tiles_;  // the steps over the tiles of K and V that these rows see
  [[no_unique_address]] std::conditional_t<Traits::kReadsTilesEarly, int, NotListed> listed_;
  tile::PipelineState<Traits::kQStages> q_state_;
  tile::PipelineState<Traits::kStages> k_state_, v_state_;
  typename Traits::ElementPipeline::State element_state_;
  Softmax softmax_;       // m and l
  Scores s_frag_;         // S, then P
  Probabilities p_left_;  // P as an operand
  ForwardOutput<Traits> output_;
};

}  // namespace attile::sm90
