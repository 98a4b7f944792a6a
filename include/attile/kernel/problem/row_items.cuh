// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/fast_divmod.h>
#include <attile/core/math.h>
#include <attile/core/sequences.h>
#include <attile/core/tile_slots.h>
#include <attile/kernel/problem/find_slot.cuh>

#include <cstdint>

namespace attile {

/// Is what a warp does at a time, in kernels that go through rows: kWarpSize items of one row.
struct RowItemTile {
  int sequence = -1;  ///< below 0: of none
  int row = 0;        ///< counted in the sequence, of which it may be none
  int first_item = 0;
};

/// Cuts the rows of the queries of all sequences into items, of which each row has as many, and a
/// row's items into tiles of a warp each.
template <Sequences S>
struct RowItems {
  using Slots = TileSlots<Axis::kRows, 1, S>;

  int of_row;            ///< the items of a row
  FastDivmod row_tiles;  ///< the tiles of a row
  std::int64_t tiles;    ///< of all rows: below 2^31 for the kernel

  RowItems(const Slots& slots, int items_of_row)
      : of_row(items_of_row),
        row_tiles(ceil_div(items_of_row, arch::kWarpSize)),
        tiles(min(slots.count(), std::int64_t{1} << 31) * int{row_tiles}) {}

  /// Returns a tile by its number. `slots`: of one row each. Scope    all lanes of a warp.
  ATTILE_DEVICE RowItemTile tile(const Slots& slots, int number) const {
    const auto share = [&] {
      if constexpr (kIsPackedAlong<S, Axis::kRows>) {
        return find_by_warp<SlotOrder::kOfSequences>(slots, number, row_tiles);
      } else {
        return slots.find(number, row_tiles);
      }
    }();
    if (!share.is_sequence) return {};
    const auto [row, tile] = row_tiles.divmod(share.item);
    return {share.sequence, row, tile * arch::kWarpSize};
  }
};

}  // namespace attile
