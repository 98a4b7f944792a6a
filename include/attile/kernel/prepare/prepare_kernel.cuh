// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/launch.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/math.h>
#include <attile/core/prepare.h>

#include <cstdint>

namespace attile {

/// The threads of a block of the kernel that writes tables. Few threads of a phase may each read
/// much, so blocks are small.
inline constexpr int kPrepareThreads = 64;

/// Returns the blocks for a phase: each thread takes one item, or of very many several.
inline unsigned prepare_blocks(std::int64_t items) {
  constexpr std::int64_t kMostBlocks = 1 << 20;
  return static_cast<unsigned>(min(ceil_div<std::int64_t>(items, kPrepareThreads), kMostBlocks));
}

/// Prepares the items of one phase of a table. The phases before it are complete.
template <class Source, int kPhase>
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(kPrepareThreads, 1)
    prepare_kernel(const ATTILE_GRID_CONSTANT Source source, void* table) {
  const std::int64_t threads = std::int64_t{arch::block_count()} * kPrepareThreads;
  const std::int64_t items = source.template items<kPhase>();
  for (std::int64_t item =
           std::int64_t{arch::block_index()} * kPrepareThreads + arch::thread_index();
       item < items; item += threads) {
    source.template prepare_item<kPhase>(table, item);
  }
}

}  // namespace attile
