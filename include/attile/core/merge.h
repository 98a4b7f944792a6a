// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/args.h>
#include <attile/core/check.h>
#include <attile/core/check_tensor.h>
#include <attile/core/element.h>
#include <attile/core/policy.h>
#include <attile/core/sequences.h>
#include <attile/core/sink.h>
#include <attile/core/status.h>
#include <attile/core/tensor.h>

#include <concepts>
#include <cstdint>

// What `merge` does to partial results of attention, whatever the executor.

namespace attile {

/// Holds the results of attention of the same queries over one part of their keys, or over several
/// parts along an axis of its own. A part of a row without keys has LSE = -inf, and counts nothing
/// whatever its O holds.
/// Units    strides count elements, of any sign.
template <Element T>
struct PartTensor {
  Tensor<const T> o{};  ///< (batch, q_heads, q_len, head_dim_v) of the first part
  /// (batch, q_heads, q_len) of the first part, natural units: LSE as `forward` writes it is
  /// bhs(lse, {.rows = q_len, .heads = q_heads}).
  Tensor<const float> lse{};
  int count = 1;                ///< of parts
  std::int64_t o_stride = 0;    ///< of the O of a part to that of the next one
  std::int64_t lse_stride = 0;  ///< of LSE, likewise
};

/// The most tensors of parts of one call.
inline constexpr int kMaxPartTensors = 8;

/// Holds the arguments of `merge`, which makes the result of attention over all keys from those
/// over disjoint parts of them:
///   LSE = ln sum exp(LSE_i),  O = sum O_i exp(LSE_i - LSE)     [FlashAttention-1, section 3.1]
/// Sums are fp32 and have the order of the parts: those of parts[0] first. A row without keys in
/// any part has O = 0 and LSE = -inf.
///
/// A sink belongs to a row once. Either one part has counted it, and `merge` has none, or it is
/// given here, and no part has counted it.
///
/// It is an aggregate for designated initialisers; pointers are device pointers (host pointers for
/// the CPU executor). E: an element type, or Elements, whose O is that of the result; T: the type
/// of the parts' O; S: the sequences of the attention, of which the queries alone are read; K:
/// NoSink, or Sink.
template <class E, Element T = typename ElementsOf<E>::O, Sequences S = Uniform,
          AttentionSink K = NoSink>
struct MergeArgs {
  using OutputType = typename ElementsOf<E>::O;
  using PartType = T;
  using SequencesType = S;
  using SinkType = K;
  /// Nothing of a merge depends on keys, which have no part in its sizes.
  static constexpr int kv_heads = 1, kv_len = 0;

  static_assert(std::same_as<T, float> || std::same_as<T, OutputType>,
                "attile: merge takes parts whose O is fp32, or of the element type of the result");
  static_assert(!kIsEarlierKeys<K>,
                "attile: merge takes the results of earlier keys as one of its parts");

  PartTensor<T> parts[kMaxPartTensors]{};
  int part_tensors = kUnset;  ///< of `parts`, 1 to kMaxPartTensors
  /// (batch, q_heads, q_len, head_dim_v), written. It may be the O of parts[i], in place, if the
  /// element types and the strides are the same.
  Tensor<OutputType> o{};
  /// Dense (batch, q_heads, q_len), written, with the sink; null: not wanted. No part's LSE.
  float* lse = nullptr;

  int batch = kUnset;  ///< 0: nothing to do
  int q_heads = kUnset;
  int q_len = kUnset;  ///< rows of the longest sequence; 0: nothing to do
  int head_dim_v = 0;  ///< to be given

  S sequences{};
  K sink{};
};

namespace detail {

/// Returns the arguments without strides that are not read.
template <class E, class T, class S, class K>
constexpr MergeArgs<E, T, S, K> resolved(MergeArgs<E, T, S, K> args) {
  const RowShape shape = args.sequences.q_shape(args.batch, args.q_len);
  for (PartTensor<T>& part : args.parts) {
    part.o = without_unread_strides(part.o, shape, args.q_heads);
    part.lse = without_unread_strides(part.lse, shape, args.q_heads);
    if (part.count == 1) part.o_stride = part.lse_stride = 0;
  }
  args.o = without_unread_strides(args.o, shape, args.q_heads);
  return args;
}

/// Checks that no output is the memory of something that other threads still read.
template <class Args>
Check check_merge_memory(const Args& a) {
  const void *const o = a.o.data, *const lse = a.lse;
  if (o == lse) return refuse("lse is the memory of o");
  for (int i = 0; i < a.part_tensors; ++i) {
    const auto& part = a.parts[i];
    const void *const part_o = part.o.data, *const part_lse = part.lse.data;
    if (o == part_lse) return refuse("o is the memory of the LSE of a part");
    if (lse == part_lse) return refuse("lse is the memory of the LSE of a part");
    if (lse == part_o) return refuse("lse is the memory of the O of a part");
    if (o != part_o) continue;
    if (!std::same_as<typename Args::PartType, typename Args::OutputType>) {
      return refuse("o is the memory of the O of a part, which has another element type");
    }
    if (!same_strides(a.o, part.o)) {
      return refuse("o is the memory of the O of a part, but has other strides");
    }
  }
  return {};
}

}  // namespace detail

/// Says why `merge` with these arguments would be refused, whatever the executor.
template <class E, class T, class S, class K>
Check check_arguments(const MergeArgs<E, T, S, K>& args) {
  if (const Check sizes = detail::check_sizes(args); !sizes) return sizes;
  if (args.head_dim_v == 0) return refuse("head_dim_v is not given");
  if (args.head_dim_v < 0) return refuse("head_dim_v is negative");
  if (args.q_heads > INT32_MAX / args.head_dim_v) {
    return refuse("q_heads times head_dim_v must be below 2^31");
  }
  if (args.part_tensors == kUnset) return refuse("part_tensors is not given");
  if (args.part_tensors < 1 || args.part_tensors > kMaxPartTensors) {
    return refuse("part_tensors must be 1 to 8");
  }
  if (const Check sequences = detail::check_sequences(args); !sequences) return sequences;
  const RowShape shape = args.sequences.q_shape(args.batch, args.q_len);
  if (args.batch == 0 || args.q_len == 0 || shape.rows == 0) return {};
  if (const char* why = policy_fault(args.sink)) return refuse(why);
  const auto a = detail::resolved(args);
  using detail::check_tensor;
  for (int i = 0; i < a.part_tensors; ++i) {
    const PartTensor<T>& part = a.parts[i];
    if (part.count < 1) return refuse("the count of a tensor of parts must be at least 1");
    const Check tensors = detail::first_refusal(
        check_tensor(part.o, ATTILE_TENSOR_TEXTS("the O of a part"), shape, a.q_heads,
                     a.head_dim_v),
        check_tensor(part.lse, ATTILE_TENSOR_TEXTS("the LSE of a part"), shape, a.q_heads, 1));
    if (!tensors) return tensors;
  }
  const Check output = check_tensor(a.o, ATTILE_TENSOR_TEXTS("o"), shape, a.q_heads, a.head_dim_v);
  if (!output) return output;
  if (detail::misaligned(a.lse)) return refuse("lse is not aligned to 4 bytes");
  return detail::check_merge_memory(a);
}

}  // namespace attile
