// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/atomic.cuh>
#include <attile/arch/attributes.h>
#include <attile/arch/grid_dependency.cuh>
#include <attile/arch/launch.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/math.h>
#include <attile/core/schedule.h>
#include <attile/kernel/backward_params.cuh>
#include <attile/kernel/backward_preprocess.cuh>
#include <attile/kernel/backward_schedule.cuh>
#include <attile/kernel/work_tile.h>

#include <cstdint>

// What all families of backward passes have in common: the shells of the kernels.

namespace attile {

/// The pass over K/V blocks: one block for each tile of K and V of each kv head, by the
/// `backward_columns` of the traits' own namespace, which awaits the kernel before when it has sent
/// for K and V.
template <class Traits>
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(Traits::kThreads, Traits::kBlocksPerSm)
    backward_columns_kernel(const ATTILE_GRID_CONSTANT typename Traits::Params p) {
  if constexpr (!Traits::kTellsAdded) arch::launch_dependents();
  backward_columns<Traits>(p, column_of(p, arch::block_index()), arch::dynamic_shared());
}

/// The same for kInOrder, where a block may wait for those with smaller indices, which are given
/// out as the blocks begin, so that whoever is waited for has begun.
template <class Traits>
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(Traits::kThreads, Traits::kBlocksPerSm)
    backward_in_order_kernel(const ATTILE_GRID_CONSTANT typename Traits::Params p) {
  int* const column = reinterpret_cast<int*>(arch::dynamic_shared());
  arch::launch_dependents();
  if (arch::thread_index() == 0) {
    arch::await_dependencies();  // the counter is set, and the turns are
    *column = column_of(p, arch::fetch_add(p.begun(), 1));
  }
  arch::barrier();
  const int mine = *column;
  arch::barrier();  // everyone has read it before the tiles are written there
  backward_columns<Traits>(p, mine, arch::dynamic_shared());
}

/// Waits until the sum of dQ of a tile of rows is complete, while the pass may still add to others.
template <class Traits>
ATTILE_DEVICE void await_sum(const BackwardParams<Traits>& p, const WorkTile& at) {
  if (p.kv_tiles == 0) {  // there is no pass: zeros are what preprocessing wrote
    arch::await_dependencies();
    return;
  }
  const int first = first_column(p, at);
  for (int i = arch::thread_index(); i < p.kv_tiles * Traits::kTellers; i += Traits::kDqThreads) {
    while (arch::load_acquire(p.added(first, i)) == 0) {
    }
  }
  arch::barrier();  // what one thread has acquired counts for all
}

/// One block for each tile of query rows of each head, after the pass over K/V blocks.
template <class Traits>
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(Traits::kDqThreads, 1)
    backward_postprocess_kernel(const ATTILE_GRID_CONSTANT typename Traits::Params p) {
  int number = row_tile_of_block<Traits>();
  if constexpr (Traits::kTellsAdded) number = late_heads_last(p, number);
  const WorkTile at = row_tile(p, number);
  if constexpr (Traits::kTellsAdded) {
    await_sum(p, at);
  } else {
    arch::await_dependencies();  // the sum is complete
  }
  store_dq(p, at, arch::dynamic_shared());
  // Whoever waits for this kernel's end waits for that of the pass, too.
  if (Traits::kTellsAdded && arch::block_index() == 0) arch::await_dependencies();
}

namespace detail {

/// The kernel of the pass over K/V blocks.
template <class Traits>
constexpr auto columns_kernel() {
  if constexpr (Traits::kDqMode == DqMode::kInOrder) {
    return backward_in_order_kernel<Traits>;
  } else {
    return backward_columns_kernel<Traits>;
  }
}

}  // namespace detail

}  // namespace attile
