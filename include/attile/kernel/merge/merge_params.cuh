// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/thread.cuh>
#include <attile/core/args.h>
#include <attile/core/config.h>
#include <attile/core/fast_divmod.h>
#include <attile/core/math.h>
#include <attile/core/merge.h>
#include <attile/core/sequences.h>
#include <attile/core/tensor.h>
#include <attile/core/tile_slots.h>
#include <attile/kernel/problem/find_slot.cuh>

#include <cstddef>
#include <cstdint>

namespace attile {

/// Is what a warp merges at a time: kWarpSize items of one row.
struct MergeTile {
  int sequence = -1;  ///< below 0: of none
  int row = 0;        ///< counted in the sequence, of which it may be none
  int first_item = 0;
};

/// Is what a lane merges: some neighbouring elements of one head of a row.
struct MergeItem {
  int head, col;
};

/// Holds the one argument of the kernel: the arguments, and how a row is cut into items. A row's
/// items are those of its heads, one head behind another.
template <class Args>
struct MergeParams {
  using T = typename Args::PartType;
  using Slots = TileSlots<Axis::kRows, 1, typename Args::SequencesType>;
  static constexpr int kVector = 16 / sizeof(T);  ///< elements of a part that one load moves

  Args args;              ///< resolved
  RowTensor<float> lse;   ///< of the result; its data null: not wanted
  int item_elements;      ///< kVector where all rows can be moved by vectors, else 1
  FastDivmod head_items;  ///< the items of a head
  int row_items;          ///< the items of a row
  FastDivmod row_tiles;   ///< the tiles of a row
  std::int64_t tiles;     ///< of all rows: below 2^31 for the kernel

  /// Takes arguments that passed `check_arguments`.
  explicit MergeParams(const Args& given)
      : args(detail::resolved(given)),
        lse(per_row(args, args.lse)),
        item_elements(takes_vectors(args) ? kVector : 1),
        head_items(args.head_dim_v / item_elements),
        row_items(args.q_heads * head_items),
        row_tiles(ceil_div(row_items, arch::kWarpSize)),
        tiles(min(slots().count(), std::int64_t{1} << 31) * int{row_tiles}) {}

  /// Returns the slots of rows, of one row each.
  ATTILE_HOST_DEVICE Slots slots() const { return Slots(args.sequences, args.batch, args.q_len); }
  /// Returns a tile by its number. Scope    all lanes of a warp.
  ATTILE_DEVICE MergeTile tile(int number) const {
    const auto share = [&] {
      if constexpr (kIsPackedAlong<typename Args::SequencesType, Axis::kRows>) {
        return find_by_warp<SlotOrder::kOfSequences>(slots(), number, row_tiles);
      } else {
        return slots().find(number, row_tiles);
      }
    }();
    if (!share.is_sequence) return {};
    const auto [row, tile] = row_tiles.divmod(share.item);
    return {share.sequence, row, tile * arch::kWarpSize};
  }
  /// Returns an item of a row by its number, below row_items.
  ATTILE_DEVICE MergeItem item(int number) const {
    const auto [head, item] = head_items.divmod(number);
    return {head, item * item_elements};
  }

 private:
  /// Returns whether the rows of O, and of each part's, can be moved kVector elements at a time.
  static bool takes_vectors(const Args& a) {
    if (a.head_dim_v % kVector != 0) return false;
    const auto aligned = [](const auto& x, std::int64_t stride = 0) {
      return is_aligned(x.data, x.batch_stride) && is_aligned(x.data, x.head_stride) &&
             is_aligned(x.data, x.row_stride) && is_aligned(x.data, stride);
    };
    for (int i = 0; i < a.part_tensors; ++i) {
      if (!aligned(a.parts[i].o, a.parts[i].o_stride)) return false;
    }
    return aligned(a.o);
  }
  /// Returns whether an address, and a stride in elements, are multiples of a vector.
  template <class X>
  static bool is_aligned(const X* data, std::int64_t stride) {
    constexpr std::size_t kBytes = kVector * sizeof(X);
    return reinterpret_cast<std::uintptr_t>(data) % kBytes == 0 && stride % kVector == 0;
  }
};

}  // namespace attile
