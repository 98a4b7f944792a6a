// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/opaque.h>
#include <attile/core/config.h>
#include <attile/core/schedule.h>
#include <attile/core/work_tile.h>
#include <attile/kernel/backward/backward_params.cuh>
#include <attile/kernel/backward/backward_schedule.cuh>

#include <type_traits>

namespace attile {

/// Goes through the tiles of query rows that see a kv block, over all query heads of its kv head:
/// in each head from the first tile to the last, and where the kv tiles ascend from the last to the
/// first; with a mask of block lists in the order of the list. With rows_first it goes from the
/// last tile to the first, and in each through all query heads, for which the mask is the same. It
/// keeps the number of the kv block, and computes from it what is rarely needed, which spares
/// registers.
template <class Traits>
struct QTileLoop {
  const BackwardParams<Traits>& p;
  /// The tile of a step where a list says it: known from when the step begins.
  struct Listed {
    int q_tile = 0;
    ListedEdge::Kind edge = ListedEdge::kNone;
  };
  struct NotListed {};
  static constexpr bool kListsBlocks = BackwardParams<Traits>::kListsBlocks;

  int kv_block, head;
  int head_step;  ///< of the loop over the current head's tiles; it begins anew with each head
  TileRange range;
  [[no_unique_address]] std::conditional_t<kListsBlocks, Listed, NotListed> listed;

  /// `kv`: the work tile of the kv block.
  ATTILE_DEVICE QTileLoop(const BackwardParams<Traits>& params, int kv_block_number,
                          const WorkTile& kv)
      : p(params), kv_block(kv_block_number), head(kv.head) {
    range = p.q_tiles_seeing(kv, kv.kv_tile());
    head_step = range.first;
    enter_head();
  }
  ATTILE_DEVICE bool more() const { return head_step < range.last; }
  ATTILE_DEVICE typename BackwardParams<Traits>::Edge edge() const {
    if constexpr (kListsBlocks) {
      return listed.edge;
    } else {
      return !range.full(q_tile());
    }
  }
  ATTILE_DEVICE int row0() const { return q_tile() * Traits::kBr; }
  /// Returns the work tile of the current rows and of the kv tile of `kv`.
  ATTILE_DEVICE WorkTile tile(WorkTile kv) const {
    kv.head = head;
    kv.row0 = row0();
    return kv;
  }
  ATTILE_DEVICE void advance() {
    if constexpr (Traits::kRowsFirstFrom > 0) {
      if (p.rows_first(kv_block)) {
        const int last = head;
        head = p.next_in_group(last);
        if (head <= last) ++head_step;  // the group's heads have had this tile
        return;
      }
    }
    ++head_step;
    enter_head();
  }

 private:
  ATTILE_DEVICE int q_tile() const {
    if constexpr (kListsBlocks) {
      return listed.q_tile;
    } else {
      return p.ascends(kv_block) ? range.first + range.last - 1 - head_step : head_step;
    }
  }
  ATTILE_DEVICE void enter_head() {
    if constexpr (kListsBlocks) {
      for (find_head(); more(); ++head_step, find_head()) {
        WorkTile kv = kv_work_tile(p, arch::opaque(kv_block));
        kv.head = head;
        const int q_tile = p.listed_q_tile(kv, kv.kv_tile(), range, head_step);
        listed = {q_tile, p.listed_edge(kv, kv.kv_tile(), q_tile, range.full(head_step))};
        if (p.exists(kv, q_tile)) return;
      }
    } else {
      find_head();
    }
  }
  /// Goes on to the next head with steps, where this one has no more.
  ATTILE_DEVICE void find_head() {
    while (head_step >= range.last) {
      WorkTile kv = kv_work_tile(p, arch::opaque(kv_block));
      if (head + 1 == p.head_end(kv)) return;
      ++head;
      kv.head = head;
      range = p.q_tiles_seeing(kv, kv.kv_tile());
      head_step = range.first;
    }
  }
};

}  // namespace attile
