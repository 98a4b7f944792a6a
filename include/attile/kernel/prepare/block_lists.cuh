// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/arch/launch.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/block_lists.h>

#include <cstdint>

namespace attile {

/// Is the number of threads of a block of these kernels.
inline constexpr int kBlockListThreads = 128;

/// Says of each block of scores how much of it the inner mask shows. A warp has one block, and ends
/// where it has found a score that is visible and one that is hidden.
template <Mask M, int QBlock, int KvBlock>
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(kBlockListThreads, 1)
    block_states_kernel(const ATTILE_GRID_CONSTANT BlockListTask<M, QBlock, KvBlock> task) {
  constexpr int kWarps = kBlockListThreads / arch::kWarpSize;
  const int lane = arch::thread_index() % arch::kWarpSize;
  const std::int64_t block = static_cast<std::int64_t>(arch::block_index()) * kWarps +
                             arch::thread_index() / arch::kWarpSize;
  if (block >= task.blocks()) return;
  BlockScores all;
  ATTILE_UNROLL_BY(1)
  for (int row = 0; row < QBlock && !all.decided(); ++row) {
    BlockScores mine;
    task.look(block, row, lane, arch::kWarpSize, mine);
    all.shows = all.shows || arch::any_lane(mine.shows);
    all.hides = all.hides || arch::any_lane(mine.hides);
  }
  if (lane == 0) *task.state(block) = all.state();
}

/// Makes the lists of the states. A thread has one line.
template <Mask M, int QBlock, int KvBlock>
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(kBlockListThreads, 1)
    block_lists_kernel(const ATTILE_GRID_CONSTANT BlockListTask<M, QBlock, KvBlock> task) {
  const std::int64_t line =
      static_cast<std::int64_t>(arch::block_index()) * kBlockListThreads + arch::thread_index();
  if (line < task.lines()) task.make_lists(line);
}

}  // namespace attile
