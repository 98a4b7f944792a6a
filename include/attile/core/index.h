// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>
#include <attile/core/math.h>

#include <cstdint>

namespace attile {

/// Marks a size that the caller has not given, which is refused. An explicit 0 is an empty problem.
inline constexpr int kUnset = -2147483647 - 1;

/// Is the longest q_len and kv_len: sums of two lengths then fit an int.
inline constexpr int kMaxLength = 1 << 30;

/// Names one position of the score matrix of one query head. Units: `head` counts query heads.
struct ScoreIndex {
  int batch, head, row, col;
};

/// Holds the lengths of one sequence's score matrix: q_len rows, kv_len columns.
struct Extent {
  int q_len, kv_len;

  friend constexpr bool operator==(const Extent&, const Extent&) = default;

  /// Returns what, added to a row, gives the column on the bottom-right aligned diagonal.
  ATTILE_HOST_DEVICE constexpr int shift() const { return kv_len - q_len; }
};

/// Holds the shape of the scores of a whole problem. Units: `heads` counts query heads.
struct ScoreShape {
  int batch, heads;
  Extent extent;
};

/// Holds the rows or columns begin <= x < end; it is empty when begin >= end.
struct Interval {
  int begin = 0;
  int end = 0;

  ATTILE_HOST_DEVICE constexpr bool empty() const { return begin >= end; }
  ATTILE_HOST_DEVICE constexpr bool contains(int x) const { return begin <= x && x < end; }
};

ATTILE_HOST_DEVICE constexpr Interval intersect(Interval a, Interval b) {
  return {max(a.begin, b.begin), min(a.end, b.end)};
}

/// Returns the part of [begin, end) that lies in [0, length). The bounds are 64-bit so that sums of
/// lengths and window sizes need no care.
ATTILE_HOST_DEVICE constexpr Interval clip(std::int64_t begin, std::int64_t end, int length) {
  const std::int64_t zero = 0;
  const std::int64_t limit = length;
  return {static_cast<int>(min(max(begin, zero), limit)),
          static_cast<int>(min(max(end, zero), limit))};
}

/// Holds what a mask says about a run of rows (columns) or about a run of columns (rows).
struct Span {
  Interval touched;  ///< holds every position that is visible from somewhere in the run
  Interval full;     ///< holds only positions that are visible from everywhere in the run
};

}  // namespace attile
