// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/arch/memory.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/array.h>
#include <attile/core/config.h>
#include <attile/core/index.h>
#include <attile/core/math.h>
#include <attile/core/tile_modifier.h>
#include <attile/core/vec.h>
#include <attile/tile/modify.cuh>
#include <attile/tile/tile_coord.cuh>

#include <type_traits>
#include <utility>

// Score modifiers that read a word for each column, or for each diagonal col - row, of a tile of
// scores: a warp writes the words to shared memory beside the tile of K or Q, or each thread holds
// those of its columns.

namespace attile::tile {

/// Returns the products of all of a thread's rows, whose bits may not depend on each other.
template <class Registers>
ATTILE_DEVICE ProductsOf<Registers, true> of_all_rows(Registers& scores) {
  return {scores, 0, Registers::kRegRows};
}

/// Applies a modifier's column tile to scores, with the words of a tile's columns in shared memory.
template <class Registers, class Tile, class Word>
struct ColumnModifier {
  Tile tile;
  const Word* words;  ///< aligned to 8 bytes
  int last_row;       ///< how far the last row of the extent is from this thread's first one

  template <bool>
  ATTILE_DEVICE void apply(Registers& scores) const {
    simplify_given(tile, of_all_rows(scores), [&](const auto& simple) {
      ATTILE_UNROLL
      for (int c = 0; c < Registers::kRegCols; c += 2) {
        const Vec<Word, 2> of_columns = arch::load<2>(words + Registers::col(c));
        ATTILE_UNROLL
        for (int r = 0; r < Registers::kRegRows; ++r) {
          const auto row = simple.row(min(Registers::row_offset(r), last_row));
          ATTILE_UNROLL
          for (int e = 0; e < 2; ++e) {
            float& s = scores.at(r, c + e);
            s = simple(s, row, of_columns[e]).value;
          }
        }
      }
    });
  }
};

/// Holds the words of kCols columns from col0 on in registers until the stage beside a tile of K is
/// empty. Columns past the last one get the last one's word.
///   const tile::ColumnWords<Tile, kBc> words(column_tile, kv_tile * kBc, kv_len);
///   pipeline.await_empty(state);  // of a pipeline with init(consumers, 2): this warp is
///                                 // the second producer, beside the one that loads the tile
///   words.store(columns_smem);
///   if (lane == 0) pipeline.producer_commit(state);
/// Scope    all lanes of a warp, for both functions.
/// Barriers `store` ends with one of the warp: one lane may say that all words are there.
template <class Tile, int kCols>
class ColumnWords {
  using Word = std::remove_cvref_t<decltype(std::declval<const Tile&>().col(0))>;

 public:
  ATTILE_DEVICE ColumnWords(const Tile& tile, int col0, int cols) {
    ATTILE_UNROLL
    for (int i = 0; i < kWordsPerLane; ++i) words_[i] = tile.col(min(col0 + col(i), cols - 1));
  }
  ATTILE_DEVICE void store(Word* words) const {
    ATTILE_UNROLL
    for (int i = 0; i < kWordsPerLane; ++i) {
      if (col(i) < kCols) words[col(i)] = words_[i];
    }
    arch::warp_barrier();  // all lanes have written before one says so
  }

 private:
  static constexpr int kWordsPerLane = ceil_div(kCols, arch::kWarpSize);
  ATTILE_DEVICE static int col(int i) {
    return i * arch::kWarpSize + arch::thread_index() % arch::kWarpSize;
  }

  Array<Word, kWordsPerLane> words_;
};

/// Holds the words of a thread's columns in registers, for tiles of scores that have the same
/// columns.
///   columns.read(mod, coord, scale);           // once: coord of any of these tiles
///   columns.apply(s_frag, mod, coord, scale);  // of each tile
template <class Registers, class Word, class Math>
struct HeldColumns {
  Word words[Registers::kRegCols];

  /// Begins to read the words. A column past the last one gets that one's.
  template <class S>
  ATTILE_DEVICE void read(const S& mod, const TileCoord& at, float scale) {
    const auto tile = mod.column_tile(block(at, scale), Math());
    const int first = min(at.col0 + Registers::col(0), at.extent.kv_len - 1);
    ATTILE_UNROLL
    for (int c = 0; c < Registers::kRegCols; ++c) {
      words[c] = tile.col(min(Registers::col_offset(c), at.extent.kv_len - 1 - first));
    }
  }
  /// Calls f(modifier) with modifier(x, r, c) -> ModifiedScore for the raw scores of a tile.
  /// `prepared`: what the modifier has prepared, or itself.
  template <bool kSimplifies = true, class Prepared, class S, class F>
  ATTILE_DEVICE void with(Registers& s, const Prepared& prepared, const S& mod, const TileCoord& at,
                          float scale, const F& f) const {
    const auto tile = modifier_of_columns(prepared, mod, block(at, scale), Math());
    const int last_row = max(at.extent.q_len - 1 - at.row0 - Registers::row(0), 0);
    const auto call = [&](const auto& simple) {
      f([&](float x, int r, int c) {
        return simple(x, simple.row(min(Registers::row_offset(r), last_row)), words[c]);
      });
    };
    if constexpr (kSimplifies) {
      simplify_given(tile, of_all_rows(s), call);
    } else {
      call(tile);
    }
  }
  /// Sets S' = score_mod(scale * S) for all scores of a tile.
  template <class S>
  ATTILE_DEVICE void apply(Registers& s, const S& mod, const TileCoord& at, float scale) const {
    with(s, mod, mod, at, scale, [&](const auto& modifier) {
      replace_scores(s, 0, Registers::kRegRows,
                     [&](float x, int r, int c) { return modifier(x, r, c).value; });
    });
  }

 private:
  /// Returns the block of this thread's scores.
  ATTILE_DEVICE static ScoreBlock block(const TileCoord& at, float scale) {
    const ScoreIndex first = at.nearest_inside(at.at(Registers::row(0), Registers::col(0)));
    return {first, at.extent, Registers::row_offset(Registers::kRegRows - 1) + 1,
            Registers::col_offset(Registers::kRegCols - 1) + 1, scale};
  }
};

/// Says whether a type is HeldColumns.
template <class X>
inline constexpr bool kAreHeldColumns = false;
template <class Registers, class Word, class Math>
inline constexpr bool kAreHeldColumns<HeldColumns<Registers, Word, Math>> = true;

/// Points to the words of the diagonals of a thread's scores, in shared memory.
template <class Word>
struct DiagonalWords {
  using Element = Word;

  const Word* words;  ///< that of this thread's first score

  /// Returns that of the score in registers (r, c).
  template <class Registers>
  ATTILE_DEVICE Word at(int r, int c) const {
    return words[Registers::col_offset(c) - Registers::row_offset(r)];
  }
};

/// Says whether a type is DiagonalWords.
template <class X>
inline constexpr bool kAreDiagonalWords = false;
template <class Word>
inline constexpr bool kAreDiagonalWords<DiagonalWords<Word>> = true;

/// Applies a modifier's diagonal tile to scores.
template <class Registers, class Tile, class Word>
struct DiagonalModifier {
  Tile tile;
  DiagonalWords<Word> words;

  /// Returns what becomes of the raw score x in registers (r, c), and the derivative.
  ATTILE_DEVICE ModifiedScore<float> operator()(float x, int r, int c) const {
    return tile(x, words.template at<Registers>(r, c));
  }
  /// Calls f(modifier) with the one that has the cheapest tile for raw scores.
  template <class F>
  ATTILE_DEVICE void with(Registers& scores, const F& f) const {
    simplify_given(tile, of_all_rows(scores), [&](const auto& simple) {
      f(DiagonalModifier<Registers, std::remove_cvref_t<decltype(simple)>, Word>{simple, words});
    });
  }
  template <bool>
  ATTILE_DEVICE void apply(Registers& scores) const {
    with(scores, [&](const auto& modifier) {
      replace_scores(scores, 0, Registers::kRegRows,
                     [&](float s, int r, int c) { return modifier(s, r, c).value; });
    });
  }
};

/// Reads the words of the diagonals of a tile of kRows rows and kCols columns, and writes them:
/// word i is that of col - row = i - (kRows - 1) in the tile. A diagonal that the scores do not
/// have is taken as the nearest one.
///   tile::store_diagonals<kRows, kCols>(words_smem, diagonal_tile, row0, col0, extent);
/// Shapes   words: kRows + kCols. There is one diagonal fewer: the last word is a pad that keeps
///          the size a multiple of 16 bytes, and no score reads it.
/// Scope    all lanes of a warp.
/// Barriers as ColumnWords::store.
template <int kRows, int kCols, class Tile, class Word>
ATTILE_DEVICE void store_diagonals(Word* words, const Tile& tile, int row0, int col0,
                                   const Extent& extent) {
  constexpr int kAtOnce = 2;  // loads on their way
  const int lane = arch::thread_index() % arch::kWarpSize;
  const int first = col0 - row0 - (kRows - 1) + lane;
  ATTILE_UNROLL_BY(1)
  for (int i = 0; i < kRows + kCols; i += kAtOnce * arch::kWarpSize) {
    Word several[kAtOnce];
    ATTILE_UNROLL
    for (int j = 0; j < kAtOnce; ++j) {
      const int distance = first + i + j * arch::kWarpSize;
      several[j] = tile.diagonal(min(max(distance, 1 - extent.q_len), extent.kv_len - 1));
    }
    ATTILE_UNROLL
    for (int j = 0; j < kAtOnce; ++j) {
      const int at = lane + i + j * arch::kWarpSize;
      if (at < kRows + kCols) words[at] = several[j];
    }
  }
  arch::warp_barrier();  // all lanes have written before one says so
}

}  // namespace attile::tile
