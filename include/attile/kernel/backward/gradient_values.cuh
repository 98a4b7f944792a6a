// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/atomic.cuh>
#include <attile/arch/attributes.h>
#include <attile/core/array.h>
#include <attile/core/config.h>
#include <attile/core/index.h>
#include <attile/core/modifier_gradient.h>

// What scores add to the gradient of a score modifier that says by gradient_per which of them share
// an element.

namespace attile {

/// Holds the values that a thread's scores add: kRows rows of registers.
template <class S, int kRows, int kCols>
struct GradientValues {
  static constexpr int kTerms = kGradientTerms<S>;
  Array<float, kTerms, kRows, kCols> of;

  /// Takes those of the score in registers (r, c). With kBranches add_gradient is not called for a
  /// hidden score, whose values are 0: where the modifier does not need the scores, ds is that 0.
  template <bool kBranches>
  ATTILE_DEVICE void take(const S& mod, int r, int c, float s, float ds, const ScoreIndex& i,
                          const Extent& extent, bool visible) {
    if (kBranches && !visible) {
      ATTILE_UNROLL
      for (int t = 0; t < kTerms; ++t) of[t][r][c] = kNeedsScores<S> ? 0.0f : ds;
    } else {
      int term = 0;
      mod.add_gradient(s, ds, i, extent, Take{*this, term, r, c, visible});
    }
  }

 private:
  struct Take {
    GradientValues& values;
    int& term;
    int r, c;
    bool visible;

    ATTILE_DEVICE void operator()(float*, float x) const {
      values.of[term++][r][c] = visible ? x : 0.0f;
    }
    struct AtOnce {
      bool visible;
      ATTILE_DEVICE void operator()(float* where, float x) const {
        if (visible && x != 0.0f) arch::atomic_add(where, x);
      }
    };
    ATTILE_DEVICE AtOnce at_once() const { return {visible}; }
  };
};

namespace detail {

/// Keeps the address of one of the values that a score adds.
struct TakeAddress {
  float*& address;
  int& term;
  int wanted;

  ATTILE_DEVICE void operator()(float* where, float) const {
    if (term++ == wanted) address = where;
  }
  struct Nothing {
    ATTILE_DEVICE void operator()(float*, float) const {}
  };
  ATTILE_DEVICE Nothing at_once() const { return {}; }
};

}  // namespace detail

/// Returns the address of the element that a score's term t adds to.
template <class S>
ATTILE_DEVICE float* gradient_address(const S& mod, int t, const ScoreIndex& i,
                                      const Extent& extent) {
  float* address = nullptr;
  int term = 0;
  mod.add_gradient(0.0f, 0.0f, i, extent, detail::TakeAddress{address, term, t});
  return address;
}

/// Adds x to the element that term t of a score adds to. Where x is 0 it asks for no address: a
/// score outside the extent has none.
template <class S>
ATTILE_DEVICE void add_to_gradient(const S& mod, int t, const ScoreIndex& i, const Extent& extent,
                                   float x) {
  if (x != 0.0f) arch::atomic_add(gradient_address(mod, t, i, extent), x);
}

}  // namespace attile
