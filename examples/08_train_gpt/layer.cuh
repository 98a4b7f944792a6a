// SPDX-License-Identifier: MIT
// What a layer of the model keeps: its parameters, and what its backward pass reads of the forward
// pass. model.cuh computes with it.
#pragma once

#include <cmath>
#include <cstddef>

#include "kernels.cuh"
#include "parameters.cuh"

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

}  // namespace gpt
