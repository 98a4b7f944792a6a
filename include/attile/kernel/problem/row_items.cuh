// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/grid_dependency.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/args.h>
#include <attile/core/config.h>
#include <attile/core/fast_divmod.h>
#include <attile/core/math.h>
#include <attile/core/sequences.h>
#include <attile/core/tile_slots.h>
#include <attile/kernel/problem/find_slot.cuh>

#include <cstdint>

namespace attile {

/// The threads of a block of a kernel that goes through RowItems. Warps have nothing in common.
inline constexpr int kRowItemThreads = 128;
inline constexpr int kRowItemWarps = kRowItemThreads / arch::kWarpSize;

/// Returns the blocks for that many tiles: a warp each.
inline unsigned row_item_blocks(std::int64_t tiles) {
  return static_cast<unsigned>(ceil_div<std::int64_t>(tiles, kRowItemWarps));
}

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

/// Calls f(tile, rows, item) with the tile of this warp, the rows of its sequence, and the number
/// of this lane's item in the row; not where there is no such row or item. Params: the parameter of
/// the kernel, with `args`, `items` (RowItems) and `slots()`.
/// Scope    all threads of a grid of row_item_blocks blocks of kRowItemThreads.
template <class Params, class F>
ATTILE_DEVICE void with_row_item(const Params& p, const F& f) {
  // Without the wait, the kernel could read what the previous one has not written yet, and write
  // what that still reads. The next kernel may begin, and waits for this one likewise.
  arch::await_dependencies();
  arch::launch_dependents();
  const int warp = arch::thread_index() / arch::kWarpSize;
  const int lane = arch::thread_index() % arch::kWarpSize;
  const std::int64_t number = std::int64_t{arch::block_index()} * kRowItemWarps + warp;
  if (number >= p.items.tiles) return;
  const RowItemTile at = p.items.tile(p.slots(), static_cast<int>(number));
  if (at.sequence < 0) return;
  const int item = at.first_item + lane;
  const int rows = extent_of(p.args, at.sequence).q_len;
  if (at.row >= rows || item >= p.items.of_row) return;
  f(at, rows, item);
}

}  // namespace attile
