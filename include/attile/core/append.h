// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/args.h>
#include <attile/core/cache.h>
#include <attile/core/check.h>
#include <attile/core/check_tensor.h>
#include <attile/core/config.h>
#include <attile/core/element.h>
#include <attile/core/fp8.h>
#include <attile/core/index.h>
#include <attile/core/math.h>
#include <attile/core/rotary.h>
#include <attile/core/sequences.h>
#include <attile/core/status.h>
#include <attile/core/tensor.h>

#include <concepts>
#include <cstdint>

// What `append` does to a cache, whatever the executor.

namespace attile {

/// Holds the arguments of `append`, which writes the keys and values of the newest rows into a
/// cache, and rotates these keys and, where wanted, the queries of the same rows.
///
/// The lengths are those of the attention that follows: seqused_k counts the new keys, too. Of a
/// sequence that has n new rows, as many as queries, row i gets position seqused_k - n + i of its
/// cache, and is rotated by the number that it has among the sequence's keys, from its leftpad_k
/// on, or as Rotary::seqlens says.
///
/// A row is dropped where the cache has no row for it: its position lies before leftpad_k or is not
/// below kv_len, the page table ends before it or names no page, or cache_batch_idx names no cache;
/// and where the tables of `rotary` have no angles for it. Its key and value are then not written,
/// and nothing else is in their place, whatever device memory says. Its query is written all the
/// same, but where there are no angles.
///
/// It is an aggregate for designated initialisers; pointers are device pointers (host pointers for
/// the CPU executor). E: an element type, or Elements whose K and V, those of the cache, are that
/// of Q, which the new rows have, or in fp8; R: NoRotary, or Rotary. Sequences that share rows of a
/// cache must not both write there: which of them does so last is not defined.
template <class E, class S, class R = NoRotary>
struct AppendArgs {
  using Elements = ElementsOf<E>;
  using ElementType = typename Elements::Q;  ///< of new rows
  using SequencesType = S;
  using RotaryType = R;

 private:
  using T = ElementType;
  using K = typename Elements::K;
  using V = typename Elements::V;

 public:
  static_assert((std::same_as<K, T> && std::same_as<V, T>) || Elements::kFp8Cache,
                "attile: append takes Q, K and V of one element type, or K and V in fp8 with Q of "
                "16 bits");
  static_assert(CacheSequences<S>,
                "attile: append writes into a cache: its sequences are Cached, CachedPacked, "
                "Paged, PagedPacked, or a policy that satisfies CacheSequences");

  Tensor<const T> k_new{};  ///< (batch, kv_heads, q_len, head_dim), laid out as queries are
  Tensor<const T> v_new{};  ///< (batch, kv_heads, q_len, head_dim_v), likewise
  Tensor<K> k{};            ///< the cache of keys, laid out as keys are; written
  Tensor<V> v{};            ///< that of values
  ScalesOf<K> k_scale{};    ///< of a cache in fp8: what is stored is the new number over its scale
  ScalesOf<V> v_scale{};
  Tensor<const T> q{};     ///< (batch, q_heads, q_len, head_dim); null: no queries are rotated
  Tensor<T> q_out{};       ///< the shape of q, written; it may be q itself, in place
  int* dropped = nullptr;  ///< one number: each row that is dropped adds 1; null: nobody counts

  int batch = kUnset;    ///< 0: nothing to do
  int q_heads = kUnset;  ///< read where there are queries
  int kv_heads = kUnset;
  int q_len = kUnset;   ///< new rows of the longest sequence; 0: nothing to do
  int kv_len = kUnset;  ///< keys of the longest sequence, with the new ones
  int head_dim = 0;     ///< to be given
  int head_dim_v = 0;   ///< 0: head_dim

  R rotary{};
  S sequences{};
};

/// Describes one new row of a sequence.
struct NewRow {
  RowOrigin origin;                  ///< where it lies in k_new, v_new, q and q_out
  std::int64_t position = 0;         ///< in the sequence's cache, as device memory has it
  std::int64_t rotary_position = 0;  ///< whose angles rotate it
  bool has_angles = true;            ///< always so without a rotary embedding
  bool is_key = true;                ///< false: it lies before the sequence's first key
};

/// Returns row `row` of the `rows` new ones of a sequence.
template <class Args>
ATTILE_HOST_DEVICE NewRow new_row(const Args& args, int sequence, int rows, int row) {
  const RowOrigin first = args.sequences.q_origin(sequence);
  const Interval keys = args.sequences.key_positions(sequence, args.kv_len);
  NewRow at{.origin = {first.batch, first.row + row}};
  at.position = std::int64_t{keys.end} - rows + row;
  at.is_key = at.position >= keys.begin;
  if constexpr (Args::RotaryType::kEnabled) {
    const int* const seqlens = args.rotary.seqlens;
    at.rotary_position =
        seqlens == nullptr ? at.position - keys.begin : std::int64_t{seqlens[sequence]} + row;
    at.has_angles = args.rotary.has(at.rotary_position);
  }
  return at;
}

/// Returns where a new row goes in k and v; kNoRow where it is dropped.
template <class Args>
ATTILE_HOST_DEVICE RowOrigin cache_row(const Args& args, int sequence, const NewRow& row) {
  if (!row.has_angles || !row.is_key) return kNoRow;
  return args.sequences.cache_row(sequence, row.position, args.kv_len);
}

namespace detail {

/// Returns the arguments with the sizes that they leave open, and without strides that are not
/// read. Without queries q_heads is 0.
template <class E, class S, class R>
constexpr AppendArgs<E, S, R> resolved(AppendArgs<E, S, R> args) {
  if (args.q.data == nullptr) args.q_heads = 0;
  if (args.head_dim_v == 0) args.head_dim_v = args.head_dim;
  const RowShape q_shape = args.sequences.q_shape(args.batch, args.q_len);
  const RowShape kv_shape = args.sequences.kv_shape(args.batch, args.kv_len);
  const auto trim = [](auto& x, RowShape shape, int heads) {
    x = without_unread_strides(x, shape, heads);
  };
  trim(args.k_new, q_shape, args.kv_heads);
  trim(args.v_new, q_shape, args.kv_heads);
  trim(args.k, kv_shape, args.kv_heads);
  trim(args.v, kv_shape, args.kv_heads);
  trim(args.q, q_shape, args.q_heads);
  trim(args.q_out, q_shape, args.q_heads);
  return args;
}

/// Checks the rotary embedding, and the queries that are there for it alone.
template <class Args>
Check check_rotary(const Args& a) {
  if constexpr (Args::RotaryType::kEnabled) {
    if (const char* why = a.rotary.fault()) return refuse(why);
    if (a.rotary.dims > a.head_dim) return refuse("Rotary: dims is larger than head_dim");
    if (a.rotary.seqlens == nullptr && a.rotary.rows < a.kv_len) {
      return refuse("Rotary: rows is less than kv_len, so that positions would lack angles");
    }
    if (a.q.data == nullptr && a.q_out.data != nullptr) {
      return refuse("q is null, and q_out is not");
    }
    if (a.q.data != nullptr && a.q_out.data == nullptr) {
      return refuse("q_out is null: where q is to be rotated in place, q_out is q");
    }
  } else if (a.q.data != nullptr || a.q_out.data != nullptr) {
    return refuse("q or q_out is given, and nothing rotates them: the arguments have NoRotary");
  }
  return {};
}

/// Checks that no output is the memory of something else.
template <class Args>
Check check_append_memory(const Args& a) {
  const void *const k = a.k.data, *const v = a.v.data, *const q_out = a.q_out.data;
  if (k != nullptr && k == v) return refuse("k is the memory of v: one would overwrite the other");
  for (const void* const cache : {k, v}) {
    if (cache == nullptr) continue;
    if (cache == a.k_new.data) return refuse("k_new is the memory of the cache");
    if (cache == a.v_new.data) return refuse("v_new is the memory of the cache");
    if (cache == a.q.data) return refuse("q is the memory of the cache");
    if (cache == q_out) return refuse("q_out is the memory of the cache");
  }
  if (q_out == nullptr) return {};
  if (q_out == a.k_new.data) return refuse("q_out is the memory of k_new");
  if (q_out == a.v_new.data) return refuse("q_out is the memory of v_new");
  if (q_out == a.q.data && !same_strides(a.q, a.q_out)) {
    return refuse("q_out is the memory of q, but has other strides");
  }
  return {};
}

}  // namespace detail

/// Says why `append` with these arguments would be refused, whatever the executor.
template <class E, class S, class R>
Check check_arguments(const AppendArgs<E, S, R>& args) {
  auto a = args;
  if (a.q.data == nullptr) a.q_heads = a.kv_heads;
  if (const Check sizes = detail::check_sizes(a); !sizes) return sizes;
  if (a.head_dim == 0) return refuse("head_dim is not given");
  if (a.head_dim < 0) return refuse("head_dim is negative");
  if (a.head_dim_v < 0) return refuse("head_dim_v is negative");
  const int most_columns = max(a.head_dim, a.head_dim_v);
  if (std::int64_t{a.q_heads} + 2 * std::int64_t{a.kv_heads} > INT32_MAX / most_columns) {
    return refuse("q_heads and kv_heads times head_dim must be below 2^31");
  }
  if (const Check sequences = detail::check_sequences(a); !sequences) return sequences;
  const RowShape q_shape = a.sequences.q_shape(a.batch, a.q_len);
  const RowShape kv_shape = a.sequences.kv_shape(a.batch, a.kv_len);
  if (a.batch == 0 || a.q_len == 0 || q_shape.rows == 0) return {};
  if (const Check rotary = detail::check_rotary(a); !rotary) return rotary;
  a = detail::resolved(a);
  using detail::check_tensor;
  const int D = a.head_dim, Dv = a.head_dim_v;
  const Check tensors = detail::first_refusal(
      check_tensor(a.k_new, ATTILE_TENSOR_TEXTS("k_new"), q_shape, a.kv_heads, D),
      check_tensor(a.v_new, ATTILE_TENSOR_TEXTS("v_new"), q_shape, a.kv_heads, Dv),
      check_tensor(a.k, ATTILE_TENSOR_TEXTS("k"), kv_shape, a.kv_heads, D),
      check_tensor(a.v, ATTILE_TENSOR_TEXTS("v"), kv_shape, a.kv_heads, Dv),
      check_tensor(a.q, ATTILE_TENSOR_TEXTS("q"), q_shape, a.q_heads, D),
      check_tensor(a.q_out, ATTILE_TENSOR_TEXTS("q_out"), q_shape, a.q_heads, D));
  if (!tensors) return tensors;
  if (const Check scales = detail::check_scales(a); !scales) return scales;
  if (detail::misaligned(a.dropped)) return refuse("dropped is not aligned to 4 bytes");
  return detail::check_append_memory(a);
}

}  // namespace attile
