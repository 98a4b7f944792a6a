// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/arch/math.h>
#include <attile/arch/matrix.cuh>
#include <attile/arch/memory.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/array.h>
#include <attile/core/config.h>
#include <attile/core/index.h>
#include <attile/core/math.h>
#include <attile/core/score_mod.h>
#include <attile/core/vec.h>
#include <attile/tile/modifier_math.h>
#include <attile/tile/panel_tile.cuh>
#include <attile/tile/tile_coord.cuh>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

// Score modifiers on a tile of scores: S' = score_mod(scale S).

namespace attile::tile {

/// Holds the raw scores of rows [begin, end) of a thread's registers, as a modifier may ask about
/// them (TileModifier). Scope    all lanes of a warp.
template <class Registers, bool kRowsAlone>
struct ProductsOf {
  Registers& scores;
  int begin, end;

  ATTILE_DEVICE bool all(bool condition) const { return !kRowsAlone && on_all_lanes(condition); }
  ATTILE_DEVICE bool all_within(float limit) const {
    float largest = 0.0f;
    ATTILE_UNROLL
    for (int r = 0; r < Registers::kRegRows; ++r) {
      if (r < begin || r >= end || !Registers::has_row(r)) continue;
      ATTILE_UNROLL
      for (int c = 0; c < Registers::kRegCols; ++c) {
        if (!Registers::has_col(c)) continue;
        const float score = scores.at(r, c);
        largest = arch::fmax(largest, std::fabs(score));
      }
    }
    return on_all_lanes(largest <= limit);
  }

 private:
  ATTILE_DEVICE static bool on_all_lanes(bool condition) { return !arch::any_lane(!condition); }
};

/// Replaces each score s of rows [begin, end) of the registers by f(s, r, c).
template <class Registers, class F>
ATTILE_DEVICE void replace_scores(Registers& scores, int begin, int end, const F& f) {
  ATTILE_UNROLL
  for (int c = 0; c < Registers::kRegCols; ++c) {
    if (!Registers::has_col(c)) continue;
    ATTILE_UNROLL
    for (int r = begin; r < end; ++r) {
      if (!Registers::has_row(r)) continue;
      float& s = scores.at(r, c);
      s = f(s, r, c);
    }
  }
}

/// Applies a modifier's tile to scores in a thread's registers. Where it reads memory a row behind
/// the last one is taken as that; with kClampsColumns a column, too, and else none is asked about
/// that does not exist.
template <bool kClampsColumns, class Registers, class Tile>
struct ThreadModifier {
  Tile tile;
  int first_row;           ///< the register row that rows are counted from
  int last_row, last_col;  ///< how far the last ones of the extent are from the first

  /// Returns what becomes of the raw score x in registers (r, c), and the derivative.
  ATTILE_DEVICE ModifiedScore<float> operator()(float x, int r, int c) const {
    const int row = Registers::row_offset(r) - Registers::row_offset(first_row);
    const int col = Registers::col_offset(c);
    constexpr bool kClamps = kReadsMemory<Tile>;
    return apply_tile(tile, x, tile.row(kClamps ? min(row, last_row) : row),
                      tile.col(kClamps && kClampsColumns ? min(col, last_col) : col));
  }
};

/// Applies a score modifier to the scores that a thread has of a tile. What scores have in common
/// is worked out when it is made, which may be before there are scores.
///   const tile::Modifier<Scores, tile::TileCoord, attile::Alibi> modifier(coord, alibi, scale);
template <class Registers, class Coord, class S, class Math = SafeMath>
class Modifier {
 public:
  ATTILE_DEVICE Modifier(const Coord& coord, const S& mod, float scale, const Math& math = {})
      : Modifier(coord, mod, scale, math, std::make_integer_sequence<int, kGroups>()) {}

  /// Calls f(modifier, begin, end) with a ThreadModifier for rows [begin, end) of the registers,
  /// once for each rows of a head. `scores`: their products.
  template <bool kClampsColumns, bool kSimplifies = true, class F>
  ATTILE_DEVICE void with(Registers& scores, const F& f) const {
    ATTILE_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      const int begin = g * kRows;
      const Group& group = groups_[g];
      const auto call = [&](const auto& tile) {
        using Simple = std::remove_cvref_t<decltype(tile)>;
        f(ThreadModifier<kClampsColumns, Registers, Simple>{tile, begin, group.last_row,
                                                            group.last_col},
          begin, begin + kRows);
      };
      if constexpr (kSimplifies) {
        simplify(group.tile, ProductsOf<Registers, kRowsAlone<Coord>>{scores, begin, begin + kRows},
                 call);
      } else {
        call(group.tile);
      }
    }
  }
  /// Sets S' = score_mod(scale * S) for all scores. With kClampsColumns columns may lie behind the
  /// last one, whose scores mean nothing.
  template <bool kClampsColumns>
  ATTILE_DEVICE void apply(Registers& scores) const {
    with<kClampsColumns>(scores, [&](const auto& modifier, int begin, int end) {
      replace_scores(scores, begin, end,
                     [&](float s, int r, int c) { return modifier(s, r, c).value; });
    });
  }
  /// Calls f(modifier) with modifier(x, r, c, element) -> ModifiedScore, for the raw score x in
  /// registers (r, c) whose element is given. `scores`: their products.
  template <bool kSimplifies = true, class F>
  ATTILE_DEVICE void with_elements(Registers& scores, const F& f) const {
    static_assert(kGroups == 1, "attile::tile::Modifier: elements are given for rows of one head");
    const auto call = [&](const auto& tile) {
      f([&](float x, int r, int c, auto element) { return apply_element(tile, x, r, c, element); });
    };
    if constexpr (kSimplifies) {
      simplify_given(groups_[0].tile, ProductsOf<Registers, kRowsAlone<Coord>>{scores, 0, kRows},
                     call);
    } else {
      call(groups_[0].tile);
    }
  }

 private:
  static constexpr int kRows = Coord::kOneHead ? Registers::kRegRows : 1;
  static constexpr int kGroups = Registers::kRegRows / kRows;
  using Tile = decltype(modifier_of_tile(std::declval<const S&>(), ScoreBlock(),
                                         std::declval<const Math&>()));
  struct Group {
    Tile tile;
    int last_row, last_col;
  };

  template <int... g>
  ATTILE_DEVICE Modifier(const Coord& coord, const S& mod, float scale, const Math& math,
                         std::integer_sequence<int, g...>)
      : groups_{group(coord, mod, scale, math, g * kRows)...} {}
  ATTILE_DEVICE static Group group(const Coord& coord, const S& mod, float scale, const Math& math,
                                   int begin) {
    const int row = Registers::row(0) + Registers::row_offset(begin);
    const ScoreIndex first = coord.nearest_inside(coord.at(row, Registers::col(0)));
    const int rows = Registers::row_offset(kRows - 1) + 1;
    const int cols = Registers::col_offset(Registers::kRegCols - 1) + 1;
    return {modifier_of_tile(mod, ScoreBlock{first, coord.extent, rows, cols, scale}, math),
            coord.extent.q_len - 1 - first.row, coord.extent.kv_len - 1 - first.col};
  }
  template <class Simple, class Element>
  ATTILE_DEVICE ModifiedScore<float> apply_element(const Simple& tile, float x, int r, int c,
                                                   Element element) const {
    const Group& group = groups_[r / kRows];
    return tile(x, tile.row(min(Registers::row_offset(r % kRows), group.last_row)),
                tile.col(min(Registers::col_offset(c), group.last_col)), element);
  }

  Array<Group, kGroups> groups_;
};

/// Applies a score modifier as Modifier does, and holds what its tile has in common for each of the
/// thread's columns: what that reads of memory is under way from when this is made, beside the
/// product of which the scores are. It takes a register for each of the thread's columns.
///   const tile::PreloadedModifier<Scores, tile::TileCoord, KeyBias> modifier(coord, bias, scale);
///   tile::wait_product<0>(s_frag);
///   tile::modify_and_mask<true>(s_frag, coord, modifier, policies);
template <class Registers, class Coord, class S, class Math = SafeMath>
class PreloadedModifier {
  static_assert(Coord::kOneHead, "attile::tile::PreloadedModifier: a tile has rows of one head");

 public:
  ATTILE_DEVICE PreloadedModifier(const Coord& coord, const S& mod, float scale,
                                  const Math& math = {})
      : PreloadedModifier(coord.nearest_inside(coord.at(Registers::row(0), Registers::col(0))),
                          coord.extent, mod, scale, math) {}

  /// Sets S' = score_mod(scale * S) for all scores.
  template <bool>
  ATTILE_DEVICE void apply(Registers& scores) const {
    replace_scores(scores, 0, Registers::kRegRows, [&](float s, int r, int c) {
      const int row = min(Registers::row_offset(r), last_row_);
      return apply_tile(tile_, s, tile_.row(row), cols_[c]).value;
    });
  }

 private:
  using Tile = decltype(modifier_of_tile(std::declval<const S&>(), ScoreBlock(),
                                         std::declval<const Math&>()));

  ATTILE_DEVICE PreloadedModifier(const ScoreIndex& first, const Extent& extent, const S& mod,
                                  float scale, const Math& math)
      : tile_(modifier_of_tile(
            mod,
            ScoreBlock{first, extent, Registers::row_offset(Registers::kRegRows - 1) + 1,
                       Registers::col_offset(Registers::kRegCols - 1) + 1, scale},
            math)),
        last_row_(extent.q_len - 1 - first.row) {
    const int last_col = extent.kv_len - 1 - first.col;
    ATTILE_UNROLL
    for (int c = 0; c < Registers::kRegCols; ++c) {
      const int col = Registers::col_offset(c);
      if constexpr (requires { typename Tile::Element; }) {
        cols_[c] = tile_.col(min(col, last_col));  // an element may be read there
      } else {
        // Not clamped: the column is a constant, which a load has in its address.
        cols_[c] = {};
        if (col <= last_col) cols_[c] = tile_.col(col);
      }
    }
  }

  Tile tile_;
  int last_row_;  ///< how far the last row of the extent is from the thread's first one
  std::remove_cvref_t<decltype(std::declval<const Tile&>().col(0))> cols_[Registers::kRegCols];
};

/// Reads the elements of a thread's scores out of a tile of 16-bit elements in shared memory, each
/// warp those of its rows of the tile.
/// Shapes   Registers: an MmaTile whose warps have whole rows; Tile: a PanelTile of the rows of
///          some neighbouring warps.
template <class Registers, class Tile>
class ElementReader {
  static_assert(Registers::kWarpCols == Registers::kCols,
                "attile::tile::ElementReader: each warp has all columns of its rows");

 public:
  ATTILE_DEVICE explicit ElementReader(const Tile& tile)
      : reader_(tile, row(), arch::thread_index() % arch::kWarpSize / 16) {}

  /// Calls f(r, i, pair) with the elements of columns 2 i and 2 i + 1 of row r of the registers.
  template <class F>
  ATTILE_DEVICE void for_each_pair(const F& f) const {
    ATTILE_UNROLL
    for (int piece = 0; piece < Registers::kCols / 16; ++piece) {
      ATTILE_UNROLL
      for (int rows = 0; rows < Registers::kRegRows; rows += 2) {
        std::uint32_t words[4];
        arch::load_matrices(words, reader_.address(rows * 8, piece * 16));
        ATTILE_UNROLL
        for (int i = 0; i < 4; ++i) {
          Vec<typename Tile::Element, 2> pair;
          std::memcpy(&pair, &words[i], sizeof pair);
          f(rows + i % 2, piece * 2 + i / 2, pair);
        }
      }
    }
  }

 private:
  /// Returns the row of the tile whose address this lane gives to ldmatrix.
  ATTILE_DEVICE static int row() {
    const int thread = arch::thread_index();
    return thread / arch::kWarpSize * Registers::kWarpRows % Tile::kRows + thread % 16;
  }

  PieceReader<Tile> reader_;
};

/// Holds the elements of a thread's scores, read out of a tile of 16-bit elements in shared memory
/// whose columns are the rows of the registers, each warp those of its rows of the registers.
/// Shapes   Registers: an MmaTile, of which row r has column r modulo the tile's columns; their
///          columns are the tile's rows.
template <class Registers, class Tile>
class TransposedElements {
  static_assert(
      Registers::kCols == Tile::kRows,
      "attile::tile::TransposedElements: the columns of the registers are the tile's rows");

 public:
  ATTILE_DEVICE explicit TransposedElements(const Tile& tile) {
    const int lane = arch::thread_index() % arch::kWarpSize;
    const int first = Registers::kWarpCols < Registers::kCols ? Registers::warp_col() : 0;
    const PieceReader<Tile> reader(tile, first + lane % 8 + lane / 16 * 8, lane / 8 % 2);
    const int col = Registers::warp_row() % Tile::kCols;
    ATTILE_UNROLL
    for (int piece = 0; piece < kPieces; ++piece) {
      ATTILE_UNROLL
      for (int rows = 0; rows < Registers::kRegRows / 2; ++rows) {
        arch::load_matrices_transposed(words_[piece][rows],
                                       reader.address(piece * 16, col + rows * 16));
      }
    }
  }

  /// Returns the element of the score in registers (r, c) of the TransposedRegisters.
  ATTILE_DEVICE typename Tile::Element at(int r, int c) const {
    Vec<typename Tile::Element, 2> pair;
    std::memcpy(&pair, &words_[r / 4][c / 2][r / 2 % 2 * 2 + c % 2], sizeof pair);
    return pair[r % 2];
  }

 private:
  static constexpr int kPieces = Registers::kWarpCols / 16;
  Array<std::uint32_t, kPieces, Registers::kRegRows / 2, 4> words_;
};

/// Stands for elements that nobody has read: a modifier's tile reads them, if it has some.
struct NoElements {};
/// Stands for those of scores that a modifier has been applied to, whose derivative is 1.
struct AppliedElements {};
/// Stands for data that a modifier's column tile reads.
struct ColumnElements {};

/// Gives the column tiles of a score modifier as its tiles.
template <class S>
struct ByColumns {
  using Modifier = S;
  const S& mod;

  template <class Math>
  ATTILE_DEVICE auto of_tile(const ScoreBlock& block, const Math& math) const {
    return mod.column_tile(block, math);
  }
};

/// Applies a modifier whose tiles have elements to scores, with elements that `reader` has.
template <class Modifier, class Reader>
struct ElementModifier {
  const Modifier& modifier;
  const Reader& reader;

  template <bool, class Registers>
  ATTILE_DEVICE void apply(Registers& scores) const {
    modifier.with_elements(scores, [&](const auto& given) {
      reader.for_each_pair([&](int r, int i, const auto& pair) {
        ATTILE_UNROLL
        for (int e = 0; e < 2; ++e) {
          float& s = scores.at(r, 2 * i + e);
          s = given(s, r, 2 * i + e, pair[e]).value;
        }
      });
    });
  }
};

/// Is the modifier that leaves scores as they are.
template <class Registers, class Coord, class Math>
class Modifier<Registers, Coord, NoScoreMod, Math> {
 public:
  ATTILE_DEVICE Modifier(const Coord&, const NoScoreMod&, float, const Math& = {}) {}
  template <bool, bool = true, class F>
  ATTILE_DEVICE void with(Registers&, const F& f) const {
    f([](float s, int, int) { return ModifiedScore<float>{s, 1.0f}; }, 0, Registers::kRegRows);
  }
  template <bool>
  ATTILE_DEVICE void apply(Registers&) const {}
};

}  // namespace attile::tile
