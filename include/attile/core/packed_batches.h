// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>
#include <attile/core/fast_divmod.h>
#include <attile/core/index.h>
#include <attile/core/math.h>
#include <attile/core/packed.h>
#include <attile/core/sequences.h>
#include <attile/core/tensor.h>

#include <cstdint>

namespace attile {

/// Gives the sequences rows of dense tensors, (batches, head, rows, dim) with any strides, whose
/// rows are counted through all batches: sequence b has the rows from cu_seqlens[b] to
/// cu_seqlens[b + 1], which lie in one batch, and as many keys. A sequence that would leave its
/// batch ends with it. `prepare` writes such offsets of the documents of each batch (PackedIds).
/// LSE is (batches, q_heads, rows). The rest is as with Packed.
/// Shapes   cu_seqlens (batch + 1), device memory, where `batch` of the arguments is the number of
///          sequences.
struct PackedBatches {
  static constexpr bool kUniform = false;
  static constexpr bool kPacked = true;

  const int* cu_seqlens = nullptr;
  int batches = kUnset;      ///< of the tensors; 0: every sequence is empty
  FastDivmod rows = kUnset;  ///< of each batch, written as an int; 0: every sequence is empty

  const char* fault() const {
    if (cu_seqlens == nullptr) return "PackedBatches: cu_seqlens is null";
    if (batches == kUnset) return "PackedBatches: batches is not given";
    if (rows == kUnset) return "PackedBatches: rows is not given";
    if (batches < 0) return "PackedBatches: batches is negative";
    if (rows < 0) return "PackedBatches: rows is negative";
    if (std::int64_t{batches} * rows > kMaxLength) {
      return "PackedBatches: batches * rows must be at most 2^30";
    }
    return detail::misaligned(cu_seqlens) ? "PackedBatches: cu_seqlens is not aligned to 4 bytes"
                                          : nullptr;
  }

  ATTILE_HOST_DEVICE Extent extent(int sequence, Extent bounds) const {
    const int first = begin(sequence), left = rows - rows.divmod(first).remainder;
    const int length = detail::clipped(begin(sequence + 1) - first, left);
    return {min(length, bounds.q_len), min(length, bounds.kv_len)};
  }
  ATTILE_HOST_DEVICE RowOrigin q_origin(int sequence) const { return origin_of(begin(sequence)); }
  ATTILE_HOST_DEVICE RowOrigin kv_origin(int sequence) const { return origin_of(begin(sequence)); }
  ATTILE_HOST_DEVICE int row_number(RowOrigin origin) const {
    return origin.batch * rows + origin.row;
  }
  /// Returns where a row lies: of the number behind all rows, with which empty sequences may begin,
  /// row 0 of a batch behind the last one.
  ATTILE_HOST_DEVICE RowOrigin origin_of(int number) const {
    const auto [batch, row] = rows.divmod(number);
    return {batch, row};
  }
  constexpr RowShape q_shape(int, int) const { return {batches, rows}; }
  constexpr RowShape kv_shape(int, int) const { return {batches, rows}; }

 private:
  ATTILE_HOST_DEVICE int begin(int sequence) const {
    return detail::clipped(cu_seqlens[sequence], batches * rows);
  }
};

}  // namespace attile
