// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/arch/launch.cuh>
#include <attile/arch/memory.cuh>
#include <attile/core/config.h>
#include <attile/core/element.h>
#include <attile/core/merge.h>
#include <attile/core/vec.h>
#include <attile/kernel/merge/merge_params.cuh>
#include <attile/kernel/problem/row_items.cuh>
#include <attile/tile/merge.h>

// The kernel of `merge`, whose time is that of reading the parts once. A lane merges some elements
// of one row, and reads the LSE of the row's parts by itself: they come from the cache for all but
// the first of the lanes that share a row.

namespace attile {

/// Merges one item of N elements of a row, and writes it; the first item of a head writes its LSE.
/// All parts of the item have been read when its O is written, which may be the O of one of them.
/// Scope    any lane.
template <int N, class Args>
ATTILE_DEVICE void merge_item(const MergeParams<Args>& p, RowOrigin row, MergeItem item) {
  using T = typename Args::PartType;
  using TO = typename Args::OutputType;
  const tile::MergedRow<N> merged =
      tile::merge_row<N>(p.args, row.batch, item.head, row.row, item.col,
                         [](const T* from) { return arch::load<N>(from); });
  Vec<TO, N> o;
  ATTILE_UNROLL
  for (int e = 0; e < N; ++e) o[e] = from_float<TO>(merged.o[e]);
  arch::store(p.args.o.row(row.batch, item.head, row.row) + item.col, o);
  if (item.col == 0 && p.lse.data != nullptr) {
    *p.lse.row(row.batch, item.head, row.row) = merged.lse;
  }
}

/// Merges partial results.
/// Scope    as with_row_item.
template <class Args>
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(kRowItemThreads, 1)
    merge_kernel(const ATTILE_GRID_CONSTANT MergeParams<Args> p) {
  with_row_item(p, [&](const RowItemTile& at, int, int item) {
    const RowOrigin first = p.args.sequences.q_origin(at.sequence);
    const RowOrigin row = {first.batch, first.row + at.row};
    if (p.item_elements == 1) {
      merge_item<1>(p, row, p.item(item));
    } else {
      merge_item<MergeParams<Args>::kVector>(p, row, p.item(item));
    }
  });
}

}  // namespace attile
