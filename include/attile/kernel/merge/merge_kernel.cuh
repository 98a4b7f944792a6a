// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/arch/grid_dependency.cuh>
#include <attile/arch/launch.cuh>
#include <attile/arch/memory.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/args.h>
#include <attile/core/config.h>
#include <attile/core/element.h>
#include <attile/core/math.h>
#include <attile/core/merge.h>
#include <attile/core/vec.h>
#include <attile/kernel/merge/merge_params.cuh>
#include <attile/tile/merge.h>

#include <cstdint>

// The kernel of `merge`, whose time is that of reading the parts once. A lane merges some elements
// of one row, and reads the LSE of the row's parts by itself: they come from the cache for all but
// the first of the lanes that share a row.

namespace attile {

/// The threads of a block. Warps have nothing in common.
inline constexpr int kMergeThreads = 128;
inline constexpr int kMergeWarps = kMergeThreads / arch::kWarpSize;

/// Returns the blocks for that many tiles: a warp each.
inline unsigned merge_blocks(std::int64_t tiles) {
  return static_cast<unsigned>(ceil_div<std::int64_t>(tiles, kMergeWarps));
}

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
/// Scope    kMergeThreads threads a block, merge_blocks blocks.
template <class Args>
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(kMergeThreads, 1)
    merge_kernel(const ATTILE_GRID_CONSTANT MergeParams<Args> p) {
  // Without the wait, parts and lengths could be read before the previous kernel has written them,
  // and O be written while it reads there. The next kernel may begin, and waits for this one
  // likewise.
  arch::await_dependencies();
  arch::launch_dependents();
  const int warp = arch::thread_index() / arch::kWarpSize;
  const int lane = arch::thread_index() % arch::kWarpSize;
  const std::int64_t number = std::int64_t{arch::block_index()} * kMergeWarps + warp;
  if (number >= p.items.tiles) return;
  const RowItemTile at = p.tile(static_cast<int>(number));
  if (at.sequence < 0) return;
  const int item = at.first_item + lane;
  if (at.row >= extent_of(p.args, at.sequence).q_len || item >= p.items.of_row) return;
  const RowOrigin first = p.args.sequences.q_origin(at.sequence);
  const RowOrigin row = {first.batch, first.row + at.row};
  if (p.item_elements == 1) {
    merge_item<1>(p, row, p.item(item));
  } else {
    merge_item<MergeParams<Args>::kVector>(p, row, p.item(item));
  }
}

}  // namespace attile
