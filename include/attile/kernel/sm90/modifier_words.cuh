// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/args.h>
#include <attile/core/modifier_gradient.h>
#include <attile/core/status.h>
#include <attile/core/tile_modifier.h>
#include <attile/kernel/sm90/tuning.h>

#include <cstddef>
#include <type_traits>
#include <utility>

// The data that a score modifier reads once for each column or each diagonal of a tile of scores,
// as words of 4 bytes (ModifierWords). Warps of the producer write them to shared memory beside the
// tile of K or Q.

namespace attile::sm90 {

/// Names a score modifier's column or diagonal tile, and the word that it reads. Word is float
/// without words: a placeholder that nobody reads.
template <ModifierWords kWords, class S, class Math>
struct WordTileOf {
  using Word = float;
};
template <class S, class Math>
struct WordTileOf<ModifierWords::kColumns, S, Math> : ColumnTileOf<S, Math> {};
template <class S, class Math>
struct WordTileOf<ModifierWords::kDiagonals, S, Math> {
  using type = decltype(std::declval<const S&>().diagonal_tile(ScoreBlock(), Math()));
  using Word = std::remove_cvref_t<decltype(std::declval<const type&>().diagonal(0))>;
  static_assert(sizeof(Word) == 4 && std::is_trivially_copyable_v<Word>,
                "attile: what a diagonal tile reads for a diagonal is a word of 4 bytes");
};

/// Returns the number of words of a tile of scores.
template <ModifierWords kWords>
constexpr std::size_t word_count(std::size_t rows, std::size_t cols) {
  switch (kWords) {
    case ModifierWords::kNone:
      return 0;
    case ModifierWords::kColumns:
      return cols;
    case ModifierWords::kDiagonals:
      return rows + cols;
  }
  return 0;
}

/// Refuses a score modifier whose values make it read more than a word for each column, or for each
/// diagonal; backward also one whose gradient is not summed by diagonals.
template <ModifierWords kWords, Direction kDirection, class S>
Check check_words(const S& mod) {
  if constexpr (kWords == ModifierWords::kColumns) {
    if (!mod.reads_columns()) {
      return refuse(
          "this sm90 kernel reads a score modifier's data once for each column, and reads_columns "
          "says that they differ between rows");
    }
  }
  if constexpr (kWords == ModifierWords::kDiagonals) {
    if (!mod.reads_diagonals()) {
      return refuse(
          "this sm90 kernel reads a score modifier's data once for each col - row, and "
          "reads_diagonals says that they differ along a diagonal");
    }
    if constexpr (kDirection == Direction::kBackward && kGradientTerms<S> == 1) {
      if (detail::gradient_terms(mod).of[0] != GradientPer::kDiagonal) {
        return refuse(
            "this sm90 kernel sums a score modifier's gradient for each col - row, and "
            "gradient_per says something else");
      }
    }
  }
  return {};
}

}  // namespace attile::sm90
