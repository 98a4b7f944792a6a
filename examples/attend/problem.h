// SPDX-License-Identifier: MIT
// What attend computes: the sizes, taken from the files, and the tensors.
#pragma once

#include <attile/core/args.h>
#include <attile/core/mask.h>
#include <attile/core/policies.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "../npy.h"
#include "options.h"

namespace attend {

/// One mask type for every run: unlimited on both sides it hides nothing, with right = 0 it is
/// causal. Its tiles are those of the masks of that name, and the kernels are compiled once.
using Mask = attile::SlidingWindow;
/// Likewise with sinks: where none are given, each is -inf, which adds nothing.
using Policies = attile::Policies<Mask, attile::Sink<>>;

struct Problem {
  Layout layout = Layout::kBshd;
  int batch = 0, q_heads = 0, kv_heads = 0, q_len = 0, kv_len = 0, head_dim = 0, head_dim_v = 0;
  Mask mask{};
  float scale = 0;
  bool backward = false;
  bool sinks = false;  ///< whether some were given

  std::int64_t q_rows() const { return std::int64_t{batch} * q_heads * q_len; }
  std::int64_t kv_rows() const { return std::int64_t{batch} * kv_heads * kv_len; }

  npy::Shape shape(int rows, int heads, int dim) const {
    return layout == Layout::kBshd ? npy::Shape{batch, rows, heads, dim}
                                   : npy::Shape{batch, heads, rows, dim};
  }
  npy::Shape q_shape() const { return shape(q_len, q_heads, head_dim); }
  npy::Shape k_shape() const { return shape(kv_len, kv_heads, head_dim); }
  npy::Shape v_shape() const { return shape(kv_len, kv_heads, head_dim_v); }
  npy::Shape o_shape() const { return shape(q_len, q_heads, head_dim_v); }
  npy::Shape lse_shape() const { return {batch, q_heads, q_len}; }
  npy::Shape sinks_shape() const { return {q_heads}; }

  template <class T>
  attile::Tensor<T> view(T* data, int rows, int heads, int dim) const {
    return layout == Layout::kBshd ? attile::bshd(data, rows, heads, dim)
                                   : attile::bhsd(data, rows, heads, dim);
  }

  /// Pairs of a query and a key that see each other, by the convention that rates are stated in:
  /// all, half of all when causal, and the exact number with a window.
  double pairs() const {
    const double all = static_cast<double>(q_len) * kv_len;
    if (mask.left < 0 && mask.right < 0) return all;
    if (mask.left < 0 && mask.right == 0) return all / 2;
    double visible = 0;
    for (int row = 0; row < q_len; ++row) {
      const auto span = mask.columns(0, 0, {row, row + 1}, {q_len, kv_len}).touched;
      if (!span.empty()) visible += span.end - span.begin;
    }
    return visible;
  }

  /// Floating-point operations: 2 (D + Dv) for each pair forward, 2.5 times that backward.
  double forward_flops() const { return 2.0 * batch * q_heads * pairs() * (head_dim + head_dim_v); }
  double backward_flops() const { return 2.5 * forward_flops(); }
};

/// Pointers to one problem's tensors, in host or in device memory.
template <class T>
struct Pointers {
  const T *q = nullptr, *k = nullptr, *v = nullptr, *dout = nullptr;
  T *o = nullptr, *dq = nullptr, *dk = nullptr, *dv = nullptr;
  float* lse = nullptr;
  const float* sinks = nullptr;
  float* dsinks = nullptr;
};

template <class T>
attile::ForwardArgs<T, Policies> forward_args(const Problem& p, const Pointers<T>& at) {
  return {.q = p.view(at.q, p.q_len, p.q_heads, p.head_dim),
          .k = p.view(at.k, p.kv_len, p.kv_heads, p.head_dim),
          .v = p.view(at.v, p.kv_len, p.kv_heads, p.head_dim_v),
          .o = p.view(at.o, p.q_len, p.q_heads, p.head_dim_v),
          .lse = at.lse,
          .batch = p.batch,
          .q_heads = p.q_heads,
          .kv_heads = p.kv_heads,
          .q_len = p.q_len,
          .kv_len = p.kv_len,
          .head_dim = p.head_dim,
          .head_dim_v = p.head_dim_v,
          .scale = p.scale,
          .mask = p.mask,
          .sink = {.sinks = at.sinks}};
}

template <class T>
attile::BackwardArgs<T, Policies> backward_args(const Problem& p, const Pointers<T>& at) {
  const T* const o = at.o;
  return {.q = p.view(at.q, p.q_len, p.q_heads, p.head_dim),
          .k = p.view(at.k, p.kv_len, p.kv_heads, p.head_dim),
          .v = p.view(at.v, p.kv_len, p.kv_heads, p.head_dim_v),
          .o = p.view(o, p.q_len, p.q_heads, p.head_dim_v),
          .lse = at.lse,
          .dout = p.view(at.dout, p.q_len, p.q_heads, p.head_dim_v),
          .dq = p.view(at.dq, p.q_len, p.q_heads, p.head_dim),
          .dk = p.view(at.dk, p.kv_len, p.kv_heads, p.head_dim),
          .dv = p.view(at.dv, p.kv_len, p.kv_heads, p.head_dim_v),
          .batch = p.batch,
          .q_heads = p.q_heads,
          .kv_heads = p.kv_heads,
          .q_len = p.q_len,
          .kv_len = p.kv_len,
          .head_dim = p.head_dim,
          .head_dim_v = p.head_dim_v,
          .scale = p.scale,
          .mask = p.mask,
          .sink = {.sinks = at.sinks, .dsinks = at.dsinks}};
}

/// The tensors of one problem in host memory.
template <class T>
struct Tensors {
  std::vector<T> q, k, v, dout;  // inputs
  std::vector<T> o, dq, dk, dv;  // outputs
  std::vector<float> lse;
  std::vector<float> sinks;   // an input: -inf where none are given
  std::vector<float> dsinks;  // an output

  Pointers<T> pointers() {
    return {q.data(),  k.data(),  v.data(),   dout.data(),  o.data(),     dq.data(),
            dk.data(), dv.data(), lse.data(), sinks.data(), dsinks.data()};
  }
  std::size_t bytes() const {
    return sizeof(T) * (q.size() + k.size() + v.size() + dout.size() + o.size() + dq.size() +
                        dk.size() + dv.size()) +
           sizeof(float) * (lse.size() + sinks.size() + dsinks.size());
  }
};

}  // namespace attend
