// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/arch/math.h>
#include <attile/core/config.h>
#include <attile/core/index.h>
#include <attile/core/mask.h>
#include <attile/core/math.h>
#include <attile/core/score_mod.h>
#include <attile/kernel/learn.cuh>
#include <attile/tile/scores.cuh>

#include <type_traits>

namespace attile {

/// P = exp(S' - LSE) (line 11). Units    s * scale: natural; taken before it is scaled to log2
/// units: both may be large where P is not small, and would bring their roundings.
ATTILE_DEVICE float probability(float s, float scale, float lse) {
  return arch::exp2((s * scale - lse) * kLog2e);
}

/// dS' = P (dP - delta) (line 14).
ATTILE_DEVICE float score_gradient(float prob, float dp, float delta) {
  return prob * (dp - delta);
}

/// What a score, a raw product, becomes in the backward pass: P = exp(S' - LSE), 0 where it is
/// hidden, and score_mod'(scale S).
struct Probability {
  float value, derivative;
  bool visible;
};

template <bool kMasked, class Params>
ATTILE_DEVICE Probability probability_of(float s, const ScoreIndex& i, const Params& p,
                                         const tile::TilePlace& place, float lse) {
  using S = std::remove_cvref_t<decltype(p.score_mod)>;
  const float score_scale = kIsIdentity<S> ? p.scale : 1.0f;
  float derivative = 1.0f;
  bool visible = true;
  if constexpr (kMasked || !kIsIdentity<S>) visible = place.inside(i);
  if constexpr (kMasked) visible = visible && p.mask.visible(i, place.extent);
  if constexpr (!kIsIdentity<S>) {
    if (visible) {
      const auto modified = p.score_mod(p.scale * s, i, place.extent);
      s = modified.value;
      derivative = modified.derivative;
      visible = !kMayHide<S> || s != -kInf;
    }
  }
  return {visible ? probability(s, score_scale, lse) : 0.0f, derivative, visible};
}

inline constexpr int kAllRows = 1 << 10;  ///< more than any thread has

/// The pointwise middle of the backward pass, for one tile:
///   P = exp(S' - LSE),   dP = dropout(dO V^T),   dS = P * (dP - delta) * score_mod'(scale S)
/// Leaves dropout(P) in `p_frag` (from S) and dS in `ds_frag` (from dO V^T). Where P is 0 because
/// the score is hidden, so is dS. With kLearn the gradient of a modifier that learns gets dS'.
/// kMasked, the mask is asked about kRowsAtOnce rows of registers, which ascend, then about the
/// next: what it reads waits in registers, and the compiler has all reads begin early, but not
/// across the branch between.
/// Units    lse and delta: the tile's rows of the statistics.
template <bool kMasked, bool kLearn = true, int kRowsAtOnce = kAllRows, class Registers,
          class Params, class Sampler>
ATTILE_DEVICE void probabilities_and_gradient(Registers& p_frag, Registers& ds_frag,
                                              const Params& p, const tile::TilePlace& place,
                                              const float* lse, const float* delta,
                                              const Sampler& sampler) {
  using S = std::remove_cvref_t<decltype(p.score_mod)>;
  const float keep_scale = sampler.keep_scale();
  const tile::KeepBits<Registers, Sampler> bits(place, sampler);
  constexpr int kRows = kMasked ? min(kRowsAtOnce, Registers::kRegRows) : Registers::kRegRows;
  ATTILE_UNROLL
  for (int first = 0; first < Registers::kRegRows; first += kRows) {
    const int end = min(first + kRows, Registers::kRegRows);
    if (kRows < Registers::kRegRows && !place.has_row(Registers::row(first))) {
      ATTILE_UNROLL
      for (int r = first; r < end; ++r) {
        ATTILE_UNROLL
        for (int c = 0; c < Registers::kRegCols; ++c) p_frag.at(r, c) = ds_frag.at(r, c) = 0.0f;
      }
      continue;
    }
    ATTILE_UNROLL
    for (int r = first; r < end; ++r) {
      if (!Registers::has_row(r)) continue;
      const float row_lse = lse[Registers::row(r)];
      const float row_delta = delta[Registers::row(r)];
      ATTILE_UNROLL
      for (int c = 0; c < Registers::kRegCols; ++c) {
        if (!Registers::has_col(c)) continue;
        const ScoreIndex i = place.at(Registers::row(r), Registers::col(c));
        const float s = p_frag.at(r, c);
        const Probability prob = probability_of<kMasked>(s, i, p, place, row_lse);
        const bool keep = bits.keep(r, c);
        const float dp = keep ? ds_frag.at(r, c) * keep_scale : 0.0f;  // line 13
        p_frag.at(r, c) = keep ? prob.value * keep_scale : 0.0f;
        const float ds = score_gradient(prob.value, dp, row_delta);
        if constexpr (kLearn && kLearns<S>) {
          if (prob.visible && ds != 0.0f) {
            p.score_mod.add_gradient(p.scale * s, ds, i, place.extent, AddAtomically{});
          }
        }
        ds_frag.at(r, c) = prob.visible ? ds * prob.derivative : 0.0f;
      }
    }
  }
}

/// Its first half alone, where another warpgroup makes dS: leaves dropout(P) in `p_frag` (from S),
/// and what dS has of it, P * score_mod'(scale S), in `factor`.
template <bool kMasked, class Registers, class Params, class Sampler>
ATTILE_DEVICE void probabilities_and_factor(Registers& p_frag, Registers& factor, const Params& p,
                                            const tile::TilePlace& place, const float* lse,
                                            const Sampler& sampler) {
  const float keep_scale = sampler.keep_scale();
  const tile::KeepBits<Registers, Sampler> bits(place, sampler);
  ATTILE_UNROLL
  for (int r = 0; r < Registers::kRegRows; ++r) {
    const float row_lse = lse[Registers::row(r)];
    ATTILE_UNROLL
    for (int c = 0; c < Registers::kRegCols; ++c) {
      const ScoreIndex i = place.at(Registers::row(r), Registers::col(c));
      const Probability prob = probability_of<kMasked>(p_frag.at(r, c), i, p, place, row_lse);
      p_frag.at(r, c) = bits.keep(r, c) ? prob.value * keep_scale : 0.0f;
      factor.at(r, c) = prob.visible ? prob.value * prob.derivative : 0.0f;
    }
  }
}

/// What `f` does for a tile, which hides scores only where it is at an `edge`, by f(masked): a
/// std::bool_constant that says whether it has to ask the mask.
template <class Registers, class Params, class F>
ATTILE_DEVICE void with_mask(bool edge, Registers& scores, const Params& p,
                             const tile::TilePlace& place, F&& f) {
  using S = std::remove_cvref_t<decltype(p.score_mod)>;
  using M = std::remove_cvref_t<decltype(p.mask)>;
  if constexpr (kIsIdentity<S> && IntervalMask<M>) {
    if (edge) tile::hide_outside_intervals(scores, place, p.mask);
    f(std::false_type{});
  } else if (edge) {
    f(std::true_type{});
  } else {
    f(std::false_type{});
  }
}

/// `probabilities_and_gradient` for a tile that needs the mask only where it is at an `edge`.
template <int kRowsAtOnce = kAllRows, class Registers, class Params, class Sampler>
ATTILE_DEVICE void probabilities_and_gradient(bool edge, Registers& p_frag, Registers& ds_frag,
                                              const Params& p, const tile::TilePlace& place,
                                              const float* lse, const float* delta,
                                              const Sampler& sampler) {
  with_mask(edge, p_frag, p, place, [&](auto masked) {
    constexpr bool kMasked = decltype(masked)::value;
    probabilities_and_gradient<kMasked, true, kRowsAtOnce>(p_frag, ds_frag, p, place, lse, delta,
                                                           sampler);
  });
}

/// Whether the step is but products, exponentials and a mask's edge, and comes in two halves.
template <class M, class S, class P>
inline constexpr bool kPlainStep = kIsIdentity<S>&& IntervalMask<M> && !P::kEnabled;

/// What a tile's statistics have for a thread's rows, read ahead of its scores.
template <class Registers>
struct RowValues {
  float x[Registers::kRegRows];

  RowValues() = default;
  ATTILE_DEVICE explicit RowValues(const float* tile) {
    ATTILE_UNROLL
    for (int r = 0; r < Registers::kRegRows; ++r) x[r] = tile[Registers::row(r)];
  }
};

/// The first half of a plain step: S, with what is hidden -inf, -> P. The second one is
/// `plain_gradient`.
template <class Registers>
ATTILE_DEVICE void plain_probabilities(Registers& p_frag, float scale,
                                       const RowValues<Registers>& lse) {
  ATTILE_UNROLL
  for (int r = 0; r < Registers::kRegRows; ++r) {
    ATTILE_UNROLL
    for (int c = 0; c < Registers::kRegCols; ++c) {
      p_frag.at(r, c) = probability(p_frag.at(r, c), scale, lse.x[r]);
    }
  }
}

/// Scores before their product is added, where that leaves out half of LSE on both sides:
/// s <- -LSE / 2 in raw scores. Of an empty row, whose LSE is infinite, both stay infinite: P = 0.
/// Units    half_unit: 1 / (2 scale).
template <class Registers>
ATTILE_DEVICE void begin_at_half(Registers& s_frag, const RowValues<Registers>& half_lse,
                                 float half_unit) {
  ATTILE_UNROLL
  for (int r = 0; r < Registers::kRegRows; ++r) {
    ATTILE_UNROLL
    for (int c = 0; c < Registers::kRegCols; ++c) {
      s_frag.at(r, c) = half_lse.x[r] * (-2 * half_unit);
    }
  }
}

/// dO V^T -> dS.
template <class Registers>
ATTILE_DEVICE void plain_gradient(const Registers& p_frag, Registers& ds_frag,
                                  const RowValues<Registers>& delta) {
  ATTILE_UNROLL
  for (int r = 0; r < Registers::kRegRows; ++r) {
    ATTILE_UNROLL
    for (int c = 0; c < Registers::kRegCols; ++c) {
      ds_frag.at(r, c) = score_gradient(p_frag.at(r, c), ds_frag.at(r, c), delta.x[r]);
    }
  }
}

}  // namespace attile
