// SPDX-License-Identifier: MIT
// What attend computes: the sizes, taken from the files, and the tensors.
#pragma once

#include <attile/core/args.h>
#include <attile/core/mask.h>
#include <attile/core/packed.h>
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

/// With packed sequences `batch` is their number, q_len and kv_len are the longest ones, and the
/// tensors have one batch of q_rows and kv_rows.
struct Problem {
  Layout layout = Layout::kBshd;
  int batch = 0, q_heads = 0, kv_heads = 0, q_len = 0, kv_len = 0, head_dim = 0, head_dim_v = 0;
  int batches = 0, q_rows = 0, kv_rows = 0;     ///< of the tensors
  std::vector<int> cu_seqlens_q, cu_seqlens_k;  ///< of packed sequences; else empty
  Mask mask{};
  float scale = 0;
  bool backward = false;
  bool sinks = false;  ///< whether some were given

  bool is_packed() const { return !cu_seqlens_q.empty(); }
  std::int64_t statistics() const { return std::int64_t{batches} * q_heads * q_rows; }

  npy::Shape shape(int rows, int heads, int dim) const {
    return layout == Layout::kBshd ? npy::Shape{batches, rows, heads, dim}
                                   : npy::Shape{batches, heads, rows, dim};
  }
  npy::Shape q_shape() const { return shape(q_rows, q_heads, head_dim); }
  npy::Shape k_shape() const { return shape(kv_rows, kv_heads, head_dim); }
  npy::Shape v_shape() const { return shape(kv_rows, kv_heads, head_dim_v); }
  npy::Shape o_shape() const { return shape(q_rows, q_heads, head_dim_v); }
  npy::Shape lse_shape() const { return {batches, q_heads, q_rows}; }
  npy::Shape sinks_shape() const { return {q_heads}; }

  template <class T>
  attile::Tensor<T> view(T* data, int rows, int heads, int dim) const {
    return layout == Layout::kBshd ? attile::bshd(data, {.rows = rows, .heads = heads, .dim = dim})
                                   : attile::bhsd(data, {.rows = rows, .heads = heads, .dim = dim});
  }

  /// The lengths of one sequence.
  attile::Extent extent(int sequence) const {
    if (!is_packed()) return {q_len, kv_len};
    return {cu_seqlens_q[sequence + 1] - cu_seqlens_q[sequence],
            cu_seqlens_k[sequence + 1] - cu_seqlens_k[sequence]};
  }

  /// Pairs of a query and a key that see each other, by the convention that rates are stated in:
  /// all, half of all when causal, and the exact number with a window.
  double pairs() const {
    double sum = 0;
    for (int b = 0; b < batch; ++b) sum += pairs_of(extent(b));
    return sum;
  }

  /// Floating-point operations: 2 (D + Dv) for each pair forward, 2.5 times that backward.
  double forward_flops() const { return 2.0 * q_heads * pairs() * (head_dim + head_dim_v); }
  double backward_flops() const { return 2.5 * forward_flops(); }

 private:
  double pairs_of(attile::Extent lengths) const {
    const double all = static_cast<double>(lengths.q_len) * lengths.kv_len;
    if (mask.left < 0 && mask.right < 0) return all;
    if (mask.left < 0 && mask.right == 0) return all / 2;
    double visible = 0;
    for (int row = 0; row < lengths.q_len; ++row) {
      const auto span = mask.columns(0, 0, {row, row + 1}, lengths).touched;
      if (!span.empty()) visible += span.end - span.begin;
    }
    return visible;
  }
};

/// Pointers to one problem's tensors, in host or in device memory.
template <class T>
struct Pointers {
  const T *q = nullptr, *k = nullptr, *v = nullptr, *dout = nullptr;
  T *o = nullptr, *dq = nullptr, *dk = nullptr, *dv = nullptr;
  float* lse = nullptr;
  const float* sinks = nullptr;
  float* dsinks = nullptr;
  const int *cu_seqlens_q = nullptr, *cu_seqlens_k = nullptr;
};

/// Points to a problem's tensors and to its offsets, in host memory or in device memory.
template <class T, class AnyTensors, class Offsets>
Pointers<T> pointers_to(AnyTensors& t, const Offsets& offsets) {
  return {t.q.data(),
          t.k.data(),
          t.v.data(),
          t.dout.data(),
          t.o.data(),
          t.dq.data(),
          t.dk.data(),
          t.dv.data(),
          t.lse.data(),
          t.sinks.data(),
          t.dsinks.data(),
          offsets.cu_seqlens_q.data(),
          offsets.cu_seqlens_k.data()};
}

/// The policies of every run of packed sequences, or of dense ones. Where no sinks are given, each
/// is -inf, which adds nothing.
template <class Sequences, class M = Mask>
using PoliciesOf = attile::Policies<M, attile::Sink<>, Sequences>;

namespace detail {

/// What the arguments of both passes have in common.
template <class Args, class T, class M>
Args common_args(const Problem& p, const Pointers<T>& at, const M& mask) {
  Args a;
  a.q = p.view(at.q, p.q_rows, p.q_heads, p.head_dim);
  a.k = p.view(at.k, p.kv_rows, p.kv_heads, p.head_dim);
  a.v = p.view(at.v, p.kv_rows, p.kv_heads, p.head_dim_v);
  a.lse = at.lse;
  a.batch = p.batch;
  a.q_heads = p.q_heads;
  a.kv_heads = p.kv_heads;
  a.q_len = p.q_len;
  a.kv_len = p.kv_len;
  a.head_dim = p.head_dim;
  a.head_dim_v = p.head_dim_v;
  a.scale = p.scale;
  a.mask = mask;
  a.sink.sinks = at.sinks;
  if constexpr (!Args::SequencesType::kUniform) {
    a.sequences = attile::Packed{at.cu_seqlens_q, at.cu_seqlens_k, p.q_rows, p.kv_rows};
  }
  return a;
}

}  // namespace detail

/// The arguments of a pass, with the problem's mask, or with another one that is equal to it.
template <class Sequences, class T, class M>
attile::ForwardArgs<T, PoliciesOf<Sequences, M>> forward_args(const Problem& p,
                                                              const Pointers<T>& at,
                                                              const M& mask) {
  auto a = detail::common_args<attile::ForwardArgs<T, PoliciesOf<Sequences, M>>>(p, at, mask);
  a.o = p.view(at.o, p.q_rows, p.q_heads, p.head_dim_v);
  return a;
}
template <class Sequences, class T>
auto forward_args(const Problem& p, const Pointers<T>& at) {
  return forward_args<Sequences>(p, at, p.mask);
}

template <class Sequences, class T, class M>
attile::BackwardArgs<T, PoliciesOf<Sequences, M>> backward_args(const Problem& p,
                                                                const Pointers<T>& at,
                                                                const M& mask) {
  auto a = detail::common_args<attile::BackwardArgs<T, PoliciesOf<Sequences, M>>>(p, at, mask);
  const T* const o = at.o;
  a.o = p.view(o, p.q_rows, p.q_heads, p.head_dim_v);
  a.dout = p.view(at.dout, p.q_rows, p.q_heads, p.head_dim_v);
  a.dq = p.view(at.dq, p.q_rows, p.q_heads, p.head_dim);
  a.dk = p.view(at.dk, p.kv_rows, p.kv_heads, p.head_dim);
  a.dv = p.view(at.dv, p.kv_rows, p.kv_heads, p.head_dim_v);
  a.sink.dsinks = at.dsinks;
  return a;
}
template <class Sequences, class T>
auto backward_args(const Problem& p, const Pointers<T>& at) {
  return backward_args<Sequences>(p, at, p.mask);
}

/// Calls f with the sequences policy of the problem, a type: f.template operator()<Packed>().
template <class F>
auto with_sequences(const Problem& p, const F& f) {
  return p.is_packed() ? f.template operator()<attile::Packed>()
                       : f.template operator()<attile::Uniform>();
}

/// The tensors of one problem in host memory.
template <class T>
struct Tensors {
  std::vector<T> q, k, v, dout;  // inputs
  std::vector<T> o, dq, dk, dv;  // outputs
  std::vector<float> lse;
  std::vector<float> sinks;   // an input: -inf where none are given
  std::vector<float> dsinks;  // an output

  Pointers<T> pointers(const Problem& p) { return pointers_to<T>(*this, p); }
  std::size_t bytes() const {
    return sizeof(T) * (q.size() + k.size() + v.size() + dout.size() + o.size() + dq.size() +
                        dk.size() + dv.size()) +
           sizeof(float) * (lse.size() + sinks.size() + dsinks.size());
  }
};

}  // namespace attend
