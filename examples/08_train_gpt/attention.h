// SPDX-License-Identifier: MIT
// What the model asks of attention.
#pragma once

#include <attile/core/args.h>
#include <attile/core/mask.h>

namespace gpt {

/// T is the type of Q, K, V, O and their gradients: bf16 to train.
template <class T>
using AttentionForward = attile::ForwardArgs<T, attile::Causal>;
template <class T>
using AttentionBackward = attile::BackwardArgs<T, attile::Causal>;

/// Computes attention of all layers. attentions.cuh has two ways to do it.
template <class T>
class Attention {
 public:
  virtual ~Attention() = default;
  /// O and LSE of one layer.
  virtual void forward(const AttentionForward<T>& args, int layer) = 0;
  /// dQ, dK and dV of one layer, after its `forward` of the same step.
  virtual void backward(const AttentionBackward<T>& args, int layer) = 0;
};

}  // namespace gpt
