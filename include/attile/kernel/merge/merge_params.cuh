// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/args.h>
#include <attile/core/config.h>
#include <attile/core/fast_divmod.h>
#include <attile/core/merge.h>
#include <attile/core/tensor.h>
#include <attile/kernel/problem/row_items.cuh>

#include <cstddef>
#include <cstdint>

namespace attile {

/// Is what a lane merges: some neighbouring elements of one head of a row.
struct MergeItem {
  int head, col;
};

/// Holds the one argument of the kernel: the arguments, and how a row is cut into items. A row's
/// items are those of its heads, one head behind another.
template <class Args>
struct MergeParams {
  using T = typename Args::PartType;
  using Slots = typename RowItems<typename Args::SequencesType>::Slots;
  static constexpr int kVector = 16 / sizeof(T);  ///< elements of a part that one load moves

  Args args;              ///< resolved
  RowTensor<float> lse;   ///< of the result; its data null: not wanted
  int item_elements;      ///< kVector where all rows can be moved by vectors, else 1
  FastDivmod head_items;  ///< the items of a head
  RowItems<typename Args::SequencesType> items;

  /// Takes arguments that passed `check_arguments`.
  explicit MergeParams(const Args& given)
      : args(detail::resolved(given)),
        lse(per_row(args, args.lse)),
        item_elements(takes_vectors(args) ? kVector : 1),
        head_items(args.head_dim_v / item_elements),
        items(slots(), args.q_heads * head_items) {}

  /// Returns the slots of rows, of one row each.
  ATTILE_HOST_DEVICE Slots slots() const { return Slots(args.sequences, args.batch, args.q_len); }
  /// Returns an item of a row by its number, below items.of_row.
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
