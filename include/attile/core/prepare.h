// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/args.h>
#include <attile/core/check.h>
#include <attile/core/config.h>
#include <attile/core/index.h>
#include <attile/core/math.h>
#include <attile/core/prepared_mask.h>
#include <attile/core/status.h>
#include <attile/core/vec.h>
#include <attile/core/workspace.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

// How the tables of prepared masks, and the offsets of packed sequences, are written. A source
// holds what a table is made of. Its phases follow each other, and the items of a phase are
// independent: a kernel has a thread for each, and the CPU a loop.

namespace attile {

/// A table source is copied to the device. `items<kPhase>()` says how many items a phase has, and
/// `prepare_item<kPhase>(table, n)` writes what item n is for; `fault()` says why it cannot.
template <class S>
concept TableSource = std::is_trivially_copyable_v<S> &&
    requires(const S& source, void* table, std::int64_t item) {
  { S::kPhases } -> std::convertible_to<int>;
  { source.fault() } -> std::same_as<const char*>;
  { source.table_bytes() } -> std::same_as<std::int64_t>;
  { source.template items<0>() } -> std::same_as<std::int64_t>;
  source.template prepare_item<0>(table, item);
};

namespace detail {

/// Returns how many of `count` ids that never decrease are below `id`, or with `or_equal` not above
/// it: 0 to count, also where they do decrease.
ATTILE_HOST_DEVICE int ids_below(const int* ids, int count, int id, bool or_equal) {
  int begin = 0, end = count;
  while (begin < end) {
    const int middle = begin + (end - begin) / 2;
    if (ids[middle] < id || (or_equal && ids[middle] == id)) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin;
}

}  // namespace detail

/// Holds the documents that the table of a SortedDocument is made of. Ids that decrease leave
/// intervals in it that contradict each other, but lie inside the lengths.
struct SortedIds {
  using Mask = SortedDocument;
  static constexpr int kPhases = 1;

  const int* q_ids = nullptr;   ///< (batch, q_len), of each batch in non-decreasing order
  const int* kv_ids = nullptr;  ///< (batch, kv_len), likewise; may be q_ids
  int batch = kUnset;
  int q_len = kUnset;
  int kv_len = kUnset;

  const char* fault() const {
    if (const char* why = detail::size_fault(batch, q_len, kv_len)) return why;
    const bool needs_q = batch > 0 && q_len > 0, needs_kv = batch > 0 && kv_len > 0;
    return (needs_q && q_ids == nullptr) || (needs_kv && kv_ids == nullptr)
               ? "SortedIds: q_ids and kv_ids must not be null"
               : nullptr;
  }
  std::int64_t table_bytes() const { return items<0>() * std::int64_t{sizeof(Mask::Entry)}; }

  /// Items are the rows of a batch, then its columns.
  template <int kPhase>
  ATTILE_HOST_DEVICE std::int64_t items() const {
    return batch * (std::int64_t{q_len} + kv_len);
  }
  template <int kPhase>
  ATTILE_HOST_DEVICE void prepare_item(void* table, std::int64_t item) const {
    const std::int64_t each = std::int64_t{q_len} + kv_len, b = item / each;
    const int position = static_cast<int>(item - b * each);
    const int *const of_rows = q_ids + b * q_len, *const of_columns = kv_ids + b * kv_len;
    const bool is_row = position < q_len;
    const int id = is_row ? of_rows[position] : of_columns[position - q_len];
    const int *const others = is_row ? of_columns : of_rows, count = is_row ? kv_len : q_len;
    static_cast<Mask::Entry*>(table)[item] = {detail::ids_below(others, count, id, false),
                                              detail::ids_below(others, count, id, true)};
  }
};

/// Holds the intervals that the table of RowIntervals is made of: row i of a batch sees the columns
/// of first[batch, i], and of second[batch, i]. They may overlap, be empty and leave the columns.
struct SeenIntervals {
  using Mask = RowIntervals;
  using Entry = Mask::Entry;
  static constexpr int kPhases = 2;

  const Interval* first = nullptr;   ///< (batch, q_len)
  const Interval* second = nullptr;  ///< likewise; null: there is one interval for each row
  int batch = kUnset;
  int q_len = kUnset;
  int kv_len = kUnset;

  const char* fault() const {
    if (const char* why = detail::size_fault(batch, q_len, kv_len)) return why;
    return batch > 0 && q_len > 0 && first == nullptr ? "SeenIntervals: first must not be null"
                                                      : nullptr;
  }
  std::int64_t table_bytes() const {
    return batch * std::int64_t{Mask::Places::size(extent())} * std::int64_t{sizeof(Entry)};
  }

  /// Items are granules: of the rows of each batch, then of its columns, which need all of those.
  template <int kPhase>
  ATTILE_HOST_DEVICE std::int64_t items() const {
    return std::int64_t{batch} * granules<kPhase>();
  }
  template <int kPhase>
  ATTILE_HOST_DEVICE void prepare_item(void* table, std::int64_t item) const {
    const int b = static_cast<int>(item / granules<kPhase>());
    const int granule = static_cast<int>(item % granules<kPhase>());
    Entry* const entries = static_cast<Entry*>(table);
    const Mask::Places places(b, extent());
    if constexpr (kPhase == 0) {
      prepare_rows(b, granule, places.row(entries), places.row_granules(entries));
    } else {
      places.column_granules(entries)[granule] = rows_seeing(granule, places.row_granules(entries));
    }
  }

 private:
  static constexpr int kGranule = Mask::kGranule;

  ATTILE_HOST_DEVICE Extent extent() const { return {q_len, kv_len}; }
  template <int kPhase>
  ATTILE_HOST_DEVICE int granules() const {
    return ceil_div(kPhase == 0 ? q_len : kv_len, kGranule);
  }
  /// Returns what a row sees: the intervals in their order, as one where they meet.
  ATTILE_HOST_DEVICE Entry seen_by(std::int64_t row) const {
    Interval a = clip(first[row].begin, first[row].end, kv_len), b{};
    if (second != nullptr) b = clip(second[row].begin, second[row].end, kv_len);
    if (a.empty() || (!b.empty() && b.begin < a.begin)) {
      const Interval other = a;
      a = b;
      b = other;
    }
    if (a.empty()) return {0, 0, 0, 0};
    if (b.empty()) return {a.begin, a.end, 0, 0};
    if (b.begin <= a.end) return {a.begin, max(a.end, b.end), 0, 0};
    return {a.begin, a.end, b.begin, b.end};
  }
  ATTILE_HOST_DEVICE void prepare_rows(int b, int granule, Entry* rows, Entry* granules) const {
    Entry some{kv_len, 0, kv_len, 0}, all{0, kv_len, 0, kv_len};
    const int end = min(granule * kGranule + kGranule, q_len);
    for (int row = granule * kGranule; row < end; ++row) {
      const Entry seen = seen_by(std::int64_t{b} * q_len + row);
      rows[row] = seen;
      for (int i = 0; i < 4; i += 2) {
        const Interval hull = Mask::hull({some[i], some[i + 1]}, {seen[i], seen[i + 1]});
        const Interval common = intersect({all[i], all[i + 1]}, {seen[i], seen[i + 1]});
        some[i] = hull.begin, some[i + 1] = hull.end;
        all[i] = common.begin, all[i + 1] = common.end;
      }
    }
    granules[2 * granule] = some;
    granules[2 * granule + 1] = all;
  }
  /// Returns the entry of a granule of columns: the rows from the first to the last granule that
  /// may see any of them, and the longest run of granules of rows that see all of them.
  ATTILE_HOST_DEVICE Entry rows_seeing(int granule, const Entry* granules) const {
    const Interval columns{granule * kGranule, min(granule * kGranule + kGranule, kv_len)};
    Interval touched{q_len, 0}, full{}, run{};
    for (int begin = 0, g = 0; begin < q_len; begin += kGranule, ++g) {
      const Interval rows{begin, min(begin + kGranule, q_len)};
      const Entry some = granules[2 * g], all = granules[2 * g + 1];
      const auto meets = [&](int i) { return !intersect({some[i], some[i + 1]}, columns).empty(); };
      const auto holds = [&](int i) {
        return all[i] <= columns.begin && columns.end <= all[i + 1];
      };
      if (meets(0) || meets(2)) touched = Mask::hull(touched, rows);
      run = {holds(0) || holds(2) ? run.begin : rows.end, rows.end};
      full = Mask::longer_of(full, run);
    }
    return {touched.begin, touched.end, full.begin, full.end};
  }
};

/// Holds the ids of which the offsets of PackedBatches, or of Packed, are made: each run of equal
/// ids in a batch is a sequence. The table is what `cu_seqlens` points to, sequences + 1 offsets of
/// rows that are counted through all batches, and behind these one int more, how many runs there
/// are. Those above `sequences` are in no sequence, so that their rows are not written; where there
/// are fewer, the other sequences are empty.
struct PackedIds {
  static constexpr int kPhases = 2;

  const int* ids = nullptr;  ///< (batches, rows)
  int batches = kUnset;
  int rows = kUnset;
  int sequences = kUnset;  ///< the most that there may be: `batch` of the arguments

  const char* fault() const {
    if (batches == kUnset) return "PackedIds: batches is not given";
    if (rows == kUnset) return "PackedIds: rows is not given";
    if (sequences == kUnset) return "PackedIds: sequences is not given";
    if (batches < 0) return "PackedIds: batches is negative";
    if (rows < 0) return "PackedIds: rows is negative";
    if (sequences < 0) return "PackedIds: sequences is negative";
    if (sequences > kMaxLength) return "PackedIds: sequences must be at most 2^30";
    if (std::int64_t{batches} * rows > kMaxLength) {
      return "PackedIds: batches * rows must be at most 2^30";
    }
    return ids == nullptr && total() > 0 ? "PackedIds: ids must not be null" : nullptr;
  }
  std::int64_t table_bytes() const {
    return (std::int64_t{sequences} + 2 + parts()) * std::int64_t{sizeof(int)};
  }

  /// Items are parts of kPart rows, whose runs are counted in the first phase: these counts lie
  /// behind the number of all runs. An item of that phase also presets an offset.
  template <int kPhase>
  ATTILE_HOST_DEVICE std::int64_t items() const {
    return kPhase == 0 ? max(std::int64_t{sequences} + 2, std::int64_t{parts()}) : parts();
  }
  template <int kPhase>
  ATTILE_HOST_DEVICE void prepare_item(void* table, std::int64_t item) const {
    int *const offsets = static_cast<int*>(table), *const runs = offsets + sequences + 1;
    int* const counts = runs + 1;
    if constexpr (kPhase == 0) {
      if (item <= sequences) offsets[item] = total();
      if (item == sequences + 1) *runs = 0;
      if (item >= parts()) return;
      int count = 0;
      for_each_begin(static_cast<int>(item), [&](int) { ++count; });
      counts[item] = count;
    } else {
      int run = 0;
      for (int part = 0; part < item; ++part) run += counts[part];
      for_each_begin(static_cast<int>(item), [&](int row) {
        if (run <= sequences) offsets[run] = row;
        ++run;
      });
      if (item == parts() - 1) *runs = run;
    }
  }

 private:
  static constexpr int kPart = 128;

  ATTILE_HOST_DEVICE int total() const { return batches * rows; }
  ATTILE_HOST_DEVICE int parts() const { return ceil_div(total(), kPart); }
  /// Calls f(row) for each row of a part with which a run begins.
  template <class F>
  ATTILE_HOST_DEVICE void for_each_begin(int part, const F& f) const {
    const int first = part * kPart, end = min(first + kPart, total());
    int before = first % rows == 0 ? 0 : ids[first - 1], in_batch = first % rows;
    for (int row = first; row < end; ++row) {
      const int id = ids[row];
      if (in_batch == 0 || id != before) f(row);
      before = id;
      in_batch = in_batch + 1 < rows ? in_batch + 1 : 0;
    }
  }
};

/// Says why `prepare` would refuse a source.
template <TableSource S>
Check check(const S& source) {
  const char* const why = source.fault();
  return why != nullptr ? refuse(why) : Check{};
}

/// Returns the bytes of a source's table, which are never 0, or why there is none.
template <TableSource S>
WorkspaceSize table_size(const S& source) {
  const Check ok = check(source);
  if (!ok) return {ok, 0};
  return {ok, static_cast<std::size_t>(max<std::int64_t>(source.table_bytes(), 16))};
}

}  // namespace attile
