// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>
#include <attile/core/index.h>
#include <attile/core/math.h>
#include <attile/core/vec.h>

#include <cstdint>

// These masks read tables in device memory (host memory for the CPU executor) that `prepare` has
// written: which columns a row sees, and which tiles those are. The answers are clipped to the
// lengths, and a table is indexed by rows and columns alone, so that whatever a table holds nothing
// is read outside of it, and no kernel waits for ever: a forward pass asks `columns` alone, and a
// part of a work tile is cut to the tiles of the whole one; who adds to dQ, and in which order,
// follows from `rows` alone.

namespace attile {

namespace detail {

/// Returns the sentence that says why a prepared table cannot be read; null when it can.
inline const char* table_fault(const void* table, const char* if_null, const char* if_unaligned) {
  if (table == nullptr) return if_null;
  return reinterpret_cast<std::uintptr_t>(table) % 16 == 0 ? nullptr : if_unaligned;
}

}  // namespace detail

/// Lets a row see the columns of its own document, where the ids never decrease along the rows and
/// along the columns of a batch. It skips tiles, and compares positions instead of ids. Where ids
/// decrease, the result is undefined, but nothing is read or written out of bounds.
/// Shapes   table: what `prepare` has written for a SortedIds with the batch, q_len and kv_len of
///          the problem; for each batch, q_len intervals of columns and kv_len intervals of rows.
struct SortedDocument {
  static constexpr bool kIntervals = true;
  static constexpr bool kUnevenRows = true;
  static constexpr bool kUniformOnly = true;
  using Entry = Vec<int, 2>;  ///< begin and end of an interval

  const void* table = nullptr;

  const char* fault() const {
    return detail::table_fault(table, "SortedDocument: table must not be null",
                               "SortedDocument: table is not aligned to 16 bytes");
  }

  ATTILE_HOST_DEVICE bool visible(ScoreIndex i, Extent e) const {
    const Entry seen = batch_table(i.batch, e)[i.row];
    return seen[0] <= i.col && i.col < seen[1];
  }
  ATTILE_HOST_DEVICE Span columns(int batch, int, Interval rows, Extent e) const {
    return span(batch_table(batch, e), rows, e.kv_len);
  }
  ATTILE_HOST_DEVICE Span rows(int batch, int, Interval columns, Extent e) const {
    return span(batch_table(batch, e) + e.q_len, columns, e.q_len);
  }

  struct Tile {
    using Mask = SortedDocument;
    const Entry* of_rows;  ///< from the first score's row on
    int first_col;

    ATTILE_HOST_DEVICE Entry row(int dr) const { return of_rows[dr]; }
    ATTILE_HOST_DEVICE int col(int dc) const { return first_col + dc; }
    ATTILE_HOST_DEVICE bool visible(const Entry& row, int col) const {
      return row[0] <= col && col < row[1];
    }
  };
  ATTILE_HOST_DEVICE Tile of_tile(ScoreIndex first, Extent e) const {
    return {batch_table(first.batch, e) + first.row, first.col};
  }

 private:
  ATTILE_HOST_DEVICE const Entry* batch_table(int batch, Extent e) const {
    const unsigned entries = static_cast<unsigned>(e.q_len) + static_cast<unsigned>(e.kv_len);
    return static_cast<const Entry*>(table) + std::uint64_t{static_cast<unsigned>(batch)} * entries;
  }
  /// Returns the span of a run: both ends of the intervals never decrease along it.
  ATTILE_HOST_DEVICE static Span span(const Entry* entries, Interval run, int length) {
    const Entry first = entries[run.begin], last = entries[run.end - 1];
    return {clip(first[0], last[1], length), clip(last[0], first[1], length)};
  }
};

/// Lets each row of a batch see one or two intervals of columns: documents in any order, a prefix
/// that several continuations share, padding within a sequence. It skips tiles.
/// Shapes   table: what `prepare` has written for a SeenIntervals with the batch, q_len and kv_len
///          of the problem. For each batch it has a summary for every kGranule columns, the
///          intervals of q_len rows, and a summary for every kGranule rows.
struct RowIntervals {
  static constexpr bool kUnevenRows = true;
  static constexpr bool kUniformOnly = true;
  static constexpr int kGranule = 16;
  using Entry = Vec<int, 4>;  ///< begin and end of two intervals

  const void* table = nullptr;

  const char* fault() const {
    return detail::table_fault(table, "RowIntervals: table must not be null",
                               "RowIntervals: table is not aligned to 16 bytes");
  }

  ATTILE_HOST_DEVICE bool visible(ScoreIndex i, Extent e) const {
    return contains(Places(i.batch, e).row(static_cast<const Entry*>(table))[i.row], i.col);
  }
  ATTILE_HOST_DEVICE Span columns(int batch, int, Interval rows, Extent e) const {
    const Entry* const granules = Places(batch, e).row_granules(static_cast<const Entry*>(table));
    Interval touched{e.kv_len, 0}, full[2] = {{0, e.kv_len}, {0, e.kv_len}};
    for (int g = rows.begin / kGranule; g * kGranule < rows.end; g = next(g)) {
      const Entry some = granules[2 * g], all = granules[2 * g + 1];
      for (int i = 0; i < 2; ++i) {
        touched = hull(touched, {some[2 * i], some[2 * i + 1]});
        full[i] = intersect(full[i], {all[2 * i], all[2 * i + 1]});
      }
    }
    const Interval longer = longer_of(full[0], full[1]);
    return {clip(touched.begin, touched.end, e.kv_len), clip(longer.begin, longer.end, e.kv_len)};
  }
  ATTILE_HOST_DEVICE Span rows(int batch, int, Interval columns, Extent e) const {
    const Entry* const granules =
        Places(batch, e).column_granules(static_cast<const Entry*>(table));
    Interval touched{e.q_len, 0}, full{0, e.q_len};
    for (int g = columns.begin / kGranule; g * kGranule < columns.end; g = next(g)) {
      const Entry granule = granules[g];
      touched = hull(touched, {granule[0], granule[1]});
      full = intersect(full, {granule[2], granule[3]});
    }
    return {clip(touched.begin, touched.end, e.q_len), clip(full.begin, full.end, e.q_len)};
  }

  struct Tile {
    using Mask = RowIntervals;
    const Entry* of_rows;  ///< from the first score's row on
    int first_col;

    ATTILE_HOST_DEVICE Entry row(int dr) const { return of_rows[dr]; }
    ATTILE_HOST_DEVICE int col(int dc) const { return first_col + dc; }
    ATTILE_HOST_DEVICE bool visible(const Entry& row, int col) const { return contains(row, col); }
  };
  ATTILE_HOST_DEVICE Tile of_tile(ScoreIndex first, Extent e) const {
    return {Places(first.batch, e).row(static_cast<const Entry*>(table)) + first.row, first.col};
  }

  /// Finds the parts of a table that belong to one batch. Units: entries.
  struct Places {
    Extent extent;
    std::uint64_t first;

    ATTILE_HOST_DEVICE Places(int batch, Extent e)
        : extent(e), first(std::uint64_t{static_cast<unsigned>(batch)} * size(e)) {}
    /// Returns the entries of each batch.
    ATTILE_HOST_DEVICE static unsigned size(Extent e) {
      return static_cast<unsigned>(e.q_len) + 2 * granules(e.q_len) + granules(e.kv_len);
    }
    /// Returns the entries of the rows: each has the columns that it sees.
    template <class T>
    ATTILE_HOST_DEVICE T* row(T* entries) const {
      return entries + first + granules(extent.kv_len);
    }
    /// Returns two entries for each granule of rows: for both intervals the columns from the first
    /// to the last one that a row of it sees, and those that all rows of it see.
    template <class T>
    ATTILE_HOST_DEVICE T* row_granules(T* entries) const {
      return row(entries) + extent.q_len;
    }
    /// Returns an entry for each granule of columns: the rows from the first to the last one that
    /// may see a column of it, and rows that see all of them.
    template <class T>
    ATTILE_HOST_DEVICE T* column_granules(T* entries) const {
      return entries + first;
    }
  };

  /// Returns the granules of so many rows or columns.
  ATTILE_HOST_DEVICE static unsigned granules(int length) {
    return static_cast<unsigned>(ceil_div(length, kGranule));
  }
  /// Returns g + 1, in a way from which the compiler does not see how often a loop runs: unrolled,
  /// it would take registers that the warps of a kernel in order do not have
  /// (bench/log/tuning-sm90.md).
  ATTILE_HOST_DEVICE static int next(int g) { return max(g + 1, g | 1); }
  /// Returns whether a row with this entry sees a column.
  ATTILE_HOST_DEVICE static bool contains(const Entry& seen, int col) {
    const bool in_first = seen[0] <= col && col < seen[1];
    const bool in_second = seen[2] <= col && col < seen[3];
    return in_first || in_second;
  }
  /// Returns the smallest interval that holds both; an empty one holds nothing.
  ATTILE_HOST_DEVICE static Interval hull(Interval a, Interval b) {
    if (b.empty()) return a;
    return {min(a.begin, b.begin), max(a.end, b.end)};
  }
  ATTILE_HOST_DEVICE static Interval longer_of(Interval a, Interval b) {
    if (a.empty()) return b;
    if (b.empty()) return a;
    return std::int64_t{b.end} - b.begin > std::int64_t{a.end} - a.begin ? b : a;
  }
};

}  // namespace attile
