// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/opaque.h>
#include <attile/core/config.h>
#include <attile/core/index.h>
#include <attile/core/math.h>

namespace attile::tile {

/// Says which part of which score matrix a tile is: the head of a sequence, and the row and column
/// of the tile's first score.
///   const tile::TileCoord coord{at.sequence, at.head, at.row0, kv_tile * kBc, at.extent};
struct TileCoord {
  static constexpr bool kOneHead = true;

  int batch, head, row0, col0;
  Extent extent;

  /// Returns the index in the score matrix of the tile's score (r, c).
  ATTILE_DEVICE ScoreIndex at(int r, int c) const { return {batch, head, row0 + r, col0 + c}; }
  ATTILE_DEVICE bool has_row(int r) const { return row0 + r < extent.q_len; }
  ATTILE_DEVICE bool inside(ScoreIndex i) const {
    return i.row < extent.q_len && i.col < extent.kv_len;
  }
  /// Returns a copy for which the compiler recomputes rows and columns instead of keeping those of
  /// the original in registers.
  ATTILE_DEVICE TileCoord again() const {
    return {batch, head, arch::opaque(row0), arch::opaque(col0), extent};
  }
  /// Returns the index inside the extent that is nearest to i. Neither length may be 0.
  ATTILE_DEVICE ScoreIndex nearest_inside(const ScoreIndex& i) const {
    return {i.batch, i.head, min(i.row, extent.q_len - 1), min(i.col, extent.kv_len - 1)};
  }
};

/// Says what TileCoord does for a part of a tile with packed query heads: from row `first` on it
/// holds `rows` rows of each of `heads` neighbouring heads, row i of every head before row i + 1.
struct PackedHeadsCoord {
  static constexpr bool kOneHead = false;

  int batch, head, row0, col0;
  Extent extent;
  int first, heads, rows;

  ATTILE_DEVICE ScoreIndex at(int r, int c) const {
    const int i = r - first;
    return {batch, head + i % heads, row0 + i / heads, col0 + c};
  }
  ATTILE_DEVICE bool has_row(int r) const {
    const int row = (r - first) / heads;
    return row < rows && row0 + row < extent.q_len;
  }
  ATTILE_DEVICE bool inside(ScoreIndex i) const {
    return i.row < extent.q_len && i.col < extent.kv_len;
  }
  ATTILE_DEVICE ScoreIndex nearest_inside(const ScoreIndex& i) const {
    return {i.batch, i.head, min(i.row, extent.q_len - 1), min(i.col, extent.kv_len - 1)};
  }
};

/// Is a Coord whose rows get the same bits whichever rows are beside them, as those of a sequence
/// that has them one by one, or some at a time.
template <class Coord>
struct RowsAlone : Coord {
  static constexpr bool kRowsAlone = true;
};
template <class Coord>
RowsAlone(Coord) -> RowsAlone<Coord>;

template <class Coord>
inline constexpr bool kRowsAlone = requires {
  Coord::kRowsAlone;
};

}  // namespace attile::tile
