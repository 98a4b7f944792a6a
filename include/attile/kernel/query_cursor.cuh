// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/opaque.h>
#include <attile/core/config.h>
#include <attile/core/schedule.h>
#include <attile/kernel/backward_kernel.cuh>

namespace attile {

/// The tiles of query rows that see a tile of K and V, over all query heads of its group; of each
/// from the first to the last one, and where the tiles of K and V ascend from the last to the
/// first. What is rarely needed is worked out again from the column's number.
template <class Traits>
struct QueryCursor {
  const BackwardParams<Traits>& p;
  int column, head, tile;
  TileRange range;

  ATTILE_DEVICE QueryCursor(const BackwardParams<Traits>& params, int key_column)
      : p(params), column(key_column), tile(0) {
    head = KeyTile(p, column).kv_head * (p.q_heads / p.kv_heads) - 1;
    enter_head();
  }
  ATTILE_DEVICE bool more() const { return tile < range.last; }
  ATTILE_DEVICE bool edge() const { return !range.full(row_tile()); }
  ATTILE_DEVICE int row0() const { return row_tile() * Traits::kBr; }
  ATTILE_DEVICE void advance() {
    ++tile;
    enter_head();
  }

 private:
  ATTILE_DEVICE int row_tile() const {
    if (!p.ascends(column)) return tile;
    return range.first + range.last - 1 - tile;
  }
  ATTILE_DEVICE void enter_head() {
    while (tile >= range.last) {
      const KeyTile key(p, arch::opaque(column));
      if (head + 1 == (key.kv_head + 1) * (p.q_heads / p.kv_heads)) return;
      ++head;
      range = p.rows_of(key.batch, head, key.index);
      tile = range.first;
    }
  }
};

}  // namespace attile
