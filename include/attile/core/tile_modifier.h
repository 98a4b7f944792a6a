// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>
#include <attile/core/index.h>

#include <cmath>
#include <cstdint>
#include <type_traits>
#include <utility>

// How score modifiers are applied to scores that lie near each other.

namespace attile {

/// Holds what a score modifier returns for a score s: f(s), and f'(s) for the backward pass.
template <class Real>
struct ModifiedScore {
  Real value;
  Real derivative;
};

/// Gives a score modifier its mathematical functions: those of the standard library. A kernel has
/// faster ones where its results are of 16 bits (tile::FastMath).
struct StandardMath {
  /// Whether results have more than 16 bits.
  static constexpr bool kExact = true;

  struct Tanh {
    float outer, inner;
    ATTILE_HOST_DEVICE float operator()(float x) const { return outer * std::tanh(inner * x); }
  };
  /// Returns the function x -> outer tanh(inner x). It may have a `near()`, a function that is
  /// faster and gives the same where |x| <= near().limit.
  ATTILE_HOST_DEVICE static Tanh tanh(float outer, float inner) { return {outer, inner}; }
  /// Returns the same function for what a host prepares: it may hold more that is worked out.
  ATTILE_HOST_DEVICE static Tanh prepared_tanh(float outer, float inner) { return {outer, inner}; }
  /// Returns that function with a relative error of up to 2^-10.9 where the machine has it.
  ATTILE_HOST_DEVICE static Tanh approximate_tanh(float outer, float inner) {
    return {outer, inner};
  }
  /// Returns a * b. A kernel's is not fused with an addition that follows (tile::SafeMath).
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

/// Says where the elements of a score modifier lie in memory.
/// Units   strides count elements; 0 broadcasts along that axis.
template <class T>
struct ElementTensor {
  const T* data;
  std::int64_t batch_stride, head_stride, row_stride, col_stride;
};

/// Says whether a score modifier says where its elements lie.
template <class S>
inline constexpr bool kHasElementTensor = requires(const S& mod) {
  mod.elements();
};

/// Names the type of a score modifier's elements; T where it has none.
template <class S, class T>
struct ElementTypeOf {
  using type = T;
};
template <class S, class T>
  requires(kHasElementTensor<S>)
struct ElementTypeOf<S, T> {
  using type = std::remove_cvref_t<decltype(*std::declval<const S&>().elements().data)>;
};

/// Names a score modifier's column tile, and the word that it reads for a column.
template <class S, class Math>
struct ColumnTileOf {
  using type = decltype(std::declval<const S&>().column_tile(ScoreBlock(), Math()));
  using Word = std::remove_cvref_t<decltype(std::declval<const type&>().col(0))>;
  static_assert(sizeof(Word) == 4 && std::is_trivially_copyable_v<Word>,
                "attile: what a column tile reads for a column is a word of 4 bytes");
};

/// Says along which axes of the scores the data differ that a score modifier reads. A modifier's
/// optional `data_axes()` returns it. Without a row and a column there are no tiles of data.
struct DataAxes {
  bool batch = false, head = false, row = false, col = false;

  /// Returns whether scores of several heads, or of several sequences, have tiles of data in
  /// common. Schedules then compute such tiles of scores one beside another (HeadOrder).
  ATTILE_HOST_DEVICE constexpr bool share_tiles() const { return row && col && !(batch && head); }
  ATTILE_HOST_DEVICE friend constexpr DataAxes operator|(DataAxes a, DataAxes b) {
    return {a.batch || b.batch, a.head || b.head, a.row || b.row, a.col || b.col};
  }
};

template <class S>
inline constexpr bool kHasDataAxes = requires(const S& mod) {
  mod.data_axes();
};

/// Returns what a modifier says of its data; no axes where it says nothing.
template <class S>
constexpr DataAxes data_axes(const S& mod) {
  if constexpr (kHasDataAxes<S>) {
    return mod.data_axes();
  } else {
    return {};
  }
}

/// Applies a score modifier to scores that lie near each other. A modifier may give such an object
/// itself, so that what scores have in common is worked out once, and a score costs only what
/// depends on it. The functions are pure, const and ATTILE_HOST_DEVICE, and may read memory:
///
///     mod.of_tile(block, math) -> tile
/// is called for a thread's scores of a tile, a ScoreBlock. `math` has the functions of
/// StandardMath. tile's type has `using Modifier = S`: what a modifier inherits is not taken.
///
///     tile.row(dr), tile.col(dc)
/// give what all scores of row first.row + dr, or of column first.col + dc, have in common. They
/// are asked about rows and columns inside the extent alone, or with
/// `static constexpr bool kReadsMemory = false` about others, too, for scores that do not exist:
/// bounds would take the place of constants. What is the same for several scores is kept in
/// registers.
///
///     tile(x, row, col) -> ModifiedScore
/// is what mod(scale * x, index, extent) returns, which remains: the reference calls that. `row`
/// and `col` are what the two above have returned.
///
///     using Element = ...;   tile.read(row, col) -> Element;   tile(x, row, col, element)
/// are for a modifier that reads an element for each score; the call without one is not there then.
/// A modifier whose tiles read elements may also have
///     mod.elements() -> ElementTensor
/// for kernels that copy tiles of them.
///
///     mod.reads_columns() -> bool;   mod.column_tile(block, math) -> tile
/// may be there for a modifier that with some values, then the first one says so, reads nothing but
/// for each column: all tiles can then be those of column_tile, whose `col` returns a word of 4
/// bytes, and whose `row` reads no memory. A kernel may ask for a word once for many rows: `col`
/// may be asked of one tile and `row` of another one of the same head, so that neither result may
/// depend on where its tile begins. The tile's type, too, has `using Modifier = S`.
///
///     mod.reads_diagonals() -> bool;   mod.diagonal_tile(block, math) -> tile
/// may be there for a modifier that with some values, then the first one says so, reads nothing but
/// for each difference column - row: tile.diagonal(difference) returns a word of 4 bytes, and
/// tile(x, word) -> ModifiedScore what becomes of a score. It is asked about differences between
/// -(q_len - 1) and kv_len - 1. Of a block that tile knows the head, the batch and the scale alone.
/// Its type, too, has `using Modifier = S`.
///
///     mod.prepare(scale, math) -> prepared;   prepared.of_tile(block, math) -> tile
/// may be there for a modifier that works something out of its values and of the scale: it is then
/// called once, on the host, and kernels may ask `prepared` for the tiles, which are those of mod;
/// for those of columns and of diagonals, too, where it has these functions. Its type, too, has
/// `using Modifier = S`.
///
///     tile.simplify(products, f)
/// may be there: it calls f with a tile that costs less and can stand for this one, or with this
/// one. products.all(condition) says whether a condition holds for all threads of the warp; it says
/// no where a row's bits may not depend on the rows beside it. products.all_within(limit) says
/// whether |x| <= limit for all that their tiles are applied to, those of hidden scores, too. So a
/// tile for small products must give the same bits as this one: which of them a row meets depends
/// on memory behind its sequence.
///
///     tile.simplify_given(products, f)
/// may be there: the same where a kernel has the element, or the column's or the diagonal's word,
/// of each score. f's tile is applied to the same.
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

/// Names the modifier whose tiles S gives: S, or what S was prepared of.
template <class S>
struct TileOwner {
  using type = S;
};
template <class S>
  requires(requires { typename S::Modifier; })
struct TileOwner<S> {
  using type = typename S::Modifier;
};

/// Says whether a modifier has an `of_tile` of its own.
template <class S, class Math>
inline constexpr bool kHasTiles = [] {
  if constexpr (requires(const S& mod, const Math& math) { mod.of_tile(ScoreBlock(), math); }) {
    using Tile =
        decltype(std::declval<const S&>().of_tile(ScoreBlock(), std::declval<const Math&>()));
    static_assert(
        requires { typename Tile::Modifier; },
        "attile: what a score modifier's of_tile returns says whose it is: using Modifier");
    return std::is_same_v<typename Tile::Modifier, typename TileOwner<S>::type>;
  }
  static_assert(
      !requires(const S& mod, const Math& math) { mod.of_tile({}, Extent(), math); },
      "attile: a score modifier's of_tile takes a ScoreBlock (docs/migration.md)");
  return false;
}();

/// Stands for products of which nothing is known, and says no to all that a tile asks about them.
struct Unknown {
  ATTILE_HOST_DEVICE bool all(bool) const { return false; }
  ATTILE_HOST_DEVICE bool all_within(float) const { return false; }
};

}  // namespace detail

/// Says whether a modifier has a `prepare` of its own.
template <class S, class Math>
inline constexpr bool kPrepares = [] {
  if constexpr (requires(const S& mod, const Math& math) { mod.prepare(1.0f, math); }) {
    using Prepared = decltype(std::declval<const S&>().prepare(1.0f, std::declval<const Math&>()));
    return std::is_same_v<typename Prepared::Modifier, S>;
  }
  return false;
}();

/// Returns what gives a modifier's tiles where scores are `scale` times products.
template <class S, class Math>
auto prepared(const S& mod, float scale, const Math& math) {
  if constexpr (kPrepares<S, Math>) {
    return mod.prepare(scale, math);
  } else {
    return mod;
  }
}

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

/// Applies a tile to a product, and reads the score's element, if it has one.
template <class Tile, class Row, class Col>
ATTILE_HOST_DEVICE ModifiedScore<float> apply_tile(const Tile& tile, float x, const Row& row,
                                                   const Col& col) {
  if constexpr (requires { typename Tile::Element; }) {
    return tile(x, row, col, tile.read(row, col));
  } else {
    return tile(x, row, col);
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

/// Does the same where a kernel has what the tile reads for each score, column or diagonal.
template <class Tile, class Products, class F>
ATTILE_HOST_DEVICE void simplify_given(const Tile& tile, const Products& products, const F& f) {
  if constexpr (requires { tile.simplify_given(products, f); }) {
    tile.simplify_given(products, f);
  } else {
    f(tile);
  }
}

/// Says whether a tile may only be asked about rows and columns inside the extent.
template <class Tile>
inline constexpr bool kReadsMemory = [] {
  if constexpr (requires { Tile::kReadsMemory; }) return bool(Tile::kReadsMemory);
  return true;
}();

/// Say whether a modifier may read for each column alone (column_tile), or for each diagonal alone
/// (diagonal_tile).
template <class S, class Math>
inline constexpr bool kHasColumnTiles = requires(const S& mod, const Math& math) {
  mod.reads_columns();
  requires std::is_same_v<typename decltype(mod.column_tile(ScoreBlock(), math))::Modifier, S>;
};
template <class S, class Math>
inline constexpr bool kHasDiagonalTiles = requires(const S& mod, const Math& math) {
  mod.reads_diagonals();
  requires std::is_same_v<typename decltype(mod.diagonal_tile(ScoreBlock(), math))::Modifier, S>;
};

/// Return the column tile, or the diagonal tile, of a modifier that has them: that of `prepared`,
/// which is what the modifier has prepared or itself, or else its own.
template <class Prepared, class S, class Math>
ATTILE_HOST_DEVICE auto modifier_of_columns(const Prepared& prepared, const S& mod,
                                            const ScoreBlock& block, const Math& math) {
  if constexpr (requires { prepared.column_tile(block, math); }) {
    return prepared.column_tile(block, math);
  } else {
    return mod.column_tile(block, math);
  }
}
template <class Prepared, class S, class Math>
ATTILE_HOST_DEVICE auto modifier_of_diagonals(const Prepared& prepared, const S& mod,
                                              const ScoreBlock& block, const Math& math) {
  if constexpr (requires { prepared.diagonal_tile(block, math); }) {
    return prepared.diagonal_tile(block, math);
  } else {
    return mod.diagonal_tile(block, math);
  }
}

/// Says whether a modifier's tiles read an element for each score.
template <class S, class Math>
inline constexpr bool kHasElements = [] {
  if constexpr (detail::kHasTiles<S, Math>) {
    using Tile = decltype(modifier_of_tile(std::declval<const S&>(), ScoreBlock(), Math()));
    return requires { typename Tile::Element; };
  }
  return false;
}();

}  // namespace attile
