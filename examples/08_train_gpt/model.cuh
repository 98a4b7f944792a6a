// SPDX-License-Identifier: MIT
// A GPT: what it learns, its forward pass and its backward pass.
//   x = table[token] + position
//   for each layer:  x = x + attention(layer_norm(x) W_qkv) W_out
//                    x = x + gelu(layer_norm(x) W_up) W_down
//   logits = layer_norm(x) W_unembed
// A row is a token: matrices are (rows, width), rows = batch * length, and a product is y = x W.
// Of y = x W, the backward pass has dx = dy W^T and dW = x^T dy.
#pragma once

#include <attile/core/tensor.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "attention.h"
#include "layers.cuh"
#include "parameters.cuh"
#include "products.cuh"

namespace gpt {

/// The columns of a head: attention's kernels are compiled for this number.
inline constexpr int kHeadDim = 64;

struct Shape {
  int layers, heads, vocabulary;
  int batch, len;  ///< sequences of a step, and tokens of each

  constexpr int width() const { return heads * kHeadDim; }
  constexpr int hidden() const { return 4 * width(); }
  constexpr int rows() const { return batch * len; }
};

/// A layer norm: its parameters, and what its backward pass needs of the forward pass.
template <class T>
struct LayerNorm {
  Parameter<T> gain, bias;
  DeviceArray<RowStatistics> statistics;
  DeviceArray<T> y;

  LayerNorm(const Shape& s, Initializer<T>& make)
      : gain(make.vector(s.width(), 1)),
        bias(make.vector(s.width(), 0)),
        statistics(s.rows()),
        y(std::size_t{1} * s.rows() * s.width()) {}
};

/// One layer: its parameters, and the activations that its backward pass reads.
template <class T>
struct Layer {
  LayerNorm<T> norm1, norm2;
  Parameter<T> qkv_weights, out_weights, up_weights, down_weights;
  DeviceArray<float> x, middle;  ///< the residual stream before each half of the layer
  DeviceArray<T> qkv, o;         ///< Q, K and V of a row lie side by side
  DeviceArray<float> lse;
  DeviceArray<T> up, hidden;  ///< before GELU and behind it

  Layer(const Shape& s, Initializer<T>& make)
      : norm1(s, make),
        norm2(s, make),
        qkv_weights(make.weights(s.width(), 3 * s.width())),
        out_weights(make.weights(s.width(), s.width(), half_share(s))),
        up_weights(make.weights(s.width(), s.hidden())),
        down_weights(make.weights(s.hidden(), s.width(), half_share(s))),
        x(size(s, s.width())),
        middle(size(s, s.width())),
        qkv(size(s, 3 * s.width())),
        o(size(s, s.width())),
        lse(size(s, s.heads)),
        up(size(s, s.hidden())),
        hidden(size(s, s.hidden())) {}

 private:
  static std::size_t size(const Shape& s, int cols) { return std::size_t{1} * s.rows() * cols; }
  /// The halves of all layers add to the same x, whose variance is that of one product in the end.
  static float half_share(const Shape& s) { return 1 / std::sqrt(2.0f * s.layers); }
};

template <class T>
class Model {
 public:
  Model(const Shape& shape, unsigned seed, Attention<T>& attention)
      : shape_(shape), attention_(attention), make_(seed) {
    for (int i = 0; i < shape.layers; ++i) layers_.emplace_back(shape, make_);
    list_parameters();
  }
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  /// The mean loss of a batch goes to *loss, in device memory; the backward pass may follow.
  /// `tokens` and `targets`, the token behind each, are (batch, len) in device memory.
  void forward(const int* tokens, const int* targets, float* loss) {
    tokens_ = tokens;
    launch(embed, size(), width(), shape_.len, tokens, table_.w.get(), positions_.w.get(),
           layers_[0].x.get());
    for (int i = 0; i < shape_.layers; ++i) {
      Layer<T>& l = layers_[i];
      float* const next = i + 1 < shape_.layers ? layers_[i + 1].x.get() : last_x_.get();
      normalize(l.norm1, l.x);
      products_.multiply(of(l.qkv), of(l.norm1.y), l.qkv_weights.matrix());
      attention_.forward(attention_forward(l), i);
      products_.multiply(of(branch_), of(l.o), l.out_weights.matrix());
      launch(add<T>, size(), l.x.get(), branch_.get(), l.middle.get());

      normalize(l.norm2, l.middle);
      products_.multiply(of(l.up), of(l.norm2.y), l.up_weights.matrix());
      launch(gelu<T>, hidden_size(), l.up.get(), l.hidden.get());
      products_.multiply(of(branch_), of(l.hidden), l.down_weights.matrix());
      launch(add<T>, size(), l.middle.get(), branch_.get(), next);
    }
    normalize(last_norm_, last_x_);
    products_.multiply(of(logits_), of(last_norm_.y), unembed_.matrix());
    launch_warps(cross_entropy<T>, rows(), shape_.vocabulary, logits_.get(), targets,
                 row_loss_.get(), dlogits_.get());
    launch_warps(mean_loss, 1, rows(), row_loss_.get(), loss);
  }

  /// The gradients of all parameters, by the chain rule: `forward` from its end to its beginning.
  /// dx_ is the gradient of the residual stream, to which each half of a layer adds.
  void backward() {
    launch(clear, size(), dx_.get());
    multiply_backward(last_norm_.y, unembed_, dlogits_, dbranch_);
    normalize_backward(last_norm_, last_x_);
    for (int i = shape_.layers - 1; i >= 0; --i) {
      Layer<T>& l = layers_[i];
      launch(round<T>, size(), dx_.get(), dbranch_.get());
      multiply_backward(l.hidden, l.down_weights, dbranch_, dhidden_);
      launch(gelu_backward<T>, hidden_size(), l.up.get(), dhidden_.get());
      multiply_backward(l.norm2.y, l.up_weights, dhidden_, dbranch_);
      normalize_backward(l.norm2, l.middle);

      launch(round<T>, size(), dx_.get(), dbranch_.get());
      multiply_backward(l.o, l.out_weights, dbranch_, do_);
      attention_.backward(attention_backward(l), i);
      multiply_backward(l.norm1.y, l.qkv_weights, dqkv_, dbranch_);
      normalize_backward(l.norm1, l.x);
    }
    launch(embed_table_backward, table_.size(), width(), rows(), tokens_, dx_.get(),
           table_.gradient.get());
    launch(embed_positions_backward, positions_.size(), shape_.batch, dx_.get(),
           positions_.gradient.get());
  }

  /// A step of AdamW down these gradients.
  void update(float rate) {
    ++updates_;
    AdamW set{.rate = rate};
    set.correction1 = 1 / (1 - std::pow(set.beta1, static_cast<float>(updates_)));
    set.correction2 = 1 / (1 - std::pow(set.beta2, static_cast<float>(updates_)));
    for (const Parameter<T>* p : parameters_) p->update(set);
  }

  const std::vector<const Parameter<T>*>& parameters() const { return parameters_; }

 private:
  int rows() const { return shape_.rows(); }
  int width() const { return shape_.width(); }
  int size() const { return rows() * width(); }
  int hidden_size() const { return rows() * shape_.hidden(); }

  /// An array with some columns for each row.
  template <class E>
  DeviceArray<E> array(int cols) const {
    return DeviceArray<E>(std::size_t{1} * rows() * cols);
  }
  /// The same as the operand of a product.
  template <class E>
  Matrix<E> of(const DeviceArray<E>& a) const {
    return {a.get(), rows(), static_cast<int>(a.size() / rows())};
  }

  void normalize(const LayerNorm<T>& n, const DeviceArray<float>& x) {
    launch_warps(layer_norm<T>, rows(), width(), x.get(), n.gain.w.get(), n.bias.w.get(), n.y.get(),
                 n.statistics.get());
  }
  /// From dbranch_, the gradient of its output, to its parameters' and to dx_.
  void normalize_backward(const LayerNorm<T>& n, const DeviceArray<float>& x) {
    launch(layer_norm_parameters_backward<T>, parts() * width(), rows(), width(), x.get(),
           n.statistics.get(), dbranch_.get(), parts_.get());
    launch(add_parts, 2 * width(), parts(), parts_.get(), n.gain.gradient.get(),
           n.bias.gradient.get());
    launch_warps(layer_norm_backward<T>, rows(), width(), x.get(), n.gain.w.get(),
                 n.statistics.get(), dbranch_.get(), dx_.get());
  }
  int parts() const { return (rows() + kRowsOfPart - 1) / kRowsOfPart; }

  /// Of y = x W: dW = x^T dy and dx = dy W^T.
  void multiply_backward(const DeviceArray<T>& x, const Parameter<T>& w, const DeviceArray<T>& dy,
                         const DeviceArray<T>& dx) {
    products_.multiply(w.gradient_matrix(), of(x).transposed(), of(dy));
    products_.multiply(of(dx), of(dy), w.matrix().transposed());
  }

  /// Q, K or V (0, 1, 2) of an array that has the three side by side in each row, without a copy:
  /// a row of a head begins 3 * width elements behind the one before.
  template <class E>
  attile::Tensor<E> part_of(E* qkv, int which) const {
    const std::int64_t row_stride = 3 * width();
    return {qkv + which * width(), shape_.len * row_stride, kHeadDim, row_stride};
  }

  AttentionForward<T> attention_forward(const Layer<T>& l) const {
    const T* const qkv = l.qkv.get();
    return {.q = part_of(qkv, 0),
            .k = part_of(qkv, 1),
            .v = part_of(qkv, 2),
            .o = attile::bshd(l.o.get(), shape_.len, shape_.heads, kHeadDim),
            .lse = l.lse.get(),
            .batch = shape_.batch,
            .q_heads = shape_.heads,
            .kv_heads = shape_.heads,
            .q_len = shape_.len,
            .kv_len = shape_.len,
            .head_dim = kHeadDim};
  }
  AttentionBackward<T> attention_backward(const Layer<T>& l) const {
    const T* const qkv = l.qkv.get();
    const T* const o = l.o.get();
    const T* const dout = do_.get();
    return {.q = part_of(qkv, 0),
            .k = part_of(qkv, 1),
            .v = part_of(qkv, 2),
            .o = attile::bshd(o, shape_.len, shape_.heads, kHeadDim),
            .lse = l.lse.get(),
            .dout = attile::bshd(dout, shape_.len, shape_.heads, kHeadDim),
            .dq = part_of(dqkv_.get(), 0),
            .dk = part_of(dqkv_.get(), 1),
            .dv = part_of(dqkv_.get(), 2),
            .batch = shape_.batch,
            .q_heads = shape_.heads,
            .kv_heads = shape_.heads,
            .q_len = shape_.len,
            .kv_len = shape_.len,
            .head_dim = kHeadDim};
  }

  void list_parameters() {
    const auto list = [this](auto&... p) { (parameters_.push_back(&p), ...); };
    list(table_, positions_, unembed_, last_norm_.gain, last_norm_.bias);
    for (Layer<T>& l : layers_) {
      list(l.norm1.gain, l.norm1.bias, l.qkv_weights, l.out_weights);
      list(l.norm2.gain, l.norm2.bias, l.up_weights, l.down_weights);
    }
  }

  Shape shape_;
  Attention<T>& attention_;
  Products products_;
  Initializer<T> make_;
  int updates_ = 0;
  const int* tokens_ = nullptr;

  Parameter<T> table_ = make_.table(shape_.vocabulary, shape_.width());
  Parameter<T> positions_ = make_.table(shape_.len, shape_.width());
  Parameter<T> unembed_ = make_.weights(shape_.width(), shape_.vocabulary);
  std::vector<Layer<T>> layers_;
  DeviceArray<float> last_x_ = array<float>(shape_.width());
  LayerNorm<T> last_norm_{shape_, make_};
  std::vector<const Parameter<T>*> parameters_;

  // What no pass keeps for another one.
  DeviceArray<T> branch_ = array<T>(width());  ///< what a half of a layer adds to x
  DeviceArray<float> logits_ = array<float>(shape_.vocabulary), row_loss_ = array<float>(1);
  DeviceArray<T> dlogits_ = array<T>(shape_.vocabulary);
  DeviceArray<float> dx_ = array<float>(width());
  DeviceArray<T> dbranch_ = array<T>(width()), dhidden_ = array<T>(shape_.hidden());
  DeviceArray<T> do_ = array<T>(width()), dqkv_ = array<T>(3 * width());
  DeviceArray<float> parts_{std::size_t{2} * parts() * width()};
};

}  // namespace gpt
