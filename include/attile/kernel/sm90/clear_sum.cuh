// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/atomic.cuh>
#include <attile/arch/memory.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/vec.h>
#include <attile/kernel/backward_schedule.cuh>
#include <attile/kernel/sm90/backward_params.cuh>
#include <attile/kernel/work_tile.h>

#include <cstdint>

// Zeros for the sum of dQ, written inside the pass that adds to it: by the kernel before they would
// go to device memory and come back. Each column has a share of the sum of its kv head's query
// heads. A block writes that of a block which will begin about when this one has gone, and what is
// missing of its own heads' before it adds to them; whoever waits for a share that nobody has taken
// writes it, so that it does not matter in which order blocks begin.
// Scope    all lanes of a warp.

namespace attile::sm90 {

/// Writes the share of a column, unless somebody has taken it.
template <class Traits>
ATTILE_DEVICE void clear_share(const BackwardParams<Traits>& p, int column) {
  const int lane = arch::thread_index() % arch::kWarpSize;
  if (arch::uniform(lane == 0 ? arch::fetch_add(p.share_taken(column), 1) : 0) != 0) return;
  const WorkTile key = key_tile(p, column);
  const std::int64_t floats = p.group_scratch_rows() * Traits::kDqCols;
  float* const sum = p.dq_sum_of(key);  // of its first head and row
  constexpr int kStep = arch::kWarpSize * 4;
  const std::int64_t steps = floats / kStep;  // whole: a tile has 64 rows or more
  const auto begin = [&](int index) { return steps * index / p.kv_tiles; };
  const std::int64_t end = begin(key.kv_tile() + 1);
  ATTILE_UNROLL_BY(4)
  for (std::int64_t i = begin(key.kv_tile()); i < end; ++i) {
    arch::store(sum + i * kStep + lane * 4, Float4{});
  }
  arch::warp_barrier();
  if (lane == 0) arch::store_release(p.share_cleared(column), 1);
}

/// Waits until the sum of dQ of those heads is zeros, before anything has been added to it. Each
/// lane for some shares: what it has acquired counts for all behind a barrier of the warp.
template <class Traits>
ATTILE_DEVICE void await_zeros(const BackwardParams<Traits>& p, int column) {
  const int first = column - key_tile(p, column).kv_tile();
  const int lane = arch::thread_index() % arch::kWarpSize;
  ATTILE_UNROLL_BY(1)
  for (int i = 0; i < p.kv_tiles; i += arch::kWarpSize) {
    const int mine = i + lane < p.kv_tiles ? first + i + lane : column;
    while (arch::any_lane(arch::load_acquire(p.share_cleared(mine)) == 0)) {
      const int found = arch::first_lane(arch::load_acquire(p.share_taken(mine)) == 0);
      if (found < arch::kWarpSize) {
        clear_share(p, i + found < p.kv_tiles ? first + i + found : column);
      }
    }
  }
}

}  // namespace attile::sm90
