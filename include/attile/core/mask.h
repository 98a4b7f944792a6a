// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>
#include <attile/core/index.h>
#include <attile/core/policy.h>

#include <concepts>
#include <cstdint>
#include <type_traits>

namespace attile {

/// A mask says which scores a row sees: `visible(index, extent)`. It is copied to the device, so
/// pointers in it are device pointers (host pointers for the CPU executor).
template <class M>
concept Mask = std::is_trivially_copyable_v<M> &&  // members const and ATTILE_HOST_DEVICE
    requires(const M& mask, ScoreIndex index, Extent extent) {
  { mask.visible(index, extent) } -> std::same_as<bool>;
};

/// A mask that also knows where its visible scores lie, so that whole tiles are skipped and whole
/// tiles need no test. `columns` answers for a run of rows, `rows` for a run of columns; runs are
/// not empty and lie inside the extent. Held against `visible` by `check_mask`.
template <class M>
concept SpanMask = Mask<M> &&
    requires(const M& mask, int batch, int head, Interval run, Extent extent) {
  { mask.columns(batch, head, run, extent) } -> std::same_as<Span>;
  { mask.rows(batch, head, run, extent) } -> std::same_as<Span>;
};

/// Whether a mask is asked where its visible scores lie. One with `columns` or `rows` that is no
/// SpanMask would silently not be: it does not compile.
template <Mask M>
ATTILE_HOST_DEVICE constexpr bool answers_spans() {
  static_assert(SpanMask<M> || !(requires { &M::columns; } || requires { &M::rows; }),
                "attile: a mask has both columns and rows, as SpanMask wants them, or neither");
  return SpanMask<M>;
}

/// A SpanMask of which each row sees one interval of columns, and each column is seen by one
/// interval of rows, which `columns` and `rows` name for a run of one: it is applied with two
/// comparisons for each score. Says so by `kIntervals`; held against `visible` by `check_mask`.
template <class M>
concept IntervalMask = SpanMask<M> && M::kIntervals;

/// The columns that a run of rows sees; everything is touched where the mask does not say.
template <Mask M>
ATTILE_HOST_DEVICE Span visible_columns(const M& mask, int batch, int head, Interval rows,
                                        Extent extent) {
  if constexpr (answers_spans<M>()) {
    return mask.columns(batch, head, rows, extent);
  } else {
    return {{0, extent.kv_len}, {0, 0}};
  }
}

/// The rows that see a run of columns; everything is touched where the mask does not say.
template <Mask M>
ATTILE_HOST_DEVICE Span visible_rows(const M& mask, int batch, int head, Interval columns,
                                     Extent extent) {
  if constexpr (answers_spans<M>()) {
    return mask.rows(batch, head, columns, extent);
  } else {
    return {{0, extent.q_len}, {0, 0}};
  }
}

/// The scores with -left <= column - (row + shift) <= right: what causal masks and windows are.
/// A negative size is unlimited.
struct Band {
  std::int64_t left;
  std::int64_t right;
  std::int64_t shift;

  static constexpr std::int64_t kUnlimited = std::int64_t{1} << 40;

  ATTILE_HOST_DEVICE constexpr Band(std::int64_t left_size, std::int64_t right_size,
                                    std::int64_t diagonal_shift)
      : left(left_size < 0 ? kUnlimited : left_size),
        right(right_size < 0 ? kUnlimited : right_size),
        shift(diagonal_shift) {}

  ATTILE_HOST_DEVICE constexpr Span columns(Interval rows, int kv_len) const {
    const std::int64_t first = rows.begin + shift;
    const std::int64_t last = rows.end - 1 + shift;
    return {clip(first - left, last + right + 1, kv_len),
            clip(last - left, first + right + 1, kv_len)};
  }

  ATTILE_HOST_DEVICE constexpr Span rows(Interval columns, int q_len) const {
    const std::int64_t first = columns.begin - shift;
    const std::int64_t last = columns.end - 1 - shift;
    return {clip(first - right, last + left + 1, q_len),
            clip(last - right, first + left + 1, q_len)};
  }
};

/// Every row sees every column.
struct NoMask {
  static constexpr bool kIntervals = true;

  ATTILE_HOST_DEVICE bool visible(ScoreIndex, Extent) const { return true; }
  ATTILE_HOST_DEVICE Span columns(int, int, Interval, Extent e) const {
    return {{0, e.kv_len}, {0, e.kv_len}};
  }
  ATTILE_HOST_DEVICE Span rows(int, int, Interval, Extent e) const {
    return {{0, e.q_len}, {0, e.q_len}};
  }
};

/// Whether every row sees what its neighbours do, so that all tiles of rows take the same time.
template <class M>
inline constexpr bool kRowsAlike = std::is_same_v<M, NoMask>;

/// Bottom-right aligned: row i sees column j iff j <= i + kv_len - q_len.
struct Causal {
  static constexpr bool kIntervals = true;

  ATTILE_HOST_DEVICE bool visible(ScoreIndex i, Extent e) const {
    return i.col <= i.row + e.shift();
  }
  ATTILE_HOST_DEVICE Span columns(int, int, Interval rows, Extent e) const {
    return Band(-1, 0, e.shift()).columns(rows, e.kv_len);
  }
  ATTILE_HOST_DEVICE Span rows(int, int, Interval columns, Extent e) const {
    return Band(-1, 0, e.shift()).rows(columns, e.q_len);
  }
};

/// Top-left aligned: row i sees column j iff j <= i.
struct CausalTopLeft {
  static constexpr bool kIntervals = true;

  ATTILE_HOST_DEVICE bool visible(ScoreIndex i, Extent) const { return i.col <= i.row; }
  ATTILE_HOST_DEVICE Span columns(int, int, Interval rows, Extent e) const {
    return Band(-1, 0, 0).columns(rows, e.kv_len);
  }
  ATTILE_HOST_DEVICE Span rows(int, int, Interval columns, Extent e) const {
    return Band(-1, 0, 0).rows(columns, e.q_len);
  }
};

/// Row i sees columns [c - left, c + right], both ends included, around the bottom-right aligned
/// diagonal c = i + kv_len - q_len. A negative size is unlimited on that side, and so is one that
/// reaches past the columns: every int is a size.
struct SlidingWindow {
  static constexpr bool kIntervals = true;

  int left = -1;
  int right = -1;

  ATTILE_HOST_DEVICE bool visible(ScoreIndex i, Extent e) const {
    const int distance = i.col - (i.row + e.shift());
    return (left < 0 || -distance <= left) && (right < 0 || distance <= right);
  }
  ATTILE_HOST_DEVICE Span columns(int, int, Interval rows, Extent e) const {
    return Band(left, right, e.shift()).columns(rows, e.kv_len);
  }
  ATTILE_HOST_DEVICE Span rows(int, int, Interval columns, Extent e) const {
    return Band(left, right, e.shift()).rows(columns, e.q_len);
  }
};

/// Prefix language model, the union of a prefix and a causal mask: row i sees column j iff
/// j < length or j <= i + kv_len - q_len. `lengths`, when given, holds one length for each batch
/// and wins; `check` cannot read it, so a negative one counts as 0 and one above kv_len as kv_len.
struct Prefix {
  static constexpr bool kIntervals = true;

  int length = 0;
  const int* lengths = nullptr;

  const char* fault() const {
    return lengths == nullptr && length < 0 ? "Prefix: length must not be negative" : nullptr;
  }

  ATTILE_HOST_DEVICE int length_of(int batch) const {
    return lengths != nullptr ? lengths[batch] : length;
  }
  ATTILE_HOST_DEVICE bool visible(ScoreIndex i, Extent e) const {
    return i.col < length_of(i.batch) || i.col <= i.row + e.shift();
  }
  ATTILE_HOST_DEVICE Span columns(int batch, int, Interval rows, Extent e) const {
    const Span causal = Band(-1, 0, e.shift()).columns(rows, e.kv_len);
    const int prefix = clip(0, length_of(batch), e.kv_len).end;
    return {{0, max(prefix, causal.touched.end)}, {0, max(prefix, causal.full.end)}};
  }
  ATTILE_HOST_DEVICE Span rows(int batch, int, Interval columns, Extent e) const {
    const Span causal = Band(-1, 0, e.shift()).rows(columns, e.q_len);
    const int prefix = length_of(batch);
    return {columns.begin < prefix ? Interval{0, e.q_len} : causal.touched,
            columns.end <= prefix ? Interval{0, e.q_len} : causal.full};
  }
};

/// Whether a mask finds its data by the lengths that all sequences have in common, so that it takes
/// no sequences with lengths of their own. Says so by `kUniformOnly`.
template <class M>
inline constexpr bool kUniformOnly = [] {
  if constexpr (requires { M::kUniformOnly; }) return bool(M::kUniformOnly);
  return false;
}();

/// A row sees the columns of its own document.
/// Shapes   q_ids (batch, q_len), kv_ids (batch, kv_len): the same array for self-attention.
struct Document {
  static constexpr bool kUniformOnly = true;

  const int* q_ids = nullptr;
  const int* kv_ids = nullptr;

  const char* fault() const {
    return q_ids == nullptr || kv_ids == nullptr ? "Document: q_ids and kv_ids must not be null"
                                                 : nullptr;
  }

  ATTILE_HOST_DEVICE bool visible(ScoreIndex i, Extent e) const {
    return q_ids[static_cast<std::int64_t>(i.batch) * e.q_len + i.row] ==
           kv_ids[static_cast<std::int64_t>(i.batch) * e.kv_len + i.col];
  }
};

/// What both masks see. Each may be asked about scores that the other one hides; the second one is
/// the better place for one that reads memory.
template <Mask A, Mask B>
struct And {
  static constexpr bool kIntervals = IntervalMask<A> && IntervalMask<B>;
  static constexpr bool kUniformOnly = attile::kUniformOnly<A> || attile::kUniformOnly<B>;

  A first{};
  B second{};

  const char* fault() const {
    const char* why = policy_fault(first);
    return why != nullptr ? why : policy_fault(second);
  }

  ATTILE_HOST_DEVICE bool visible(ScoreIndex i, Extent e) const {
    if constexpr (kIntervals) return first.visible(i, e) && second.visible(i, e);
    const bool in_first = first.visible(i, e);    // both: a branch would have the scores' reads
    const bool in_second = second.visible(i, e);  // wait for each other
    return in_first && in_second;
  }
  ATTILE_HOST_DEVICE Span columns(int batch, int head, Interval rows, Extent e) const {
    const Span x = visible_columns(first, batch, head, rows, e);
    const Span y = visible_columns(second, batch, head, rows, e);
    return {intersect(x.touched, y.touched), intersect(x.full, y.full)};
  }
  ATTILE_HOST_DEVICE Span rows(int batch, int head, Interval columns, Extent e) const {
    const Span x = visible_rows(first, batch, head, columns, e);
    const Span y = visible_rows(second, batch, head, columns, e);
    return {intersect(x.touched, y.touched), intersect(x.full, y.full)};
  }
};

}  // namespace attile
