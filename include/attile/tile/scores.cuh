// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>
#include <attile/core/index.h>
#include <attile/core/math.h>
#include <attile/core/score_mod.h>

namespace attile::tile {

/// Which part of which score matrix a tile is.
struct TilePlace {
  int batch, head, row0, col0;
  Extent extent;

  ATTILE_DEVICE ScoreIndex at(int r, int c) const { return {batch, head, row0 + r, col0 + c}; }
  ATTILE_DEVICE bool inside(ScoreIndex i) const {
    return i.row < extent.q_len && i.col < extent.kv_len;
  }
};

/// S' = score_mod(scale * S), and -inf where the mask hides it. Policies are asked only about
/// scores inside the extent, so what they read from memory never ends past a length.
/// Units    in: raw products; out: log2-able by scale * log2(e) with NoScoreMod (S stays raw), by
///          log2(e) otherwise (see `score_unit`).
template <bool kMasked, class Registers, class M, class S>
ATTILE_DEVICE void modify_and_mask(Registers& scores, const TilePlace& place, const M& mask,
                                   const S& score_mod, float scale) {
  if constexpr (kMasked || !kIsIdentity<S>) {
    scores.for_each([&](int r, int c, float& s) {
      const ScoreIndex i = place.at(r, c);
      if (!place.inside(i)) {
        s = -kInf;
        return;
      }
      if constexpr (!kIsIdentity<S>) s = score_mod(scale * s, i, place.extent).value;
      if constexpr (kMasked) {
        if (!mask.visible(i, place.extent)) s = -kInf;
      }
    });
  }
}

/// What turns scores into log2 units: the scale is folded in where no modifier needs it earlier.
template <class S>
ATTILE_HOST_DEVICE constexpr float score_unit(float scale) {
  return kIsIdentity<S> ? scale * kLog2e : kLog2e;
}

/// P <- dropout(P), without the factor 1 / (1 - p).
template <class Registers, class Sampler>
ATTILE_DEVICE void drop(Registers& p, const TilePlace& place, const Sampler& sampler) {
  p.for_each([&](int r, int c, float& x) {
    if (!sampler.keep(place.at(r, c))) x = 0.0f;
  });
}

}  // namespace attile::tile
