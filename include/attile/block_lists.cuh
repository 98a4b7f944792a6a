// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/launch.cuh>
#include <attile/core/block_lists.h>
#include <attile/core/math.h>
#include <attile/core/status.h>
#include <attile/core/workspace.h>
#include <attile/kernel/prepare/block_lists.cuh>

#include <cstdint>

namespace attile {

/// Makes block lists of a mask: for each block of QBlock rows and KvBlock columns whether `inner`
/// shows all of its scores, some, or none, forward and transposed. All scores are asked about, by
/// two kernels on `stream`; called again, also in a graph, it fills the same memory anew.
/// Scratch  with a null `memory` nothing is launched: `bytes`, a variable, is set to what the call
///          needs. Else `memory` is device memory of that size, aligned to 16 bytes, and holds the
///          lists for as long as kernels read them.
/// Shapes   `shape`: batch and heads are those that have lists of their own, 1 for lists that all
///          have in common; the lengths are those of the problem.
/// Scope    host; asynchronous on `stream`, never allocates or waits, can be captured. `lists` gets
///          its pointers at once, and is the mask of arguments for work behind this on the stream.
/// Errors   what `check_block_lists` and `check_workspace` say; those of the launches.
template <Mask M, int QBlock, int KvBlock>
[[nodiscard]] cudaError_t prepare_block_lists(void* memory, WorkspaceBytes bytes, const M& inner,
                                              const ScoreShape& shape,
                                              BlockSparse<M, QBlock, KvBlock>& lists,
                                              cudaStream_t stream = nullptr) {
  const Check ok = check_block_lists(inner, shape, QBlock, KvBlock);
  if (!ok) return ok.error;
  const BlockListTask<M, QBlock, KvBlock> task(inner, shape, memory);
  if (const auto answer = detail::answer_workspace(memory, bytes, task.bytes())) return *answer;
  lists = task.lists();
  constexpr std::int64_t kWarps = kBlockListThreads / arch::kWarpSize;
  const std::int64_t of_blocks = ceil_div(task.blocks(), kWarps);
  const std::int64_t of_lines = ceil_div<std::int64_t>(task.lines(), kBlockListThreads);
  const auto launch = [&](auto kernel, std::int64_t blocks) {
    if (blocks == 0) return cudaSuccess;
    return arch::launch(kernel, static_cast<unsigned>(blocks), unsigned{kBlockListThreads}, 0,
                        stream, task);
  };
  if (const auto error = launch(block_states_kernel<M, QBlock, KvBlock>, of_blocks)) return error;
  return launch(block_lists_kernel<M, QBlock, KvBlock>, of_lines);
}

}  // namespace attile
