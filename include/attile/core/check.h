// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/args.h>
#include <attile/core/check_tensor.h>
#include <attile/core/mask.h>
#include <attile/core/math.h>
#include <attile/core/policy.h>
#include <attile/core/score_mod.h>
#include <attile/core/splits.h>
#include <attile/core/status.h>
#include <attile/core/then.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <type_traits>

namespace attile {

/// Holds head_dim and head_dim_v of a problem. A head_dim that the arguments do not give is the
/// kernel's D. A head_dim_v that they do not give is the kernel's Dv if they do not give head_dim
/// either, or if that is D and Dv is less (D 192 with Dv 128); else it is head_dim.
struct HeadDims {
  int qk, v;
};

/// Returns the head dimensions of a problem. D, Dv: those of the kernel; 0: any.
template <class Args>
constexpr HeadDims head_dims(const Args& args, int D, int Dv) {
  if (args.head_dim == 0) return {D, args.head_dim_v > 0 ? args.head_dim_v : Dv};
  if (args.head_dim_v > 0) return {args.head_dim, args.head_dim_v};
  return {args.head_dim, args.head_dim == D ? min(D, Dv) : args.head_dim};
}

namespace detail {

/// Returns what is wrong with the numbers of sequences, rows and keys; null where nothing is.
constexpr const char* size_fault(int batch, int q_len, int kv_len) {
  if (batch == kUnset) return "batch is not given";
  if (q_len == kUnset) return "q_len is not given";
  if (kv_len == kUnset) return "kv_len is not given";
  if (batch < 0) return "batch is negative";
  if (q_len < 0) return "q_len is negative";
  if (kv_len < 0) return "kv_len is negative";
  if (q_len > kMaxLength) return "q_len must be at most 2^30";
  return kv_len > kMaxLength ? "kv_len must be at most 2^30" : nullptr;
}

/// Checks the numbers of sequences, heads, rows and keys.
template <class Args>
Check check_sizes(const Args& a) {
  if (const char* why = size_fault(a.batch, a.q_len, a.kv_len)) return refuse(why);
  if (a.q_heads == kUnset) return refuse("q_heads is not given");
  if (a.kv_heads == kUnset) return refuse("kv_heads is not given");
  if (a.q_heads < 1) return refuse("q_heads must be at least 1");
  if (a.kv_heads < 1) return refuse("kv_heads must be at least 1");
  if (a.q_heads % a.kv_heads != 0) return refuse("q_heads must be a multiple of kv_heads");
  if (std::int64_t{a.batch} * a.q_heads > INT32_MAX) {
    return refuse("batch * q_heads must be below 2^31");
  }
  return {};
}

/// Checks the sequences of a problem whose sizes have been checked.
template <class Args>
Check check_sequences(const Args& a) {
  if (a.batch > 0 && (a.q_len > 0 || a.kv_len > 0)) {  // it is asked where there are no keys, too
    if (const char* why = policy_fault(a.sequences)) return refuse(why);
    if (const char* why = shape_fault(a.sequences, score_shape(a))) return refuse(why);
  }
  const RowShape queries = a.sequences.q_shape(a.batch, a.q_len);
  const RowShape keys = a.sequences.kv_shape(a.batch, a.kv_len);
  if (queries.rows == kUnset || keys.rows == kUnset) {
    return refuse("sequences: the rows of a tensor are not given");
  }
  if (queries.batches < 0 || queries.rows < 0 || keys.batches < 0 || keys.rows < 0) {
    return refuse("sequences: a tensor has a negative number of rows");
  }
  if (queries.rows > kMaxLength || keys.rows > kMaxLength) {
    return refuse("sequences: a tensor must have at most 2^30 rows");
  }
  if (std::int64_t{queries.batches} * a.q_heads > INT32_MAX) {
    return refuse("batch * q_heads must be below 2^31");
  }
  return {};
}

/// Checks sizes, scale and policies. D, Dv: the most that the kernel was built for; 0: anything.
template <class Args>
Check check_problem(const Args& a, int D, int Dv) {
  if (const Check sizes = check_sizes(a); !sizes) return sizes;
  if (a.head_dim < 0) return refuse("head_dim is negative");
  if (a.head_dim_v < 0) return refuse("head_dim_v is negative");
  if (D == 0 && a.head_dim == 0) return refuse("head_dim is not given");
  const auto [qk, v] = head_dims(a, D, Dv);
  if (D > 0 && qk > D) return refuse("head_dim is larger than the D of the kernel");
  if (Dv > 0 && v > Dv) return refuse("head_dim_v is larger than the Dv of the kernel");
  if (a.scale && !(*a.scale >= 0x1p-100f && *a.scale <= 0x1p100f)) {
    return refuse("scale must be 2^-100 to 2^100");
  }
  if (const Check sequences = check_sequences(a); !sequences) return sequences;
  if (a.batch == 0 || a.q_len == 0) return {};
  if (const char* why = policy_fault(a.sink)) return refuse(why);  // read without keys, too
  if (a.kv_len == 0) return {};
  if (const char* why = Args::Policies::of(a).fault()) return refuse(why);
  if (const char* why = shape_fault(a.mask, score_shape(a), !Args::kIsForward)) return refuse(why);
  return {};
}

/// Checks the results of earlier keys that a forward pass goes on from. head_dim_v: that of O.
template <class Args>
Check check_earlier_keys(const Args& a, int head_dim_v) {
  const RowShape shape = a.sequences.q_shape(a.batch, a.q_len);
  const auto& earlier = a.sink;
  const Check tensors = first_refusal(
      check_tensor(earlier.o, ATTILE_TENSOR_TEXTS("EarlierKeys: o"), shape, a.q_heads, head_dim_v),
      check_tensor(earlier.lse, ATTILE_TENSOR_TEXTS("EarlierKeys: lse"), shape, a.q_heads, 1));
  if (!tensors || a.batch == 0 || longest_lengths(a).q_len == 0) return tensors;
  const void *const o = a.o.data, *const lse = a.lse;
  const void *const earlier_o = earlier.o.data, *const earlier_lse = earlier.lse.data;
  if (o == earlier_lse) return refuse("o is the memory of the lse of EarlierKeys");
  if (lse == earlier_o) return refuse("lse is the memory of the o of EarlierKeys");
  const auto same = [&](const auto& x, const auto& y) {
    return same_strides(without_unread_strides(x, shape, a.q_heads),
                        without_unread_strides(y, shape, a.q_heads));
  };
  if (o == earlier_o) {
    if (!std::is_same_v<decltype(earlier.o), Tensor<const typename Args::Elements::O>>) {
      return refuse("o is the memory of the o of EarlierKeys, which has another element type");
    }
    if (!same(a.o, earlier.o)) {
      return refuse("o is the memory of the o of EarlierKeys, but has other strides");
    }
  }
  if (lse == earlier_lse &&
      !same(bhs(a.lse, {.rows = shape.rows, .heads = a.q_heads}), earlier.lse)) {
    return refuse("lse is the memory of the lse of EarlierKeys, which has other strides");
  }
  return {};
}

/// Is the number of modifiers in S that have a gradient.
template <ScoreMod S>
inline constexpr std::size_t kGradients = kHasGradient<S> ? 1 : 0;
template <ScoreMod First, ScoreMod Second>
inline constexpr std::size_t kGradients<Then<First, Second>> =
    kGradients<First> + kGradients<Second>;

/// Checks the gradients of all modifiers that have one, which may lack gradient_fault, and writes
/// where each begins to first[0, kGradients): null without elements.
template <ScoreMod S>
Check check_modifier_gradients(const S& mod, const ScoreShape& shape, const void** first) {
  if constexpr (kHasGradient<S>) {
    if (mod.gradient_lines(shape) == 0) return {};
    const GradientLine line = mod.gradient_line(0, shape);
    if (line.count == 0) return {};
    if (line.first == nullptr) return refuse("the gradient of score_mod is null");
    if (misaligned(line.first)) {
      return refuse("the gradient of score_mod is not aligned to 4 bytes");
    }
    *first = line.first;
  }
  return {};
}
template <ScoreMod First, ScoreMod Second>
Check check_modifier_gradients(const Then<First, Second>& mod, const ScoreShape& shape,
                               const void** first) {
  const Check inner = check_modifier_gradients(mod.first, shape, first);
  return inner ? check_modifier_gradients(mod.second, shape, first + kGradients<First>) : inner;
}

}  // namespace detail

/// Says why a forward pass with these arguments would be refused, whatever the executor.
/// D, Dv: the head dimensions of the kernel; 0: the arguments must give them.
template <ForwardPass Args>
Check check_arguments(const Args& a, int D, int Dv) {
  if (const Check problem = detail::check_problem(a, D, Dv); !problem) return problem;
  if (a.max_blocks < 0) return refuse("max_blocks is negative");
  if (a.splits.kind == Splits::Kind::kFixed && a.splits.keys < 1) {
    return refuse("splits.keys must be at least 1");
  }
  const auto [qk, v] = head_dims(a, D, Dv);
  const RowShape q_shape = a.sequences.q_shape(a.batch, a.q_len);
  const RowShape kv_shape = a.sequences.kv_shape(a.batch, a.kv_len);
  using detail::check_tensor;
  const Check tensors =
      detail::first_refusal(check_tensor(a.q, ATTILE_TENSOR_TEXTS("q"), q_shape, a.q_heads, qk),
                            check_tensor(a.k, ATTILE_TENSOR_TEXTS("k"), kv_shape, a.kv_heads, qk),
                            check_tensor(a.v, ATTILE_TENSOR_TEXTS("v"), kv_shape, a.kv_heads, v),
                            check_tensor(a.o, ATTILE_TENSOR_TEXTS("o"), q_shape, a.q_heads, v));
  if (!tensors) return tensors;
  if (const Check scales = detail::check_scales(a); !scales) return scales;
  if (a.v_col_stride != 1 && a.v.row_stride != 1 && v > 1 && kv_shape.rows > 1) {
    return refuse("v has no contiguous axis: neither v_col_stride nor v.row_stride is 1");
  }
  if (detail::misaligned(a.lse)) return refuse("lse is not aligned to 4 bytes");
  if constexpr (kIsEarlierKeys<typename Args::SinkType>) {
    if (const Check earlier = detail::check_earlier_keys(a, v); !earlier) return earlier;
  }
  const Extent longest = longest_lengths(a);
  if (a.batch == 0 || longest.q_len == 0) return {};
  const void *const o = a.o.data, *const lse = a.lse;
  if (o == a.q.data) return refuse("o is the memory of q: it cannot be computed in place");
  if (lse != nullptr && (lse == o || lse == a.q.data)) {
    return refuse("lse is the memory of o or q");
  }
  if (longest.kv_len == 0) return {};
  if (lse != nullptr && (lse == a.k.data || lse == a.v.data)) {
    return refuse("lse is the memory of k or v");
  }
  if (o == a.k.data) return refuse("o is the memory of k, which other rows still read");
  if (o == a.v.data) return refuse("o is the memory of v, which other rows still read");
  return {};
}

/// Says why a backward pass with these arguments would be refused, whatever the executor.
template <BackwardPass Args>
Check check_arguments(const Args& a, int D, int Dv) {
  if (const Check problem = detail::check_problem(a, D, Dv); !problem) return problem;
  const auto [qk, v] = head_dims(a, D, Dv);
  const RowShape q_shape = a.sequences.q_shape(a.batch, a.q_len);
  const RowShape kv_shape = a.sequences.kv_shape(a.batch, a.kv_len);
  using detail::check_tensor;
  const Check tensors = detail::first_refusal(
      check_tensor(a.q, ATTILE_TENSOR_TEXTS("q"), q_shape, a.q_heads, qk),
      check_tensor(a.k, ATTILE_TENSOR_TEXTS("k"), kv_shape, a.kv_heads, qk),
      check_tensor(a.v, ATTILE_TENSOR_TEXTS("v"), kv_shape, a.kv_heads, v),
      check_tensor(a.o, ATTILE_TENSOR_TEXTS("o"), q_shape, a.q_heads, v),
      check_tensor(a.dout, ATTILE_TENSOR_TEXTS("dout"), q_shape, a.q_heads, v),
      check_tensor(a.dq, ATTILE_TENSOR_TEXTS("dq"), q_shape, a.q_heads, qk),
      check_tensor(a.dk, ATTILE_TENSOR_TEXTS("dk"), kv_shape, a.kv_heads, qk),
      check_tensor(a.dv, ATTILE_TENSOR_TEXTS("dv"), kv_shape, a.kv_heads, v));
  if (!tensors) return tensors;
  if (detail::misaligned(a.lse)) return refuse("lse is not aligned to 4 bytes");
  if (detail::misaligned(a.dlse)) return refuse("dlse is not aligned to 4 bytes");
  const auto [q_len, kv_len] = longest_lengths(a);
  if (a.batch > 0 && q_len > 0 && a.lse == nullptr) return refuse("lse is null");
  const ScoreShape shape = score_shape(a);
  if (const char* why = gradient_fault(a.score_mod, shape)) return refuse(why);
  if constexpr (requires { a.sink.gradient_fault(); }) {
    if (const char* why = a.sink.gradient_fault()) return refuse(why);
  }
  const void* outputs[4 + detail::kGradients<typename Args::ScoreModType>] = {};
  const Check gradients = detail::check_modifier_gradients(a.score_mod, shape, outputs + 4);
  if (!gradients) return gradients;
  if (a.batch == 0) return {};
  const auto of_rows = [](const void* data, int rows) { return rows > 0 ? data : nullptr; };
  outputs[0] = of_rows(a.dq.data, q_len);
  outputs[1] = of_rows(a.dk.data, kv_len);
  outputs[2] = of_rows(a.dv.data, kv_len);
  outputs[3] = a.sink.gradient();
  const void* inputs[] = {of_rows(a.q.data, q_len),    of_rows(a.k.data, kv_len),
                          of_rows(a.v.data, kv_len),   of_rows(a.o.data, q_len),
                          of_rows(a.dout.data, q_len), of_rows(a.lse, q_len),
                          of_rows(a.dlse, q_len)};
  for (std::size_t i = 0; i < std::size(outputs); ++i) {
    if (outputs[i] == nullptr) continue;
    for (const void* input : inputs) {
      if (outputs[i] == input) return refuse("a gradient is the memory of an input");
    }
    for (std::size_t other = 0; other < i; ++other) {
      if (outputs[i] == outputs[other]) return refuse("two gradients share their memory");
    }
  }
  return {};
}

}  // namespace attile
