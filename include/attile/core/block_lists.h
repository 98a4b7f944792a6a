// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/block_sparse.h>
#include <attile/core/config.h>
#include <attile/core/index.h>
#include <attile/core/mask.h>
#include <attile/core/math.h>
#include <attile/core/policy.h>
#include <attile/core/status.h>

#include <cstddef>
#include <cstdint>

// What the device and the CPU executor do to make the lists of a BlockSparse from its inner mask.

namespace attile {

/// Says how much of a block of scores a mask shows.
enum class BlockState : int { kHidden, kPartial, kFull };

/// Holds what has been seen of a block's scores. Positions behind the lengths are no scores: they
/// make no block partial.
struct BlockScores {
  bool shows = false, hides = false;

  ATTILE_HOST_DEVICE constexpr bool decided() const { return shows && hides; }
  ATTILE_HOST_DEVICE constexpr BlockState state() const {
    if (!shows) return BlockState::kHidden;
    return hides ? BlockState::kPartial : BlockState::kFull;
  }
};

/// Holds lists that are made, and the states of all blocks, of which they are made. Lines are the
/// rows of blocks of all heads, and then the columns of blocks.
template <Mask M, int QBlock, int KvBlock>
struct BlockListTask {
  using Lists = BlockSparse<M, QBlock, KvBlock>;

  M inner{};
  ScoreShape shape{};  ///< `batch` and `heads` are those that have lists of their own
  int q_blocks = 0, kv_blocks = 0;
  int* memory = nullptr;

  BlockListTask(const M& mask, const ScoreShape& scores, void* data)
      : inner(mask),
        shape(scores),
        q_blocks(ceil_div(scores.extent.q_len, QBlock)),
        kv_blocks(ceil_div(scores.extent.kv_len, KvBlock)),
        memory(static_cast<int*>(data)) {}

  ATTILE_HOST_DEVICE std::int64_t head_count() const {
    return static_cast<std::int64_t>(shape.batch) * shape.heads;
  }
  ATTILE_HOST_DEVICE std::int64_t blocks() const { return head_count() * q_blocks * kv_blocks; }
  ATTILE_HOST_DEVICE std::int64_t lines() const { return head_count() * (q_blocks + kv_blocks); }
  /// Returns the bytes of the lists and states, which is never 0.
  std::size_t bytes() const {
    return max<std::size_t>(sizeof(int) * static_cast<std::size_t>(2 * lines() + 5 * blocks()), 16);
  }
  /// Returns the mask whose lists are in the memory.
  ATTILE_HOST_DEVICE Lists lists() const {
    Lists result;
    result.inner = inner;
    result.batches = shape.batch, result.heads = shape.heads;
    result.q_blocks = q_blocks, result.kv_blocks = kv_blocks;
    const std::int64_t rows = head_count() * q_blocks, columns = head_count() * kv_blocks;
    int* at = memory;
    const auto take = [&](std::int64_t count) {
      int* const part = at;
      at += count;
      return part;
    };
    result.kv_num_blocks = take(rows), result.kv_indices = take(blocks());
    result.full_kv_num_blocks = take(rows), result.full_kv_indices = take(blocks());
    result.q_num_blocks = take(columns), result.q_indices = take(blocks());
    result.full_q_num_blocks = take(columns), result.full_q_indices = take(blocks());
    return result;
  }
  /// Points to the state of a block. Blocks are counted by heads, rows and columns.
  ATTILE_HOST_DEVICE BlockState* state(std::int64_t block) const {
    return reinterpret_cast<BlockState*>(memory + 2 * lines() + 4 * blocks()) + block;
  }

  /// Adds what `lanes` lanes see, of which this is lane `lane`, of row `row` of a block.
  ATTILE_HOST_DEVICE void look(std::int64_t block, int row, int lane, int lanes,
                               BlockScores& scores) const {
    const auto head = static_cast<int>(block / (static_cast<std::int64_t>(q_blocks) * kv_blocks));
    const int line = static_cast<int>(block / kv_blocks % q_blocks);
    const int first = static_cast<int>(block % kv_blocks) * KvBlock;
    ScoreIndex at{head / shape.heads, head % shape.heads, line * QBlock + row, 0};
    if (at.row >= shape.extent.q_len) return;
    const int end = min(first + KvBlock, shape.extent.kv_len);
    for (at.col = first + lane; at.col < end; at.col += lanes) {
      const bool visible = inner.visible(at, shape.extent);
      scores.shows = scores.shows || visible;
      scores.hides = scores.hides || !visible;
    }
  }
  /// Makes the partial and the full list of a line, in ascending order.
  ATTILE_HOST_DEVICE void make_lists(std::int64_t line) const {
    const std::int64_t rows = head_count() * q_blocks;
    const bool by_rows = line < rows;
    const Lists all = lists();
    const std::int64_t own = by_rows ? line : line - rows;
    const int room = by_rows ? kv_blocks : q_blocks;
    // A column of blocks begins in the first row of its head.
    const std::int64_t first =
        by_rows ? own * kv_blocks : own / kv_blocks * q_blocks * kv_blocks + own % kv_blocks;
    int* const partial = writable(by_rows ? all.kv_indices : all.q_indices) + own * room;
    int* const full = writable(by_rows ? all.full_kv_indices : all.full_q_indices) + own * room;
    int partials = 0, fulls = 0;
    for (int i = 0; i < room; ++i) {
      const BlockState here =
          *state(first + (by_rows ? i : static_cast<std::int64_t>(i) * kv_blocks));
      if (here == BlockState::kPartial) partial[partials++] = i;
      if (here == BlockState::kFull) full[fulls++] = i;
    }
    writable(by_rows ? all.kv_num_blocks : all.q_num_blocks)[own] = partials;
    writable(by_rows ? all.full_kv_num_blocks : all.full_q_num_blocks)[own] = fulls;
  }

 private:
  /// The lists are const to those who read them; here they lie in this task's memory.
  ATTILE_HOST_DEVICE int* writable(const int* list) const { return memory + (list - memory); }
};

/// Says why lists of a mask cannot be made for scores of that shape.
template <Mask M>
Check check_block_lists(const M& inner, const ScoreShape& shape, int q_block, int kv_block) {
  const Extent e = shape.extent;
  if (shape.batch < 0 || e.q_len < 0 || e.kv_len < 0) {
    return refuse("the shape of the scores has a negative size");
  }
  if (shape.heads < 1) return refuse("heads must be at least 1: 1 for lists in common");
  if (e.q_len > kMaxLength || e.kv_len > kMaxLength) {
    return refuse("q_len and kv_len must be at most 2^30");
  }
  const auto lines = static_cast<double>(shape.batch) * shape.heads;
  const double blocks =
      lines * max(ceil_div(e.q_len, q_block), 1) * max(ceil_div(e.kv_len, kv_block), 1);
  if (lines > INT32_MAX || blocks > 0x1p33) {
    return refuse("block lists must have at most 2^33 blocks, of at most 2^31 - 1 heads");
  }
  if (const char* why = policy_fault(inner)) return refuse(why);
  if (const char* why = shape_fault(inner, shape, false)) return refuse(why);
  return {};
}

}  // namespace attile
