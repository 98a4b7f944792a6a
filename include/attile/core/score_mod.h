// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>
#include <attile/core/index.h>
#include <attile/core/math.h>
#include <attile/core/policy.h>

#include <cmath>
#include <concepts>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace attile {

/// Holds what a score modifier returns for a score s: f(s), and f'(s) for the backward pass.
template <class Real>
struct ModifiedScore {
  Real value;
  Real derivative;
};

/// A score modifier maps a score to another: `mod(s, index, extent) -> ModifiedScore`, where
/// s = scale * (q . k). It is copied to the device, so pointers in it are device pointers (host
/// pointers for the CPU executor). It is called for scores inside the extent, also for those that
/// the mask hides, where its result is not used. Make the call operator a template over the type of
/// s if the fp64 reference should compute it in fp64. A modifier that may return -inf declares
/// `static constexpr bool kMayHide = true`. One that reads an element for each score may declare it
/// too: the backward pass then does not call it for hidden scores. One with parameters whose
/// gradient is wanted declares what kHasGradient says.
/// It may also say what scores have in common (`of_tile`): see TileModifier.
template <class S>
concept ScoreMod = std::is_trivially_copyable_v<S> &&
    requires(const S& mod, float s, ScoreIndex index, Extent extent) {
  { mod(s, index, extent).value } -> std::convertible_to<float>;
  { mod(s, index, extent).derivative } -> std::convertible_to<float>;
};

/// Leaves scores as they are; costs nothing.
struct NoScoreMod {
  template <class Real>
  ATTILE_HOST_DEVICE ModifiedScore<Real> operator()(Real s, ScoreIndex, Extent) const {
    return {s, Real(1)};
  }
};

/// Gives a score modifier its mathematical functions: those of the standard library. A kernel has
/// faster ones where its results are of 16 bits (tile::FastMath).
struct StandardMath {
  template <class Real>
  struct Tanh {
    Real factor;
    ATTILE_HOST_DEVICE Real operator()(Real x) const { return std::tanh(factor * x); }
  };
  /// Returns the function x -> tanh(factor x).
  template <class Real>
  ATTILE_HOST_DEVICE static Tanh<Real> tanh(Real factor) {
    return {factor};
  }
};

/// Applies a score modifier to scores that lie near each other. A modifier may give such an object
/// itself, so that what scores have in common is worked out once, and a score costs only what
/// depends on it. The functions are pure, const and ATTILE_HOST_DEVICE, and may read memory:
///
///     mod.of_tile(first, extent, math) -> tile
/// is called for a thread's scores of a tile. `first` is the first of them, or the nearest one
/// inside the extent; the others are in rows and columns from there on. `math` has the functions of
/// StandardMath. tile's type has `using Modifier = S`: what a modifier inherits is not taken.
///
///     tile.row(dr), tile.col(dc)
/// give what all scores of row first.row + dr, or of column first.col + dc, have in common. What is
/// the same for several scores is kept in registers.
///
///     tile(s, row, col) -> ModifiedScore
/// is what mod(s, index, extent) returns, which remains: the reference calls that. `row` and `col`
/// are what the two above have returned.
///
/// This one is that of a modifier that says nothing.
template <class S>
struct TileModifier {
  using Modifier = S;

  const S& mod;
  ScoreIndex first;
  Extent extent;

  ATTILE_HOST_DEVICE int row(int dr) const { return dr; }
  ATTILE_HOST_DEVICE int col(int dc) const { return dc; }
  template <class Real>
  ATTILE_HOST_DEVICE ModifiedScore<Real> operator()(Real s, int row, int col) const {
    const ScoreIndex at{first.batch, first.head, first.row + row, first.col + col};
    const auto modified = mod(s, at, extent);
    return {Real(modified.value), Real(modified.derivative)};
  }
};

namespace detail {

/// Says whether a modifier has an `of_tile` of its own.
template <class S, class Math>
inline constexpr bool kHasTiles = [] {
  if constexpr (requires(const S& mod, const Math& math) { mod.of_tile({}, {}, math); }) {
    using Tile = decltype(std::declval<const S&>().of_tile({}, {}, std::declval<const Math&>()));
    static_assert(
        requires { typename Tile::Modifier; },
        "attile: what a score modifier's of_tile returns says whose it is: using Modifier");
    return std::is_same_v<typename Tile::Modifier, S>;
  }
  return false;
}();

}  // namespace detail

/// Returns what applies `mod` to a tile of scores: what its own `of_tile` returns, or a
/// TileModifier.
template <class S, class Math>
ATTILE_HOST_DEVICE auto modifier_of_tile(const S& mod, ScoreIndex first, Extent extent,
                                         const Math& math) {
  if constexpr (detail::kHasTiles<S, Math>) {
    return mod.of_tile(first, extent, math);
  } else {
    return TileModifier<S>{mod, first, extent};
  }
}

template <class S>
inline constexpr bool kIsIdentity = std::is_same_v<S, NoScoreMod>;

/// Says whether a modifier may turn a visible score into -inf.
template <class S>
inline constexpr bool kMayHide = [] {
  if constexpr (requires { S::kMayHide; }) return bool(S::kMayHide);
  return false;
}();

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
template <class S>
inline constexpr bool kHasGradient = [] {
  static_assert(
      !requires { S::kLearns; },
      "attile: a score modifier declares kHasGradient, which was kLearns "
      "(docs/migration.md)");
  if constexpr (requires { S::kHasGradient; }) return bool(S::kHasGradient);
  return false;
}();

/// Names elements of a gradient, `stride` apart.
struct GradientLine {
  float* first = nullptr;
  int count = 0;
  std::int64_t stride = 1;
};

/// Returns the number of a modifier's gradient lines: 0 of one without a gradient.
template <ScoreMod S>
ATTILE_HOST_DEVICE std::int64_t gradient_lines(const S& mod, const ScoreShape& shape) {
  if constexpr (kHasGradient<S>) return mod.gradient_lines(shape);
  return 0;
}

/// Returns why the gradient cannot be written; null when it can.
template <ScoreMod S>
constexpr const char* gradient_fault(const S& mod, const ScoreShape& shape) {
  if constexpr (kHasGradient<S> && requires { mod.gradient_fault(shape); }) {
    return mod.gradient_fault(shape);
  }
  return nullptr;
}

/// Returns whether no two scores add to the same element of a modifier's gradient.
template <ScoreMod S>
constexpr bool adds_once(const S& mod, const ScoreShape& shape) {
  if constexpr (!kHasGradient<S>) return true;
  if constexpr (requires { mod.adds_once(shape); }) return mod.adds_once(shape);
  return false;
}

/// Adds ALiBi (arXiv 2108.12409): s - slope * |i + kv_len - q_len - j|.
/// Shapes   slopes: (q_heads), or (batch, q_heads) with batch_stride = q_heads.
struct Alibi {
  const float* slopes = nullptr;
  std::int64_t batch_stride = 0;

  const char* fault() const {
    return slopes == nullptr ? "Alibi: slopes must not be null" : nullptr;
  }

  template <class Real>
  ATTILE_HOST_DEVICE ModifiedScore<Real> operator()(Real s, ScoreIndex i, Extent e) const {
    const int distance = i.row + e.shift() - i.col;
    const Real slope = slopes[i.batch * batch_stride + i.head];
    // An explicit fma rounds once: the same bits wherever the compiler puts the product.
    return {std::fma(-slope, Real(distance < 0 ? -distance : distance), s), Real(1)};
  }

  /// Distances are sums of floats: exact up to 2^24, and beyond rounded as floats are.
  struct Tile {
    using Modifier = Alibi;
    float slope, distance;  ///< of the first score

    ATTILE_HOST_DEVICE float row(int dr) const { return distance + static_cast<float>(dr); }
    ATTILE_HOST_DEVICE float col(int dc) const { return static_cast<float>(dc); }
    ATTILE_HOST_DEVICE ModifiedScore<float> operator()(float s, float row, float col) const {
      return {std::fma(-slope, std::fabs(row - col), s), 1.0f};
    }
  };
  template <class Math>
  ATTILE_HOST_DEVICE Tile of_tile(ScoreIndex first, Extent e, const Math&) const {
    return {slopes[first.batch * batch_stride + first.head],
            static_cast<float>(first.row + e.shift() - first.col)};
  }
};

/// Caps scores: cap * tanh(s / cap). Units: cap > 0.
struct Softcap {
  float cap = 50.0f;

  const char* fault() const {
    return cap > 0.0f && cap < kInf ? nullptr : "Softcap: cap must be finite and > 0";
  }

  template <class Real>
  ATTILE_HOST_DEVICE ModifiedScore<Real> operator()(Real s, ScoreIndex, Extent) const {
    // It is the same for all scores, so the compiler computes it once: a division takes ten
    // instructions, and registers. The bound keeps it finite for the smallest caps: 0 stays 0.
    const Real inverse = min(Real(1) / Real(cap), Real(3e38f));
    const Real t = std::tanh(s * inverse);
    return {Real(cap) * t, Real(1) - t * t};
  }

  template <class Tanh>
  struct Tile {
    using Modifier = Softcap;
    float cap;
    Tanh tanh;  ///< of s / cap

    ATTILE_HOST_DEVICE int row(int) const { return 0; }
    ATTILE_HOST_DEVICE int col(int) const { return 0; }
    ATTILE_HOST_DEVICE ModifiedScore<float> operator()(float s, int, int) const {
      const float t = tanh(s);
      return {cap * t, 1.0f - t * t};
    }
  };
  template <class Math>
  ATTILE_HOST_DEVICE auto of_tile(ScoreIndex, Extent, const Math& math) const {
    const auto tanh = math.tanh(min(1.0f / cap, 3e38f));
    return Tile<std::remove_const_t<decltype(tanh)>>{cap, tanh};
  }
};

/// Applies the second modifier to the result of the first one.
template <ScoreMod First, ScoreMod Second>
struct Then {
  First first{};
  Second second{};

  static constexpr bool kMayHide = attile::kMayHide<First> || attile::kMayHide<Second>;
  static constexpr bool kHasGradient = attile::kHasGradient<First> || attile::kHasGradient<Second>;

  const char* fault() const {
    const char* inner = policy_fault(first);
    return inner != nullptr ? inner : policy_fault(second);
  }

  template <class Real>
  ATTILE_HOST_DEVICE ModifiedScore<Real> operator()(Real s, ScoreIndex i, Extent e) const {
    const auto inner = first(s, i, e);
    const auto outer = second(Real(inner.value), i, e);
    return {Real(outer.value), Real(outer.derivative) * Real(inner.derivative)};
  }

  template <class A, class B>
  struct Both {
    A first;
    B second;
  };
  template <class A, class B>
  struct Tile {
    using Modifier = Then;
    A first;
    B second;

    ATTILE_HOST_DEVICE auto row(int dr) const { return both(first.row(dr), second.row(dr)); }
    ATTILE_HOST_DEVICE auto col(int dc) const { return both(first.col(dc), second.col(dc)); }
    template <class Row, class Col>
    ATTILE_HOST_DEVICE ModifiedScore<float> operator()(float s, const Row& row,
                                                       const Col& col) const {
      const auto inner = first(s, row.first, col.first);
      const auto outer = second(inner.value, row.second, col.second);
      return {outer.value, outer.derivative * inner.derivative};
    }

   private:
    template <class X, class Y>
    ATTILE_HOST_DEVICE static Both<X, Y> both(X x, Y y) {
      return {x, y};
    }
  };
  template <class Math>
  ATTILE_HOST_DEVICE auto of_tile(ScoreIndex at, Extent e, const Math& math) const {
    const auto a = modifier_of_tile(first, at, e, math);
    const auto b = modifier_of_tile(second, at, e, math);
    return Tile<std::remove_const_t<decltype(a)>, std::remove_const_t<decltype(b)>>{a, b};
  }

  template <class Real, class Add>
  ATTILE_HOST_DEVICE void add_gradient(Real s, Real ds, ScoreIndex i, Extent e,
                                       const Add& add) const {
    const Real inner = Real(first(s, i, e).value);
    if constexpr (attile::kHasGradient<Second>) second.add_gradient(inner, ds, i, e, add);
    if constexpr (attile::kHasGradient<First>) {
      first.add_gradient(s, ds * Real(second(inner, i, e).derivative), i, e, add);
    }
  }
  ATTILE_HOST_DEVICE std::int64_t gradient_lines(const ScoreShape& s) const {
    return attile::gradient_lines(first, s) + attile::gradient_lines(second, s);
  }
  ATTILE_HOST_DEVICE GradientLine gradient_line(std::int64_t n, const ScoreShape& s) const {
    const std::int64_t inner = attile::gradient_lines(first, s);
    if constexpr (attile::kHasGradient<First>) {
      if (n < inner) return first.gradient_line(n, s);
    }
    if constexpr (attile::kHasGradient<Second>) return second.gradient_line(n - inner, s);
    return {};
  }
  const char* gradient_fault(const ScoreShape& s) const {
    const char* inner = attile::gradient_fault(first, s);
    return inner != nullptr ? inner : attile::gradient_fault(second, s);
  }
  bool adds_once(const ScoreShape& s) const {
    return attile::adds_once(first, s) && attile::adds_once(second, s);
  }
};

}  // namespace attile
