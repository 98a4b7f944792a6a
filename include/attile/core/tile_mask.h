// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>
#include <attile/core/index.h>

#include <type_traits>
#include <utility>

namespace attile {

/// Answers about scores that lie near each other. A mask may give such an object itself, so that
/// what scores have in common is worked out once, and a score costs only what depends on it. The
/// functions are pure, const and ATTILE_HOST_DEVICE, and may read memory:
///
///     mask.of_tile(first, extent) -> tile
/// is called for a thread's scores of a tile. `first` is the first of them, or the nearest one
/// inside the extent; the others are in rows and columns from there on. tile's type has
/// `using Mask = M`: what a mask inherits is not taken.
///
///     tile.row(dr), tile.col(dc)
/// give what all scores of row first.row + dr, or of column first.col + dc, have in common. They
/// are asked about rows and columns inside the extent alone.
///
///     tile.visible(row, col) -> bool
/// is what mask.visible(index, extent) returns, which remains: the reference calls that. `row` and
/// `col` are what the two above have returned.
///
/// An IntervalMask needs none where scores have no modifier. This one is that of a mask that says
/// nothing.
template <class M>
struct TileMask {
  using Mask = M;

  const M& mask;
  ScoreIndex first;
  Extent extent;

  ATTILE_HOST_DEVICE int row(int dr) const { return first.row + dr; }
  ATTILE_HOST_DEVICE int col(int dc) const { return first.col + dc; }
  ATTILE_HOST_DEVICE bool visible(int row, int col) const {
    return mask.visible({first.batch, first.head, row, col}, extent);
  }
};

/// Says whether a mask has an `of_tile` of its own.
template <class M>
inline constexpr bool kHasTileMask = [] {
  if constexpr (requires(const M& mask) { mask.of_tile({}, {}); }) {
    using Tile = decltype(std::declval<const M&>().of_tile({}, {}));
    static_assert(
        requires { typename Tile::Mask; },
        "attile: what a mask's of_tile returns says whose it is: using Mask");
    return std::is_same_v<typename Tile::Mask, M>;
  }
  return false;
}();

/// Returns what answers for `mask` about a tile of scores: what its own `of_tile` returns, or a
/// TileMask.
template <class M>
ATTILE_HOST_DEVICE auto mask_of_tile(const M& mask, ScoreIndex first, Extent extent) {
  if constexpr (kHasTileMask<M>) {
    return mask.of_tile(first, extent);
  } else {
    return TileMask<M>{mask, first, extent};
  }
}

}  // namespace attile
