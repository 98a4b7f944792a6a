// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/sequences.h>

#include <algorithm>
#include <vector>

#include "support/cache.h"
#include "support/cases.h"

namespace attile_test {

/// A sequences policy of the tests: each sequence has its own first row and its own length in a
/// packed tensor, with gaps that belong to nobody. It shows that kernels take a sequence's rows
/// from the policy alone.
struct OwnLengths {
  static constexpr bool kUniform = false;

  const int* q_first = nullptr;   ///< (batch): the first row of each sequence's queries
  const int* q_len = nullptr;     ///< (batch)
  const int* kv_first = nullptr;  ///< (batch)
  const int* kv_len = nullptr;    ///< (batch)
  int q_rows = 0;                 ///< rows of the tensors of queries
  int kv_rows = 0;                ///< rows of the tensors of keys

  ATTILE_HOST_DEVICE attile::Extent extent(int sequence, attile::Extent) const {
    return {q_len[sequence], kv_len[sequence]};
  }
  ATTILE_HOST_DEVICE attile::RowOrigin q_origin(int sequence) const {
    return {0, q_first[sequence]};
  }
  ATTILE_HOST_DEVICE attile::RowOrigin kv_origin(int sequence) const {
    return {0, kv_first[sequence]};
  }
  attile::RowShape q_shape(int, int) const { return {1, q_rows}; }
  attile::RowShape kv_shape(int, int) const { return {1, kv_rows}; }
};

/// Whether a case's tensors of queries, or of keys, have no rows.
inline bool has_no_rows(const Case& c, bool of_keys) {
  return c.lengths == Lengths::kNoRows ||
         c.lengths == (of_keys ? Lengths::kNoKeys : Lengths::kNoQueries);
}

/// The queries', or keys', lengths of a case's sequences: its batch is how many they are.
inline std::vector<int> lengths_of(const Case& c, bool of_keys) {
  const int longest = of_keys ? c.kv_len : c.q_len;
  std::vector<int> result;
  for (int b = 0; b < c.batch; ++b) {
    if (has_no_rows(c, of_keys)) {
      result.push_back(0);
      continue;
    }
    switch (c.lengths) {
      case Lengths::kNoQueries:
      case Lengths::kNoKeys:
      case Lengths::kMixed: {
        const int lengths[] = {longest, 2 * longest / 3, 0, 1, longest / 2 + 1, longest - 1};
        // Without queries, without keys and without both; more of either than of the other.
        const int of_queries[] = {1, 3, 0, 2, 4, 0, 5, 2}, of_keys_of[] = {0, 4, 1, 0, 2, 3, 1, 2};
        result.push_back(lengths[of_keys ? of_keys_of[b % 8] : of_queries[b % 8]]);
        break;
      }
      case Lengths::kSelf: {
        const int lengths[] = {9, 8, 8, 12, 8, 12};
        result.push_back(std::min(lengths[b % 6], longest));
        break;
      }
      case Lengths::kEmptyEnds:
        result.push_back(b == 0 || b == c.batch - 1 ? 0 : longest - b);
        break;
      case Lengths::kNoRows:
      case Lengths::kAllEmpty:
        result.push_back(0);
        break;
      case Lengths::kAlternate:
        result.push_back(b % 2 == 0 ? 0 : std::min(of_keys ? 2 + b : 1, longest));
        break;
      case Lengths::kLongest:
        result.push_back(longest);
        break;
    }
  }
  return result;
}

/// Where the rows of one side of a problem lie whose sequences have lengths of their own.
struct PackedRows {
  std::vector<int> length;
  std::vector<int> first;  ///< each sequence's first row, counted through all batches; empty where
                           ///< each sequence has a batch of its own
  std::vector<int> cu_seqlens;  ///< where its room begins and, at last, all rooms end
  int batches = 1;
  int rows = 0;     ///< of each batch of the tensor
  CacheData cache;  ///< of keys that lie in one

  /// Lays them one behind another with gaps before, between and behind them, or with c.tight only
  /// behind the last one. Those of Padded lie in a dense tensor, and keys of a cache there.
  PackedRows(const Case& c, bool of_keys) : length(lengths_of(c, of_keys)) {
    if (of_keys && has_cache(c.policy)) {
      cache = CacheData(c, length, lengths_of(c, false));
      length = cache.length;
      batches = is_paged(c.policy) ? cache.pages : cache.lines;
      rows = is_paged(c.policy) ? c.page_size : c.kv_len;
      return;
    }
    if (c.policy == Policy::kPackedBatches) {
      share_batches(c);
      return;
    }
    if (pads_queries(c.policy)) {
      batches = c.batch;
      rows = of_keys ? c.kv_len : c.q_len;
      return;
    }
    rows = c.tight ? 0 : 5;
    for (int b = 0; b < c.batch; ++b) {
      first.push_back(rows);
      cu_seqlens.push_back(rows);
      rows += length[b] + (c.tight ? 0 : gap_behind(c, b));
    }
    cu_seqlens.push_back(rows);
    rows += 3;
    if (!has_no_rows(c, of_keys)) return;
    first.assign(first.size(), 0);
    cu_seqlens.assign(cu_seqlens.size(), 0);
    rows = 0;
  }

  /// The first row of a sequence that is there, and where each row lies.
  int begin(int sequence) const { return cache.begin.empty() ? 0 : cache.begin[sequence]; }
  attile::RowOrigin place(int sequence, int row) const {
    if (!cache.length.empty()) return cache.place(sequence, row);
    if (first.empty()) return {sequence, row};
    if (batches == 1) return {0, first[sequence] + row};
    return {first[sequence] / rows, first[sequence] % rows + row};
  }

 private:
  /// Lays the sequences of PackedBatches, whose keys lie as their queries do, one behind another
  /// through as many batches as they need. One that a batch has no room for is cut to the room.
  void share_batches(const Case& c) {
    length = lengths_of(c, false);
    rows = has_no_rows(c, false) ? 0 : c.q_len + c.q_len / 3;
    int end = 0;
    for (int& n : length) {
      n = std::min(n, rows == 0 ? 0 : rows - end % rows);
      first.push_back(end);
      cu_seqlens.push_back(end);
      end += n;
    }
    cu_seqlens.push_back(end);
    batches = rows == 0 ? 1 : end / rows + 1;
  }
  static int gap_behind(const Case& c, int sequence) {
    if (c.lengths == Lengths::kSelf) return sequence % 6 == 0 ? 3 : 0;
    return c.lengths == Lengths::kLongest ? 6 : 2 + sequence % 3;
  }
};

}  // namespace attile_test
