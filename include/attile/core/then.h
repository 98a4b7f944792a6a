// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>
#include <attile/core/index.h>
#include <attile/core/modifier_gradient.h>
#include <attile/core/policy.h>
#include <attile/core/score_mod.h>
#include <attile/core/tile_modifier.h>

#include <cstdint>
#include <type_traits>

namespace attile {

namespace detail {

template <class Tile>
inline constexpr bool kHasElement = requires {
  typename Tile::Element;
};

/// Names the element of a score where exactly one of two tiles reads one.
template <class A, class B>
struct JoinedElement {};
template <class A, class B>
  requires(kHasElement<A> && !kHasElement<B>)
struct JoinedElement<A, B> {
  using Element = typename A::Element;
};
template <class A, class B>
  requires(!kHasElement<A> && kHasElement<B>)
struct JoinedElement<A, B> {
  using Element = typename B::Element;
};

/// Applies one of two tiles. An element that is given is that of the one that has some.
template <class Tile, class Row, class Col, class... Element>
ATTILE_HOST_DEVICE ModifiedScore<float> apply_part(const Tile& tile, float x, const Row& row,
                                                   const Col& col, const Element&... element) {
  if constexpr (kHasElement<Tile> && sizeof...(Element) == 1) {
    return tile(x, row, col, element...);
  } else {
    return apply_tile(tile, x, row, col);
  }
}

}  // namespace detail

/// Applies the second modifier to the result of the first one. Where exactly one of them has
/// elements, they are those of both; and where one ignores where scores are (kIgnoresPlace), so are
/// columns and diagonals.
template <class First, class Second>
struct Then {
  static_assert(ScoreMod<First> && ScoreMod<Second>,
                "attile: Then<A, B> joins two score modifiers, and one of these is no ScoreMod: it "
                "wants template <class Real> ATTILE_HOST_DEVICE ModifiedScore<Real> "
                "operator()(Real s, ScoreIndex, Extent) const");
  First first{};
  Second second{};

  static constexpr bool kMayHide = attile::kMayHide<First> || attile::kMayHide<Second>;
  static constexpr bool kNeverFalls = attile::kNeverFalls<First> && attile::kNeverFalls<Second>;
  static constexpr bool kHasGradient = attile::kHasGradient<First> || attile::kHasGradient<Second>;
  static constexpr bool kFavorsLateColumns =
      attile::kFavorsLateColumns<First> || attile::kFavorsLateColumns<Second>;
  static constexpr bool kFavorsDiagonal =
      attile::kFavorsDiagonal<First> || attile::kFavorsDiagonal<Second>;

  const char* fault() const {
    const char* inner = policy_fault(first);
    return inner != nullptr ? inner : policy_fault(second);
  }
  constexpr DataAxes data_axes() const requires(kHasDataAxes<First> || kHasDataAxes<Second>) {
    return attile::data_axes(first) | attile::data_axes(second);
  }

  template <class Real>
  ATTILE_HOST_DEVICE ModifiedScore<Real> operator()(Real s, ScoreIndex i, Extent e) const {
    const auto inner = first(s, i, e);
    const auto outer = second(Real(inner.value), i, e);
    return {Real(outer.value), Real(outer.derivative) * Real(inner.derivative)};
  }

 private:
  static constexpr bool kFirstIgnores = kIgnoresPlace<First>;
  static constexpr bool kSecondIgnores = !kFirstIgnores && kIgnoresPlace<Second>;
  /// Names the one that says where data are that are read ahead for columns or diagonals.
  using Placed = std::conditional_t<kFirstIgnores, Second, First>;
  template <class S, class Other>
  static constexpr bool kGivesElements =
      kHasElementTensor<S>&& kHasElements<S, StandardMath> && !kHasElements<Other, StandardMath>;
  template <class Math>
  static constexpr bool kJoinsColumns =
      (kFirstIgnores || kSecondIgnores) && kHasColumnTiles<Placed, Math>;
  template <class Math>
  static constexpr bool kJoinsDiagonals =
      (kFirstIgnores || kSecondIgnores) && kHasDiagonalTiles<Placed, Math>;
  constexpr const Placed& placed() const {
    if constexpr (kFirstIgnores) {
      return second;
    } else {
      return first;
    }
  }

 public:
  template <class A, class B>
  struct Tile : detail::JoinedElement<A, B> {
    using Modifier = Then;
    static constexpr bool kReadsMemory = attile::kReadsMemory<A> || attile::kReadsMemory<B>;
    A first;   ///< of a product
    B second;  ///< of a score
    ATTILE_HOST_DEVICE Tile(const A& a, const B& b) : first(a), second(b) {}

    ATTILE_HOST_DEVICE auto row(int dr) const {
      if constexpr (kFirstIgnores) {
        return second.row(dr);
      } else if constexpr (kSecondIgnores) {
        return first.row(dr);
      } else {
        return detail::both(first.row(dr), second.row(dr));
      }
    }
    ATTILE_HOST_DEVICE auto col(int dc) const {
      if constexpr (kFirstIgnores) {
        return second.col(dc);
      } else if constexpr (kSecondIgnores) {
        return first.col(dc);
      } else {
        return detail::both(first.col(dc), second.col(dc));
      }
    }
    template <class Row, class Col, class... Element>
      requires(sizeof...(Element) == (detail::kHasElement<Tile> ? 1 : 0))
    ATTILE_HOST_DEVICE ModifiedScore<float>
    operator()(float x, const Row& row, const Col& col, const Element&... element) const {
      const auto inner = apply_first(x, row, col, element...);
      const auto outer = apply_second(inner.value, row, col, element...);
      return {outer.value, outer.derivative * inner.derivative};
    }
    template <class Row, class Col>
      requires(detail::kHasElement<Tile>)
    ATTILE_HOST_DEVICE auto read(const Row& row, const Col& col) const {
      if constexpr (kFirstIgnores) {
        return second.read(row, col);
      } else if constexpr (kSecondIgnores) {
        return first.read(row, col);
      } else if constexpr (detail::kHasElement<A>) {
        return first.read(row.first, col.first);
      } else {
        return second.read(row.second, col.second);
      }
    }
    /// The second one gets no products, so that nothing is known about what it is applied to.
    template <class Products, class F>
    ATTILE_HOST_DEVICE void simplify(const Products& products, const F& f) const {
      attile::simplify(first, products, [&](const auto& a) {
        attile::simplify(second, detail::Unknown(), [&](const auto& b) { f(joined(a, b)); });
      });
    }
    /// One that is given nothing may also become one that would read something else.
    template <class Products, class F>
    ATTILE_HOST_DEVICE void simplify_given(const Products& products, const F& f) const {
      constexpr bool kGivesFirst = !kFirstIgnores && !detail::kHasElement<B>;
      constexpr bool kGivesSecond = !kSecondIgnores && !detail::kHasElement<A>;
      simplify_part<kGivesFirst>(first, products, [&](const auto& a) {
        simplify_part<kGivesSecond>(second, detail::Unknown(),
                                    [&](const auto& b) { f(joined(a, b)); });
      });
    }

   private:
    template <class Row, class Col, class... Element>
    ATTILE_HOST_DEVICE ModifiedScore<float> apply_first(float x, const Row& row, const Col& col,
                                                        const Element&... element) const {
      if constexpr (kFirstIgnores) {
        return first(x, first.row(0), first.col(0));
      } else if constexpr (kSecondIgnores) {
        return detail::apply_part(first, x, row, col, element...);
      } else {
        return detail::apply_part(first, x, row.first, col.first, element...);
      }
    }
    template <class Row, class Col, class... Element>
    ATTILE_HOST_DEVICE ModifiedScore<float> apply_second(float x, const Row& row, const Col& col,
                                                         const Element&... element) const {
      if constexpr (kSecondIgnores) {
        return second(x, second.row(0), second.col(0));
      } else if constexpr (kFirstIgnores) {
        return detail::apply_part(second, x, row, col, element...);
      } else {
        return detail::apply_part(second, x, row.second, col.second, element...);
      }
    }
  };

  /// Is for data that differ from diagonal to diagonal. One of the two ignores where scores are.
  template <class A, class B>
  struct DiagonalTile {
    using Modifier = Then;
    A first;   ///< of a product
    B second;  ///< of a score

    ATTILE_HOST_DEVICE auto diagonal(int distance) const {
      if constexpr (kFirstIgnores) {
        return second.diagonal(distance);
      } else {
        return first.diagonal(distance);
      }
    }
    template <class Word>
    ATTILE_HOST_DEVICE ModifiedScore<float> operator()(float x, const Word& word) const {
      if constexpr (kFirstIgnores) {
        const auto inner = first(x, first.row(0), first.col(0));
        const auto outer = second(inner.value, word);
        return {outer.value, outer.derivative * inner.derivative};
      } else {
        const auto inner = first(x, word);
        const auto outer = second(inner.value, second.row(0), second.col(0));
        return {outer.value, outer.derivative * inner.derivative};
      }
    }
    template <class Products, class F>
    ATTILE_HOST_DEVICE void simplify_given(const Products& products, const F& f) const {
      simplify_part<!kFirstIgnores>(first, products, [&](const auto& a) {
        simplify_part<kFirstIgnores>(second, detail::Unknown(),
                                     [&](const auto& b) { f(joined_diagonals(a, b)); });
      });
    }
  };

  template <class Math>
  ATTILE_HOST_DEVICE auto of_tile(const ScoreBlock& block, const Math& math) const {
    return tile_of(first, second, block, math);
  }
  ATTILE_HOST_DEVICE auto elements() const
      requires(kGivesElements<First, Second> || kGivesElements<Second, First>) {
    if constexpr (kGivesElements<First, Second>) {
      return first.elements();
    } else {
      return second.elements();
    }
  }
  constexpr bool reads_columns() const requires(kJoinsColumns<StandardMath>) {
    return placed().reads_columns();
  }
  template <class Math>
    requires(kJoinsColumns<Math>)
  ATTILE_HOST_DEVICE auto column_tile(const ScoreBlock& block, const Math& math) const {
    return column_tile_of(first, second, block, math);
  }
  constexpr bool reads_diagonals() const requires(kJoinsDiagonals<StandardMath>) {
    return placed().reads_diagonals();
  }
  template <class Math>
    requires(kJoinsDiagonals<Math>)
  ATTILE_HOST_DEVICE auto diagonal_tile(const ScoreBlock& block, const Math& math) const {
    return diagonal_tile_of(first, second, block, math);
  }

  /// Holds the two, prepared.
  template <class A, class B>
  struct Prepared {
    using Modifier = Then;
    using Placed = std::conditional_t<kFirstIgnores, B, A>;
    A first;
    B second;

    template <class Math>
    ATTILE_HOST_DEVICE auto of_tile(const ScoreBlock& block, const Math& math) const {
      return tile_of(first, second, block, math);
    }
    template <class Math>
      requires(kJoinsColumns<Math>&& requires(const Placed& placed, const ScoreBlock& block,
                                              const Math& math) {
        placed.column_tile(block, math);
      })
    ATTILE_HOST_DEVICE auto column_tile(const ScoreBlock& block, const Math& math) const {
      return column_tile_of(first, second, block, math);
    }
    template <class Math>
      requires(kJoinsDiagonals<Math>&& requires(const Placed& placed, const ScoreBlock& block,
                                                const Math& math) {
        placed.diagonal_tile(block, math);
      })
    ATTILE_HOST_DEVICE auto diagonal_tile(const ScoreBlock& block, const Math& math) const {
      return diagonal_tile_of(first, second, block, math);
    }
  };
  template <class Math>
    requires(kPrepares<First, Math> || kPrepares<Second, Math>)
  auto prepare(float scale, const Math& math) const {
    const auto a = prepared(first, scale, math);
    const auto b = prepared(second, 1.0f, math);
    return Prepared<std::remove_const_t<decltype(a)>, std::remove_const_t<decltype(b)>>{a, b};
  }

  template <class Real, class Add>
  ATTILE_HOST_DEVICE void add_gradient(Real s, Real ds, ScoreIndex i, Extent e,
                                       const Add& add) const {
    const Real inner = Real(first(s, i, e).value);
    if constexpr (attile::kHasGradient<Second>) {
      second.add_gradient(inner, ds, i, e, detail::add_of<Second>(add));
    }
    if constexpr (attile::kHasGradient<First>) {
      first.add_gradient(s, ds * Real(second(inner, i, e).derivative), i, e,
                         detail::add_of<First>(add));
    }
  }
  ATTILE_HOST_DEVICE auto gradient_per() const
      requires(kGradientTerms<First> + kGradientTerms<Second> > 0) {
    return detail::joined(detail::gradient_terms(second), detail::gradient_terms(first));
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

 private:
  /// Joins a tile of the first one and one of the second one.
  template <class A, class B>
  ATTILE_HOST_DEVICE static Tile<A, B> joined(const A& first, const B& second) {
    return {first, second};
  }
  template <class A, class B>
  ATTILE_HOST_DEVICE static DiagonalTile<A, B> joined_diagonals(const A& first, const B& second) {
    return {first, second};
  }
  /// Returns the block of what the second one is applied to.
  ATTILE_HOST_DEVICE static ScoreBlock scores_of(const ScoreBlock& block) {
    ScoreBlock scores = block;
    scores.scale = 1.0f;
    return scores;
  }
  // These join the tiles of the two, or of what was prepared of them.
  template <class A, class B, class Math>
  ATTILE_HOST_DEVICE static auto tile_of(const A& first, const B& second, const ScoreBlock& block,
                                         const Math& math) {
    return joined(modifier_of_tile(first, block, math),
                  modifier_of_tile(second, scores_of(block), math));
  }
  template <class A, class B, class Math>
  ATTILE_HOST_DEVICE static auto column_tile_of(const A& first, const B& second,
                                                const ScoreBlock& block, const Math& math) {
    if constexpr (kFirstIgnores) {
      return joined(modifier_of_tile(first, block, math),
                    second.column_tile(scores_of(block), math));
    } else {
      return joined(first.column_tile(block, math),
                    modifier_of_tile(second, scores_of(block), math));
    }
  }
  template <class A, class B, class Math>
  ATTILE_HOST_DEVICE static auto diagonal_tile_of(const A& first, const B& second,
                                                  const ScoreBlock& block, const Math& math) {
    if constexpr (kFirstIgnores) {
      return joined_diagonals(modifier_of_tile(first, block, math),
                              second.diagonal_tile(scores_of(block), math));
    } else {
      return joined_diagonals(first.diagonal_tile(block, math),
                              modifier_of_tile(second, scores_of(block), math));
    }
  }
  /// Simplifies a tile that is given what it reads, or another one.
  template <bool kGiven, class Part, class Products, class F>
  ATTILE_HOST_DEVICE static void simplify_part(const Part& part, const Products& products,
                                               const F& f) {
    if constexpr (kGiven) {
      attile::simplify_given(part, products, f);
    } else {
      attile::simplify(part, products, f);
    }
  }
};

template <class First, class Second>
inline constexpr bool kNeedsScores<Then<First, Second>> =
    kNeedsScores<First> || kNeedsScores<Second>;
template <class First, class Second>
inline constexpr bool kIgnoresPlace<Then<First, Second>> =
    kIgnoresPlace<First>&& kIgnoresPlace<Second>;

}  // namespace attile
