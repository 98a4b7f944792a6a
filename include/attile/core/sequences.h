// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>
#include <attile/core/index.h>
#include <attile/core/tensor.h>

#include <concepts>
#include <cstdint>
#include <type_traits>

namespace attile {

/// Says where the rows of one sequence begin in a tensor: the index along the tensor's batch axis,
/// and the first row there.
struct RowOrigin {
  int batch, row;

  friend constexpr bool operator==(const RowOrigin&, const RowOrigin&) = default;
};

/// Holds the allocated size of a tensor: the size of its batch axis, and the rows of each batch.
struct RowShape {
  int batches, rows;

  /// Returns the rows of all batches.
  constexpr std::int64_t all_rows() const { return std::int64_t{batches} * rows; }
};

/// Says whether a policy's keys lie in pages: see Sequences.
template <class Q>
inline constexpr bool kIsPaged = [] {
  if constexpr (requires { Q::kPaged; }) return bool(Q::kPaged);
  return false;
}();

/// A sequences policy says, for each sequence of a problem, how many rows of queries and of keys it
/// has and where they begin. A problem has `batch` sequences; masks, modifiers and dropout get a
/// sequence's number as `batch`, and its rows and columns from 0 on. The policy is copied to the
/// device, and its pointers are device pointers: the host knows only bounds of the lengths.
///
///   extent(sequence, bounds)       the sequence's lengths; `bounds` are the arguments' q_len and
///                                  kv_len, which no sequence exceeds
///   q_origin(sequence)             where its rows of Q, O, dO, dQ and LSE begin
///   kv_origin(sequence)            where its rows of K, V, dK and dV begin
///   q_shape(sequences, q_len)      host: the allocated size of the tensors of queries, for that
///                                  many sequences; LSE is dense: (batches, q_heads, rows)
///   kv_shape(sequences, kv_len)    host: the same of the tensors of keys
///   static constexpr bool kUniform whether extent() is the bounds and both origins are
///                                  {sequence, 0}: kernels then do not call them, let query
///                                  heads share tiles, and let each thread work out its block's
///                                  work tiles
///
/// The library's own are Uniform, Padded and Packed, and those of caches (cache.h). A policy may
/// also have, each true or left out,
///
///   static constexpr bool kPacked  whether its sequences lie one behind another in batch 0, as
///                                  those of Packed do, or with row_number in several, and never
///                                  share rows unless what device memory says is wrong: grids and
///                                  scratch memory are then sized by the rows of the tensors, and
///                                  not by the bound of each sequence (TileSlots). The origins of
///                                  the sequence behind the last one, which has no rows, say where
///                                  the last one ends
///   row_number(origin), origin_of(number)  of packed sequences that lie in several batches, one
///                                  behind another through all of them: the number of a row where
///                                  rows are counted so, and where that row is
///   static constexpr bool kPackedQueries  whether that is so of the queries alone: forward only
///   static constexpr bool kForwardOnly    whether sequences may share keys, so that there are no
///                                         gradients: BackwardArgs refuse it
///   static constexpr bool kPaged   whether keys lie in pages, the batch axis of K and V: forward
///                                  only. kv_shape() is then the number of pages and of the rows
///                                  of each, kv_origin() anything that kv_row() understands, and
///   kv_row(kv_origin, row)         the page, and the row there, of key `row` of the sequence with
///                                  that kv_origin. It is asked about keys of the sequence alone,
///                                  from the first one that a row of the work tile may see on
///   kv_entry(kv_origin, row), in_pages(entry)  may be left out: kv_row in two steps, reading a
///                                  table and making a page of what it says. A kernel takes the
///                                  first one ahead of time, so that nothing waits for the table.
///                                  Who derives from Paged and changes kv_row changes both, too
///   kv_bound(kv_len)               host, may be left out: the most keys that a sequence can have,
///                                  given the bound of the arguments
///   may_read_early()               host, may be left out: whether extent(), kv_origin() and
///                                  kv_row() may be called while what they read is being written.
///                                  What one of them then says may be another time's than what the
///                                  others say, and still all keys lie in the tensors. A class
///                                  that inherits it says nothing by it: it may read other things
///   keys_begin_pages()             host, may be left out: whether each sequence's key 0 is row 0
///                                  of a page; only then can whole pages be copied
template <class Q>
concept Sequences = std::is_trivially_copyable_v<Q> &&
    requires(const Q& sequences, int sequence, Extent bounds, RowOrigin origin, int row) {
  { Q::kUniform } -> std::convertible_to<bool>;
  { sequences.extent(sequence, bounds) } -> std::same_as<Extent>;
  { sequences.q_origin(sequence) } -> std::same_as<RowOrigin>;
  { sequences.kv_origin(sequence) } -> std::same_as<RowOrigin>;
  { sequences.q_shape(sequence, bounds.q_len) } -> std::same_as<RowShape>;
  { sequences.kv_shape(sequence, bounds.kv_len) } -> std::same_as<RowShape>;
  requires !kIsPaged<Q> || requires {
    { sequences.kv_row(origin, row) } -> std::same_as<RowOrigin>;
  };
};

/// Gives every sequence q_len rows of queries and kv_len rows of keys: a dense tensor. It costs
/// nothing.
struct Uniform {
  static constexpr bool kUniform = true;

  ATTILE_HOST_DEVICE constexpr Extent extent(int, Extent bounds) const { return bounds; }
  constexpr bool may_read_early() const { return true; }
  ATTILE_HOST_DEVICE constexpr RowOrigin q_origin(int sequence) const { return {sequence, 0}; }
  ATTILE_HOST_DEVICE constexpr RowOrigin kv_origin(int sequence) const { return {sequence, 0}; }
  constexpr RowShape q_shape(int batch, int q_len) const { return {batch, q_len}; }
  constexpr RowShape kv_shape(int batch, int kv_len) const { return {batch, kv_len}; }
};

/// Names what a tile is cut from: the query rows of a sequence, or its keys.
enum class Axis { kRows, kKeys };

/// Says whether a policy's sequences lie one behind another in one batch: see Sequences.
template <Sequences Q>
inline constexpr bool kIsPacked = [] {
  if constexpr (requires { Q::kPacked; }) return bool(Q::kPacked);
  return false;
}();

/// Says whether their rows do, or their keys.
template <Sequences Q, Axis kAxis>
inline constexpr bool kIsPackedAlong = [] {
  if constexpr (kAxis == Axis::kRows && requires { Q::kPackedQueries; }) {
    return kIsPacked<Q> || bool(Q::kPackedQueries);
  }
  return kIsPacked<Q>;
}();

/// Says whether packed sequences lie in several batches: see Sequences.
template <Sequences Q>
inline constexpr bool kIsInBatches = requires(const Q& sequences, RowOrigin origin) {
  sequences.row_number(origin);
};

/// Return the number of a row of packed sequences, counted through all batches, and where the row
/// of a number is.
template <Sequences Q>
ATTILE_HOST_DEVICE constexpr int row_number(const Q& sequences, RowOrigin origin) {
  if constexpr (kIsInBatches<Q>) {
    return sequences.row_number(origin);
  } else {
    return origin.row;
  }
}
template <Sequences Q>
ATTILE_HOST_DEVICE constexpr RowOrigin origin_of_row(const Q& sequences, int number) {
  if constexpr (kIsInBatches<Q>) {
    return sequences.origin_of(number);
  } else {
    return {0, number};
  }
}

/// Says whether a policy is for the forward pass alone: see Sequences.
template <Sequences Q>
inline constexpr bool kIsForwardOnly = [] {
  constexpr bool kMixed = kIsPackedAlong<Q, Axis::kRows> != kIsPackedAlong<Q, Axis::kKeys>;
  if constexpr (requires { Q::kForwardOnly; }) return kMixed || kIsPaged<Q> || Q::kForwardOnly;
  return kMixed || kIsPaged<Q>;
}();

/// Says whether each sequence's first key is the first one of a page: see Sequences.
template <Sequences Q>
constexpr bool keys_begin_pages(const Q& sequences) {
  if constexpr (requires { sequences.keys_begin_pages(); }) return sequences.keys_begin_pages();
  return false;
}

/// Says whether a policy may be asked while what it reads is being written: see Sequences.
template <Sequences Q>
constexpr bool may_read_early(const Q& sequences) {
  constexpr bool kSaysSo = requires {
    { &Q::may_read_early } -> std::same_as<bool (Q::*)() const>;
  };
  if constexpr (kSaysSo) return sequences.may_read_early();
  return false;
}

/// Returns why a sequences policy does not suit the shape of the scores: the sentence of its
/// optional `const char* fault(const ScoreShape&) const`, null when it does.
template <Sequences Q>
constexpr const char* shape_fault(const Q& sequences, const ScoreShape& shape) {
  if constexpr (requires { sequences.fault(shape); }) {
    return sequences.fault(shape);
  } else {
    return nullptr;
  }
}

/// Returns the part of a tensor from a sequence's first row on, as (any batch, head, row).
template <class T>
ATTILE_HOST_DEVICE Tensor<T> rows_from(const Tensor<T>& tensor, RowOrigin origin) {
  return {tensor.row(origin.batch, 0, origin.row), 0, tensor.head_stride, tensor.row_stride};
}
template <class T>
ATTILE_HOST_DEVICE RowTensor<T> rows_from(const RowTensor<T>& numbers, RowOrigin origin) {
  return {numbers.row(origin.batch, 0, origin.row), 0, numbers.rows};
}

}  // namespace attile
