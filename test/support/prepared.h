// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/index.h>
#include <attile/core/prepare.h>
#include <attile/host/prepare.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "support/random.h"

namespace attile_test {

/// A table in host memory, as vectors of 16 bytes, which aligns it.
using Table = std::vector<attile::Vec<int, 4>>;

template <class Source>
std::size_t table_bytes(const Source& source) {
  const attile::WorkspaceSize size = attile::table_size(source);
  return size ? size.bytes : 0;
}

/// The table of a source, made on the host.
template <class Source>
Table host_table(const Source& source) {
  constexpr std::size_t kEntry = sizeof(Table::value_type);
  Table table((table_bytes(source) + kEntry - 1) / kEntry);
  if (!attile::host::prepare(table.data(), table_bytes(source), source)) table.clear();
  return table;
}

/// Entries that hold anything, of which a half lies near the lengths.
inline Table any_entries(std::size_t count, std::uint64_t seed, int length) {
  Table table(count);
  const Random random(seed);
  std::uint64_t n = 0;
  for (auto& entry : table) {
    for (int& x : entry.data) {
      const double u = random.uniform(n), v = random.uniform(n + 1);
      n += 2;
      x = u < 0.5 ? static_cast<int>(v * (length + 20)) - 10 : static_cast<int>((v - 0.5) * 4e9);
    }
  }
  return table;
}

/// Documents in order, of three and more in a sequence, some of one row, some without a key
/// (`hide`) and, with `sorted` false, out of order.
struct DocumentRows {
  std::vector<int> q_ids, kv_ids;
  attile::SortedIds source;

  DocumentRows(int batch, int q_len, int kv_len, bool hide, bool sorted = true) {
    for (int b = 0; b < batch; ++b) {
      for (int i = 0; i < q_len; ++i) q_ids.push_back(id(b, i, q_len, sorted));
      for (int j = 0; j < kv_len; ++j) {
        const int of_column = id(b, j, kv_len, sorted);
        kv_ids.push_back(of_column + (hide && of_column / 100 == 1 ? 50 : 0));
      }
    }
    source = {q_ids.data(), kv_ids.data(), batch, q_len, kv_len};
  }

 private:
  static int id(int batch, int position, int length, bool sorted) {
    if (!sorted && position % 11 < 5) position = length - 1 - position;
    const auto part = static_cast<int>((std::int64_t{position} * (3 + batch) + batch) / length);
    return 100 * part + (position > 20) + (position > 21);
  }
};

/// Which columns rows see: a prefix that all have in common, and a document; some rows see one of
/// them, or nothing, and intervals come in any order, overlap, and leave the columns.
struct IntervalRows {
  std::vector<attile::Interval> first, second;
  attile::SeenIntervals source;

  IntervalRows(int batch, int q_len, int kv_len, int prefix, bool one = false) {
    constexpr int kLow = std::numeric_limits<int>::min(), kHigh = std::numeric_limits<int>::max();
    for (int b = 0; b < batch; ++b) {
      const std::int64_t parts = 3 + b;
      for (int i = 0; i < q_len; ++i) {
        const std::int64_t part = i * parts / q_len;
        const attile::Interval own{static_cast<int>(part * kv_len / parts),
                                   static_cast<int>((part + 1) * kv_len / parts)};
        const attile::Interval shared{i % 2 == 0 ? 0 : kLow, prefix};
        const bool swaps = i % 3 == 1, nothing = i % 13 == 7;
        first.push_back(nothing ? attile::Interval{kHigh, kLow} : swaps ? own : shared);
        second.push_back(i % 13 == 9   ? attile::Interval{kv_len / 2, kHigh}
                         : nothing     ? attile::Interval{kv_len, kv_len + 5}
                         : i % 29 == 5 ? attile::Interval{}
                         : swaps       ? shared
                                       : own);
      }
    }
    source = {first.data(), one ? nullptr : second.data(), batch, q_len, kv_len};
  }

  /// Whether the row sees the column, by what was asked for.
  bool sees(attile::ScoreIndex i) const {
    const std::size_t row = static_cast<std::size_t>(i.batch) * source.q_len + i.row;
    return first[row].contains(i.col) || (source.second != nullptr && second[row].contains(i.col));
  }
};

}  // namespace attile_test
