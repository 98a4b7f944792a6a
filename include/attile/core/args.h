// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/element.h>
#include <attile/core/fp8.h>
#include <attile/core/index.h>
#include <attile/core/math.h>
#include <attile/core/policies.h>
#include <attile/core/sequences.h>
#include <attile/core/splits.h>
#include <attile/core/tensor.h>

#include <cmath>
#include <optional>
#include <type_traits>

namespace attile {

/// Names the pass that a kernel computes.
enum class Direction { kForward, kBackward };

/// Replaces a member that only the other direction's arguments have: it takes no value.
template <Direction kWay>
struct OnlyIn {};

/// Holds the arguments of one attention pass, forward or backward: `ForwardArgs` and `BackwardArgs`
/// name it.
///   forward   O = dropout(softmax(mask(score_mod(scale * Q K^T)))) V, LSE = m + ln(l); the
///             softmax's denominator may have a sink (see AttentionSink), or go on from earlier
///             keys (see EarlierKeys)
///   backward  the gradients of a forward pass with the same problem
/// It is an aggregate for designated initialisers; pointers are device pointers (host pointers for
/// the CPU executor and the reference). E: Elements; P: PolicyBundle. Shapes are those of `Uniform`
/// sequences; with another sequences policy, `q_shape` and `kv_shape` of it give the batch axis and
/// the rows of the tensors. Every row of every sequence is written, and the caller has to zero
/// nothing. A score modifier with a gradient names the gradient's memory itself (see LearnedBias),
/// and so does a sink.
template <Direction kWay, class E, class P>
struct Arguments {
  static constexpr Direction kDirection = kWay;
  static constexpr bool kIsForward = kWay == Direction::kForward;
  using Elements = E;
  using ElementType = typename E::Operand;
  using Policies = P;
  using MaskType = typename P::MaskType;
  using ScoreModType = typename P::ScoreModType;
  using DropoutType = typename P::DropoutType;
  using SequencesType = typename P::SequencesType;
  using SinkType = typename P::SinkType;

  static_assert(kIsForward || !kIsForwardOnly<SequencesType>,
                "attile: there are no gradients of a cache: sequences may share its keys, and this "
                "sequences policy is for ForwardArgs alone");
  static_assert(kIsForward || !kIsEarlierKeys<SinkType>,
                "attile: EarlierKeys are for ForwardArgs alone: a backward pass over the keys of "
                "one call takes O and LSE of all keys, and needs nothing else of the others");
  static_assert(kIsForward || !(Fp8<typename E::Q> || Fp8<typename E::K> || Fp8<typename E::V>),
                "attile: there are no gradients of queries, keys and values in fp8: they are for "
                "ForwardArgs alone");

 private:
  template <class Forward, class Backward>
  using ByDirection = std::conditional_t<kIsForward, Forward, Backward>;
  template <class Member>
  using InForward = ByDirection<Member, OnlyIn<Direction::kForward>>;
  template <class Member>
  using InBackward = ByDirection<OnlyIn<Direction::kBackward>, Member>;

 public:
  Tensor<const typename E::Q> q{};  ///< (batch, q_heads, q_len, head_dim)
  Tensor<const typename E::K> k{};  ///< (batch, kv_heads, kv_len, head_dim)
  Tensor<const typename E::V> v{};  ///< (batch, kv_heads, kv_len, head_dim_v)
  /// From one column of V to the next: where it is not 1, `v.row_stride` is, so that the keys of a
  /// column are contiguous. Only where Q, K and V are in fp8 may it be given.
  std::conditional_t<E::kAllFp8, std::int64_t, UnitStride> v_col_stride{1};
  /// Of Q, K and V in fp8, K = k_scale * stored, and all have one for each kv head; other types
  /// have none.
  ScalesOf<typename E::Q> q_scale{};
  ScalesOf<typename E::K> k_scale{};
  ScalesOf<typename E::V> v_scale{};
  /// (batch, q_heads, q_len, head_dim_v): written by the forward pass, read by the backward pass.
  Tensor<ByDirection<typename E::O, const typename E::O>> o{};
  /// Dense (batch, q_heads, q_len): m + ln(l). Written by the forward pass, null where it is not
  /// wanted; read by the backward pass.
  ByDirection<float, const float>* lse = nullptr;
  InBackward<Tensor<const typename E::O>> dout{};  ///< gradient of O, the shape of O
  InBackward<const float*> dlse{};         ///< gradient of LSE, the shape of LSE; null: zero
  InBackward<Tensor<typename E::Q>> dq{};  ///< the shape of Q, written
  /// The shapes of K and V, written: sums over the query heads of a kv head.
  InBackward<Tensor<typename E::K>> dk{};
  InBackward<Tensor<typename E::V>> dv{};

  int batch = kUnset;  ///< 0: an empty problem
  int q_heads = kUnset;
  int kv_heads = kUnset;  ///< divides q_heads; query head h reads kv head h / (q_heads / kv_heads)
  int q_len = kUnset;     ///< rows of the longest sequence; 0: an empty problem
  int kv_len = kUnset;    ///< keys of the longest sequence; 0: no row sees a key
  int head_dim = 0;       ///< 0: the D of the kernel
  int head_dim_v = 0;     ///< 0: head_dim; Dv where that is 0, or D and above Dv

  std::optional<float> scale{};  ///< 2^-100 to 2^100; not given: 1 / sqrt(head_dim)
  MaskType mask{};
  ScoreModType score_mod{};
  DropoutType dropout{};
  SequencesType sequences{};
  SinkType sink{};
  /// The most thread blocks at a time, which leaves the other multiprocessors to other work; 0: as
  /// many as the device runs. The result does not depend on it, but with Splits::fill. Kernels that
  /// have a block for each tile of rows refuse it: those of the family sm90 and of `decode` are
  /// persistent.
  InForward<int> max_blocks{};
  /// How keys are split over blocks; only the kernels of `decode` do so, and take more than `none`.
  InForward<Splits> splits{};
};

/// Names the arguments of a forward pass by an element type, or Elements, and the policies in any
/// order (see Policies). `ForwardArgs<__half, Causal, PhiloxDropout>`.
template <class E, class... Ps>
using ForwardArgs = Arguments<Direction::kForward, ElementsOf<E>, Policies<Ps...>>;

/// Names the arguments of a backward pass, likewise.
template <class E, class... Ps>
using BackwardArgs = Arguments<Direction::kBackward, ElementsOf<E>, Policies<Ps...>>;

/// Are satisfied by the arguments of a forward pass, and of a backward pass, whatever their types.
template <class Args>
concept ForwardPass = Args::kDirection == Direction::kForward;
template <class Args>
concept BackwardPass = Args::kDirection == Direction::kBackward;

/// Returns the shape of a problem's scores.
template <class Args>
constexpr ScoreShape score_shape(const Args& args) {
  return {args.batch, args.q_heads, {args.q_len, args.kv_len}};
}

/// Returns the lengths of one sequence of a problem.
template <class Args>
ATTILE_HOST_DEVICE Extent extent_of(const Args& args, int sequence) {
  return args.sequences.extent(sequence, Extent{args.q_len, args.kv_len});
}

/// Returns the lengths that no sequence of a problem exceeds, by what the host knows: the bounds,
/// or the rows of the tensors where they are fewer. A sequence of keys in pages has as many as its
/// policy says (`kv_bound`, see Sequences), or any number, but where there are none.
template <class Args>
Extent longest_lengths(const Args& args) {
  const RowShape queries = args.sequences.q_shape(args.batch, args.q_len);
  const RowShape keys = args.sequences.kv_shape(args.batch, args.kv_len);
  Extent longest{min(args.q_len, queries.rows), min(args.kv_len, keys.rows)};
  if (kIsPaged<typename Args::SequencesType> && keys.batches > 0) longest.kv_len = args.kv_len;
  if constexpr (requires { args.sequences.kv_bound(args.kv_len); }) {
    longest.kv_len = args.sequences.kv_bound(args.kv_len);
  }
  return longest;
}

/// Returns a tensor without the strides of axes that have one element, which are not read. Where
/// the rows are a bound of each batch's (`is_bound`), which decides nothing, their stride stays.
template <class T>
constexpr Tensor<T> without_unread_strides(Tensor<T> tensor, RowShape shape, int heads,
                                           bool is_bound = false) {
  if (shape.batches == 1) tensor.batch_stride = 0;
  if (heads == 1) tensor.head_stride = 0;
  if (shape.rows == 1 && !(is_bound && shape.batches > 1)) tensor.row_stride = 0;
  return tensor;
}

/// Returns arguments whose tensors have no strides that are not read: these decide nothing then.
template <class Args>
Args without_unread_strides(Args args) {
  const RowShape q_shape = args.sequences.q_shape(args.batch, args.q_len);
  const RowShape kv_shape = args.sequences.kv_shape(args.batch, args.kv_len);
  using Seqs = typename Args::SequencesType;
  constexpr bool kRowsBound = !Seqs::kUniform && !kIsPackedAlong<Seqs, Axis::kRows>;
  constexpr bool kKeysBound = !Seqs::kUniform && !kIsPacked<Seqs> && !kIsPaged<Seqs>;
  const auto of_queries = [&](auto& x) {
    x = without_unread_strides(x, q_shape, args.q_heads, kRowsBound);
  };
  const auto of_keys = [&](auto& x) {
    x = without_unread_strides(x, kv_shape, args.kv_heads, kKeysBound);
  };
  of_queries(args.q);
  of_keys(args.k);
  of_keys(args.v);
  of_queries(args.o);
  if constexpr (!Args::kIsForward) {
    of_queries(args.dout);
    of_queries(args.dq);
    of_keys(args.dk);
    of_keys(args.dv);
  }
  return args;
}

/// Returns a tensor of LSE's shape.
template <class T, class Args>
constexpr RowTensor<T> per_row(const Args& args, T* data) {
  return {data, args.q_heads, args.sequences.q_shape(args.batch, args.q_len).rows};
}

/// Returns the scale that a problem runs with; those of queries and keys in fp8 come on top.
template <class Args>
float scale_of(const Args& args, int head_dim) {
  return args.scale ? *args.scale : 1.0f / std::sqrt(static_cast<float>(head_dim));
}

}  // namespace attile
