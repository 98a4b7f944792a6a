// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/block_lists.h>
#include <attile/core/status.h>
#include <attile/core/workspace.h>

#include <cstdint>

namespace attile::host {

/// Makes block lists of a mask in host memory, as attile::prepare_block_lists does on a device.
/// Scratch  with a null `memory` it only sets `bytes`. Errors   those of the other one.
template <Mask M, int QBlock, int KvBlock>
[[nodiscard]] Check prepare_block_lists(void* memory, WorkspaceBytes bytes, const M& inner,
                                        const ScoreShape& shape,
                                        BlockSparse<M, QBlock, KvBlock>& lists) {
  const Check ok = check_block_lists(inner, shape, QBlock, KvBlock);
  if (!ok) return ok;
  const BlockListTask<M, QBlock, KvBlock> task(inner, shape, memory);
  if (const auto answer = attile::detail::answer_workspace(memory, bytes, task.bytes())) {
    return {*answer, check_workspace(memory, bytes.value(), task.bytes()).why};
  }
  lists = task.lists();
  for (std::int64_t block = 0; block < task.blocks(); ++block) {
    BlockScores scores;
    for (int row = 0; row < QBlock && !scores.decided(); ++row) task.look(block, row, 0, 1, scores);
    *task.state(block) = scores.state();
  }
  for (std::int64_t line = 0; line < task.lines(); ++line) task.make_lists(line);
  return {};
}

}  // namespace attile::host
