// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/append.h>
#include <attile/core/config.h>
#include <attile/core/fast_divmod.h>
#include <attile/core/math.h>
#include <attile/core/sequences.h>
#include <attile/kernel/problem/row_items.cuh>

#include <cstdint>

namespace attile {

/// Names what a head of a new row is.
enum class AppendRole { kK, kQ, kV };

/// Is what a lane does: some neighbouring pairs of elements of one head of a new row.
struct AppendItem {
  AppendRole role;
  int head;  ///< of that role
  int pair;  ///< the first of the pairs
};

/// Holds the one argument of the kernel: the arguments, and how the heads of a row are cut into
/// items. A row's items are those of all heads of K, of Q and of V, one behind another.
template <class Args>
struct AppendParams {
  using T = typename Args::ElementType;
  using K = typename Args::Elements::K;
  using V = typename Args::Elements::V;
  using Slots = typename RowItems<typename Args::SequencesType>::Slots;
  /// Elements that one instruction moves: 16 bytes, or 8 of a cache in fp8.
  static constexpr int kVector = 16 / sizeof(T);

  Args args;  ///< resolved
  /// The pairs of an item: kVector where all rows can be moved by vectors, else 1.
  int item_pairs;
  FastDivmod head_items, head_v_items;  ///< the items of a head of K or Q, and of one of V
  RowItems<typename Args::SequencesType> items;

  /// Takes arguments that passed `check_arguments`.
  explicit AppendParams(const Args& given)
      : args(detail::resolved(given)),
        item_pairs(takes_vectors(args) ? kVector : 1),
        head_items(ceil_div(args.head_dim, 2 * item_pairs)),
        head_v_items(ceil_div(args.head_dim_v, 2 * item_pairs)),
        items(slots(), (args.kv_heads + args.q_heads) * head_items + args.kv_heads * head_v_items) {
  }

  /// Returns the slots of new rows, of one row each.
  ATTILE_HOST_DEVICE Slots slots() const { return Slots(args.sequences, args.batch, args.q_len); }
  /// Returns an item of a row by its number, below items.of_row.
  ATTILE_DEVICE AppendItem item(int number) const {
    const int rotated = (args.kv_heads + args.q_heads) * head_items;
    if (number >= rotated) {
      const auto [head, item] = head_v_items.divmod(number - rotated);
      return {AppendRole::kV, head, item * item_pairs};
    }
    const auto [head, item] = head_items.divmod(number);
    if (head < args.kv_heads) return {AppendRole::kK, head, item * item_pairs};
    return {AppendRole::kQ, head - args.kv_heads, item * item_pairs};
  }

  /// Returns the row that an item is read from.
  ATTILE_DEVICE const T* source(const AppendItem& item, RowOrigin at) const {
    if (item.role == AppendRole::kK) return args.k_new.row(at.batch, item.head, at.row);
    if (item.role == AppendRole::kQ) return args.q.row(at.batch, item.head, at.row);
    return args.v_new.row(at.batch, item.head, at.row);
  }
  /// Calls f(row) with the row that an item is written to.
  template <class F>
  ATTILE_DEVICE void with_target(const AppendItem& item, RowOrigin at, const F& f) const {
    if constexpr (Args::Elements::kFp8Cache) {
      if (item.role == AppendRole::kK) return f(args.k.row(at.batch, item.head, at.row));
      if (item.role == AppendRole::kV) return f(args.v.row(at.batch, item.head, at.row));
      f(args.q_out.row(at.batch, item.head, at.row));
    } else {
      const auto row = [&] {
        if (item.role == AppendRole::kK) return args.k.row(at.batch, item.head, at.row);
        if (item.role == AppendRole::kQ) return args.q_out.row(at.batch, item.head, at.row);
        return args.v.row(at.batch, item.head, at.row);
      };
      f(row());
    }
  }
  /// Returns the scale of what an item writes to the cache.
  ATTILE_DEVICE float scale(const AppendItem& item, int sequence) const {
    if (item.role == AppendRole::kK) return args.k_scale.at(sequence, item.head);
    if (item.role == AppendRole::kV) return args.v_scale.at(sequence, item.head);
    return 1.0f;
  }

 private:
  /// Returns whether all rows can be read and written kVector elements at a time, and whether no
  /// such vector has pairs that are rotated beside others that are not.
  static bool takes_vectors(const Args& a) {
    const auto aligned = [](const auto& x) {
      constexpr int kBytes = kVector * sizeof(*x.data);
      return is_aligned(x.data, x.batch_stride, kBytes) &&
             is_aligned(x.data, x.head_stride, kBytes) && is_aligned(x.data, x.row_stride, kBytes);
    };
    if (a.head_dim % kVector != 0 || a.head_dim_v % kVector != 0) return false;
    if constexpr (Args::RotaryType::kEnabled) {
      const std::int64_t stride = a.rotary.angle(1, 0);
      if (a.rotary.dims % (2 * kVector) != 0 || !is_aligned(a.rotary.cos, stride, 16) ||
          !is_aligned(a.rotary.sin, stride, 16)) {
        return false;
      }
    }
    return aligned(a.k_new) && aligned(a.v_new) && aligned(a.k) && aligned(a.v) && aligned(a.q) &&
           aligned(a.q_out);
  }
  /// Returns whether an address, and a stride in elements, are multiples of `bytes`.
  template <class X>
  static bool is_aligned(const X* data, std::int64_t stride, int bytes) {
    return reinterpret_cast<std::intptr_t>(data) % bytes == 0 &&
           stride * static_cast<std::int64_t>(sizeof(X)) % bytes == 0;
  }
};

}  // namespace attile
