// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/args.h>
#include <attile/core/element.h>
#include <attile/core/merge.h>
#include <attile/core/sequences.h>
#include <attile/core/status.h>
#include <attile/core/vec.h>
#include <attile/tile/merge.h>

#include <algorithm>

namespace attile::host {

namespace detail {

/// Merges N elements of one row, from column `col` on, and writes them. Returns the row's LSE. All
/// parts have been read when O is written.
template <int N, class Args>
float merge_columns(const Args& args, RowOrigin at, int head, int col) {
  using T = typename Args::PartType;
  const auto load = [](const T* from) {
    Vec<T, N> part;
    std::copy_n(from, N, part.data);
    return part;
  };
  const tile::MergedRow<N> merged = tile::merge_row<N>(args, at.batch, head, at.row, col, load);
  auto* const o = args.o.row(at.batch, head, at.row) + col;
  for (int e = 0; e < N; ++e) o[e] = from_float<typename Args::OutputType>(merged.o[e]);
  return merged.lse;
}

}  // namespace detail

/// Merges partial results in host memory, as attile::merge does in device memory. Rows are taken in
/// order, by the calling thread.
/// Errors   never throws: bad arguments are a Check that says so, and then nothing is written.
template <class E, class T, class S, class K>
[[nodiscard]] Check merge(const MergeArgs<E, T, S, K>& args) {
  constexpr int kColumns = 16;  // at a time, while there are as many
  if (const Check ok = check_arguments(args); !ok) return ok;
  if (args.q_len == 0) return {};  // the sequences may be null then
  const auto a = attile::detail::resolved(args);
  for (int sequence = 0; sequence < a.batch; ++sequence) {
    const int rows = extent_of(a, sequence).q_len;
    const RowOrigin first = a.sequences.q_origin(sequence);
    for (int head = 0; head < a.q_heads; ++head) {
      for (int i = 0; i < rows; ++i) {
        const RowOrigin at = {first.batch, first.row + i};
        float lse = 0.0f;
        int col = 0;
        for (; col + kColumns <= a.head_dim_v; col += kColumns) {
          lse = detail::merge_columns<kColumns>(a, at, head, col);
        }
        for (; col < a.head_dim_v; ++col) lse = detail::merge_columns<1>(a, at, head, col);
        if (a.lse != nullptr) *per_row(a, a.lse).row(at.batch, head, at.row) = lse;
      }
    }
  }
  return {};
}

}  // namespace attile::host
