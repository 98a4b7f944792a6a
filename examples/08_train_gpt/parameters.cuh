// SPDX-License-Identifier: MIT
// What is learned, and the step that AdamW takes.
#pragma once

#include <attile/core/element.h>

#include <cmath>
#include <cstddef>
#include <random>
#include <vector>

#include "kernels.cuh"
#include "products.cuh"

namespace gpt {

using example::DeviceArray;

/// A matrix or a vector that is learned. Steps are too small for 16 bits, where w + step is often w
/// again: the weights are kept in fp32, and rounded to T for the products after each step.
template <class T>
struct Parameter {
  int rows, cols;
  bool decays;
  DeviceArray<float> w, gradient, m, v;
  DeviceArray<T> rounded;

  Parameter(int rows, int cols, bool decays, const std::vector<float>& values)
      : rows(rows),
        cols(cols),
        decays(decays),
        w(values),
        gradient(zeros(values.size())),
        m(zeros(values.size())),
        v(zeros(values.size())),
        rounded(values.size()) {
    launch(round<T>, size(), w, rounded);
  }

  int size() const { return rows * cols; }
  Matrix<T> matrix() const { return {rounded, rows, cols}; }
  Matrix<float> gradient_matrix() const { return {gradient, rows, cols}; }

  void update(const AdamW& set) const {
    AdamW mine = set;
    if (!decays) mine.decay = 0;
    launch(adamw<T>, size(), mine, gradient, m, v, w, rounded);
  }

 private:
  static std::vector<float> zeros(std::size_t size) { return std::vector<float>(size, 0.0f); }
};

/// Makes parameters, whose values its seed decides.
template <class T>
class Initializer {
 public:
  explicit Initializer(unsigned seed) : random_(seed) {}

  /// The weights of a product y = x W, (in, out). With this deviation each element of y has about
  /// the variance of those of x; `factor` makes it smaller.
  Parameter<T> weights(int in, int out, float factor = 1) {
    return normal(in, out, factor / std::sqrt(static_cast<float>(in)), true);
  }
  /// A vector for each token or position.
  Parameter<T> table(int entries, int width) { return normal(entries, width, 0.3f, false); }
  /// The gain or the bias of a layer norm.
  Parameter<T> vector(int width, float value) {
    return {1, width, false, std::vector<float>(width, value)};
  }

 private:
  Parameter<T> normal(int rows, int cols, float deviation, bool decays) {
    std::normal_distribution<float> distribution(0.0f, deviation);
    std::vector<float> values(static_cast<std::size_t>(rows) * cols);
    for (float& x : values) x = distribution(random_);
    return {rows, cols, decays, values};
  }

  std::mt19937 random_;
};

}  // namespace gpt
