// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/core/block_sparse.h>
#include <attile/core/config.h>
#include <attile/core/index.h>
#include <attile/core/mask.h>
#include <attile/core/math.h>
#include <attile/core/modifier_gradient.h>
#include <attile/core/score_mod.h>
#include <attile/core/tile_modifier.h>
#include <attile/kernel/backward/backward_step.cuh>
#include <attile/kernel/backward/log2_lse.cuh>
#include <attile/tile/modifier_math.h>
#include <attile/tile/modify.cuh>
#include <attile/tile/scores.cuh>
#include <attile/tile/tile_coord.cuh>

#include <type_traits>

// The pointwise middle of the backward pass in two halves: the first one makes P, and a factor of
// dS, before dP is there, and the second one dS. So exponentials run beside the product of dP.

namespace attile {

/// Returns P as the first half of a step leaves it for the second one: with tile::SignedP with the
/// sign of dropout's decision.
template <class Keep>
ATTILE_DEVICE float probability(float s, float scale, float lse, const Keep&, bool is_kept) {
  const float p = probability(s, scale, lse);
  return !Keep::kSigns || is_kept ? p : -p;
}

/// Holds one row statistic of a tile for a thread's rows, read before its scores are computed.
template <class Registers>
struct RowValues {
  float x[Registers::kRegRows];

  RowValues() = default;
  ATTILE_DEVICE explicit RowValues(const float* tile) {
    ATTILE_UNROLL
    for (int r = 0; r < Registers::kRegRows; ++r) x[r] = tile[Registers::row(r)];
  }
};

/// Computes the first half alone, before dP is there: leaves dropout(P), but for its factor
/// keep_scale, in `p_frag` (from S), and P * score_mod'(scale S), a factor of dS, in `factor`; with
/// tile::SignedP both have the factor of its LSE, and the sign of the decision. In a tile at an
/// `edge` both are replaced by 0 where the score is hidden: an interval mask is asked here, and the
/// answers of another one are `shown`. The modifier is applied to hidden scores, too. `keep`:
/// tile::KeepBits, KeepSigns or KeptSigns; `elements`: see with_modifier.
template <class Edge, class Registers, class Params, class Keep, class Elements = tile::NoElements>
ATTILE_DEVICE void probabilities_and_factor(Edge edge, Registers& p_frag, Registers& factor,
                                            const Params& p, const tile::TileCoord& coord,
                                            const float* lse, const Keep& keep,
                                            const tile::VisibleBits<Registers>& shown,
                                            const Elements& elements = {}) {
  using S = std::remove_cvref_t<decltype(p.policies.score_mod)>;
  const float score_scale = kIsIdentity<S> ? p.scale : 1.0f;
  constexpr bool kHasDropout = std::remove_cvref_t<decltype(p.policies)>::DropoutType::kEnabled;
  // With a derivative of 1 both are the same, unless only one has dropout. A copy is free.
  constexpr bool kAreOne = !kNeedsScores<S> && (!kHasDropout || Keep::kSigns);
  // P of a score of -inf is 0; where its derivative is NaN, their product has to be 0, too.
  constexpr bool kHides = kMayHide<S> && kNeedsScores<S>;
  // Above 128 columns dropout leaves no registers for ways to simplify.
  constexpr bool kSimplifies = !kHasDropout || Params::kColumns <= 128;
  // From 65 to 128 columns there are no registers for LSE where a thread reads an element of memory
  // for each score that is wider than 16 bits, or has a gradient, too: it reads LSE there.
  using Element = typename ElementTypeOf<S, typename Params::T>::type;
  constexpr bool kReadsLseLate = Params::kColumns > 64 && Params::kColumns <= 128 &&
                                 std::is_same_v<Elements, tile::NoElements> &&
                                 kHasElements<S, tile::MathOf<typename Params::T>> &&
                                 (sizeof(Element) > 2 || kHasGradient<S>);
  with_modifier<true, kSimplifies>(p_frag, p, coord, elements, [&](const auto& modifier) {
    float row_lse[Registers::kRegRows];
    ATTILE_UNROLL
    for (int r = 0; r < Registers::kRegRows; ++r) row_lse[r] = lse[Registers::row(r)];
    keep.for_each(coord, [&](int r, int c, bool is_kept) {
      const auto modified = modifier(p_frag.at(r, c), r, c);
      const float of_row = kReadsLseLate ? lse[Registers::row(r)] : row_lse[r];
      const float prob = probability(modified.value, score_scale, of_row, keep, is_kept);
      p_frag.at(r, c) = Keep::kSigns || is_kept ? prob : 0.0f;
      factor.at(r, c) = kHides && modified.value == -kInf ? 0.0f : prob * modified.derivative;
    });
  });
  if (edge) {
    if constexpr (IntervalMask<MaskInTiles<typename Params::MaskType>>) {
      tile::for_each_outside<Registers>(coord, p.mask_in_tile(in_full_block(edge)),
                                        [&](int r, int c) {
                                          factor.at(r, c) = 0.0f;
                                          if (!kAreOne) p_frag.at(r, c) = 0.0f;
                                        });
    } else {
      shown.hide(factor, 0.0f);
      if constexpr (!kAreOne) shown.hide(p_frag, 0.0f);
    }
  }
  if constexpr (kAreOne) {
    ATTILE_UNROLL
    for (int r = 0; r < Registers::kRegRows; ++r) {
      ATTILE_UNROLL
      for (int c = 0; c < Registers::kRegCols; ++c) p_frag.at(r, c) = factor.at(r, c);
    }
  }
}

/// Computes the first half of the fast path: S, with -inf where it is hidden, -> P, which is also
/// the factor of dS. The second half is `gradient_of_factor`. `keep`: see probabilities_and_factor.
/// Units    S: raw products, or S' of a modifier; with kLog2Lse Params::log2_lse has the factor of
///          either. lse: with kLog2Lse log2 (Log2Lse), else natural.
template <bool kLog2Lse, class Registers, class Params, class Keep>
ATTILE_DEVICE void fast_probabilities(Registers& p_frag, const Params& p,
                                      const tile::TileCoord& coord, const RowValues<Registers>& lse,
                                      const Keep& keep) {
  keep.for_each(coord, [&](int r, int c, bool is_kept) {
    float& x = p_frag.at(r, c);
    x = kLog2Lse ? log2_probability(x, p.log2_lse.scale_log2, lse.x[r], keep, is_kept)
                 : probability(x, p.scale, lse.x[r], keep, is_kept);
  });
}

/// Begins scores at half, before their product is added: s <- -LSE / (2 scale), in raw scores.
/// `fast_probabilities` subtracts the other half of LSE. For an empty row, whose LSE is infinite,
/// both stay infinite: P = 0.
/// Units    half_lse: LSE / 2; half_inverse_scale: 1 / (2 scale).
template <class Registers>
ATTILE_DEVICE void begin_at_half(Registers& s_frag, const RowValues<Registers>& half_lse,
                                 float half_inverse_scale) {
  ATTILE_UNROLL
  for (int r = 0; r < Registers::kRegRows; ++r) {
    ATTILE_UNROLL
    for (int c = 0; c < Registers::kRegCols; ++c) {
      s_frag.at(r, c) = half_lse.x[r] * (-2 * half_inverse_scale);
    }
  }
}

/// Computes dO V^T -> dS = factor * (dropout(dP) - delta), the second half of a step. The factor
/// comes from the first half: P of `fast_probabilities`, or that of `probabilities_and_factor`.
/// `keep`: the same. With kHides dS is 0 where the factor is, also where dP is NaN or inf.
template <bool kHides = false, class Registers, class Keep>
ATTILE_DEVICE void gradient_of_factor(const Registers& factor, Registers& ds_frag,
                                      const RowValues<Registers>& delta, const Keep& keep) {
  ATTILE_UNROLL
  for (int r = 0; r < Registers::kRegRows; ++r) {
    const float row_delta = delta.x[r];
    ATTILE_UNROLL
    for (int c = 0; c < Registers::kRegCols; ++c) {
      float& ds = ds_frag.at(r, c);
      if constexpr (Keep::kSigns) {
        ds = Keep::ds(factor.at(r, c), ds, row_delta);
      } else {
        ds = factor.at(r, c) * keep.dp_minus_delta(r, c, ds, row_delta);
      }
      if (kHides && factor.at(r, c) == 0.0f) ds = 0.0f;
    }
  }
}

/// Gives dS, which is dS', to `gradient`, for a modifier that does not need the scores. Where a
/// score is hidden dS is 0.
template <class Registers, class Params, class Gradient>
ATTILE_DEVICE void add_modifier_gradient(const Registers& ds_frag, const Params& p,
                                         const tile::TileCoord& coord, const Gradient& gradient) {
  typename Gradient::template Tile<Registers> sums(gradient, p.policies.score_mod, coord);
  ATTILE_UNROLL
  for (int r = 0; r < Registers::kRegRows; ++r) {
    ATTILE_UNROLL
    for (int c = 0; c < Registers::kRegCols; ++c) {
      const float ds = ds_frag.at(r, c);
      const ScoreIndex i = coord.at(Registers::row(r), Registers::col(c));
      sums.template take<true>(r, c, 0.0f, ds, i, ds != 0.0f);
    }
    if ((r + 1) % sums.kRows == 0) sums.add(r + 1 - sums.kRows);
  }
  sums.end();
}

}  // namespace attile
