// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/index.h>
#include <attile/core/math.h>
#include <attile/core/sequences.h>

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "support/cases.h"
#include "support/random.h"

namespace attile_test {

/// The first key of each sequence that any row of it may see, with a case's mask: the length where
/// there are no rows.
inline int first_seen(const Case& c, int q_len, int kv_len) {
  if (q_len == 0) return kv_len;
  const bool has_window = c.policy == Policy::kPagedWindow && c.left >= 0;
  return has_window ? std::clamp(kv_len - q_len - c.left, 0, kv_len) : 0;
}

/// A cache of keys, as a policy's arrays describe it. What is not there is garbage: entries of the
/// page table before the first page that a sequence sees and past its last one, and seqused_k of
/// sequences that are longer than a line of the table. Pages are in no order, and the first and the
/// last one are nobody's, to which garbage is clipped.
struct CacheData {
  std::vector<int> seqused, leftpad, cache_batch_idx, page_table;
  std::vector<int> length;  ///< of each sequence
  std::vector<int> begin;   ///< the first key of each that is there
  int lines = 0;            ///< caches, or lines of the page table
  int pages_per_sequence = 0, table_stride = 0, pages = 0, page_size = 0;

  CacheData() = default;
  /// `used`: the keys of each sequence, with what leftpad cuts off; `q_lengths`: its queries.
  CacheData(const Case& c, const std::vector<int>& used, const std::vector<int>& q_lengths)
      : page_size(c.page_size) {
    const bool is_empty = c.lengths == Lengths::kNoKeys || c.lengths == Lengths::kNoRows;
    lines = c.pointers ? c.batch / 2 + 2 : c.batch;
    pages_per_sequence = is_paged(c.policy) ? attile::ceil_div(c.kv_len, page_size) + 2 : 0;
    if (c.beyond) pages_per_sequence = attile::ceil_div(c.kv_len, 2 * page_size);
    table_stride = pages_per_sequence + 3;
    for (int b = 0; b < c.batch; ++b) {
      int end = used[b];
      if (c.beyond) end = std::min(end, pages_per_sequence * page_size);
      leftpad.push_back(c.leftpad ? std::min((7 * b + 3) % 12, end) : 0);
      seqused.push_back(c.beyond && end < used[b] ? INT_MAX : end);
      // Two sequences share a line: the first ones the last line.
      cache_batch_idx.push_back(c.pointers ? lines - 1 - b / 2 : b);
      length.push_back(end - leftpad.back());
      begin.push_back(is_paged(c.policy) ? first_there(c, q_lengths[b], b) : 0);
    }
    if (is_paged(c.policy)) make_pages();
    if (is_empty) lines = pages = pages_per_sequence = 0;
  }

  /// The cache, or the page, and the row there of a key.
  attile::RowOrigin place(int sequence, int key) const {
    const int position = leftpad[sequence] + key, line = cache_batch_idx[sequence];
    if (page_table.empty()) return {line, position};
    return {page_table[entry(line, position)], position % page_size};
  }

 private:
  std::size_t entry(int line, int position) const {
    return std::size_t(line) * table_stride + position / page_size;
  }

  /// The first key of the page that has the first key that a row sees. Keys of a page are there, as
  /// long as it is, and are no garbage.
  int first_there(const Case& c, int q_len, int b) const {
    const int seen = first_seen(c, q_len, length[b]);
    if (seen == length[b]) return seen;
    const int position = leftpad[b] + seen;
    return std::max(position - position % page_size - leftpad[b], 0);
  }

  void make_pages() {
    const int garbage[] = {-1, INT_MAX, INT_MIN, 1 << 30, 2};
    page_table.resize(std::size_t(lines) * table_stride);
    for (std::size_t i = 0; i < page_table.size(); ++i) page_table[i] = garbage[i % 5];
    std::vector<char> is_used(page_table.size());
    for (std::size_t b = 0; b < length.size(); ++b) {
      for (int key = begin[b]; key < length[b]; ++key) {
        is_used[entry(cache_batch_idx[b], leftpad[b] + key)] = 1;
      }
    }
    const int count = std::accumulate(is_used.begin(), is_used.end(), 0);
    std::vector<int> order(count);
    std::iota(order.begin(), order.end(), 1);
    const Random random(31);
    for (int i = count - 1; i > 0; --i) {
      std::swap(order[i], order[static_cast<int>(random.uniform(i) * i)]);
    }
    int next = 0;
    for (std::size_t i = 0; i < page_table.size(); ++i) {
      if (is_used[i] != 0) page_table[i] = order[next++];
    }
    pages = count + 2;
  }
};

}  // namespace attile_test
