// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>
#include <attile/core/index.h>
#include <attile/core/tensor.h>

#include <concepts>
#include <type_traits>

namespace attile {

/// Says where the rows of one sequence begin in a tensor: the index along the tensor's batch axis,
/// and the first row there.
struct RowOrigin {
  int batch, row;
};

/// Holds the allocated size of a tensor: the size of its batch axis, and the rows of each batch.
struct RowShape {
  int batches, rows;
};

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
/// The library's own are Uniform, Padded and Packed. A sequences policy whose `kPacked` is true
/// says that its sequences lie one behind another in one batch, as those of Packed do, and never
/// share rows unless what device memory says is wrong: grids and scratch memory are then sized by
/// the rows of the tensors, and not by the bound of each sequence (TileSlots). The origins of the
/// sequence behind the last one, which has no rows, say where the last one ends.
template <class Q>
concept Sequences = std::is_trivially_copyable_v<Q> &&
    requires(const Q& sequences, int sequence, Extent bounds) {
  { Q::kUniform } -> std::convertible_to<bool>;
  { sequences.extent(sequence, bounds) } -> std::same_as<Extent>;
  { sequences.q_origin(sequence) } -> std::same_as<RowOrigin>;
  { sequences.kv_origin(sequence) } -> std::same_as<RowOrigin>;
  { sequences.q_shape(sequence, bounds.q_len) } -> std::same_as<RowShape>;
  { sequences.kv_shape(sequence, bounds.kv_len) } -> std::same_as<RowShape>;
};

/// Gives every sequence q_len rows of queries and kv_len rows of keys: a dense tensor. It costs
/// nothing.
struct Uniform {
  static constexpr bool kUniform = true;

  ATTILE_HOST_DEVICE constexpr Extent extent(int, Extent bounds) const { return bounds; }
  ATTILE_HOST_DEVICE constexpr RowOrigin q_origin(int sequence) const { return {sequence, 0}; }
  ATTILE_HOST_DEVICE constexpr RowOrigin kv_origin(int sequence) const { return {sequence, 0}; }
  constexpr RowShape q_shape(int batch, int q_len) const { return {batch, q_len}; }
  constexpr RowShape kv_shape(int batch, int kv_len) const { return {batch, kv_len}; }
};

/// Says whether a policy's sequences lie one behind another in one batch: see Sequences.
template <Sequences Q>
inline constexpr bool kIsPacked = [] {
  if constexpr (requires { Q::kPacked; }) return bool(Q::kPacked);
  return false;
}();

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
