// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/args.h>
#include <attile/core/check.h>
#include <attile/core/check_tensor.h>
#include <attile/core/config.h>
#include <attile/core/element.h>
#include <attile/core/fp8.h>
#include <attile/core/overlap.h>
#include <attile/core/sequences.h>
#include <attile/core/status.h>
#include <attile/core/tensor.h>

#include <cstdint>

// What `quantize` does to Q, K and V, whatever the executor.

namespace attile {

/// Holds the scales of a tensor in fp8 that are written. Elements whose scales are one have one by
/// strides of 0: `{scale}` is one for the tensor, `{scales, kv_heads, 1}` a dense (batch, kv_heads)
/// array. It converts to the Scales of a forward pass.
struct WritableScales {
  float* data = nullptr;
  std::int64_t batch_stride = 0;
  std::int64_t head_stride = 0;

  ATTILE_HOST_DEVICE float& at(int sequence, int kv_head) const {
    return data[sequence * batch_stride + kv_head * head_stride];
  }
  /// Returns whether a scale is not that of an earlier sequence or head, too.
  ATTILE_HOST_DEVICE bool is_first(int sequence, int kv_head) const {
    return (batch_stride != 0 || sequence == 0) && (head_stride != 0 || kv_head == 0);
  }
  ATTILE_HOST_DEVICE operator Scales() const { return {data, batch_stride, head_stride}; }
};

/// Returns the scale of numbers up to `largest`: 1 where all are 0, else `quotient`, which is
/// `largest` over the largest number of the type, but within 2^-48 to 2^48, so that two scales may
/// multiply that of the scores.
ATTILE_HOST_DEVICE float fitting_scale(float largest, float quotient) {
  constexpr float kLeast = 0x1p-48f, kMost = 0x1p48f;
  if (largest == 0) return 1.0f;
  return quotient < kLeast ? kLeast : quotient > kMost ? kMost : quotient;
}

/// Holds the arguments of `quantize`, which rounds Q, K and V to fp8, with scales that give each
/// the range of its type.
///   scale = max |x| / (the largest number of the type),  stored = x / scale, rounded to nearest
/// The maximum is over all rows, of all sequences and heads, that have the scale in common. NaN and
/// infinities do not count in it; they are stored as NaN, and as the largest number.
///
/// It is an aggregate for designated initialisers; pointers are device pointers (host pointers for
/// the CPU executor). T: the element type; E: Elements of the forward pass that follows; S: its
/// sequences. A tensor that E does not have in fp8 is left null, and one that is not to be
/// quantised may be null.
template <Element T, class E, class S = Uniform>
struct QuantizeArgs {
  using Elements = E;
  using ElementType = T;
  using SequencesType = S;
  static_assert(Fp8<typename E::K>, "attile: quantize has nothing to do: K is not in fp8");
  static_assert(!kIsForwardOnly<S>,
                "attile: quantize takes tensors, and no cache: append quantises what it writes "
                "there");

  Tensor<const T> q{};            ///< (batch, q_heads, q_len, head_dim)
  Tensor<const T> k{};            ///< (batch, kv_heads, kv_len, head_dim)
  Tensor<const T> v{};            ///< (batch, kv_heads, kv_len, head_dim_v)
  Tensor<typename E::Q> q_out{};  ///< the shape of q, written
  Tensor<typename E::K> k_out{};  ///< the shape of k, written
  Tensor<typename E::V> v_out{};  ///< the shape of v, written
  WritableScales q_scale{};       ///< one for each kv head, as in ForwardArgs
  WritableScales k_scale{}, v_scale{};

  int batch = kUnset;  ///< 0: nothing to do
  int q_heads = kUnset;
  int kv_heads = kUnset;
  int q_len = kUnset;
  int kv_len = kUnset;
  int head_dim = 0;    ///< to be given
  int head_dim_v = 0;  ///< 0: head_dim
  S sequences{};
};

/// Names a tensor that is quantised.
enum class QuantizeRole { kQ, kK, kV };

/// Describes the rows of one head of one tensor of a sequence.
template <class T, class F>
struct QuantizeRows {
  const T* from;
  F* to;
  std::int64_t from_stride, to_stride;  ///< from row to row
  int rows, cols;
  WritableScales scales;
};

/// Calls f with the QuantizeRows of a sequence's head, where the role's type is fp8.
template <class Args, class F>
ATTILE_HOST_DEVICE void with_rows(const Args& a, QuantizeRole role, int sequence, int head,
                                  const F& f) {
  const Extent extent = extent_of(a, sequence);
  const auto call = [&](const auto& from, const auto& to, RowOrigin at, int rows, int cols,
                        const WritableScales& scales) {
    using T = typename Args::ElementType;
    using X = std::remove_cvref_t<decltype(*to.data)>;
    if constexpr (Fp8<X>) {
      f(QuantizeRows<T, X>{from.row(at.batch, head, at.row), to.row(at.batch, head, at.row),
                           from.row_stride, to.row_stride, rows, cols, scales});
    }
  };
  const RowOrigin queries = a.sequences.q_origin(sequence);
  const RowOrigin keys = a.sequences.kv_origin(sequence);
  if (role == QuantizeRole::kQ) {
    call(a.q, a.q_out, queries, extent.q_len, a.head_dim, a.q_scale);
  } else if (role == QuantizeRole::kK) {
    call(a.k, a.k_out, keys, extent.kv_len, a.head_dim, a.k_scale);
  } else {
    call(a.v, a.v_out, keys, extent.kv_len, a.head_dim_v, a.v_scale);
  }
}

/// Returns |x|, or 0 where x is not finite.
ATTILE_HOST_DEVICE float finite_magnitude(float x) {
  const std::uint32_t magnitude = word_of(x) & 0x7FFFFFFFu;
  return magnitude < 0x7F800000u ? float_of(magnitude) : 0.0f;
}

namespace detail {

/// Returns the arguments with head_dim_v, and without strides that are not read.
template <class T, class E, class S>
constexpr QuantizeArgs<T, E, S> resolved(QuantizeArgs<T, E, S> a) {
  if (a.head_dim_v == 0) a.head_dim_v = a.head_dim;
  const RowShape queries = a.sequences.q_shape(a.batch, a.q_len);
  const RowShape keys = a.sequences.kv_shape(a.batch, a.kv_len);
  a.q = without_unread_strides(a.q, queries, a.q_heads);
  a.q_out = without_unread_strides(a.q_out, queries, a.q_heads);
  a.k = without_unread_strides(a.k, keys, a.kv_heads);
  a.k_out = without_unread_strides(a.k_out, keys, a.kv_heads);
  a.v = without_unread_strides(a.v, keys, a.kv_heads);
  a.v_out = without_unread_strides(a.v_out, keys, a.kv_heads);
  return a;
}

/// Holds the error texts for one tensor that is quantised.
struct QuantizeTexts {
  TensorTexts from, to;
  const char *without, *not_fp8, *in_place, *no_scale, *misaligned, *overlaps;
};

#define ATTILE_QUANTIZE_TEXTS(x)                                                                \
  ::attile::detail::QuantizeTexts {                                                             \
    ATTILE_TENSOR_TEXTS(x), ATTILE_TENSOR_TEXTS(x "_out"), x " is null, and " x "_out is not",  \
        x " is given, and its type in the forward pass is not fp8",                             \
        x "_out is the memory of " x ": fp8 cannot be written in place", x "_scale is null",    \
        x "_scale is not aligned to 4 bytes",                                                   \
        x "_scale overlaps itself: strides are 0 where scales are one, and else do not overlap" \
  }

template <class T, class F>
Check check_quantized(const Tensor<const T>& from, const Tensor<F>& to,
                      const WritableScales& scales, const QuantizeTexts& texts, RowShape shape,
                      int heads, int dim, int batch, int kv_heads) {
  if (from.data == nullptr) return to.data == nullptr ? Check{} : refuse(texts.without);
  if constexpr (!Fp8<F>) return refuse(texts.not_fp8);
  const Check tensors = first_refusal(check_tensor(from, texts.from, shape, heads, dim),
                                      check_tensor(to, texts.to, shape, heads, dim));
  if (!tensors) return tensors;
  if (static_cast<const void*>(from.data) == static_cast<const void*>(to.data)) {
    return refuse(texts.in_place);
  }
  if (scales.data == nullptr) return refuse(texts.no_scale);
  if (misaligned(scales.data)) return refuse(texts.misaligned);
  const std::int64_t sequences = scales.batch_stride == 0 ? 1 : batch;
  const std::int64_t scaled_heads = scales.head_stride == 0 ? 1 : kv_heads;
  if (strides_overlap<2>({sequences, scaled_heads}, {scales.batch_stride, scales.head_stride}, 1)) {
    return refuse(texts.overlaps);
  }
  return {};
}

}  // namespace detail

/// Says why `quantize` with these arguments would be refused, whatever the executor.
template <class T, class E, class S>
Check check_arguments(const QuantizeArgs<T, E, S>& args) {
  auto a = args;
  if (a.q.data == nullptr && a.q_heads == kUnset) a.q_heads = a.kv_heads;
  if (const Check sizes = detail::check_sizes(a); !sizes) return sizes;
  if (a.head_dim == 0) return refuse("head_dim is not given");
  if (a.head_dim < 0) return refuse("head_dim is negative");
  if (a.head_dim_v < 0) return refuse("head_dim_v is negative");
  if (const Check sequences = detail::check_sequences(a); !sequences) return sequences;
  a = detail::resolved(a);
  if (a.batch == 0) return {};
  const RowShape queries = a.sequences.q_shape(a.batch, a.q_len);
  const RowShape keys = a.sequences.kv_shape(a.batch, a.kv_len);
  using detail::check_quantized;
  const Check tensors =
      detail::first_refusal(check_quantized(a.q, a.q_out, a.q_scale, ATTILE_QUANTIZE_TEXTS("q"),
                                            queries, a.q_heads, a.head_dim, a.batch, a.kv_heads),
                            check_quantized(a.k, a.k_out, a.k_scale, ATTILE_QUANTIZE_TEXTS("k"),
                                            keys, a.kv_heads, a.head_dim, a.batch, a.kv_heads),
                            check_quantized(a.v, a.v_out, a.v_scale, ATTILE_QUANTIZE_TEXTS("v"),
                                            keys, a.kv_heads, a.head_dim_v, a.batch, a.kv_heads));
  if (!tensors) return tensors;
  const void* const outputs[] = {a.q_out.data,   a.k_out.data,   a.v_out.data,
                                 a.q_scale.data, a.k_scale.data, a.v_scale.data};
  for (int i = 0; i < 6; ++i) {
    for (int j = 0; j < i; ++j) {
      if (outputs[i] != nullptr && outputs[i] == outputs[j]) {
        return refuse("two of the tensors and scales that are written share their memory");
      }
    }
  }
  return {};
}

}  // namespace attile
