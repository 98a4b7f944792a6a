// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/arch/math.h>
#include <attile/core/array.h>
#include <attile/core/config.h>
#include <attile/core/math.h>
#include <attile/tile/factor_of_p.h>

namespace attile::tile {

/// Returns the weight of a state with maximum `m` in a sum relative to `reference`:
/// 2^((m - reference) * scale_log2). Of a row that has seen nothing, m = -inf, the weight is 0 and
/// not NaN, even when the reference is -inf too.
ATTILE_HOST_DEVICE float softmax_weight(float m, float reference, float scale_log2) {
  return m == -kInf ? 0.0f : arch::exp2((m - reference) * scale_log2);
}

/// Holds the larger maximum of two states, and the weight that each has relative to it.
struct CommonMaximum {
  float m;
  float weight_a, weight_b;
};

/// Returns m = max(m_a, m_b), e^(m_a - m) and e^(m_b - m), with which every merge begins.
ATTILE_HOST_DEVICE CommonMaximum common_maximum(float m_a, float m_b, float scale_log2) {
  const float m = arch::fmax(m_a, m_b);
  return {m, softmax_weight(m_a, m, scale_log2), softmax_weight(m_b, m, scale_log2)};
}

/// Stands for the sinks of rows that have none. Others have
///   kEnabled = true;  logit(r): the sink of row r, natural units, -inf for none;
///   scale_log2: as OnlineSoftmax has it;
///   add_value(output, r, weight): only where sinks have values, as EarlierKeys do. It adds weight
///   times the value of row r to the output.
struct NoSinks {
  static constexpr bool kEnabled = false;
};

/// Says whether sinks have values.
template <class Sinks, class Output>
inline constexpr bool kHaveValues = requires(const Sinks& sinks, Output& output) {
  sinks.add_value(output, 0, 1.0f);
};

/// Holds the online softmax state of the rows that one thread holds (arXiv 1805.02867;
/// FlashAttention-2, Alg. 1): m, and l, the sum of exp(score - m). m is the largest score so far,
/// or with a rescale threshold one before it that is at most that much smaller.
///   tile::OnlineSoftmax<Output::kRegRows> softmax;
///   softmax.reset();
///   ...  // for each tile of keys: S
///   softmax.step(s_frag, o_frag, scale * kLog2e);  // S becomes P, O is rescaled
///   ...  // O += P V; behind the last tile:
///   softmax.finish(o_frag);
///   const float lse = softmax.lse(r, scale * kLog2e);
/// Units    m: those of the scores. `scale_log2` turns scores into log2 units: scale * log2(e) for
///          raw products, log2(e) for scaled scores. l may be the partial sum of one lane: `finish`
///          adds those of the lanes.
/// Empty    a row that has seen no visible score has m = -inf, l = 0.
template <int kRows>
struct OnlineSoftmax {
  Array<float, kRows> m, l;

  /// Makes every row empty.
  ATTILE_HOST_DEVICE void reset() {
    ATTILE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      m[r] = -kInf;
      l[r] = 0.0f;
    }
  }

  /// Processes one more tile of scores: replaces S by P, and updates O, m and l.
  ///   m' = max(m, rowmax S),  l' = l e^(m - m') + rowsum P,  P = e^(S - m'),  O' = O e^(m - m')
  ///                                                       [FlashAttention-2, Alg. 1, lines 9-10]
  /// kThreshold  0: m is the maximum after every step. Else O and l are rescaled only where the
  ///          exponential of a maximum has grown by a factor above 2^kThreshold, and P may be
  ///          that large. The result is the same but for roundings, since any m in between gives
  ///          it. [FlashAttention-4's conditional rescaling]
  /// Shapes   scores and output hold the same kRows rows.
  /// Units    kThreshold: log2.
  /// Scope    the lanes that share a row, together; with a rescale threshold, all lanes of a warp.
  ///          Scores have row_max(r), any_lane(x) and exponentiate(r, scale_log2, base) -> sum of
  ///          2^(s * scale_log2 - base); with a threshold also lane_max(r) and lane_max_above(r,
  ///          floor) of this lane alone. Outputs have scale_row(r, factor).
  template <int kThreshold = 0, class Scores, class Output>
  ATTILE_HOST_DEVICE void step(Scores& scores, Output& output, float scale_log2) {
    update_max<kThreshold>(scores, scale_log2).apply(output);
    exponentiate(scores, scale_log2);
  }

  /// Processes a tile as `step` without a threshold does, and leaves O alone where the factors of
  /// all rows of the warp are 1: where all have seen a key, and no maximum has risen. P, and so l
  /// and O, have the factor of FactorOfP, which `remove_factor` takes off. Scope    a whole warp.
  template <class Factor = FactorOfP<0>, class Scores, class Output>
  ATTILE_DEVICE void step_exactly(Scores& scores, Output& output, float scale_log2) {
    step_to_maxima<Factor>(scores, scores, output, scale_log2);
  }
  /// The same where each warp of a row holds some columns. Scope    all threads of these warps.
  template <class Factor, class Scores, class Output, class RowWarps>
  ATTILE_DEVICE void step_exactly(Scores& scores, Output& output, float scale_log2,
                                  const RowWarps& row_warps) {
    Maxima maxima;
    ATTILE_UNROLL
    for (int r = 0; r < kRows; ++r) maxima.x[r] = scores.row_max(r);
    row_warps.combine_rows(maxima.x, [](float x, float y) { return arch::fmax(x, y); });
    step_to_maxima<Factor>(maxima, scores, output, scale_log2);
  }

  /// Processes a tile as the first `step` where each warp of a row holds some columns of the scores
  /// and of the output. `row_warps`: as tile::RowWarps. Scope    all threads of the warps of a row.
  template <int kThreshold, class Scores, class Output, class RowWarps>
  ATTILE_DEVICE void step(Scores& scores, Output& output, float scale_log2,
                          const RowWarps& row_warps) {
    if constexpr (RowWarps::kOneWarp) return step<kThreshold>(scores, output, scale_log2);
    if (row_warps.any(
            kThreshold == 0 ||
            lane_maxima(scores, thresholds<Scores>(kThreshold * arch::reciprocal(scale_log2)))
                .above)) {
      Maxima maxima;
      ATTILE_UNROLL
      for (int r = 0; r < kRows; ++r) maxima.x[r] = scores.row_max(r);
      row_warps.combine(maxima.x, [](float x, float y) { return arch::fmax(x, y); });
      update_max(maxima, scale_log2, true).apply(output);
    }
    exponentiate(scores, scale_log2);
  }

  /// Holds the factors of the rows of O, and whether O has to be rescaled at all.
  struct Rescaling {
    bool needed;  ///< with a rescale threshold, the same in all lanes of a warp
    Array<float, kRows> factor;

    /// Rescales the output where that is needed.
    template <class Output>
    ATTILE_HOST_DEVICE void apply(Output& output) const {
      if (!needed) return;
      ATTILE_UNROLL
      for (int r = 0; r < kRows; ++r) output.scale_row(r, factor[r]);
    }
  };

  /// Holds, for each row, the number that a score has to exceed for O to be rescaled.
  struct Thresholds {
    Array<float, kRows> x;
    bool signs_clear;  ///< whether no threshold has its sign bit set, in any lane of the warp
  };
  /// Returns the thresholds of the rows.
  /// Units    rescale_threshold: those of the scores, kThreshold / scale_log2.
  template <class Scores>
  ATTILE_HOST_DEVICE Thresholds thresholds(float rescale_threshold) const {
    Thresholds result;
    bool negative = false;
    ATTILE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      result.x[r] = m[r] == -kInf ? -kInf : m[r] + rescale_threshold;
      negative |= arch::has_sign(result.x[r]);
    }
    result.signs_clear = !Scores::any_lane(negative);
    return result;
  }

  /// Holds the largest score of each row that this lane has, or the row's threshold where that is
  /// larger, and whether any exceeds its threshold.
  struct LaneMaxima {
    Array<float, kRows> x;
    bool above;
  };
  /// Returns the LaneMaxima. With signs_clear it compares integers: half as many instructions.
  template <class Scores>
  ATTILE_HOST_DEVICE static LaneMaxima lane_maxima(const Scores& scores,
                                                   const Thresholds& thresholds) {
    LaneMaxima result{};
    if (thresholds.signs_clear) {
      ATTILE_UNROLL
      for (int r = 0; r < kRows; ++r) {
        result.x[r] = scores.lane_max_above(r, thresholds.x[r]);
      }
    } else {
      ATTILE_UNROLL
      for (int r = 0; r < kRows; ++r) {
        result.x[r] = arch::fmax(scores.lane_max(r), thresholds.x[r]);
      }
    }
    ATTILE_UNROLL
    for (int r = 0; r < kRows; ++r) result.above |= result.x[r] > thresholds.x[r];
    return result;
  }

  /// Does the first part of a step, for a kernel that has other work between the parts: updates m,
  /// and l without rowsum P. `step` is
  ///   const auto rescaling = softmax.update_max<8>(s_frag, scale_log2);
  ///   rescaling.apply(o_frag);
  ///   softmax.exponentiate(s_frag, scale_log2);
  template <int kThreshold, class Scores>
  ATTILE_HOST_DEVICE Rescaling update_max(const Scores& scores, float scale_log2) {
    bool needed = true;
    if constexpr (kThreshold > 0) {
      needed = Scores::any_lane(
          lane_maxima(scores, thresholds<Scores>(kThreshold * arch::reciprocal(scale_log2))).above);
    }
    return update_max(scores, scale_log2, needed);
  }

  /// Updates m, and l as above, where the kernel has compared the scores itself. `needed`: whether
  /// a score of the warp exceeds its row's threshold, the same in all lanes; if not, m and l stay.
  template <class Scores>
  ATTILE_HOST_DEVICE Rescaling update_max(const Scores& scores, float scale_log2, bool needed) {
    Rescaling result{};
    result.needed = needed;
    if (needed) {  // With an early return sm80 spills 12 bytes at D = 128 (nvcc 13.0).
      ATTILE_UNROLL
      for (int r = 0; r < kRows; ++r) update_row(result, r, scores.row_max(r), scale_log2);
    }
    return result;
  }
  /// Updates m, and l as above, of rows with a score above their threshold, without the scores. The
  /// others keep m and l, and have the factor 1, or 0 where they have seen no key.
  /// `offset`: how far m is set below the largest score, so that P is above 1.
  /// Scope    all lanes of a warp. Scores have max_lanes(x) -> the maximum of x over a row's lanes.
  template <class Scores, class Offset>
  ATTILE_HOST_DEVICE Rescaling update_max_above(const LaneMaxima& maxima,
                                                const Thresholds& thresholds, float scale_log2,
                                                const Offset& offset) {
    Rescaling result{};
    result.needed = Scores::any_lane(maxima.above);
    if (!result.needed) return result;
    ATTILE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const float largest = Scores::max_lanes(maxima.x[r]);
      const float candidate = largest > thresholds.x[r] ? offset.below(largest) : m[r];
      update_row(result, r, candidate, scale_log2);
    }
    return result;
  }

  /// Does the second part of a step: computes P, and adds its row sums to l.
  template <class Factor = FactorOfP<0>, class Scores>
  ATTILE_HOST_DEVICE void exponentiate(Scores& scores, float scale_log2) {
    ATTILE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      float base = m[r] == -kInf ? 0.0f : m[r] * scale_log2;
      if (Factor::applies(m[r], scale_log2)) base -= Factor::kLog2;
      l[r] += scores.exponentiate(r, scale_log2, base);
    }
  }

  /// Makes l and O what steps without the factor would have made, exactly.
  template <class Factor, class Output>
  ATTILE_HOST_DEVICE void remove_factor(Output& output, float scale_log2) {
    ATTILE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const float inverse = Factor::change(Factor::applies(m[r], scale_log2), false);
      l[r] *= inverse;
      output.scale_row(r, inverse);
    }
  }

  /// Merges the state of the same rows over other keys into this one. Both outputs are rescaled to
  /// the common maximum; their sum, which the caller computes, is the output of this state.
  ///   m' = max(m, m2),  l' = l e^(m - m') + l2 e^(m2 - m'),  O' = O e^(m - m') + O2 e^(m2 - m')
  ///                                                     [FlashAttention-1, section 3.1, "Tiling"]
  /// Shapes   both states and both outputs hold the same kRows rows.
  /// Units    one `scale_log2` for both states.
  /// Scope    before `finish`, each lane with its own part of l. The merge is associative and
  ///          commutative up to rounding.
  template <class Output>
  ATTILE_HOST_DEVICE void merge(const OnlineSoftmax& other, Output& output, Output& other_output,
                                float scale_log2) {
    ATTILE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const CommonMaximum common = common_maximum(m[r], other.m[r], scale_log2);
      m[r] = common.m;
      l[r] = l[r] * common.weight_a + other.l[r] * common.weight_b;
      output.scale_row(r, common.weight_a);
      other_output.scale_row(r, common.weight_b);
    }
  }

  /// Divides O by l as below where each warp of a row holds some columns.
  /// Scope    all threads of the warps of a row.
  /// Barriers one of these warps since their last `step`, whose exchanged values this overwrites.
  template <class Output, class RowWarps, class Sinks>
  ATTILE_DEVICE void finish(Output& output, float factor, const RowWarps& row_warps,
                            const Sinks& sinks) {
    row_warps.combine(l, [](float x, float y) { return x + y; });
    finish(output, factor, sinks);
  }

  /// Divides O by l, times `factor`; a row that saw nothing becomes 0.  [Alg. 1, line 12]
  /// Sinks    with them l becomes that of the keys and the sink: see `add_sink`. What has a value
  ///          adds that to O, but for a sink of -inf, whose value is not looked at.
  /// Scope    the lanes that share a row, together. The output has sum_lanes(x) -> the sum of x
  ///          over the lanes of a row, scale_row(r, factor) and clear_row(r).
  template <class Output, class Sinks = NoSinks>
  ATTILE_HOST_DEVICE void finish(Output& output, float factor = 1.0f, const Sinks& sinks = {}) {
    ATTILE_UNROLL
    for (int r = 0; r < kRows; ++r) l[r] = output.sum_lanes(l[r]);
    ATTILE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const float of_keys = l[r];
      float of_row = factor;
      float sink = -kInf;
      SinkWeights weights{1.0f, 0.0f};
      if constexpr (Sinks::kEnabled) {
        sink = sinks.logit(r);
        weights = add_sink(r, sink, sinks.scale_log2);
        of_row *= weights.of_keys;
      }
      if constexpr (kHaveValues<Sinks, Output>) {
        // Without this a NaN would be lost in add_sink. An infinite LSE is no number either.
        if (!(sink < kInf)) l[r] = kNan;
      }
      output.scale_row(r, of_row * arch::reciprocal(l[r]));
      if (of_keys == 0.0f) output.clear_row(r);
      if constexpr (kHaveValues<Sinks, Output>) {
        if (sink != -kInf) sinks.add_value(output, r, weights.of_sink * arch::reciprocal(l[r]));
      }
    }
  }

  /// Returns LSE = m + ln(l) in natural units, after `finish`; -inf for an empty row.
  ///                                                                           [Alg. 1, line 13]
  /// It calls fma because the compiler could otherwise fuse the operations in one inlined copy and
  /// not in another, and the bits of a row would depend on the copy that computes it.
  ATTILE_HOST_DEVICE float lse(int r, float scale_log2) const {
    return arch::fma(m[r], scale_log2 * kLn2, arch::log(l[r]));
  }

  /// Returns LSE of a row with a sink, which `finish` has added.
  ATTILE_HOST_DEVICE float lse(int r, float scale_log2, float sink) const {
    // A finite sink is above the maximum of no keys. `||` would make short rows 1.1 slow.
    const bool above = (m[r] == -kInf) | (sink_above_maximum(r, scale_log2, sink) > 0.0f);
    return arch::fma(above ? sink : m[r], above ? 1.0f : scale_log2 * kLn2, arch::log(l[r]));
  }

 private:
  /// Does a step, exactly, with the maxima of the scores that `maxima` has.
  template <class Factor, class Maxima, class Scores, class Output>
  ATTILE_DEVICE void step_to_maxima(const Maxima& maxima, Scores& scores, Output& output,
                                    float scale_log2) {
    const OnlineSoftmax before = *this;
    Rescaling rescaling = update_max(maxima, scale_log2, true);
    bool rises = false;
    ATTILE_UNROLL
    for (int r = 0; r < kRows; ++r) rises |= rescaling.factor[r] != 1.0f;
    rescaling.needed = Scores::any_lane(rises);
    if (Factor::kLog2 > 0 && rescaling.needed) {  // m that stays has the factor that it had
      ATTILE_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const float change = Factor::change(Factor::applies(before.m[r], scale_log2),
                                            Factor::applies(m[r], scale_log2));
        rescaling.factor[r] *= change;
        l[r] *= change;
      }
    }
    rescaling.apply(output);
    exponentiate<Factor>(scores, scale_log2);
  }
  /// Raises m of a row to `candidate`, if it is smaller.
  ATTILE_HOST_DEVICE void update_row(Rescaling& rescaling, int r, float candidate,
                                     float scale_log2) {
    const float m_new = arch::fmax(m[r], candidate);
    rescaling.factor[r] = softmax_weight(m[r], m_new, scale_log2);
    l[r] *= rescaling.factor[r];
    m[r] = m_new;
  }
  /// Holds what the O of a row's keys, and the value of its sink, have to be multiplied by to be
  /// relative to the larger of m and the sink.
  struct SinkWeights {
    float of_keys, of_sink;
  };
  /// Adds a sink to the l of a row, relative to the larger of m and the sink, and returns the
  /// weights. So the sink may exceed all scores by any amount. m stays that of the scores, as a
  /// sink in their units may be infinite.
  ///   m' = max(m, sink),  l' = l e^(m - m') + e^(sink - m'),  O' = O e^(m - m')
  ATTILE_HOST_DEVICE SinkWeights add_sink(int r, float sink, float scale_log2) {
    const float above = sink_above_maximum(r, scale_log2, sink);
    const float of_keys = arch::exp2(-arch::fmax(above, 0.0f));
    const float of_sink = sink == -kInf ? 0.0f : arch::exp2(-arch::fmax(-above, 0.0f));
    l[r] = arch::fma(l[r], of_keys, of_sink);
    return {of_keys, of_sink};
  }
  /// Returns sink - m. NaN where both are -inf. Units: log2.
  ATTILE_HOST_DEVICE float sink_above_maximum(int r, float scale_log2, float sink) const {
    return arch::fma(-m[r], scale_log2, sink * kLog2e);
  }

  /// Holds row maxima that are known already, for `update_max` in place of scores.
  struct Maxima {
    Array<float, kRows> x;
    ATTILE_HOST_DEVICE float row_max(int r) const { return x[r]; }
  };
};

}  // namespace attile::tile
