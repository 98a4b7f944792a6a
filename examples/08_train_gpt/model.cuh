// SPDX-License-Identifier: MIT
// A GPT, forward and backward.
//   x = table[token] + position
//   for each layer:  x = x + attention(layer_norm(x) W_qkv) W_out
//                    x = x + gelu(layer_norm(x) W_up) W_down
//   logits = layer_norm(x) W_unembed
// A row is a token: x is (rows, width), rows = batch * length. dx is the gradient of the loss by x,
// and so on: of y = x W the backward pass knows dy, and dx = dy W^T, dW = x^T dy.
#pragma once

#include <attile/core/tensor.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "attention.h"
#include "kernels.cuh"
#include "layer.cuh"
#include "parameters.cuh"
#include "products.cuh"

namespace gpt {

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
    launch(embed, size(), width(), shape_.len, tokens, table_.w, positions_.w, layers_[0].x);
    for (int i = 0; i < shape_.layers; ++i) {
      forward_attention(layers_[i], i);
      forward_mlp(layers_[i], i + 1 < shape_.layers ? layers_[i + 1].x : last_x_);
    }
    normalize(last_norm_, last_x_);
    products_.multiply(matrix(logits_), matrix(last_norm_.y), unembed_.matrix());
    launch_warps(cross_entropy<T>, rows(), shape_.vocabulary, logits_, targets, row_loss_,
                 dlogits_);
    launch_warps(mean_loss, 1, rows(), row_loss_, loss);
  }

  /// The gradients of all parameters, by the chain rule: `forward` from its end to its beginning.
  void backward() {
    launch(clear, size(), dx_);
    multiply_backward(last_norm_.y, unembed_, dlogits_, dbranch_);
    normalize_backward(last_norm_, last_x_);
    for (int i = shape_.layers - 1; i >= 0; --i) {
      backward_mlp(layers_[i]);
      backward_attention(layers_[i], i);
    }
    launch(embed_table_backward, table_.size(), width(), rows(), tokens_, dx_, table_.gradient);
    launch(embed_positions_backward, positions_.size(), shape_.batch, dx_, positions_.gradient);
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
  // ---- the halves of a layer: x + branch, where the branch begins with a layer norm ------------

  /// middle = x + attention(layer_norm(x) W_qkv) W_out.
  void forward_attention(const Layer<T>& l, int number) {
    normalize(l.norm1, l.x);
    products_.multiply(matrix(l.qkv), matrix(l.norm1.y), l.qkv_weights.matrix());
    attention_.forward(attention_forward(l), number);
    products_.multiply(matrix(branch_), matrix(l.o), l.out_weights.matrix());
    launch(add<T>, size(), l.x, branch_, l.middle);
  }
  /// dx_, the gradient of `middle`, becomes that of `x`: it stays for the way around the branch,
  /// and what comes through the branch is added.
  void backward_attention(const Layer<T>& l, int number) {
    launch(round<T>, size(), dx_, dbranch_);
    multiply_backward(l.o, l.out_weights, dbranch_, do_);
    attention_.backward(attention_backward(l), number);
    multiply_backward(l.norm1.y, l.qkv_weights, dqkv_, dbranch_);
    normalize_backward(l.norm1, l.x);
  }

  /// next = middle + gelu(layer_norm(middle) W_up) W_down.
  void forward_mlp(const Layer<T>& l, const DeviceArray<float>& next) {
    normalize(l.norm2, l.middle);
    products_.multiply(matrix(l.up), matrix(l.norm2.y), l.up_weights.matrix());
    launch(gelu<T>, hidden_size(), l.up, l.hidden);
    products_.multiply(matrix(branch_), matrix(l.hidden), l.down_weights.matrix());
    launch(add<T>, size(), l.middle, branch_, next);
  }
  /// dx_, the gradient of `next`, becomes that of `middle`, likewise.
  void backward_mlp(const Layer<T>& l) {
    launch(round<T>, size(), dx_, dbranch_);
    multiply_backward(l.hidden, l.down_weights, dbranch_, dhidden_);
    launch(gelu_backward<T>, hidden_size(), l.up, dhidden_);
    multiply_backward(l.norm2.y, l.up_weights, dhidden_, dbranch_);
    normalize_backward(l.norm2, l.middle);
  }

  // ---- their parts ------------------------------------------------------------------------------

  void normalize(const LayerNorm<T>& n, const DeviceArray<float>& x) {
    launch_warps(layer_norm<T>, rows(), width(), x, n.gain.w, n.bias.w, n.y, n.statistics);
  }
  /// From dbranch_, the gradient of its output, to its parameters' gradients and to dx_.
  void normalize_backward(const LayerNorm<T>& n, const DeviceArray<float>& x) {
    launch(layer_norm_parameters_backward<T>, parts() * width(), rows(), width(), x, n.statistics,
           dbranch_, parts_);
    launch(add_parts, 2 * width(), parts(), parts_, n.gain.gradient, n.bias.gradient);
    launch_warps(layer_norm_backward<T>, rows(), width(), x, n.gain.w, n.statistics, dbranch_, dx_);
  }

  /// Of y = x W: dW = x^T dy and dx = dy W^T.
  void multiply_backward(const DeviceArray<T>& x, const Parameter<T>& w, const DeviceArray<T>& dy,
                         const DeviceArray<T>& dx) {
    products_.multiply(w.gradient_matrix(), matrix(x).transposed(), matrix(dy));
    products_.multiply(matrix(dx), matrix(dy), w.matrix().transposed());
  }

  // ---- what attention is asked ------------------------------------------------------------------

  /// Q, K or V (0, 1, 2) of an array that has the three side by side in each row, without a copy:
  /// the next row of a head begins 3 * width elements further.
  template <class E>
  attile::Tensor<E> part_of(E* qkv, int which) const {
    const std::int64_t row_stride = 3 * width();
    return {qkv + which * width(), shape_.len * row_stride, kHeadDim, row_stride};
  }
  /// An array of as many columns as the model: heads lie side by side in each row.
  template <class E>
  attile::Tensor<E> all_of(E* array) const {
    return attile::bshd(array, {.rows = shape_.len, .heads = shape_.heads, .dim = kHeadDim});
  }

  /// What both passes are told: Q, K, V, LSE and the sizes.
  template <class Args>
  Args attention_of(const Layer<T>& l) const {
    const T* const qkv = l.qkv;
    Args args;
    args.q = part_of(qkv, 0), args.k = part_of(qkv, 1), args.v = part_of(qkv, 2);
    args.lse = l.lse;
    args.batch = shape_.batch;
    args.q_heads = args.kv_heads = shape_.heads;
    args.q_len = args.kv_len = shape_.len;
    args.head_dim = kHeadDim;
    return args;
  }
  AttentionForward<T> attention_forward(const Layer<T>& l) const {
    auto args = attention_of<AttentionForward<T>>(l);
    args.o = all_of(l.o.get());
    return args;
  }
  AttentionBackward<T> attention_backward(const Layer<T>& l) const {
    auto args = attention_of<AttentionBackward<T>>(l);
    args.o = all_of<const T>(l.o);
    args.dout = all_of<const T>(do_);
    args.dq = part_of(dqkv_.get(), 0);
    args.dk = part_of(dqkv_.get(), 1);
    args.dv = part_of(dqkv_.get(), 2);
    return args;
  }

  // ---- sizes ------------------------------------------------------------------------------------

  int rows() const { return shape_.rows(); }
  int width() const { return shape_.width(); }
  int size() const { return rows() * width(); }
  int hidden_size() const { return rows() * shape_.hidden(); }
  int parts() const { return (rows() + kRowsOfPart - 1) / kRowsOfPart; }

  /// An array with some columns for each row.
  template <class E>
  DeviceArray<E> array(int cols) const {
    return DeviceArray<E>(std::size_t{1} * rows() * cols);
  }
  /// The same as an operand of a product.
  template <class E>
  Matrix<E> matrix(const DeviceArray<E>& a) const {
    return {a, rows(), static_cast<int>(a.size() / rows())};
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

  // What is used again in each layer, or once in a pass.
  DeviceArray<T> branch_ = array<T>(width());  ///< what a half of a layer adds to x
  DeviceArray<float> logits_ = array<float>(shape_.vocabulary), row_loss_ = array<float>(1);
  DeviceArray<T> dlogits_ = array<T>(shape_.vocabulary);
  DeviceArray<float> dx_ = array<float>(width());  ///< the residual stream's gradient
  DeviceArray<T> dbranch_ = array<T>(width()), dhidden_ = array<T>(shape_.hidden());
  DeviceArray<T> do_ = array<T>(width()), dqkv_ = array<T>(3 * width());
  DeviceArray<float> parts_{std::size_t{2} * parts() * width()};
};

}  // namespace gpt
