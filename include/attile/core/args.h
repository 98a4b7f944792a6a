// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/dropout.h>
#include <attile/core/element.h>
#include <attile/core/index.h>
#include <attile/core/mask.h>
#include <attile/core/score_mod.h>
#include <attile/core/tensor.h>

#include <cmath>
#include <optional>

namespace attile {

/// Which pass a kernel computes.
enum class Direction { kForward, kBackward };

/// A size that the caller has forgotten, which is refused. 0 said aloud is an empty problem.
inline constexpr int kUnset = -2147483647 - 1;

/// One attention forward pass: O = dropout(softmax(mask(score_mod(scale * Q K^T)))) V.
/// An aggregate for designated initialisers; pointers are device pointers (host pointers for the
/// CPU executor and the reference).
template <Element T, Mask M = NoMask, ScoreMod S = NoScoreMod, Dropout P = NoDropout>
struct ForwardArgs {
  using ElementType = T;
  using MaskType = M;
  using ScoreModType = S;
  using DropoutType = P;

  Tensor<const T> q{};   ///< (batch, q_heads, q_len, head_dim)
  Tensor<const T> k{};   ///< (batch, kv_heads, kv_len, head_dim)
  Tensor<const T> v{};   ///< (batch, kv_heads, kv_len, head_dim_v)
  Tensor<T> o{};         ///< (batch, q_heads, q_len, head_dim_v), written
  float* lse = nullptr;  ///< dense (batch, q_heads, q_len), written: m + ln(l); null: not wanted

  int batch = kUnset;  ///< 0: an empty problem
  int q_heads = kUnset;
  int kv_heads = kUnset;  ///< divides q_heads; query head h reads kv head h / (q_heads / kv_heads)
  int q_len = kUnset;     ///< 0: an empty problem
  int kv_len = kUnset;    ///< 0: no row sees a key
  int head_dim = 0;       ///< 0: the D of the kernel
  int head_dim_v = 0;     ///< 0: head_dim; Dv where that is 0, or D and above Dv

  std::optional<float> scale{};  ///< 2^-100 to 2^100; not given: 1 / sqrt(head_dim)
  M mask{};
  S score_mod{};
  P dropout{};
  /// At most so many thread blocks at a time, which leaves the other multiprocessors to other work;
  /// 0: as many as the device runs. The result does not depend on it. Kernels that have a block for
  /// each tile of rows refuse it: only those of the family sm90 are persistent.
  int max_blocks = 0;
};

/// One attention backward pass: the gradients of a forward pass with the same problem.
/// Every output is written whole; nothing has to be zeroed by the caller. A score modifier that
/// learns names the memory of its own gradient (see LearnedBias).
template <Element T, Mask M = NoMask, ScoreMod S = NoScoreMod, Dropout P = NoDropout>
struct BackwardArgs {
  using ElementType = T;
  using MaskType = M;
  using ScoreModType = S;
  using DropoutType = P;

  Tensor<const T> q{};          ///< (batch, q_heads, q_len, head_dim)
  Tensor<const T> k{};          ///< (batch, kv_heads, kv_len, head_dim)
  Tensor<const T> v{};          ///< (batch, kv_heads, kv_len, head_dim_v)
  Tensor<const T> o{};          ///< (batch, q_heads, q_len, head_dim_v), from the forward pass
  const float* lse = nullptr;   ///< dense (batch, q_heads, q_len), from the forward pass
  Tensor<const T> dout{};       ///< gradient of O, the shape of O
  const float* dlse = nullptr;  ///< gradient of LSE, the shape of LSE; null: zero
  Tensor<T> dq{};               ///< the shape of Q, written
  Tensor<T> dk{};               ///< the shape of K, written (summed over a kv head's group)
  Tensor<T> dv{};               ///< the shape of V, written (summed over a kv head's group)

  int batch = kUnset;
  int q_heads = kUnset;
  int kv_heads = kUnset;
  int q_len = kUnset;
  int kv_len = kUnset;
  int head_dim = 0;    ///< 0: the D of the kernel
  int head_dim_v = 0;  ///< 0: head_dim; Dv where that is 0, or D and above Dv

  std::optional<float> scale{};  ///< as in the forward pass
  M mask{};
  S score_mod{};
  P dropout{};
};

/// The scores that a problem has.
template <class Args>
constexpr ScoreShape score_shape(const Args& args) {
  return {args.batch, args.q_heads, {args.q_len, args.kv_len}};
}

/// The scale that a problem runs with.
template <class Args>
float scale_of(const Args& args, int head_dim) {
  return args.scale ? *args.scale : 1.0f / std::sqrt(static_cast<float>(head_dim));
}

}  // namespace attile
