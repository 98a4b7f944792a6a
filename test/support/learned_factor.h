// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>
#include <attile/core/index.h>
#include <attile/core/score_mod.h>

#include <cstdint>

namespace attile_test {

/// A user's modifier that learns with what the score is: s * factor[head]. Of faults it says
/// nothing, and without kShares nothing of what scores share.
template <bool kShares>
struct LearnedFactor {
  const float* factors = nullptr;   // (q_heads)
  attile::BiasGradient gradient{};  // summed as it says

  static constexpr bool kHasGradient = true;

  template <class Real>
  ATTILE_HOST_DEVICE attile::ModifiedScore<Real> operator()(Real s, attile::ScoreIndex i,
                                                            attile::Extent) const {
    const Real factor = factors[i.head];
    return {s * factor, factor};
  }
  template <class Real, class Add>
  ATTILE_HOST_DEVICE void add_gradient(Real s, Real ds, attile::ScoreIndex i, attile::Extent,
                                       const Add& add) const {
    add(gradient.at(i.batch, i.head, i.row, i.col), ds * s);
  }
  ATTILE_HOST_DEVICE std::int64_t gradient_lines(const attile::ScoreShape& s) const {
    return gradient.lines(s);
  }
  ATTILE_HOST_DEVICE attile::GradientLine gradient_line(std::int64_t n,
                                                        const attile::ScoreShape& s) const {
    return gradient.line(n, s);
  }
  ATTILE_HOST_DEVICE attile::GradientPer gradient_per() const requires kShares {
    return gradient.per();
  }
  bool adds_once(const attile::ScoreShape& s) const { return gradient.one_for_each(s); }
};

}  // namespace attile_test
