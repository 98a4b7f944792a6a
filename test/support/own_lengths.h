// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/sequences.h>

#include <cstdint>
#include <vector>

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

/// Where the rows of one side of a packed problem lie.
struct PackedRows {
  std::vector<int> first, length;
  int rows = 0;

  /// Of `batch` sequences of at most `longest` rows, of which some have none, one or all; gaps
  /// before, between and behind them.
  PackedRows(int batch, int longest, bool of_keys) {
    rows = 5;
    for (int b = 0; b < batch; ++b) {
      const int lengths[] = {longest, 2 * longest / 3, 0, 1, longest / 2 + 1, longest - 1};
      // Sequences without queries, without keys and without both; more of either than of the other.
      const int of_queries[] = {1, 3, 0, 2, 4, 0, 5, 2}, of_keys_of[] = {0, 4, 1, 0, 2, 3, 1, 2};
      first.push_back(rows);
      length.push_back(lengths[of_keys ? of_keys_of[b % 8] : of_queries[b % 8]]);
      rows += length.back() + 2 + b % 3;
    }
  }
};

}  // namespace attile_test
