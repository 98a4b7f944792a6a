// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>
#include <attile/core/index.h>
#include <attile/core/policy.h>
#include <attile/core/tensor.h>
#include <attile/core/tile_mask.h>

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

/// A SpanMask also knows where its visible scores lie, so that whole tiles are skipped and whole
/// tiles need no test. `columns` returns the span of a run of rows, `rows` that of a run of
/// columns; runs are not empty and lie inside the extent. `check_mask` tests both against
/// `visible`.
template <class M>
concept SpanMask = Mask<M> &&
    requires(const M& mask, int batch, int head, Interval run, Extent extent) {
  { mask.columns(batch, head, run, extent) } -> std::same_as<Span>;
  { mask.rows(batch, head, run, extent) } -> std::same_as<Span>;
};

/// Returns whether a mask says where its visible scores lie. A mask that has `columns` or `rows`
/// but is no SpanMask does not compile, as these would silently never be called.
template <Mask M>
ATTILE_HOST_DEVICE constexpr bool answers_spans() {
  static_assert(SpanMask<M> || !(
                                   requires { &M::columns; } || requires { &M::rows; }),
                "attile: a mask has both columns and rows, as SpanMask wants them, or neither");
  return SpanMask<M>;
}

/// An IntervalMask is a SpanMask in which each row sees one interval of columns and each column is
/// seen by one interval of rows, which `columns` and `rows` return for a run of one. It is applied
/// with two comparisons for each score. It declares `kIntervals`; `check_mask` tests it against
/// `visible`.
template <class M>
concept IntervalMask = SpanMask<M> && M::kIntervals;

/// Says whether a mask says that its columns and rows do not depend on `batch`, by a member of this
/// name, true: kernels of `decode` then need not ask it about every sequence of the same lengths.
template <class M>
inline constexpr bool kIgnoresBatch = [] {
  if constexpr (requires { M::kIgnoresBatch; }) return bool(M::kIgnoresBatch);
  return false;
}();
/// Says the same of `head`: kernels of `decode` then need not ask it about every head.
template <class M>
inline constexpr bool kIgnoresHead = [] {
  if constexpr (requires { M::kIgnoresHead; }) return bool(M::kIgnoresHead);
  return false;
}();

/// Returns the columns that a run of rows sees. Where the mask does not say, each may be visible.
template <Mask M>
ATTILE_HOST_DEVICE Span visible_columns(const M& mask, int batch, int head, Interval rows,
                                        Extent extent) {
  if constexpr (answers_spans<M>()) {
    return mask.columns(batch, head, rows, extent);
  } else {
    return {{0, extent.kv_len}, {0, 0}};
  }
}

/// Returns the rows that see a run of columns. Where the mask does not say, each may see them.
template <Mask M>
ATTILE_HOST_DEVICE Span visible_rows(const M& mask, int batch, int head, Interval columns,
                                     Extent extent) {
  if constexpr (answers_spans<M>()) {
    return mask.rows(batch, head, columns, extent);
  } else {
    return {{0, extent.q_len}, {0, 0}};
  }
}

/// Holds the scores with -left <= column - (row + shift) <= right, the form of causal masks and
/// windows. A negative size is unlimited.
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

/// Lets every row see every column.
struct NoMask {
  static constexpr bool kIntervals = true;
  static constexpr bool kIgnoresBatch = true;
  static constexpr bool kIgnoresHead = true;

  ATTILE_HOST_DEVICE bool visible(ScoreIndex, Extent) const { return true; }
  ATTILE_HOST_DEVICE Span columns(int, int, Interval, Extent e) const {
    return {{0, e.kv_len}, {0, e.kv_len}};
  }
  ATTILE_HOST_DEVICE Span rows(int, int, Interval, Extent e) const {
    return {{0, e.q_len}, {0, e.q_len}};
  }
};

/// Says whether all rows see the same columns, so that all tiles of rows take the same time.
template <class M>
inline constexpr bool kRowsAlike = std::is_same_v<M, NoMask>;

/// Says whether the numbers of keys that tiles of rows see follow no order that a schedule could
/// know: those of documents, or of sequences whose keys are padded. A mask declares it by a member
/// of this name, true. Kernels then give the next tile to the block that is free first, where they
/// have scratch memory for that.
template <class M>
inline constexpr bool kUnevenRows = [] {
  if constexpr (requires { M::kUnevenRows; }) return bool(M::kUnevenRows);
  return false;
}();

/// Lets row i see column j iff j <= i + kv_len - q_len: bottom-right aligned.
struct Causal {
  static constexpr bool kIntervals = true;
  static constexpr bool kIgnoresBatch = true;
  static constexpr bool kIgnoresHead = true;

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

/// Lets row i see column j iff j <= i: top-left aligned.
struct CausalTopLeft {
  static constexpr bool kIntervals = true;
  static constexpr bool kIgnoresBatch = true;
  static constexpr bool kIgnoresHead = true;

  ATTILE_HOST_DEVICE bool visible(ScoreIndex i, Extent) const { return i.col <= i.row; }
  ATTILE_HOST_DEVICE Span columns(int, int, Interval rows, Extent e) const {
    return Band(-1, 0, 0).columns(rows, e.kv_len);
  }
  ATTILE_HOST_DEVICE Span rows(int, int, Interval columns, Extent e) const {
    return Band(-1, 0, 0).rows(columns, e.q_len);
  }
};

/// Lets row i see columns [c - left, c + right], both ends included, around the bottom-right
/// aligned diagonal c = i + kv_len - q_len. A negative size is unlimited on that side, and so is
/// one that reaches past the columns: every int is a size.
struct SlidingWindow {
  static constexpr bool kIntervals = true;
  static constexpr bool kIgnoresBatch = true;
  static constexpr bool kIgnoresHead = true;

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

/// Says whether a mask is one of the library's that read no device memory.
template <class M>
inline constexpr bool kReadsNothing =
    std::is_same_v<M, NoMask> || std::is_same_v<M, Causal> || std::is_same_v<M, CausalTopLeft> ||
    std::is_same_v<M, SlidingWindow>;

/// Lets row i see column j iff j < length or j <= i + kv_len - q_len: a prefix language model, the
/// union of a prefix and a causal mask. `lengths`, when given, holds one length for each batch and
/// replaces `length`; `check` cannot read it, so a negative one counts as 0 and one above kv_len as
/// kv_len.
struct Prefix {
  static constexpr bool kIntervals = true;

  int length = 0;
  const int* lengths = nullptr;

  const char* fault() const {
    if (lengths == nullptr && length < 0) return "Prefix: length must not be negative";
    return detail::misaligned(lengths) ? "Prefix: lengths is not aligned to 4 bytes" : nullptr;
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

/// Lets every row of a batch see column j iff j < lengths[batch]: keys that are padding are hidden.
/// `check` cannot read the lengths, so a negative one counts as 0 and one above kv_len as kv_len.
struct KeyPadding {
  static constexpr bool kIntervals = true;
  static constexpr bool kUnevenRows = true;

  const int* lengths = nullptr;  ///< (batch)

  const char* fault() const {
    if (lengths == nullptr) return "KeyPadding: lengths must not be null";
    return detail::misaligned(lengths) ? "KeyPadding: lengths is not aligned to 4 bytes" : nullptr;
  }

  ATTILE_HOST_DEVICE bool visible(ScoreIndex i, Extent) const { return i.col < lengths[i.batch]; }
  ATTILE_HOST_DEVICE Span columns(int batch, int, Interval, Extent e) const {
    const Interval seen = clip(0, lengths[batch], e.kv_len);
    return {seen, seen};
  }
  ATTILE_HOST_DEVICE Span rows(int batch, int, Interval columns, Extent e) const {
    const int length = lengths[batch];
    return {{0, columns.begin < length ? e.q_len : 0}, {0, columns.end <= length ? e.q_len : 0}};
  }

  struct Tile {
    using Mask = KeyPadding;
    int first_col, length;

    ATTILE_HOST_DEVICE int row(int) const { return 0; }
    ATTILE_HOST_DEVICE int col(int dc) const { return first_col + dc; }
    ATTILE_HOST_DEVICE bool visible(int, int col) const { return col < length; }
  };
  ATTILE_HOST_DEVICE Tile of_tile(ScoreIndex first, Extent) const {
    return {first.col, lengths[first.batch]};
  }
};

/// Returns why a mask does not suit the shape of the scores: the sentence of its optional `const
/// char* fault(const ScoreShape&, bool is_backward) const`, null when it does.
template <Mask M>
constexpr const char* shape_fault(const M& mask, const ScoreShape& shape, bool is_backward) {
  if constexpr (requires { mask.fault(shape, is_backward); }) {
    return mask.fault(shape, is_backward);
  } else {
    return nullptr;
  }
}

/// Says whether a mask indexes its data by the lengths that all sequences have in common, so that
/// it takes Uniform sequences alone. Such a mask declares `kUniformOnly`.
template <class M>
inline constexpr bool kUniformOnly = [] {
  if constexpr (requires { M::kUniformOnly; }) return bool(M::kUniformOnly);
  return false;
}();

/// Lets a row see the columns of its own document. Ids come in any order, and all tiles are
/// visited: where they are sorted, SortedDocument (prepared_mask.h) skips tiles.
/// Shapes   q_ids (batch, q_len), kv_ids (batch, kv_len): the same array for self-attention.
struct Document {
  static constexpr bool kUniformOnly = true;

  const int* q_ids = nullptr;
  const int* kv_ids = nullptr;

  const char* fault() const {
    if (q_ids == nullptr || kv_ids == nullptr) return "Document: q_ids and kv_ids must not be null";
    const bool wrong = detail::misaligned(q_ids) || detail::misaligned(kv_ids);
    return wrong ? "Document: q_ids or kv_ids is not aligned to 4 bytes" : nullptr;
  }

  ATTILE_HOST_DEVICE bool visible(ScoreIndex i, Extent e) const {
    return q_ids[static_cast<std::int64_t>(i.batch) * e.q_len + i.row] ==
           kv_ids[static_cast<std::int64_t>(i.batch) * e.kv_len + i.col];
  }

  struct Tile {
    using Mask = Document;
    const int *of_rows, *of_columns;  ///< the ids from the first score's row and column on

    ATTILE_HOST_DEVICE int row(int dr) const { return of_rows[dr]; }
    ATTILE_HOST_DEVICE int col(int dc) const { return of_columns[dc]; }
    ATTILE_HOST_DEVICE bool visible(int row, int col) const { return row == col; }
  };
  ATTILE_HOST_DEVICE Tile of_tile(ScoreIndex first, Extent e) const {
    return {q_ids + static_cast<std::int64_t>(first.batch) * e.q_len + first.row,
            kv_ids + static_cast<std::int64_t>(first.batch) * e.kv_len + first.col};
  }
};

/// Lets a row see what both masks let it see. Each may be asked about scores that the other one
/// hides; a mask that reads memory is better as the second one.
template <class A, class B>
struct And {
  static_assert(Mask<A> && Mask<B>,
                "attile: And<A, B> joins two masks, and one of these is no Mask: it wants "
                "ATTILE_HOST_DEVICE bool visible(ScoreIndex, Extent) const");
  static constexpr bool kIntervals = IntervalMask<A> && IntervalMask<B>;
  static constexpr bool kIgnoresBatch = attile::kIgnoresBatch<A> && attile::kIgnoresBatch<B>;
  static constexpr bool kIgnoresHead = attile::kIgnoresHead<A> && attile::kIgnoresHead<B>;
  static constexpr bool kUniformOnly = attile::kUniformOnly<A> || attile::kUniformOnly<B>;
  static constexpr bool kUnevenRows = attile::kUnevenRows<A> || attile::kUnevenRows<B>;

  A first{};
  B second{};

  const char* fault() const {
    const char* why = policy_fault(first);
    return why != nullptr ? why : policy_fault(second);
  }
  const char* fault(const ScoreShape& shape, bool is_backward) const {
    const char* why = shape_fault(first, shape, is_backward);
    return why != nullptr ? why : shape_fault(second, shape, is_backward);
  }

  ATTILE_HOST_DEVICE bool visible(ScoreIndex i, Extent e) const {
    if constexpr (kIntervals) return first.visible(i, e) && second.visible(i, e);
    const bool in_first = first.visible(i, e);    // both: with a branch, the reads of
    const bool in_second = second.visible(i, e);  // different scores would wait for each other
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

  template <class X, class Y>
  struct Tile {
    using Mask = And;
    X first;
    Y second;

    ATTILE_HOST_DEVICE auto row(int dr) const {
      return detail::both(first.row(dr), second.row(dr));
    }
    ATTILE_HOST_DEVICE auto col(int dc) const {
      return detail::both(first.col(dc), second.col(dc));
    }
    template <class Row, class Col>
    ATTILE_HOST_DEVICE bool visible(const Row& row, const Col& col) const {
      const bool in_first = first.visible(row.first, col.first);
      const bool in_second = second.visible(row.second, col.second);
      return in_first && in_second;
    }
  };
  ATTILE_HOST_DEVICE auto of_tile(ScoreIndex at, Extent e) const
      requires(kHasTileMask<A> || kHasTileMask<B>) {
    const auto x = mask_of_tile(first, at, e);
    const auto y = mask_of_tile(second, at, e);
    return Tile<std::remove_const_t<decltype(x)>, std::remove_const_t<decltype(y)>>{x, y};
  }
};

}  // namespace attile
