// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/arch/math.h>
#include <attile/core/block_sparse.h>
#include <attile/core/config.h>
#include <attile/core/index.h>
#include <attile/core/mask.h>
#include <attile/core/math.h>
#include <attile/core/score_mod.h>
#include <attile/kernel/backward/gradient_sums.cuh>
#include <attile/tile/dropout.cuh>
#include <attile/tile/modifier_math.h>
#include <attile/tile/modifier_words.cuh>
#include <attile/tile/scores.cuh>

#include <type_traits>

namespace attile {

/// Returns P = exp(S' - LSE) (line 11).
/// Units    s * scale: natural. LSE is subtracted before the scaling to log2 units: both may be
///          large where P is not small, and scaling them would add their roundings.
ATTILE_DEVICE float probability(float s, float scale, float lse) {
  return arch::exp2((s * scale - lse) * kLog2e);
}

/// Holds what the backward pass computes from a score, a raw product: P = exp(S' - LSE), which is 0
/// where the score is hidden, and score_mod'(scale S).
struct Probability {
  float value, derivative;
  bool visible;
};

/// Asks the mask about each score once that has been computed. See tile::VisibleBits, too.
template <class M>
struct AskedMask {
  static constexpr bool kModifierBranches = true;  ///< a modifier never gets a hidden score
  const M& mask;
  const tile::TileCoord& coord;

  ATTILE_DEVICE bool visible(int, int, const ScoreIndex& i) const {
    return coord.inside(i) && mask.visible(i, coord.extent);
  }
};

/// Says whether the mask has to be asked about each score of a tile by itself.
template <class M, class S>
inline constexpr bool kAsksEachScore = !(kIsIdentity<S> && IntervalMask<MaskInTiles<M>>);

/// Returns the Probability of a score. `modified_of`(s) applies the score modifier; `visible`: see
/// visible_in.
template <bool kModifierBranches, class Params, class Modified>
ATTILE_DEVICE Probability probability_of(float s, const Params& p, float lse, bool visible,
                                         const Modified& modified_of) {
  using S = std::remove_cvref_t<decltype(p.policies.score_mod)>;
  const float score_scale = kIsIdentity<S> ? p.scale : 1.0f;
  float derivative = 1.0f;
  if constexpr (!kIsIdentity<S>) {
    // Without a branch, what scores have in common is read once. A modifier that may hide a score
    // is treated as a bias with an element for each score: without a branch all of them would be
    // loaded at once, and there are no registers for that.
    constexpr bool kAlways = !kModifierBranches && !kMayHide<S>;
    if (kAlways || visible) {
      const auto modified = modified_of(s);
      s = modified.value;
      derivative = modified.derivative;
      visible = visible && (!kMayHide<S> || s != -kInf);
    }
  }
  return {visible ? probability(s, score_scale, lse) : 0.0f, derivative, visible};
}

/// Returns whether the score in registers (r, c) is visible before the modifier is applied; with
/// kMasked that is the answer of `shown`, and without all scores are.
template <bool kMasked, class Shown>
ATTILE_DEVICE bool visible_in(const Shown& shown, int r, int c, const ScoreIndex& i) {
  if constexpr (kMasked) {
    return shown.visible(r, c, i);
  } else {
    return true;
  }
}

/// Calls f(modifier) with what applies the score modifier to the raw scores in `s_frag`
/// (tile::ThreadModifier). With kMasked the last column stands for others. `elements`: those of the
/// scores (TransposedElements, DiagonalWords, HeldColumns), or what tile/modify.cuh has in their
/// place. With kSimplifies the modifier may ask what the scores have in common (TileModifier).
template <bool kMasked, bool kSimplifies, class Registers, class Params, class Elements, class F>
ATTILE_DEVICE void with_modifier(Registers& s_frag, const Params& p, const tile::TileCoord& coord,
                                 const Elements& elements, const F& f) {
  // Above 64 columns there are no registers for what the modifier has prepared, but where what it
  // reads is given: dP then comes later.
  constexpr bool kGiven = !std::is_same_v<Elements, tile::NoElements>;
  const auto& mod = [&]() -> const auto& {
    if constexpr (kGiven || Params::kColumns <= 64) {
      return p.modifier();
    } else {
      return p.policies.score_mod;
    }
  }
  ();
  using S = std::remove_cvref_t<decltype(mod)>;
  using Math = tile::MathOf<typename Params::T>;
  if constexpr (tile::kAreDiagonalWords<Elements>) {
    const ScoreBlock block{coord.nearest_inside(coord.at(0, 0)), coord.extent, 1, 1, p.scale};
    const auto of_tile = modifier_of_diagonals(mod, p.policies.score_mod, block, Math());
    using Tile = std::remove_const_t<decltype(of_tile)>;
    const tile::DiagonalModifier<Registers, Tile, typename Elements::Element> modifier{of_tile,
                                                                                       elements};
    if constexpr (kSimplifies) {
      modifier.with(s_frag, f);
    } else {
      f(modifier);
    }
  } else if constexpr (tile::kAreHeldColumns<Elements>) {
    elements.template with<kSimplifies>(s_frag, mod, p.policies.score_mod, coord, p.scale, f);
  } else if constexpr (std::is_same_v<Elements, tile::AppliedElements>) {
    f([](float s, int, int) { return ModifiedScore<float>{s, 1.0f}; });
  } else if constexpr (std::is_same_v<Elements, tile::ColumnElements>) {
    using ByColumns = tile::ByColumns<std::remove_cvref_t<decltype(p.policies.score_mod)>>;
    const tile::Modifier<Registers, tile::TileCoord, ByColumns, Math> modifier(
        coord, ByColumns{p.policies.score_mod}, p.scale);
    modifier.template with<kMasked>(s_frag, [&](const auto& of_thread, int, int) { f(of_thread); });
  } else {
    const tile::Modifier<Registers, tile::TileCoord, S, Math> modifier(coord, mod, p.scale);
    if constexpr (kGiven) {
      modifier.template with_elements<kSimplifies>(s_frag, [&](const auto& given) {
        f([&](float x, int r, int c) { return given(x, r, c, elements.at(r, c)); });
      });
    } else {
      modifier.template with<kMasked, kSimplifies>(
          s_frag, [&](const auto& of_thread, int, int) { f(of_thread); });
    }
  }
}

/// Computes the pointwise middle of the backward pass, for one tile:
///   P = exp(S' - LSE),   dP = dropout(dO V^T),   dS = P * (dP - delta) * score_mod'(scale S)
/// Leaves dropout(P), but for its factor keep_scale, in `p_frag` (from S) and dS in `ds_frag` (from
/// dO V^T). Where the score is hidden so that P is 0, dS is 0, too; where it was hidden as S = -inf
/// beforehand, but for NaN and inf in dP. dS' is given to `gradient`: see GradientOf.
/// `elements`: see with_modifier; `keep_bits`: tile::KeepBits; `shown`: AskedMask or VisibleBits.
/// Shapes   lse and delta: the tile's rows of the statistics.
template <bool kMasked, class Scores, class Registers, class Params, class Keep, class Shown,
          class Gradient, class Elements = tile::NoElements>
ATTILE_DEVICE void probabilities_and_gradient(Scores& p_frag, Registers& ds_frag, const Params& p,
                                              const tile::TileCoord& coord, const float* lse,
                                              const float* delta, const Keep& keep_bits,
                                              const Shown& shown, const Gradient& gradient,
                                              const Elements& elements = {}) {
  using GradientTile = typename Gradient::template Tile<Registers>;
  // Each way to simplify takes registers, which dropout and dP leave none for above 64 columns.
  constexpr bool kHasDropout = std::remove_cvref_t<decltype(p.policies)>::DropoutType::kEnabled;
  constexpr bool kSimplifies = !kHasDropout || Params::kColumns <= 64;
  with_modifier<kMasked, kSimplifies>(p_frag, p, coord, elements, [&](const auto& modifier) {
    GradientTile sums(gradient, p.policies.score_mod, coord);
    ATTILE_UNROLL
    for (int r = 0; r < Registers::kRegRows; ++r) {
      if (!Registers::has_row(r)) continue;
      const float row_lse = lse[Registers::row(r)];
      const float row_delta = delta[Registers::row(r)];
      ATTILE_UNROLL
      for (int c = 0; c < Registers::kRegCols; ++c) {
        if (!Registers::has_col(c)) continue;
        const ScoreIndex i = coord.at(Registers::row(r), Registers::col(c));
        const float s = p_frag.at(r, c);
        const bool visible = visible_in<kMasked>(shown, r, c, i);
        const Probability prob = probability_of<Shown::kModifierBranches>(
            s, p, row_lse, visible, [&](float x) { return modifier(x, r, c); });
        p_frag.at(r, c) = keep_bits.keep(r, c) ? prob.value : 0.0f;
        const float ds = prob.value * keep_bits.dp_minus_delta(r, c, ds_frag.at(r, c), row_delta);
        const float visible_ds = prob.visible ? ds : 0.0f;  // also where dP is NaN or inf
        sums.template take<kMasked>(r, c, p.scale * s, visible_ds, i, prob.visible);
        ds_frag.at(r, c) = prob.visible ? ds * prob.derivative : 0.0f;
      }
      if ((r + 1) % GradientTile::kRows == 0) sums.add(r + 1 - GradientTile::kRows);
    }
    sums.end();
  });
}

/// Does the same, but asks dropout about the whole tile beforehand, and so a mask that says what
/// scores have in common; any other one is asked about each score once that has been computed.
/// `is_full`: whether block lists name its block as full.
template <bool kMasked, class Registers, class Params, class Sampler, class Gradient,
          class Elements = tile::NoElements>
ATTILE_DEVICE void probabilities_and_gradient(Registers& p_frag, Registers& ds_frag,
                                              const Params& p, const tile::TileCoord& coord,
                                              const float* lse, const float* delta,
                                              const Sampler& sampler, bool is_full,
                                              const Gradient& gradient,
                                              const Elements& elements = {}) {
  using M = MaskInTiles<typename Params::MaskType>;
  const tile::KeepBits<Registers, Sampler> keep_bits(coord, sampler);
  if constexpr (kMasked && kHasTileMask<M>) {
    tile::VisibleBits<Registers> shown;
    shown.ask(p.mask_in_tile(is_full), coord);
    probabilities_and_gradient<kMasked>(p_frag, ds_frag, p, coord, lse, delta, keep_bits, shown,
                                        gradient, elements);
  } else {
    probabilities_and_gradient<kMasked>(p_frag, ds_frag, p, coord, lse, delta, keep_bits,
                                        AskedMask<M>{p.mask_in_tile(is_full), coord}, gradient,
                                        elements);
  }
}

/// Calls f(masked) for a tile of scores, some of which are hidden only where it is at an `edge`.
/// `masked` is a std::bool_constant that says whether f has to ask the mask; where it has not, the
/// mask's intervals have been applied here. Edge: BackwardParams::Edge.
template <class Edge, class Registers, class Params, class F>
ATTILE_DEVICE void with_mask(Edge edge, Registers& scores, const Params& p,
                             const tile::TileCoord& coord, F&& f) {
  using S = std::remove_cvref_t<decltype(p.policies.score_mod)>;
  using M = std::remove_cvref_t<decltype(p.policies.mask)>;
  if constexpr (!kAsksEachScore<M, S>) {
    if (edge) tile::hide_outside_intervals(scores, coord, p.mask_in_tile(in_full_block(edge)));
    f(std::false_type{});
  } else if (edge) {
    f(std::true_type{});
  } else {
    f(std::false_type{});
  }
}

/// Does the same with answers that the mask has given before, which hide scores at once where no
/// modifier has to read them.
template <class Edge, class Registers, class Params, class Shown, class F>
ATTILE_DEVICE void with_shown(Edge edge, Registers& scores, const Params& p,
                              const tile::TileCoord& coord, const Shown& shown, F&& f) {
  using S = std::remove_cvref_t<decltype(p.policies.score_mod)>;
  using M = std::remove_cvref_t<decltype(p.policies.mask)>;
  if constexpr (kIsIdentity<S> && kAsksEachScore<M, S>) {
    if (edge) shown.hide(scores);
    f(std::false_type{});
  } else {
    with_mask(edge, scores, p, coord, f);
  }
}

/// Calls `probabilities_and_gradient` for a tile that needs the mask only where it is at an `edge`.
template <class Edge, class Registers, class Params, class Sampler, class Gradient,
          class Elements = tile::NoElements>
ATTILE_DEVICE void probabilities_and_gradient(Edge edge, Registers& p_frag, Registers& ds_frag,
                                              const Params& p, const tile::TileCoord& coord,
                                              const float* lse, const float* delta,
                                              const Sampler& sampler, const Gradient& gradient,
                                              const Elements& elements = {}) {
  with_mask(edge, p_frag, p, coord, [&](auto masked) {
    constexpr bool kMasked = decltype(masked)::value;
    probabilities_and_gradient<kMasked>(p_frag, ds_frag, p, coord, lse, delta, sampler,
                                        in_full_block(edge), gradient, elements);
  });
}

/// Says whether the step takes the fast path, which is only products, exponentials, dropout and a
/// mask's edge; with kReadsColumns also what a score modifier reads for each column.
template <class Policies, bool kReadsColumns = false>
inline constexpr bool kIsFastPath =
    (kReadsColumns || kIsIdentity<typename Policies::ScoreModType>)&&IntervalMask<
        MaskInTiles<typename Policies::MaskType>>;

}  // namespace attile
