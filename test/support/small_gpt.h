// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/args.h>
#include <attile/core/config.h>
#include <attile/core/element.h>
#include <attile/core/mask.h>
#include <attile/core/tensor.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

// A GPT of two layers and its training, for any machine that has
//   template <class T> T* allocate(std::size_t count);      // zeros
//   template <class T> void upload(T* to, const std::vector<T>& from);
//   template <class T> std::vector<T> download(const T* from, std::size_t count);
//   template <class F> void each(int count, F f);           // f(i) for 0 <= i < count, in any
//   order void forward(const Args&, int layer); void backward(const BackwardArgs&, int layer);
// Everything is fp32 but attention's tensors, which are bf16, and every sum has one order, so that
// two runs differ by what attention gives alone.
namespace attile_test::gpt {

using Bf16 = __nv_bfloat16;
using Args = attile::ForwardArgs<Bf16, attile::Causal>;
using BackwardArgs = attile::BackwardArgs<Bf16, attile::Causal>;

inline constexpr int kLayers = 2, kHeads = 2, kDim = 64, kWidth = kHeads * kDim, kHidden = 256;
inline constexpr int kVocabulary = 32, kLen = 128;

/// c = a b, or c += a b; i is an element of c.
struct Product {
  const float* a;
  const float* b;
  float* c;
  int n, depth, a_row, a_col, b_row, b_col;
  bool adds;
  ATTILE_HOST_DEVICE void operator()(int i) const {
    float sum = 0;
    for (int k = 0; k < depth; ++k) {
      sum += a[i / n * a_row + k * a_col] * b[k * b_row + i % n * b_col];
    }
    c[i] = adds ? c[i] + sum : sum;
  }
};

struct Embed {
  const int* token;
  const float* table;
  const float* position;
  float* x;
  ATTILE_HOST_DEVICE void operator()(int i) const {
    const int row = i / kWidth, c = i % kWidth;
    x[i] = table[token[row] * kWidth + c] + position[row % kLen * kWidth + c];
  }
};

/// i is an element of the table, or one of the positions'.
struct EmbedBackward {
  const int* token;
  const float* dx;
  float* dtable;
  float* dposition;
  int rows;
  ATTILE_HOST_DEVICE void operator()(int i) const {
    const bool is_token = i < kVocabulary * kWidth;
    const int at = is_token ? i : i - kVocabulary * kWidth;
    float sum = 0;
    for (int row = 0; row < rows; ++row) {
      const int entry = is_token ? token[row] : row % kLen;
      if (entry == at / kWidth) sum += dx[row * kWidth + at % kWidth];
    }
    (is_token ? dtable : dposition)[at] = sum;
  }
};

/// y = x / sqrt(mean(x^2)), row by row.
struct Norm {
  const float* x;
  float* y;
  ATTILE_HOST_DEVICE static float inverse(const float* x) {
    float sum = 0;
    for (int c = 0; c < kWidth; ++c) sum += x[c] * x[c];
    return 1.0f / sqrtf(sum / kWidth + 1e-5f);
  }
  ATTILE_HOST_DEVICE void operator()(int row) const {
    const float r = inverse(x + row * kWidth);
    for (int c = 0; c < kWidth; ++c) y[row * kWidth + c] = r * x[row * kWidth + c];
  }
};

/// dx += r dy - x r^3 mean(dy x).
struct NormBackward {
  const float* x;
  const float* dy;
  float* dx;
  ATTILE_HOST_DEVICE void operator()(int row) const {
    const int first = row * kWidth;
    const float r = Norm::inverse(x + first);
    float dot = 0;
    for (int c = 0; c < kWidth; ++c) dot += dy[first + c] * x[first + c];
    const float along = r * r * r * dot / kWidth;
    for (int c = 0; c < kWidth; ++c) dx[first + c] += r * dy[first + c] - along * x[first + c];
  }
};

struct Copy {
  const float* x;
  float* y;
  ATTILE_HOST_DEVICE void operator()(int i) const { y[i] = x[i]; }
};

struct Clear {
  float* x;
  ATTILE_HOST_DEVICE void operator()(int i) const { x[i] = 0; }
};

struct Relu {
  float* x;
  ATTILE_HOST_DEVICE void operator()(int i) const { x[i] = x[i] > 0 ? x[i] : 0; }
};

struct ReluBackward {
  const float* y;
  float* dy;
  ATTILE_HOST_DEVICE void operator()(int i) const { dy[i] = y[i] > 0 ? dy[i] : 0; }
};

/// To bf16: to the nearest, or with a seed up or down by chance, less than one unit off.
struct Round {
  const float* x;
  Bf16* y;
  std::uint32_t seed;
  ATTILE_HOST_DEVICE void operator()(int i) const {
    if (seed == 0) {
      y[i] = attile::from_float<Bf16>(x[i]);
      return;
    }
    std::uint32_t h = (static_cast<std::uint32_t>(i) + seed) * 0x9E3779B1u;
    h = (h ^ h >> 15) * 0x85EBCA77u;
    h ^= h >> 13;
    y[i] = attile::from_float<Bf16>(
        attile::float_of((attile::word_of(x[i]) + (h & 0xFFFFu)) & 0xFFFF0000u));
  }
};

struct Widen {
  const Bf16* x;
  float* y;
  ATTILE_HOST_DEVICE void operator()(int i) const { y[i] = attile::to_float(x[i]); }
};

/// The cross entropy of a row, and its gradient in place of the logits.
struct Loss {
  float* logits;
  const int* target;
  float* loss;
  int rows;
  ATTILE_HOST_DEVICE void operator()(int row) const {
    float* const x = logits + row * kVocabulary;
    float largest = x[0], sum = 0;
    for (int v = 1; v < kVocabulary; ++v) largest = x[v] > largest ? x[v] : largest;
    for (int v = 0; v < kVocabulary; ++v) sum += expf(x[v] - largest);
    loss[row] = largest + logf(sum) - x[target[row]];
    for (int v = 0; v < kVocabulary; ++v) {
      x[v] = (expf(x[v] - largest) / sum - (v == target[row] ? 1.0f : 0.0f)) / rows;
    }
  }
};

struct Adam {
  float* w;
  const float* g;
  float* m;
  float* v;
  float rate;
  ATTILE_HOST_DEVICE void operator()(int i) const {
    m[i] = 0.9f * m[i] + 0.1f * g[i];
    v[i] = 0.99f * v[i] + 0.01f * g[i] * g[i];
    w[i] -= rate * m[i] / (sqrtf(v[i]) + 1e-6f);
  }
};

/// The model, its gradients and one batch. `seed`: of Round; 0 rounds to nearest.
template <class Machine>
class Training {
 public:
  Training(Machine& machine, int batch, std::uint32_t seed)
      : machine_(machine), batch_(batch), rows_(batch * kLen), seed_(seed) {
    std::mt19937 random(1);
    table_ = parameter(kVocabulary * kWidth, 0.3f, random);
    position_ = parameter(kLen * kWidth, 0.3f, random);
    unembed_ = parameter(kWidth * kVocabulary, 0.08f, random);
    for (Layer& l : layers_) {
      l.qkv_w = parameter(kWidth * 3 * kWidth, 0.12f, random);
      l.out_w = parameter(kWidth * kWidth, 0.05f, random);
      l.up_w = parameter(kWidth * kHidden, 0.12f, random);
      l.down_w = parameter(kHidden * kWidth, 0.05f, random);
      l.x = floats(kWidth), l.middle = floats(kWidth), l.norm = floats(kWidth);
      l.norm2 = floats(kWidth), l.hidden = floats(kHidden), l.out = floats(kWidth);
      l.qkv = machine_.template allocate<Bf16>(std::size_t(rows_) * 3 * kWidth);
      l.o = machine_.template allocate<Bf16>(std::size_t(rows_) * kWidth);
      l.lse = floats(kHeads);
    }
    last_ = floats(kWidth), last_norm_ = floats(kWidth), logits_ = floats(kVocabulary);
    loss_ = floats(1), dx_ = floats(kWidth), dnorm_ = floats(kWidth), wide_ = floats(3 * kWidth);
    dqkv_ = machine_.template allocate<Bf16>(std::size_t(rows_) * 3 * kWidth);
    dout_ = machine_.template allocate<Bf16>(std::size_t(rows_) * kWidth);
    tokens_ = machine_.template allocate<int>(rows_);
    targets_ = machine_.template allocate<int>(rows_);
  }

  /// One step on batch number `step`; its loss. Each sequence repeats 8 random tokens, which only
  /// attention can find.
  double step(int step) {
    draw(step);
    forward();
    machine_.each(rows_, Loss{logits_, targets_, loss_, rows_});
    const std::vector<float> row_loss = machine_.download(loss_, rows_);
    double loss = 0;
    for (const float x : row_loss) loss += x / rows_;
    backward();
    for (const Parameter& p : parameters_) machine_.each(p.size, Adam{p.w, p.g, p.m, p.v, 1e-3f});
    ++steps_;
    return loss;
  }

 private:
  struct Parameter {
    int size;
    float *w, *g, *m, *v;
  };
  struct Layer {
    Parameter qkv_w, out_w, up_w, down_w;
    float *x, *middle, *norm, *norm2, *hidden, *out, *lse;
    Bf16 *qkv, *o;
  };

  float* floats(int cols) { return machine_.template allocate<float>(std::size_t(rows_) * cols); }

  Parameter parameter(int size, float deviation, std::mt19937& random) {
    std::normal_distribution<float> normal(0.0f, deviation);
    std::vector<float> values(size);
    for (float& x : values) x = normal(random);
    const auto array = [&] { return machine_.template allocate<float>(size); };
    const Parameter p{size, array(), array(), array(), array()};
    machine_.upload(p.w, values);
    parameters_.push_back(p);
    return p;
  }

  void draw(int step) {
    std::mt19937 random(100 + step);
    std::vector<int> tokens(rows_), targets(rows_);
    for (int b = 0; b < batch_; ++b) {
      int period[8];
      for (int& x : period) x = static_cast<int>(random() % kVocabulary);
      for (int t = 0; t < kLen; ++t) {
        tokens[b * kLen + t] = period[t % 8];
        targets[b * kLen + t] = period[(t + 1) % 8];
      }
    }
    machine_.upload(tokens_, tokens);
    machine_.upload(targets_, targets);
  }

  /// y (rows, n) = x (rows, depth) W, or y += x W.
  void multiply(const float* x, const Parameter& w, float* y, int depth, int n, bool adds = false) {
    machine_.each(rows_ * n, Product{x, w.w, y, n, depth, depth, 1, n, 1, adds});
  }
  /// dx = dy W^T, dW = x^T dy.
  void multiply_backward(const float* x, const Parameter& w, const float* dy, float* dx, int depth,
                         int n) {
    machine_.each(depth * n, Product{x, dy, w.g, n, rows_, 1, depth, n, 1, false});
    machine_.each(rows_ * depth, Product{dy, w.w, dx, depth, n, n, 1, 1, n, false});
  }

  /// Rows of q, k, v lie side by side.
  template <class T>
  static attile::Tensor<T> part(T* qkv, int which) {
    return {qkv + which * kWidth, std::int64_t{kLen} * 3 * kWidth, kDim, 3 * kWidth};
  }

  void forward() {
    machine_.each(rows_ * kWidth, Embed{tokens_, table_.w, position_.w, layers_[0].x});
    for (int i = 0; i < kLayers; ++i) {
      Layer& l = layers_[i];
      float* const next = i + 1 < kLayers ? layers_[i + 1].x : last_;
      machine_.each(rows_, Norm{l.x, l.norm});
      multiply(l.norm, l.qkv_w, wide_, kWidth, 3 * kWidth);
      const auto chance = seed_ == 0 ? 0 : seed_ + static_cast<std::uint32_t>(steps_ * kLayers + i);
      machine_.each(rows_ * 3 * kWidth, Round{wide_, l.qkv, chance});
      machine_.forward(Args{.q = part<const Bf16>(l.qkv, 0),
                            .k = part<const Bf16>(l.qkv, 1),
                            .v = part<const Bf16>(l.qkv, 2),
                            .o = attile::bshd(l.o, kLen, kHeads, kDim),
                            .lse = l.lse,
                            .batch = batch_,
                            .q_heads = kHeads,
                            .kv_heads = kHeads,
                            .q_len = kLen,
                            .kv_len = kLen,
                            .head_dim = kDim},
                       i);
      machine_.each(rows_ * kWidth, Widen{l.o, l.out});
      machine_.each(rows_ * kWidth, Copy{l.x, l.middle});
      multiply(l.out, l.out_w, l.middle, kWidth, kWidth, true);
      machine_.each(rows_, Norm{l.middle, l.norm2});
      multiply(l.norm2, l.up_w, l.hidden, kWidth, kHidden);
      machine_.each(rows_ * kHidden, Relu{l.hidden});
      machine_.each(rows_ * kWidth, Copy{l.middle, next});
      multiply(l.hidden, l.down_w, next, kHidden, kWidth, true);
    }
    machine_.each(rows_, Norm{last_, last_norm_});
    multiply(last_norm_, unembed_, logits_, kWidth, kVocabulary);
  }

  void backward() {
    multiply_backward(last_norm_, unembed_, logits_, dnorm_, kWidth, kVocabulary);
    machine_.each(rows_ * kWidth, Clear{dx_});
    machine_.each(rows_, NormBackward{last_, dnorm_, dx_});
    for (int i = kLayers - 1; i >= 0; --i) {
      Layer& l = layers_[i];
      multiply_backward(l.hidden, l.down_w, dx_, wide_, kHidden, kWidth);
      machine_.each(rows_ * kHidden, ReluBackward{l.hidden, wide_});
      multiply_backward(l.norm2, l.up_w, wide_, dnorm_, kWidth, kHidden);
      machine_.each(rows_, NormBackward{l.middle, dnorm_, dx_});
      multiply_backward(l.out, l.out_w, dx_, dnorm_, kWidth, kWidth);
      machine_.each(rows_ * kWidth, Round{dnorm_, dout_, 0});
      machine_.backward(BackwardArgs{.q = part<const Bf16>(l.qkv, 0),
                                     .k = part<const Bf16>(l.qkv, 1),
                                     .v = part<const Bf16>(l.qkv, 2),
                                     .o = attile::bshd<const Bf16>(l.o, kLen, kHeads, kDim),
                                     .lse = l.lse,
                                     .dout = attile::bshd<const Bf16>(dout_, kLen, kHeads, kDim),
                                     .dq = part(dqkv_, 0),
                                     .dk = part(dqkv_, 1),
                                     .dv = part(dqkv_, 2),
                                     .batch = batch_,
                                     .q_heads = kHeads,
                                     .kv_heads = kHeads,
                                     .q_len = kLen,
                                     .kv_len = kLen,
                                     .head_dim = kDim},
                        i);
      machine_.each(rows_ * 3 * kWidth, Widen{dqkv_, wide_});
      multiply_backward(l.norm, l.qkv_w, wide_, dnorm_, kWidth, 3 * kWidth);
      machine_.each(rows_, NormBackward{l.x, dnorm_, dx_});
    }
    machine_.each((kVocabulary + kLen) * kWidth,
                  EmbedBackward{tokens_, dx_, table_.g, position_.g, rows_});
  }

  Machine& machine_;
  int batch_, rows_, steps_ = 0;
  std::uint32_t seed_;
  std::vector<Parameter> parameters_;
  Parameter table_, position_, unembed_;
  Layer layers_[kLayers];
  float *last_, *last_norm_, *logits_, *loss_, *dx_, *dnorm_, *wide_;
  Bf16 *dqkv_, *dout_;
  int *tokens_, *targets_;
};

}  // namespace attile_test::gpt
