// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/array.h>
#include <attile/core/config.h>
#include <attile/core/index.h>

#include <cstdint>
#include <type_traits>
#include <utility>

// The gradient of a score modifier's parameters, and what a modifier says about it.

namespace attile {

/// Says which scores of one head of one batch add to the same element of a modifier's gradient.
enum class GradientPer {
  kScore,     ///< none do, or as it happens
  kRow,       ///< those of a row
  kCol,       ///< those of a column
  kDiagonal,  ///< those of the same distance col - row
  kHead,      ///< all
};

/// Says it for each of several values that a score adds.
template <int kTerms>
struct GradientTerms {
  static constexpr int kCount = kTerms;
  Array<GradientPer, kTerms> of;
};
template <>
struct GradientTerms<0> {
  static constexpr int kCount = 0;
};

/// Says whether the backward pass also gives the gradient of a modifier's parameters: a bias,
/// slopes, a cap. Such a modifier declares `static constexpr bool kHasGradient = true` and has,
/// const and ATTILE_HOST_DEVICE,
///   add_gradient(s, ds, index, extent, add): calls add(float* where, value) for each parameter
///     that the score depends on; value is ds times the derivative of its output by that parameter,
///     and ds = dS' = P * (dP - D + dLSE). Not called for hidden scores.
///   gradient_lines(shape), gradient_line(n, shape): all elements of its gradient, as that many
///     GradientLines, each once; they begin as zeros, in a problem without scores too.
/// It may also have, for the host,
///   gradient_fault(shape): the sentence why it cannot be written, null when it can.
///   adds_once(shape): whether no two scores add to the same element. Otherwise sums run in no
///     fixed order, and the deterministic DqModes always refuse the problem.
/// and, ATTILE_HOST_DEVICE,
///   gradient_per(): which scores of a head share an element, a GradientPer, or for an add_gradient
///     that makes several calls of add the GradientTerms of these, in their order. Kernels then add
///     values up before they go to memory, and call add_gradient for more: for hidden scores inside
///     the extent, of which they ignore the values, and with s = ds = 0 for the address alone. It
///     must make the same calls each time.
template <class S>
inline constexpr bool kHasGradient = [] {
  static_assert(
      !requires { S::kLearns; },
      "attile: a score modifier declares kHasGradient, which was kLearns "
      "(docs/migration.md)");
  if constexpr (requires { S::kHasGradient; }) return bool(S::kHasGradient);
  return false;
}();

/// Says whether the elements that the scores of a head add to lie at a distance from the first one
/// that is a linear function of row and column, also of scores that do not exist, and that each
/// score inside the extent has one: kernels then ask add_gradient for three addresses of many
/// scores, and add 0 for some hidden ones. Specialise it for one of your own.
template <class S>
inline constexpr bool kHasLinearGradient = false;

/// Says whether a modifier's derivative, or what it adds to its gradient, may depend on the score:
/// false where it adds to the score what does not depend on that, so that the derivative is 1, and
/// its add_gradient does not use s. The backward pass of such a modifier costs less: specialise it
/// for one of your own.
template <class S>
inline constexpr bool kNeedsScores = true;

/// Says whether a modifier's derivative is never negative: backward dropout then costs less, and
/// dQ and dK of dropped scores are wrong if it is. One that inherits from a modifier with
/// kNeverFalls and may fall says `static constexpr bool kNeverFalls = false`.
template <class S>
inline constexpr bool kNeverFalls = [] {
  if constexpr (requires { S::kNeverFalls; }) return bool(S::kNeverFalls);
  return !kNeedsScores<S>;
}();

/// Names elements of a gradient, `stride` apart.
struct GradientLine {
  float* first = nullptr;
  int count = 0;
  std::int64_t stride = 1;
};

namespace detail {

template <class>
struct OwnerOf;
template <class Member, class S>
struct OwnerOf<Member S::*> {
  using type = S;
};

}  // namespace detail

/// Is the number of values that a score adds to a modifier's gradient where its gradient_per says
/// it; 0 of one without a gradient, and of one that says nothing. What a modifier inherits is not
/// taken: it may have an add_gradient of its own.
template <class S>
inline constexpr int kGradientTerms = [] {
  if constexpr (kHasGradient<S> && requires { &S::gradient_per; }) {
    using Per = decltype(std::declval<const S&>().gradient_per());
    using Owner = typename detail::OwnerOf<decltype(&S::gradient_per)>::type;
    if constexpr (!std::is_same_v<Owner, S>) return 0;
    if constexpr (std::is_same_v<Per, GradientPer>)
      return 1;
    else
      return Per::kCount;
  }
  return 0;
}();

namespace detail {

/// Returns what a modifier's gradient_per says.
template <class S>
ATTILE_HOST_DEVICE GradientTerms<kGradientTerms<S>> gradient_terms(const S& mod) {
  if constexpr (kGradientTerms<S> == 0) {
    return {};
  } else if constexpr (std::is_same_v<decltype(mod.gradient_per()), GradientPer>) {
    return {{mod.gradient_per()}};
  } else {
    return mod.gradient_per();
  }
}

template <int kFirst, int kSecond>
ATTILE_HOST_DEVICE GradientTerms<kFirst + kSecond> joined(const GradientTerms<kFirst>& first,
                                                          const GradientTerms<kSecond>& second) {
  GradientTerms<kFirst + kSecond> all{};
  if constexpr (kFirst > 0) {
    for (int i = 0; i < kFirst; ++i) all.of[i] = first.of[i];
  }
  if constexpr (kSecond > 0) {
    for (int i = 0; i < kSecond; ++i) all.of[kFirst + i] = second.of[i];
  }
  return all;
}

/// Returns the `add` for a part of a modifier: for one that does not say what its scores share
/// `add.at_once()`, where there is one, which adds to memory and counts no term.
template <class S, class Add>
ATTILE_HOST_DEVICE auto add_of(const Add& add) {
  if constexpr (kGradientTerms<S> == 0 && requires { add.at_once(); }) {
    return add.at_once();
  } else {
    return add;
  }
}

}  // namespace detail

/// Returns the number of a modifier's gradient lines: 0 of one without a gradient.
template <class S>
ATTILE_HOST_DEVICE std::int64_t gradient_lines(const S& mod, const ScoreShape& shape) {
  if constexpr (kHasGradient<S>) return mod.gradient_lines(shape);
  return 0;
}

/// Returns why the gradient cannot be written; null when it can.
template <class S>
constexpr const char* gradient_fault(const S& mod, const ScoreShape& shape) {
  if constexpr (kHasGradient<S> && requires { mod.gradient_fault(shape); }) {
    return mod.gradient_fault(shape);
  }
  return nullptr;
}

/// Returns whether no two scores add to the same element of a modifier's gradient.
template <class S>
constexpr bool adds_once(const S& mod, const ScoreShape& shape) {
  if constexpr (!kHasGradient<S>) return true;
  if constexpr (requires { mod.adds_once(shape); }) return mod.adds_once(shape);
  return false;
}

}  // namespace attile
