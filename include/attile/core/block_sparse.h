// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>
#include <attile/core/index.h>
#include <attile/core/mask.h>
#include <attile/core/math.h>
#include <attile/core/policy.h>
#include <attile/core/schedule.h>

#include <concepts>
#include <cstdint>
#include <type_traits>

namespace attile {

/// Holds which blocks of columns one row of blocks sees, or which blocks of rows see one column of
/// blocks: `partial` ones, about whose scores a mask is asked, and `full` ones, of which all scores
/// are visible. The memory may hold anything: of a count that is too large the first `blocks`
/// entries count, a negative one is 0, and an entry outside [0, blocks) names no block.
struct BlockList {
  const int* partial_count = nullptr;  ///< null: 0, as for the other one
  const int* partial = nullptr;
  const int* full_count = nullptr;
  const int* full = nullptr;
  int blocks = 0;  ///< the blocks of the other side: the room of each list

  /// Returns the steps of a loop over all tiles of these blocks, `each` of them in a block: first
  /// those of the partial blocks, which need the mask, then those of the full ones.
  ATTILE_HOST_DEVICE TileRange steps(int each) const {
    const int masked = read(partial_count) * each;
    const int all = masked + read(full_count) * each;
    return {0, masked, all, all};
  }
  /// Returns the tile of a step, or one behind the last block where an entry names no block.
  ATTILE_HOST_DEVICE int tile(int each, const TileRange& steps, int step) const {
    const int from_full = step - steps.full_first;
    const int* const entry = from_full < 0 ? partial + step / each : full + from_full / each;
    const int block = *entry;
    const bool exists = static_cast<unsigned>(block) < static_cast<unsigned>(blocks);
    return (exists ? block : blocks) * each + step % each;
  }
  /// Return whether a block is in a list.
  ATTILE_HOST_DEVICE bool has_partial(int block) const {
    return has(partial, read(partial_count), block);
  }
  ATTILE_HOST_DEVICE bool has_full(int block) const { return has(full, read(full_count), block); }
  ATTILE_HOST_DEVICE bool has(int block) const { return has_partial(block) || has_full(block); }

 private:
  ATTILE_HOST_DEVICE int read(const int* count) const {
    return count == nullptr ? 0 : min(max(*count, 0), blocks);
  }
  ATTILE_HOST_DEVICE static bool has(const int* entries, int count, int block) {
    for (int i = 0; i < count; ++i) {
      if (entries[i] == block) return true;
    }
    return false;
  }
};

/// A BlockListMask divides the scores of a head into blocks of kQBlock rows and kKvBlock columns,
/// and lists those that are not hidden, by rows of blocks and by columns of blocks. Kernels visit
/// the tiles of these blocks alone, and ask `inner` about the scores of partial ones. Both lists
/// have to say the same: the forward pass reads the first, a backward pass the second.
template <class M>
concept BlockListMask = Mask<M> && requires(const M& mask, int batch, int head, int block) {
  { M::kQBlock } -> std::convertible_to<int>;
  { M::kKvBlock } -> std::convertible_to<int>;
  { mask.listed_columns(batch, head, block) } -> std::same_as<BlockList>;
  { mask.listed_rows(batch, head, block) } -> std::same_as<BlockList>;
  requires Mask<std::remove_cvref_t<decltype(mask.inner)>>;
};

/// Lets the rows of a block see its columns as M does, or all of them where the block is listed as
/// full. It decides about the scores of a tile that a loop over lists visits.
template <Mask M>
struct MaskOfBlock {
  static constexpr bool kIntervals = IntervalMask<M>;

  M inner{};
  bool is_full = false;

  ATTILE_HOST_DEVICE bool visible(ScoreIndex i, Extent e) const {
    const bool in_inner = inner.visible(i, e);  // without a branch, as in And
    return in_inner || is_full;
  }
  ATTILE_HOST_DEVICE Span columns(int batch, int head, Interval rows, Extent e) const {
    const Interval all{0, e.kv_len};
    return is_full ? Span{all, all} : visible_columns(inner, batch, head, rows, e);
  }
  ATTILE_HOST_DEVICE Span rows(int batch, int head, Interval columns, Extent e) const {
    const Interval all{0, e.q_len};
    return is_full ? Span{all, all} : visible_rows(inner, batch, head, columns, e);
  }
};

namespace detail {

template <class M>
struct InTiles {
  using type = M;
};
template <BlockListMask M>
struct InTiles<M> {
  using type = MaskOfBlock<std::remove_cvref_t<decltype(M::inner)>>;
};

}  // namespace detail

/// Names the mask that decides about the scores of a tile that a loop visits.
template <class M>
using MaskInTiles = typename detail::InTiles<M>::type;

/// Says what may hide scores of a tile that a list names: nothing, the inner mask, or with a block
/// listed as full the end of the rows or columns alone.
struct ListedEdge {
  enum Kind : int { kNone, kMask, kExtent };
};
/// Returns whether the tile of an edge, which is a bool without lists, lies in a full block.
ATTILE_HOST_DEVICE constexpr bool in_full_block(bool) { return false; }
ATTILE_HOST_DEVICE constexpr bool in_full_block(ListedEdge::Kind edge) {
  return edge != ListedEdge::kMask;
}

namespace detail {

/// Returns `tile` where it divides `block`, else the largest power of two below it that does.
constexpr int fitting(int tile, int block) {
  if (block % tile == 0) return tile;
  int size = 1;
  while (2 * size <= tile && block % (2 * size) == 0) size *= 2;
  return size;
}

}  // namespace detail

/// Return the most rows and columns, up to `tile`, that tiles of a mask may have: as they are, or
/// of a mask of block lists those that divide its blocks, or the largest power of two that does.
template <class M>
constexpr int fitting_rows(int tile) {
  if constexpr (BlockListMask<M>) return detail::fitting(tile, M::kQBlock);
  return tile;
}
template <class M>
constexpr int fitting_columns(int tile) {
  if constexpr (BlockListMask<M>) return detail::fitting(tile, M::kKvBlock);
  return tile;
}

/// Lets row i see column j iff their block is listed as full, or is listed as partial and M lets i
/// see j. It takes the lists of PyTorch's BlockMask as they are, and `prepare_block_lists` makes
/// them of any mask. Lists that are wrong give wrong results, but nothing is read or written out of
/// bounds, and no kernel waits for ever.
/// Shapes   kv_num_blocks (batches, heads, q_blocks), kv_indices (batches, heads, q_blocks,
///          kv_blocks): for each row of blocks how many columns of blocks it sees in part, and
///          which ones, in any order; behind those entries anything may stand. full_*: those that
///          it sees in full; both null where there are none. q_num_blocks (batches, heads,
///          kv_blocks), q_indices (batches, heads, kv_blocks, q_blocks), full_q_*: for each column
///          of blocks which rows of blocks see it. The forward pass does without these.
/// Units    `batches` and `heads` are those of the problem, or 1 for lists that all have in common;
///          q_blocks and kv_blocks are at least what q_len and kv_len take.
template <class M = NoMask, int QBlock = 128, int KvBlock = 128>
struct BlockSparse {
  static_assert(Mask<M>,
                "attile: BlockSparse<M> is about a mask M, and this is no Mask: it wants "
                "ATTILE_HOST_DEVICE bool visible(ScoreIndex, Extent) const");
  /// The lists are made for the lengths that all sequences have in common.
  static constexpr bool kUniformOnly = true;
  static_assert(QBlock > 0 && QBlock % 64 == 0 && KvBlock > 0 && KvBlock % 64 == 0,
                "attile::BlockSparse: blocks have a multiple of 64 rows and of 64 columns, because "
                "the tiles of every kernel must divide them");
  static constexpr int kQBlock = QBlock;
  static constexpr int kKvBlock = KvBlock;
  static constexpr bool kUnevenRows = true;

  M inner{};
  int batches = 1, heads = 1;
  int q_blocks = 0, kv_blocks = 0;
  const int* kv_num_blocks = nullptr;
  const int* kv_indices = nullptr;
  const int* full_kv_num_blocks = nullptr;
  const int* full_kv_indices = nullptr;
  const int* q_num_blocks = nullptr;
  const int* q_indices = nullptr;
  const int* full_q_num_blocks = nullptr;
  const int* full_q_indices = nullptr;

  const char* fault() const { return policy_fault(inner); }
  /// Returns why the mask does not suit scores of a shape. A backward pass reads the lists of rows,
  /// too.
  const char* fault(const ScoreShape& shape, bool is_backward) const {
    if (batches != 1 && batches != shape.batch) return "BlockSparse: batches must be 1 or batch";
    if (heads != 1 && heads != shape.heads) return "BlockSparse: heads must be 1 or q_heads";
    if (q_blocks < ceil_div(shape.extent.q_len, QBlock)) {
      return "BlockSparse: q_blocks are fewer than q_len takes";
    }
    if (kv_blocks < ceil_div(shape.extent.kv_len, KvBlock)) {
      return "BlockSparse: kv_blocks are fewer than kv_len takes";
    }
    if (q_blocks > kMaxLength / QBlock || kv_blocks > kMaxLength / KvBlock) {
      return "BlockSparse: q_blocks and kv_blocks must not hold more than 2^30 rows or columns";
    }
    if (kv_num_blocks == nullptr || kv_indices == nullptr) {
      return "BlockSparse: kv_num_blocks and kv_indices must not be null";
    }
    if (is_backward && (q_num_blocks == nullptr || q_indices == nullptr)) {
      return "BlockSparse: a backward pass needs q_num_blocks and q_indices";
    }
    if ((full_kv_num_blocks == nullptr) != (full_kv_indices == nullptr) ||
        (full_q_num_blocks == nullptr) != (full_q_indices == nullptr)) {
      return "BlockSparse: full_*_num_blocks and full_*_indices are both given or both null";
    }
    if (is_backward && (full_kv_indices == nullptr) != (full_q_indices == nullptr)) {
      return "BlockSparse: a backward pass needs full_q_* where full_kv_* are given, and not else";
    }
    return shape_fault(inner, shape, is_backward);
  }

  ATTILE_HOST_DEVICE BlockList listed_columns(int batch, int head, int q_block) const {
    return list(batch, head, q_block, q_blocks, kv_blocks, kv_num_blocks, kv_indices,
                full_kv_num_blocks, full_kv_indices);
  }
  ATTILE_HOST_DEVICE BlockList listed_rows(int batch, int head, int kv_block) const {
    return list(batch, head, kv_block, kv_blocks, q_blocks, q_num_blocks, q_indices,
                full_q_num_blocks, full_q_indices);
  }
  /// Searches the lists of a row of blocks; kernels do not call it.
  ATTILE_HOST_DEVICE bool visible(ScoreIndex i, Extent e) const {
    const BlockList list = listed_columns(i.batch, i.head, i.row / QBlock);
    const int block = i.col / KvBlock;
    return list.has_full(block) || (list.has_partial(block) && inner.visible(i, e));
  }

 private:
  ATTILE_HOST_DEVICE BlockList list(int batch, int head, int line, int lines, int blocks,
                                    const int* count, const int* entries, const int* full_count,
                                    const int* full_entries) const {
    const std::int64_t batch_head =
        static_cast<std::int64_t>(batches == 1 ? 0 : batch) * heads + (heads == 1 ? 0 : head);
    const std::int64_t at = batch_head * lines + line;
    BlockList result{count + at, entries + at * blocks, nullptr, nullptr, blocks};
    if (full_count != nullptr) {
      result.full_count = full_count + at;
      result.full = full_entries + at * blocks;
    }
    return result;
  }
};

}  // namespace attile
