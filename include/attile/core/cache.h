// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>
#include <attile/core/fast_divmod.h>
#include <attile/core/index.h>
#include <attile/core/math.h>
#include <attile/core/packed.h>
#include <attile/core/sequences.h>
#include <attile/core/tensor.h>

#include <climits>
#include <concepts>
#include <cstdint>

// The sequences policies of problems whose keys and values lie in a cache, which grows by the keys
// of the newest queries while earlier queries have been answered. One part of a policy says where
// the queries are, which are those of this call alone, and the other part where the keys are. All
// are for the forward pass: sequences may share keys, so that nothing could hold their gradients.

namespace attile {

/// Gives each sequence the first rows of its batch of a dense tensor of queries, as Padded does.
/// Shapes   seqused_q (batch), device memory; null: all sequences have q_len.
struct PaddedQueries {
  static constexpr bool kPacked = false;

  const int* seqused_q = nullptr;

  const char* fault() const {
    if (!detail::misaligned(seqused_q)) return nullptr;
    return "PaddedQueries: seqused_q is not aligned to 4 bytes";
  }
  ATTILE_HOST_DEVICE int length(int sequence, int bound) const {
    return detail::used_length(seqused_q, sequence, bound);
  }
  ATTILE_HOST_DEVICE constexpr RowOrigin origin(int sequence) const { return {sequence, 0}; }
  constexpr RowShape shape(int batch, int q_len) const { return {batch, q_len}; }
};

/// Gives the sequences rows of one packed tensor of queries, as Packed does.
/// Shapes   cu_seqlens_q (batch + 1), seqused_q (batch) or null, in device memory; total_q: the
///          rows that are allocated.
struct PackedQueries {
  static constexpr bool kPacked = true;

  const int* cu_seqlens_q = nullptr;
  int total_q = kUnset;  ///< 0: every sequence is without queries
  const int* seqused_q = nullptr;

  const char* fault() const {
    using detail::misaligned;
    if (cu_seqlens_q == nullptr) return "PackedQueries: cu_seqlens_q is null";
    if (total_q == kUnset) return "PackedQueries: total_q is not given";
    if (total_q < 0) return "PackedQueries: total_q is negative";
    if (misaligned(cu_seqlens_q)) {
      return "PackedQueries: cu_seqlens_q is not aligned to 4 bytes";
    }
    if (misaligned(seqused_q)) return "PackedQueries: seqused_q is not aligned to 4 bytes";
    return nullptr;
  }
  ATTILE_HOST_DEVICE int length(int sequence, int bound) const {
    return detail::packed_length(cu_seqlens_q, seqused_q, sequence, total_q, bound);
  }
  ATTILE_HOST_DEVICE RowOrigin origin(int sequence) const {
    return detail::packed_origin(cu_seqlens_q, sequence, total_q);
  }
  constexpr RowShape shape(int, int) const { return {1, total_q}; }
};

namespace detail {

/// Returns how many keys a sequence has, where it has those from leftpad_k[sequence] to
/// seqused_k[sequence] of its cache, which has `bound` rows.
ATTILE_HOST_DEVICE int cached_length(const int* seqused_k, const int* leftpad_k, int sequence,
                                     int bound) {
  const int end = used_length(seqused_k, sequence, bound);
  return leftpad_k == nullptr ? end : end - clipped(leftpad_k[sequence], end);
}
/// Returns where these keys begin: in which cache, or line of a page table, and at which row of it.
/// A sequence that begins behind the end of its keys has none.
ATTILE_HOST_DEVICE RowOrigin cached_origin(const int* cache_batch_idx, int caches,
                                           const int* leftpad_k, int sequence) {
  const int cache =
      cache_batch_idx == nullptr ? sequence : clipped(cache_batch_idx[sequence], caches - 1);
  return {cache, leftpad_k == nullptr ? 0 : clipped(leftpad_k[sequence], kMaxLength)};
}

/// Returns the positions of a sequence's keys as device memory has them, not clipped; null
/// arrays: all `bound` rows.
ATTILE_HOST_DEVICE Interval unclipped_positions(const int* seqused_k, const int* leftpad_k,
                                                int sequence, int bound) {
  return {leftpad_k == nullptr ? 0 : max(leftpad_k[sequence], 0),
          seqused_k == nullptr ? bound : seqused_k[sequence]};
}
/// Returns the cache, or line of a page table, of a sequence; -1 where there is no such one.
ATTILE_HOST_DEVICE int cache_to_write(const int* cache_batch_idx, int caches, int sequence) {
  const int cache = cache_batch_idx == nullptr ? sequence : cache_batch_idx[sequence];
  return caches == kUnset || (0 <= cache && cache < caches) ? cache : -1;
}

}  // namespace detail

/// Is the row of a key that the cache has no row for; of other rows `batch` is not negative.
inline constexpr RowOrigin kNoRow = {-1, -1};

/// Is satisfied by the sequences policies whose cache `append` writes into. A kernel that reads a
/// cache may be given a wrong row; one that writes must not be, so these members clip nothing.
///
///   key_positions(sequence, kv_len)        the positions of the sequence's keys in its cache,
///                                          those that are new included, as device memory has them
///   cache_row(sequence, position, kv_len)  the index along the batch axis of K and V, and the row
///                                          there, of a key at that position; kNoRow where the
///                                          cache has no row for it
template <class Q>
concept CacheSequences = Sequences<Q> &&
    requires(const Q& sequences, int sequence, std::int64_t position, int kv_len) {
  { sequences.key_positions(sequence, kv_len) } -> std::same_as<Interval>;
  { sequences.cache_row(sequence, position, kv_len) } -> std::same_as<RowOrigin>;
};

/// Gives each sequence keys of a cache that has one piece for each sequence: K and V are (caches,
/// kv_heads, kv_len, dim). Sequence b has the keys leftpad_k[b] <= i < seqused_k[b] of cache
/// cache_batch_idx[b], or b, and its columns count from the first of these. The other rows of a
/// cache change no result. Several sequences may read one cache.
/// What device memory says is clipped: seqused_k to [0, kv_len], leftpad_k to [0, seqused_k], and
/// cache_batch_idx to the caches that there are.
/// Shapes   seqused_k, cache_batch_idx, leftpad_k (batch), device memory, each may be null: all
///          keys, each sequence's own cache, the first row.
template <class Queries>
struct CachedKeys {
  static constexpr bool kUniform = false;
  static constexpr bool kForwardOnly = true;
  static constexpr bool kPackedQueries = Queries::kPacked;

  Queries queries{};
  const int* seqused_k = nullptr;  ///< the newest key included
  int caches = kUnset;             ///< the batch axis of K and V; not given: the batch
  const int* cache_batch_idx = nullptr;
  const int* leftpad_k = nullptr;

  const char* fault() const {
    using detail::misaligned;
    if (const char* why = queries.fault()) return why;
    if (caches == kUnset && cache_batch_idx != nullptr) {
      return "CachedKeys: caches is not given, which cache_batch_idx needs";
    }
    if (caches < 0 && caches != kUnset) return "CachedKeys: caches is negative";
    if (misaligned(seqused_k)) return "CachedKeys: seqused_k is not aligned to 4 bytes";
    if (misaligned(cache_batch_idx)) {
      return "CachedKeys: cache_batch_idx is not aligned to 4 bytes";
    }
    if (misaligned(leftpad_k)) return "CachedKeys: leftpad_k is not aligned to 4 bytes";
    return nullptr;
  }
  const char* fault(const ScoreShape& shape) const {
    const bool has_own = caches == kUnset || caches == 0 || caches >= shape.batch;
    return cache_batch_idx != nullptr || has_own
               ? nullptr
               : "CachedKeys: caches is less than batch, and cache_batch_idx is null";
  }

  ATTILE_HOST_DEVICE Extent extent(int sequence, Extent bounds) const {
    const int rows = caches == 0 ? 0 : bounds.kv_len;
    return {queries.length(sequence, bounds.q_len),
            detail::cached_length(seqused_k, leftpad_k, sequence, rows)};
  }
  /// With leftpad_k, a length and where it begins may be of different times.
  constexpr bool may_read_early() const { return leftpad_k == nullptr; }
  ATTILE_HOST_DEVICE RowOrigin q_origin(int sequence) const { return queries.origin(sequence); }
  ATTILE_HOST_DEVICE RowOrigin kv_origin(int sequence) const {
    return detail::cached_origin(cache_batch_idx, caches, leftpad_k, sequence);
  }
  ATTILE_HOST_DEVICE Interval key_positions(int sequence, int kv_len) const {
    return detail::unclipped_positions(seqused_k, leftpad_k, sequence, kv_len);
  }
  ATTILE_HOST_DEVICE RowOrigin cache_row(int sequence, std::int64_t position, int kv_len) const {
    const int cache = detail::cache_to_write(cache_batch_idx, caches, sequence);
    if (cache < 0 || position < 0 || position >= kv_len) return kNoRow;
    return {cache, static_cast<int>(position)};
  }
  constexpr RowShape q_shape(int batch, int q_len) const { return queries.shape(batch, q_len); }
  constexpr RowShape kv_shape(int batch, int kv_len) const {
    return {caches == kUnset ? batch : caches, caches == 0 ? 0 : kv_len};
  }
};

/// Gives each sequence keys of a cache in pages: K and V are (pages, kv_heads, page_size, dim),
/// with any strides; they may be views of one buffer. A line of the page table lists the pages of a
/// sequence, in the order of their keys: position i lies in row i % page_size of the page that
/// entry i / page_size names. Sequence b has the positions leftpad_k[b] <= i < seqused_k[b] of line
/// cache_batch_idx[b], or b, and its columns count from the first of these. The argument kv_len is
/// a bound of seqused_k; one above what a line holds is clipped.
/// Entries of pages without a key that a tile of rows may see are not used: those past the last
/// key, and those that lie before a window. They may be anything, and the pages be others' now.
/// What device memory says is clipped: seqused_k to what a line holds and to kv_len, leftpad_k to
/// [0, seqused_k], cache_batch_idx to the lines that there are, and pages to [0, pages).
/// Shapes   page_table (tables, pages_per_sequence), seqused_k, cache_batch_idx, leftpad_k (batch),
///          all in device memory; the last two may be null: each sequence's own line, position 0.
template <class Queries>
struct PagedKeys {
  static constexpr bool kUniform = false;
  static constexpr bool kForwardOnly = true;
  static constexpr bool kPaged = true;
  static constexpr bool kPackedQueries = Queries::kPacked;

  Queries queries{};
  const int* page_table = nullptr;
  std::int64_t table_stride = kUnset;  ///< between lines; not given: pages_per_sequence
  int pages_per_sequence = kUnset;     ///< entries of a line; 0: every sequence is without keys
  FastDivmod page_size = kUnset;       ///< positions of a page, written as an int: at least 1
  int pages = kUnset;                  ///< that are allocated; 0: every sequence is without keys
  const int* seqused_k = nullptr;      ///< the newest key included
  const int* cache_batch_idx = nullptr;
  int tables = kUnset;  ///< lines of the page table; not given: the batch
  const int* leftpad_k = nullptr;

  const char* fault() const {
    using detail::misaligned;
    if (const char* why = queries.fault()) return why;
    if (pages_per_sequence == kUnset) return "PagedKeys: pages_per_sequence is not given";
    if (page_size == kUnset) return "PagedKeys: page_size is not given";
    if (pages == kUnset) return "PagedKeys: pages is not given";
    if (pages_per_sequence < 0) return "PagedKeys: pages_per_sequence is negative";
    if (page_size < 1) return "PagedKeys: page_size must be at least 1";
    if (pages < 0) return "PagedKeys: pages is negative";
    if (table_stride < 0 && table_stride != kUnset) return "PagedKeys: table_stride is negative";
    if (tables == kUnset && cache_batch_idx != nullptr) {
      return "PagedKeys: tables is not given, which cache_batch_idx needs";
    }
    if (tables < 0 && tables != kUnset) return "PagedKeys: tables is negative";
    if (page_table == nullptr && capacity() > 0) return "PagedKeys: page_table is null";
    if (seqused_k == nullptr) return "PagedKeys: seqused_k is null";
    if (misaligned(page_table)) return "PagedKeys: page_table is not aligned to 4 bytes";
    if (misaligned(seqused_k)) return "PagedKeys: seqused_k is not aligned to 4 bytes";
    if (misaligned(cache_batch_idx)) {
      return "PagedKeys: cache_batch_idx is not aligned to 4 bytes";
    }
    if (misaligned(leftpad_k)) return "PagedKeys: leftpad_k is not aligned to 4 bytes";
    return nullptr;
  }
  const char* fault(const ScoreShape& shape) const {
    const bool has_own = tables == kUnset || tables == 0 || tables >= shape.batch;
    return cache_batch_idx != nullptr || has_own
               ? nullptr
               : "PagedKeys: tables is less than batch, and cache_batch_idx is null";
  }

  ATTILE_HOST_DEVICE Extent extent(int sequence, Extent bounds) const {
    return {queries.length(sequence, bounds.q_len),
            detail::cached_length(seqused_k, leftpad_k, sequence, kv_bound(bounds.kv_len))};
  }
  /// With leftpad_k, a length and where it begins may be of different times.
  constexpr bool may_read_early() const { return leftpad_k == nullptr; }
  ATTILE_HOST_DEVICE RowOrigin q_origin(int sequence) const { return queries.origin(sequence); }
  /// Returns the sequence's line of the page table, and its first position there.
  ATTILE_HOST_DEVICE RowOrigin kv_origin(int sequence) const {
    return detail::cached_origin(cache_batch_idx, tables, leftpad_k, sequence);
  }
  /// Returns the page and the row there of the key that is `row` rows behind that position.
  ATTILE_HOST_DEVICE RowOrigin kv_row(RowOrigin origin, int row) const {
    return in_pages(kv_entry(origin, row));
  }
  ATTILE_HOST_DEVICE RowOrigin kv_entry(RowOrigin origin, int row) const {
    const auto [entry, row_in_page] = page_size.divmod(origin.row + row);
    return {page_table[origin.batch * line_stride() + entry], row_in_page};
  }
  ATTILE_HOST_DEVICE RowOrigin in_pages(RowOrigin entry) const {
    return {detail::clipped(entry.batch, pages - 1), entry.row};
  }
  ATTILE_HOST_DEVICE Interval key_positions(int sequence, int kv_len) const {
    return detail::unclipped_positions(seqused_k, leftpad_k, sequence, kv_len);
  }
  ATTILE_HOST_DEVICE RowOrigin cache_row(int sequence, std::int64_t position, int kv_len) const {
    const int line = detail::cache_to_write(cache_batch_idx, tables, sequence);
    if (line < 0 || position < 0 || position >= min(kv_len, capacity())) return kNoRow;
    const auto [entry, row_in_page] = page_size.divmod(static_cast<int>(position));
    const int page = page_table[line * line_stride() + entry];
    return 0 <= page && page < pages ? RowOrigin{page, row_in_page} : kNoRow;
  }
  ATTILE_HOST_DEVICE constexpr int kv_bound(int kv_len) const { return min(kv_len, capacity()); }
  constexpr bool keys_begin_pages() const { return leftpad_k == nullptr; }
  constexpr RowShape q_shape(int batch, int q_len) const { return queries.shape(batch, q_len); }
  constexpr RowShape kv_shape(int, int) const { return {pages, pages == 0 ? 0 : int{page_size}}; }

 private:
  ATTILE_HOST_DEVICE constexpr std::int64_t line_stride() const {
    return table_stride == kUnset ? pages_per_sequence : table_stride;
  }
  /// Returns the positions of a line of the page table.
  ATTILE_HOST_DEVICE constexpr int capacity() const {
    if (pages == 0 || tables == 0) return 0;
    const std::int64_t positions = std::int64_t{pages_per_sequence} * int{page_size};
    return static_cast<int>(min<std::int64_t>(positions, INT_MAX));
  }
};

/// Name the policies: keys in a piece for each sequence, or in pages; queries padded, or packed.
using Cached = CachedKeys<PaddedQueries>;
using CachedPacked = CachedKeys<PackedQueries>;
using Paged = PagedKeys<PaddedQueries>;
using PagedPacked = PagedKeys<PackedQueries>;

}  // namespace attile
