// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>
#include <attile/core/index.h>
#include <attile/core/math.h>
#include <attile/core/sequences.h>
#include <attile/core/tensor.h>

// The sequences policies of problems whose sequences have lengths of their own.

namespace attile {

namespace detail {

/// Returns a number that device memory gives, or the nearest one of 0 to `most`: a policy clips all
/// that it reads, so that no kernel leaves the tensors or its scratch memory, whatever is there.
ATTILE_HOST_DEVICE constexpr int clipped(int x, int most) { return min(max(x, 0), most); }

/// Returns how many of the `bound` rows that a sequence has room for it uses; null: all.
ATTILE_HOST_DEVICE int used_length(const int* seqused, int sequence, int bound) {
  return seqused == nullptr ? bound : clipped(seqused[sequence], bound);
}

/// Return the length of a packed sequence of `total` rows in all, and where it begins.
ATTILE_HOST_DEVICE int packed_length(const int* cu_seqlens, const int* seqused, int sequence,
                                     int total, int bound) {
  const int first = clipped(cu_seqlens[sequence], total);
  const int end = clipped(cu_seqlens[sequence + 1], total);
  return used_length(seqused, sequence, min(max(end - first, 0), bound));
}
ATTILE_HOST_DEVICE RowOrigin packed_origin(const int* cu_seqlens, int sequence, int total) {
  return {0, clipped(cu_seqlens[sequence], total)};
}

}  // namespace detail

/// Gives each sequence the first rows of its batch of a dense tensor: `seqused_q[b]` rows of
/// queries and `seqused_k[b]` keys of batch b. Rows behind these are never written, and change no
/// result. LSE is (batch, q_heads, q_len). Lengths outside [0, q_len] and [0, kv_len] are clipped.
/// Shapes   seqused_q, seqused_k (batch), device memory; null: all sequences have q_len, or kv_len.
struct Padded {
  static constexpr bool kUniform = false;

  const int* seqused_q = nullptr;
  const int* seqused_k = nullptr;

  const char* fault() const {
    if (detail::misaligned(seqused_q)) return "Padded: seqused_q is not aligned to 4 bytes";
    if (detail::misaligned(seqused_k)) return "Padded: seqused_k is not aligned to 4 bytes";
    return nullptr;
  }

  ATTILE_HOST_DEVICE Extent extent(int sequence, Extent bounds) const {
    return {detail::used_length(seqused_q, sequence, bounds.q_len),
            detail::used_length(seqused_k, sequence, bounds.kv_len)};
  }
  constexpr bool may_read_early() const { return true; }
  ATTILE_HOST_DEVICE constexpr RowOrigin q_origin(int sequence) const { return {sequence, 0}; }
  ATTILE_HOST_DEVICE constexpr RowOrigin kv_origin(int sequence) const { return {sequence, 0}; }
  constexpr RowShape q_shape(int batch, int q_len) const { return {batch, q_len}; }
  constexpr RowShape kv_shape(int batch, int kv_len) const { return {batch, kv_len}; }
};

/// Gives the sequences rows of one packed tensor, (total, head, dim), whose batch stride is not
/// read. Sequence b has the rows from cu_seqlens[b] to cu_seqlens[b + 1], or the first seqused[b]
/// of them: the others are a gap, which is never written and changes no result. LSE is (q_heads,
/// total_q). The arguments' q_len and kv_len are bounds of the lengths; larger ones change no bit.
/// What device memory says is clipped: offsets to [0, total], a length to its sequence's rows and
/// to the bound. Offsets must never decrease: where they do, what the rows get is not defined, and
/// some may get nothing, but nothing else is touched, and every kernel ends.
/// Shapes   cu_seqlens_q, cu_seqlens_k (batch + 1), seqused_q, seqused_k (batch) or null, all in
///          device memory; total_q, total_k: the rows that are allocated.
struct Packed {
  static constexpr bool kUniform = false;
  static constexpr bool kPacked = true;

  const int* cu_seqlens_q = nullptr;
  const int* cu_seqlens_k = nullptr;
  int total_q = kUnset;  ///< 0: every sequence is without queries
  int total_k = kUnset;  ///< 0: every sequence is without keys
  const int* seqused_q = nullptr;
  const int* seqused_k = nullptr;

  const char* fault() const {
    using detail::misaligned;
    if (cu_seqlens_q == nullptr) return "Packed: cu_seqlens_q is null";
    if (cu_seqlens_k == nullptr) return "Packed: cu_seqlens_k is null";
    if (total_q == kUnset) return "Packed: total_q is not given";
    if (total_k == kUnset) return "Packed: total_k is not given";
    if (total_q < 0) return "Packed: total_q is negative";
    if (total_k < 0) return "Packed: total_k is negative";
    if (misaligned(cu_seqlens_q)) return "Packed: cu_seqlens_q is not aligned to 4 bytes";
    if (misaligned(cu_seqlens_k)) return "Packed: cu_seqlens_k is not aligned to 4 bytes";
    if (misaligned(seqused_q)) return "Packed: seqused_q is not aligned to 4 bytes";
    if (misaligned(seqused_k)) return "Packed: seqused_k is not aligned to 4 bytes";
    return nullptr;
  }

  ATTILE_HOST_DEVICE Extent extent(int sequence, Extent bounds) const {
    using detail::packed_length;
    return {packed_length(cu_seqlens_q, seqused_q, sequence, total_q, bounds.q_len),
            packed_length(cu_seqlens_k, seqused_k, sequence, total_k, bounds.kv_len)};
  }
  ATTILE_HOST_DEVICE RowOrigin q_origin(int sequence) const {
    return detail::packed_origin(cu_seqlens_q, sequence, total_q);
  }
  ATTILE_HOST_DEVICE RowOrigin kv_origin(int sequence) const {
    return detail::packed_origin(cu_seqlens_k, sequence, total_k);
  }
  constexpr RowShape q_shape(int, int) const { return {1, total_q}; }
  constexpr RowShape kv_shape(int, int) const { return {1, total_k}; }
};

}  // namespace attile
