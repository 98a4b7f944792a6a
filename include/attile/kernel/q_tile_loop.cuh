// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/opaque.h>
#include <attile/core/config.h>
#include <attile/core/schedule.h>
#include <attile/kernel/backward_params.cuh>
#include <attile/kernel/backward_schedule.cuh>
#include <attile/kernel/work_tile.h>

namespace attile {

/// The tiles of query rows that see a tile of K and V, over all query heads of its group; of each
/// from the first to the last one, and where the tiles of K and V ascend from the last to the
/// first. It keeps the column's number, and works out from it what is rarely needed, which spares
/// registers.
template <class Traits>
struct QTileLoop {
  const BackwardParams<Traits>& p;
  int kv_block, head, step;
  TileRange range;

  ATTILE_DEVICE QTileLoop(const BackwardParams<Traits>& params, int key_column)
      : p(params), kv_block(key_column), step(0) {
    head = kv_work_tile(p, kv_block).head - 1;
    enter_head();
  }
  ATTILE_DEVICE bool more() const { return step < range.last; }
  ATTILE_DEVICE bool edge() const { return !range.full(row_tile()); }
  ATTILE_DEVICE int row0() const { return row_tile() * Traits::kBr; }
  /// The work tile of these rows and of the tile of K and V that `key` is.
  ATTILE_DEVICE WorkTile tile(WorkTile key) const {
    key.head = head;
    key.row0 = row0();
    return key;
  }
  ATTILE_DEVICE void advance() {
    ++step;
    enter_head();
  }

 private:
  ATTILE_DEVICE int row_tile() const {
    if (!p.ascends(kv_block)) return step;
    return range.first + range.last - 1 - step;
  }
  ATTILE_DEVICE void enter_head() {
    while (step >= range.last) {
      WorkTile key = kv_work_tile(p, arch::opaque(kv_block));
      if (head + 1 == p.head_end(key)) return;
      ++head;
      key.head = head;
      range = p.rows_of(key, key.kv_tile());
      step = range.first;
    }
  }
};

}  // namespace attile
