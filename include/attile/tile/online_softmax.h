// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/arch/math.h>
#include <attile/core/config.h>
#include <attile/core/math.h>

namespace attile::tile {

/// The weight of a state whose maximum is `m` in a sum that is taken relative to `reference`:
/// 2^((m - reference) * unit). The one place that knows of rows that have seen nothing: there
/// m = -inf, and the weight is 0 and not NaN, also when the reference is -inf too.
ATTILE_HOST_DEVICE float softmax_weight(float m, float reference, float scale_log2) {
  return m == -kInf ? 0.0f : arch::exp2((m - reference) * scale_log2);
}

/// The larger maximum of two states, and the weight that each has relative to it.
struct CommonMaximum {
  float m;
  float weight_a, weight_b;
};

/// m = max(m_a, m_b) and e^(m_a - m), e^(m_b - m): what every merge begins with.
ATTILE_HOST_DEVICE CommonMaximum common_maximum(float m_a, float m_b, float scale_log2) {
  const float m = arch::fmax(m_a, m_b);
  return {m, softmax_weight(m_a, m, scale_log2), softmax_weight(m_b, m, scale_log2)};
}

/// The online softmax state of the rows that one thread holds (arXiv 1805.02867; FlashAttention-2,
/// Alg. 1): m, the largest score so far, and l, the sum of exp(score - m).
/// Units    m as the scores are; `unit` turns scores into log2 units: scale * log2(e) for raw
///          products, log2(e) for scores that have been scaled. l may be one lane's partial sum:
///          `finish` adds the lanes up.
/// Empty    a row that has seen no visible score has m = -inf, l = 0.
template <int kRows>
struct OnlineSoftmax {
  float m[kRows];
  float l[kRows];

  ATTILE_HOST_DEVICE void reset() {
    ATTILE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      m[r] = -kInf;
      l[r] = 0.0f;
    }
  }

  /// Takes one more tile in: S -> P in place, O and (m, l) updated.
  ///   m' = max(m, rowmax S),  l' = l e^(m - m') + rowsum P,  P = e^(S - m'),  O' = O e^(m - m')
  ///                                                       [FlashAttention-2, Alg. 1, lines 9-10]
  /// kSlack   0: m is the maximum after every step. Else O and l are rescaled only where a maximum
  ///          has grown by more than 2^kSlack, and P may be that large: the same result but for
  ///          roundings, since any m between gives it.    [FlashAttention-4's conditional
  ///          rescaling]
  /// Shapes   scores and output hold the same kRows rows.
  /// Units    kSlack: log2.
  /// Scope    the lanes that share a row, together; with slack, all lanes of a warp. Scores give
  ///          row_max(r), any_lane(x) and exponentiate(r, unit, base) -> sum of 2^(s * unit -
  ///          base), with slack also lane_max(r) and lane_max_above(r, floor) of this lane's own;
  ///          outputs give scale_row(r, factor).
  template <int kThreshold = 0, class Scores, class Output>
  ATTILE_HOST_DEVICE void step(Scores& scores, Output& output, float scale_log2) {
    bool needed = true;
    if constexpr (kThreshold > 0) {
      needed = Scores::any_lane(
          above(scores, thresholds<Scores>(kThreshold * arch::reciprocal(scale_log2))));
    }
    const Rescaling rescaling = update_max(scores, scale_log2, needed);
    rescaling.apply(output);
    exponentiate(scores, scale_log2);
  }

  /// The same where each warp of a line has some columns of the scores and of the output.
  /// Scope    all threads of the line; RowWarps says what it gives.
  template <int kThreshold, class Scores, class Output, class RowWarps>
  ATTILE_DEVICE void step(Scores& scores, Output& output, float scale_log2,
                          const RowWarps& row_warps) {
    if constexpr (RowWarps::kOneWarp) return step<kThreshold>(scores, output, scale_log2);
    if (row_warps.any(
            kThreshold == 0 ||
            above(scores, thresholds<Scores>(kThreshold * arch::reciprocal(scale_log2))))) {
      Maxima maxima;
      ATTILE_UNROLL
      for (int r = 0; r < kRows; ++r) maxima.x[r] = scores.row_max(r);
      row_warps.combine(maxima.x, [](float x, float y) { return arch::fmax(x, y); });
      update_max(maxima, scale_log2, true).apply(output);
    }
    exponentiate(scores, scale_log2);
  }

  /// What O is to be multiplied by, where it has to be at all.
  struct Rescaling {
    bool needed;  ///< with slack, the same in all lanes of a warp
    float factor[kRows];

    template <class Output>
    ATTILE_HOST_DEVICE void apply(Output& output) const {
      if (!needed) return;
      ATTILE_UNROLL
      for (int r = 0; r < kRows; ++r) output.scale_row(r, factor[r]);
    }
  };

  /// What a score has to exceed for a maximum to be raised.
  struct Thresholds {
    float x[kRows];
    bool positive;  ///< no sign bit of them is set, in all lanes of a warp
  };
  /// Units    `slack` as the scores are: kSlack / unit.
  template <class Scores>
  ATTILE_HOST_DEVICE Thresholds thresholds(float rescale_threshold) const {
    Thresholds result;
    bool negative = false;
    ATTILE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      result.x[r] = m[r] == -kInf ? -kInf : m[r] + rescale_threshold;
      negative |= arch::has_sign(result.x[r]);
    }
    result.positive = !Scores::any_lane(negative);
    return result;
  }

  /// Whether one of this lane's scores exceeds its row's limit. Where no limit has its sign bit
  /// set, by half as many instructions.
  template <class Scores>
  ATTILE_HOST_DEVICE static bool above(const Scores& scores, const Thresholds& thresholds) {
    bool above = false;
    if (thresholds.positive) {
      ATTILE_UNROLL
      for (int r = 0; r < kRows; ++r) {
        above |= scores.lane_max_above(r, thresholds.x[r]) > thresholds.x[r];
      }
    } else {
      ATTILE_UNROLL
      for (int r = 0; r < kRows; ++r) {
        above |= scores.lane_max(r) > thresholds.x[r];
      }
    }
    return above;
  }

  /// A step in parts, for a kernel that has other work between them: m and l of l' before rowsum P.
  /// `needed`: the same in all lanes of a warp.
  template <class Scores>
  ATTILE_HOST_DEVICE Rescaling update_max(const Scores& scores, float scale_log2, bool needed) {
    Rescaling result{};
    result.needed = needed;
    if (needed) {
      ATTILE_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const float m_new = arch::fmax(m[r], scores.row_max(r));
        result.factor[r] = softmax_weight(m[r], m_new, scale_log2);
        l[r] *= result.factor[r];
        m[r] = m_new;
      }
    }
    return result;
  }

  /// The rest: P, and l' with it.
  template <class Scores>
  ATTILE_HOST_DEVICE void exponentiate(Scores& scores, float scale_log2) {
    ATTILE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      l[r] += scores.exponentiate(r, scale_log2, m[r] == -kInf ? 0.0f : m[r] * scale_log2);
    }
  }

  /// Takes in the state of the same rows over other keys. Both outputs are brought to the common
  /// maximum; their sum, which the caller takes, is the output of this state.
  ///   m' = max(m, m2),  l' = l e^(m - m') + l2 e^(m2 - m'),  O' = O e^(m - m') + O2 e^(m2 - m')
  ///                                                     [FlashAttention-1, section 3.1, "Tiling"]
  /// Shapes   both states and both outputs hold the same kRows rows.
  /// Units    one `unit` for both states.
  /// Scope    before `finish`, each lane with its own part of l; associative and commutative up to
  ///          rounding.
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

  /// `finish` where each warp of a line has some columns.
  /// Scope    all threads of the line.
  /// Barriers one of the line since its last `step`.
  template <class Output, class RowWarps>
  ATTILE_DEVICE void finish(Output& output, float factor, const RowWarps& row_warps) {
    row_warps.combine(l, [](float x, float y) { return x + y; });
    finish(output, factor);
  }

  /// Divides O by l, times `factor`; a row that saw nothing becomes 0.  [Alg. 1, line 12]
  /// Scope    the lanes that share a row, together. The output gives sum_lanes(x) -> the sum of x
  ///          over the lanes of a row, scale_row, and clear_row(r).
  template <class Output>
  ATTILE_HOST_DEVICE void finish(Output& output, float factor = 1.0f) {
    ATTILE_UNROLL
    for (int r = 0; r < kRows; ++r) l[r] = output.sum_lanes(l[r]);
    ATTILE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      output.scale_row(r, factor * arch::reciprocal(l[r]));
      if (l[r] == 0.0f) output.clear_row(r);
    }
  }

  /// LSE = m + ln(l) in natural units, after `finish`; -inf for an empty row. [Alg. 1, line 13]
  /// The fused operation is named because the compiler is otherwise free to fuse or not in each
  /// inlined copy, and a row's bits would then depend on which copy the schedule brings it to.
  ATTILE_HOST_DEVICE float lse(int r, float scale_log2) const {
    return arch::fma(m[r], scale_log2 * kLn2, arch::log(l[r]));
  }

 private:
  /// What has been found of scores, in their place.
  struct Maxima {
    float x[kRows];
    ATTILE_HOST_DEVICE float row_max(int r) const { return x[r]; }
  };
};

/// How two partial results over disjoint keys become one: O = weight_a O_a + weight_b O_b.
struct Merged {
  float lse;
  float weight_a, weight_b;
};

/// Merges two softmax states given as natural-log LSE of normalised partial results. Associative
/// up to rounding; an empty part (LSE = -inf) has weight 0, and two of them stay empty.
ATTILE_HOST_DEVICE Merged merge_lse(float lse_a, float lse_b) {
  const CommonMaximum common = common_maximum(lse_a, lse_b, kLog2e);
  const float sum = common.weight_a + common.weight_b;
  if (sum == 0.0f) return {-kInf, 0.0f, 0.0f};
  return {common.m + arch::log(sum), common.weight_a / sum, common.weight_b / sum};
}

}  // namespace attile::tile
