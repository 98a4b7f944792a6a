// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/atomic.cuh>
#include <attile/arch/grid_dependency.cuh>
#include <attile/arch/launch.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/work_tile.h>
#include <attile/kernel/backward/backward_params.cuh>
#include <attile/kernel/backward/backward_preprocess.cuh>
#include <attile/kernel/backward/backward_schedule.cuh>
#include <attile/kernel/backward/dq_order.cuh>

// These kernel entry points are common to all families of backward passes.

namespace attile {

/// Returns the kv block of this block of the grid (kv_block_of). With kInOrder blocks are counted
/// as they begin, by a counter that preprocessing sets, and one thread reads the number for all.
/// Scope    all threads of the block, before anything is written to dynamic shared memory.
template <class Traits>
ATTILE_DEVICE int find_kv_block(const BackwardParams<Traits>& p) {
  if constexpr (Traits::kDqMode != DqMode::kInOrder) {
    if constexpr (BackwardParams<Traits>::kPackedSequences) {
      arch::await_dependencies();  // the list has been written before it is read
      if constexpr (Traits::kSignalsDqReady) {
        if (arch::block_index() == 0 && arch::thread_index() == 0) {
          DqOrder<Traits>(p).signal_listed();
        }
      }
    }
    if constexpr (Traits::kSortsLastKvBlocks) {
      if (arch::block_index() >= p.sorted_from) arch::await_dependencies();  // they are sorted
    }
    return kv_block_of(p, arch::block_index());
  }
  int* const shared = reinterpret_cast<int*>(arch::dynamic_shared());
  if (arch::thread_index() == 0) {
    arch::await_dependencies();  // counter and semaphores are reset before they are used
    *shared = kv_block_of(p, arch::fetch_add(p.begun_counter(), 1));
  }
  arch::barrier();  // the number is written before anyone reads it
  const int kv_block = *shared;
  arch::barrier();  // everyone has read it before the tiles are written there
  return kv_block;
}

/// Runs the pass over K/V blocks, one block for each slot of a kv tile (TileSlots) of each kv head,
/// by the `backward_kv_block` of the traits' own namespace. That loads K and V before it waits for
/// the previous kernel, unless sequences are packed or its kv block is a sorted one.
template <class Traits>
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(Traits::kThreads, Traits::kBlocksPerSm)
    backward_kv_kernel(const ATTILE_GRID_CONSTANT typename Traits::Params p) {
  if constexpr (!Traits::kSignalsDqReady) arch::launch_dependents();
  const int kv_block = find_kv_block(p);
  if constexpr (!Traits::SequencesType::kUniform) {
    // The end of this pass has to mean the end of preprocessing, also where all blocks end here.
    if (!has_keys(p, kv_block)) {
      arch::await_dependencies();
      return;
    }
  }
  backward_kv_block<Traits>(p, kv_block, arch::dynamic_shared());
}

/// Runs the pass with kInOrder. A block takes a number when it begins, and waits only for those
/// with smaller numbers: these run or have ended, and the smallest of those that run waits for
/// none.
template <class Traits>
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(Traits::kThreads, Traits::kBlocksPerSm)
    backward_in_order_kernel(const ATTILE_GRID_CONSTANT typename Traits::Params p) {
  arch::launch_dependents();
  const int kv_block = find_kv_block(p);
  if constexpr (!Traits::SequencesType::kUniform) {
    if (!has_keys(p, kv_block)) return;
  }
  backward_kv_block<Traits>(p, kv_block, arch::dynamic_shared());
}

/// Stores dQ after the pass over K/V blocks: one block for each slot of a tile of query rows
/// (TileSlots) of each head.
template <class Traits>
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(Traits::kDqThreads, 1)
    backward_postprocess_kernel(const ATTILE_GRID_CONSTANT typename Traits::Params p) {
  int number = q_tile_of_block<Traits>();
  if constexpr (Traits::kSignalsDqReady) number = late_heads_last(p, number);
  if constexpr (BackwardParams<Traits>::kPackedSequences) DqOrder<Traits>(p).await_listed();
  bool is_computed;
  const WorkTile at = listed_row_tile(p, number, is_computed);
  if constexpr (!Traits::kSignalsDqReady) {
    arch::await_dependencies();  // the sum is complete before it is read
  } else if (p.has_rows(at)) {
    DqOrder<Traits>(p).await_ready(at, is_computed);
  }
  if (p.has_rows(at)) store_dq(p, at, arch::dynamic_shared());
  // Without this, a kernel that waits for the end of this one might run before that of the pass.
  if (Traits::kSignalsDqReady && arch::block_index() == 0) arch::await_dependencies();
}

namespace detail {

/// Returns the kernel of the pass over K/V blocks.
template <class Traits>
constexpr auto kv_kernel() {
  if constexpr (Traits::kDqMode == DqMode::kInOrder) {
    return backward_in_order_kernel<Traits>;
  } else {
    return backward_kv_kernel<Traits>;
  }
}

}  // namespace detail

}  // namespace attile
