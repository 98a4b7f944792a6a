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
  struct Tanh {
    float outer, inner;
    ATTILE_HOST_DEVICE float operator()(float x) const { return outer * std::tanh(inner * x); }
  };
  /// Returns the function x -> outer tanh(inner x). It may have a `near()`, a function that is
  /// faster and gives the same where |x| <= near().limit.
  ATTILE_HOST_DEVICE static Tanh tanh(float outer, float inner) { return {outer, inner}; }
  /// Returns that function with a relative error of up to 2^-10.9 where the machine has it.
  ATTILE_HOST_DEVICE static Tanh approximate_tanh(float outer, float inner) {
    return {outer, inner};
  }
  /// Returns a * b with a rounding of its own.
  ATTILE_HOST_DEVICE static float multiply(float a, float b) { return a * b; }
};

/// Says which scores a thread has of a tile: all lie in `rows` rows and `cols` columns from `first`
/// on, which is inside the extent. A score is `scale` times a product of a row of Q and one of K.
struct ScoreBlock {
  ScoreIndex first;
  Extent extent;
  int rows, cols;
  float scale;
};

/// Applies a score modifier to scores that lie near each other. A modifier may give such an object
/// itself, so that what scores have in common is worked out once, and a score costs only what
/// depends on it. The functions are pure, const and ATTILE_HOST_DEVICE, and may read memory:
///
///     mod.of_tile(block, math) -> tile
/// is called for a thread's scores of a tile, a ScoreBlock. `math` has the functions of
/// StandardMath. tile's type has `using Modifier = S`: what a modifier inherits is not taken.
///
///     tile.row(dr), tile.col(dc)
/// give what all scores of row first.row + dr, or of column first.col + dc, have in common. What is
/// the same for several scores is kept in registers.
///
///     tile(x, row, col) -> ModifiedScore
/// is what mod(scale * x, index, extent) returns, which remains: the reference calls that. `row`
/// and `col` are what the two above have returned.
///
///     tile.simplify(products, f)
/// may be there: it calls f with a tile that costs less and can stand for this one, or with this
/// one. products.all(condition) says whether a condition holds for all threads of the warp, and
/// products.all_within(limit) whether |x| <= limit for all that their tiles are applied to.
///
/// This one is that of a modifier that says nothing.
template <class S, class Math>
struct TileModifier {
  using Modifier = S;

  const S& mod;
  ScoreBlock block;

  ATTILE_HOST_DEVICE int row(int dr) const { return dr; }
  ATTILE_HOST_DEVICE int col(int dc) const { return dc; }
  ATTILE_HOST_DEVICE ModifiedScore<float> operator()(float x, int row, int col) const {
    const ScoreIndex first = block.first;
    const ScoreIndex at{first.batch, first.head, first.row + row, first.col + col};
    // The product has a rounding of its own: the compiler could otherwise fuse it with an addition
    // of the modifier in one inlined copy and not in another, and the bits of a row would depend on
    // the copy that computes it.
    const auto modified = mod(Math::multiply(block.scale, x), at, block.extent);
    return {float(modified.value), float(modified.derivative)};
  }
};

namespace detail {

/// Says whether a modifier has an `of_tile` of its own.
template <class S, class Math>
inline constexpr bool kHasTiles = [] {
  if constexpr (requires(const S& mod, const Math& math) { mod.of_tile(ScoreBlock(), math); }) {
    using Tile =
        decltype(std::declval<const S&>().of_tile(ScoreBlock(), std::declval<const Math&>()));
    static_assert(
        requires { typename Tile::Modifier; },
        "attile: what a score modifier's of_tile returns says whose it is: using Modifier");
    return std::is_same_v<typename Tile::Modifier, S>;
  }
  static_assert(
      !requires(const S& mod, const Math& math) { mod.of_tile({}, Extent(), math); },
      "attile: a score modifier's of_tile takes a ScoreBlock (docs/migration.md)");
  return false;
}();

/// Stands for products of which nothing is known.
template <class Products>
struct Unbounded {
  const Products& products;
  ATTILE_HOST_DEVICE bool all(bool condition) const { return products.all(condition); }
  ATTILE_HOST_DEVICE bool all_within(float) const { return false; }
};

}  // namespace detail

/// Returns what applies `mod` to a tile of scores: what its own `of_tile` returns, or a
/// TileModifier.
template <class S, class Math>
ATTILE_HOST_DEVICE auto modifier_of_tile(const S& mod, const ScoreBlock& block, const Math& math) {
  if constexpr (detail::kHasTiles<S, Math>) {
    return mod.of_tile(block, math);
  } else {
    return TileModifier<S, Math>{mod, block};
  }
}

/// Calls f with the cheapest tile that can stand for `tile`.
template <class Tile, class Products, class F>
ATTILE_HOST_DEVICE void simplify(const Tile& tile, const Products& products, const F& f) {
  if constexpr (requires { tile.simplify(products, f); }) {
    tile.simplify(products, f);
  } else {
    f(tile);
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

/// Says whether a modifier tends to make the scores of later columns larger, as a distance to a
/// causal diagonal does. Kernels may then begin with those; results differ by rounding alone.
template <class S>
inline constexpr bool kFavorsLateColumns = [] {
  if constexpr (requires { S::kFavorsLateColumns; }) return bool(S::kFavorsLateColumns);
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
  static constexpr bool kFavorsLateColumns = true;

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
    float scale, slope, distance;  ///< of the first score
    int rows, cols;

    ATTILE_HOST_DEVICE float row(int dr) const { return distance + static_cast<float>(dr); }
    ATTILE_HOST_DEVICE float col(int dc) const { return static_cast<float>(dc); }
    ATTILE_HOST_DEVICE ModifiedScore<float> operator()(float x, float row, float col) const {
      return {std::fma(scale, x, -slope * std::fabs(row - col)), 1.0f};
    }
    template <class Products, class F>
    ATTILE_HOST_DEVICE void simplify(const Products& products, const F& f) const {
      const bool below = distance >= static_cast<float>(cols - 1);
      if (products.all(below || distance <= static_cast<float>(1 - rows))) {
        f(OneSided{scale, below ? slope : -slope, distance});
      } else {
        f(*this);
      }
    }
  };
  /// Is for scores that are all on one side of the diagonal.
  struct OneSided {
    float scale, slope, distance;

    ATTILE_HOST_DEVICE float row(int dr) const {
      return -slope * (distance + static_cast<float>(dr));
    }
    ATTILE_HOST_DEVICE float col(int dc) const { return static_cast<float>(dc); }
    ATTILE_HOST_DEVICE ModifiedScore<float> operator()(float x, float row, float col) const {
      return {std::fma(scale, x, std::fma(slope, col, row)), 1.0f};
    }
  };
  template <class Math>
  ATTILE_HOST_DEVICE Tile of_tile(const ScoreBlock& block, const Math&) const {
    const ScoreIndex i = block.first;
    return {block.scale, slopes[i.batch * batch_stride + i.head],
            static_cast<float>(i.row + block.extent.shift() - i.col), block.rows, block.cols};
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
    float inverse_cap;
    Tanh capped;  ///< of a product

    ATTILE_HOST_DEVICE int row(int) const { return 0; }
    ATTILE_HOST_DEVICE int col(int) const { return 0; }
    ATTILE_HOST_DEVICE ModifiedScore<float> operator()(float x, int, int) const {
      const float value = capped(x);
      const float t = value * inverse_cap;
      return {value, std::fma(-t, t, 1.0f)};
    }
    template <class Products, class F>
    ATTILE_HOST_DEVICE void simplify(const Products& products, const F& f) const {
      if constexpr (requires { capped.near(); }) {
        const auto near = capped.near();
        if (products.all_within(near.limit))
          return f(Tile<std::remove_const_t<decltype(near)>>{inverse_cap, near});
      }
      f(*this);
    }
  };
  template <class Math>
  ATTILE_HOST_DEVICE auto of_tile(const ScoreBlock& block, const Math& math) const {
    const float inverse = min(1.0f / cap, 3e38f);
    const auto capped = math.tanh(cap, block.scale * inverse);
    return Tile<std::remove_const_t<decltype(capped)>>{inverse, capped};
  }
};

/// Applies the second modifier to the result of the first one.
template <ScoreMod First, ScoreMod Second>
struct Then {
  First first{};
  Second second{};

  static constexpr bool kMayHide = attile::kMayHide<First> || attile::kMayHide<Second>;
  static constexpr bool kHasGradient = attile::kHasGradient<First> || attile::kHasGradient<Second>;
  static constexpr bool kFavorsLateColumns =
      attile::kFavorsLateColumns<First> || attile::kFavorsLateColumns<Second>;

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
    A first;   ///< of a product
    B second;  ///< of a score

    ATTILE_HOST_DEVICE auto row(int dr) const { return both(first.row(dr), second.row(dr)); }
    ATTILE_HOST_DEVICE auto col(int dc) const { return both(first.col(dc), second.col(dc)); }
    template <class Row, class Col>
    ATTILE_HOST_DEVICE ModifiedScore<float> operator()(float x, const Row& row,
                                                       const Col& col) const {
      const auto inner = first(x, row.first, col.first);
      const auto outer = second(inner.value, row.second, col.second);
      return {outer.value, outer.derivative * inner.derivative};
    }
    /// The second one is simplified only where the first one is or cannot be: each way is a copy of
    /// the code.
    template <class Products, class F>
    ATTILE_HOST_DEVICE void simplify(const Products& products, const F& f) const {
      attile::simplify(first, products, [&](const auto& a) {
        using Simple = std::remove_cvref_t<decltype(a)>;
        constexpr bool kStays = std::is_same_v<Simple, A>;
        if constexpr (kStays && requires { first.simplify(products, f); }) {
          f(*this);
        } else {
          attile::simplify(second, detail::Unbounded<Products>{products}, [&](const auto& b) {
            f(Tile<Simple, std::remove_cvref_t<decltype(b)>>{a, b});
          });
        }
      });
    }

   private:
    template <class X, class Y>
    ATTILE_HOST_DEVICE static Both<X, Y> both(X x, Y y) {
      return {x, y};
    }
  };
  template <class Math>
  ATTILE_HOST_DEVICE auto of_tile(const ScoreBlock& block, const Math& math) const {
    ScoreBlock scores = block;
    scores.scale = 1.0f;
    const auto a = modifier_of_tile(first, block, math);
    const auto b = modifier_of_tile(second, scores, math);
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
