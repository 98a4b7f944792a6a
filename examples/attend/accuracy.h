// SPDX-License-Identifier: MIT
// How far attend's outputs are from fp64, and how far the contract lets them be.
#pragma once

#include <attile/reference.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "problem.h"
#include "run.h"

namespace attend {

/// One tensor's error in max-norm.
struct Error {
  std::string tensor;
  double absolute;  ///< max |x - exact|
  double relative;  ///< that over max |exact|
  double bound;     ///< the most that `absolute` may be; infinite where there is no bound

  bool within() const { return absolute <= bound; }
};

/// A (batch, head, row, dim) copy, the order of the reference's results, with rows of the longest
/// sequence: 0 where a packed one has fewer.
template <class T>
std::vector<double> dense(const Problem& p, const attile::Tensor<const T>& view, bool of_keys,
                          int heads, int dim) {
  const int longest = of_keys ? p.kv_len : p.q_len;
  const std::vector<int>& cu_seqlens = of_keys ? p.cu_seqlens_k : p.cu_seqlens_q;
  std::vector<double> copy;
  copy.reserve(static_cast<std::size_t>(p.batch) * heads * longest * dim);
  for (int b = 0; b < p.batch; ++b) {
    const int rows = of_keys ? p.extent(b).kv_len : p.extent(b).q_len;
    for (int h = 0; h < heads; ++h) {
      for (int row = 0; row < longest; ++row) {
        const T* at = row >= rows      ? nullptr
                      : !p.is_packed() ? view.row(b, h, row)
                                       : view.row(0, h, cu_seqlens[b] + row);
        for (int d = 0; d < dim; ++d) copy.push_back(at == nullptr ? 0 : attile::to_float(at[d]));
      }
    }
  }
  return copy;
}
/// The same of a tensor of rows of Q, or of K.
template <class T>
std::vector<double> dense_q(const Problem& p, const std::vector<T>& x, int dim) {
  return dense(p, p.view(x.data(), p.q_rows, p.q_heads, dim), false, p.q_heads, dim);
}
template <class T>
std::vector<double> dense_k(const Problem& p, const std::vector<T>& x, int dim) {
  return dense(p, p.view(x.data(), p.kv_rows, p.kv_heads, dim), true, p.kv_heads, dim);
}

/// Where `exact` is not finite, `x` must be the same; else the error is infinite.
inline Error error_of(const std::string& tensor, const std::vector<double>& x,
                      const std::vector<double>& exact, double bound) {
  double error = 0, largest = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const bool same = x[i] == exact[i] || (std::isnan(x[i]) && std::isnan(exact[i]));
    if (same) {
      if (std::isfinite(x[i])) largest = std::max(largest, std::abs(x[i]));
      continue;
    }
    const double difference = std::abs(x[i] - exact[i]);
    error = std::isfinite(difference) ? std::max(error, difference)
                                      : std::numeric_limits<double>::infinity();
    if (!std::isfinite(error)) break;
    largest = std::max(largest, std::abs(exact[i]));
  }
  return {tensor, error, largest > 0 ? error / largest : error, bound};
}

/// Standard attention in T, forward and backward.
struct Plain {
  attile::reference::ForwardResult forward;
  std::vector<double> lse;  ///< from scores that were not rounded to T: LSE never passes through T
  attile::reference::BackwardResult backward;
};

/// Writes a (batch, head, row, dim) array, as `dense` makes it, where the rows of the queries lie.
template <class T>
void scatter_q(const Problem& p, const std::vector<double>& from, const attile::Tensor<T>& to,
               int dim) {
  for (int b = 0; b < p.batch; ++b) {
    for (int h = 0; h < p.q_heads; ++h) {
      for (int row = 0; row < p.extent(b).q_len; ++row) {
        T* at = p.is_packed() ? to.row(0, h, p.cu_seqlens_q[b] + row) : to.row(b, h, row);
        const std::size_t first = ((std::size_t(b) * p.q_heads + h) * p.q_len + row) * dim;
        for (int d = 0; d < dim; ++d) {
          at[d] = attile::from_float<T>(static_cast<float>(from[first + d]));
        }
      }
    }
  }
}

template <class Sequences, class T>
Plain plain_attention(const Problem& p, const Pointers<T>& at, bool reverse) {
  namespace reference = attile::reference;
  Plain plain;
  const auto forward = forward_args<Sequences>(p, at);
  plain.forward = reference::plain_forward(forward, {.reverse = reverse});
  plain.lse = reference::plain_forward(forward, {.keep_scores = true, .reverse = reverse}).lse;
  if (!p.backward) return plain;
  // Its backward pass takes what its own forward pass gave.
  std::vector<T> o(p.statistics() * p.head_dim_v);
  std::vector<float> lse(p.statistics());
  scatter_q(p, plain.forward.o, p.view(o.data(), p.q_rows, p.q_heads, p.head_dim_v), p.head_dim_v);
  scatter_q(p, plain.lse,
            attile::bhsd(lse.data(), {.rows = p.q_rows, .heads = p.q_heads, .dim = 1}), 1);
  Pointers<T> given = at;
  given.o = o.data();
  given.lse = lse.data();
  plain.backward =
      reference::plain_backward(backward_args<Sequences>(p, given), {.reverse = reverse});
  return plain;
}

/// The errors of all outputs against fp64, each with the bound of the contract: twice the error of
/// the plain computation in T, and one rounding to T. The plain computation is made twice, with
/// sums in opposite orders, and the larger error counts: that of few numbers is luck. What three
/// products of TF32 for each one are off by comes on top.
template <class Sequences, class T>
std::vector<Error> errors_of(const Problem& p, Tensors<T>& t, const Run& run) {
  namespace reference = attile::reference;
  const Pointers<T> at = t.pointers(p);
  const auto forward = forward_args<Sequences>(p, at);
  const Plain there = plain_attention<Sequences>(p, at, false);
  const Plain back = plain_attention<Sequences>(p, at, true);
  const auto bound = []<class U>(U, const auto& exact, const auto& plain, const auto& reversed) {
    return std::max(reference::tolerance<U>(exact, plain),
                    reference::tolerance<U>(exact, reversed));
  };
  const auto terms =
      run.three_products ? reference::forward_magnitudes(forward) : reference::ForwardResult{};
  const auto exact = reference::forward(forward);
  const attile::Tensor<const float> lse =
      attile::bhsd(t.lse.data(), {.rows = p.q_rows, .heads = p.q_heads, .dim = 1});
  std::vector<Error> errors = {error_of("o", dense_q(p, t.o, p.head_dim_v), exact.o,
                                        bound(T{}, exact.o, there.forward.o, back.forward.o) +
                                            reference::three_products_error(terms.o)),
                               error_of("lse", dense(p, lse, false, p.q_heads, 1), exact.lse,
                                        bound(0.0f, exact.lse, there.lse, back.lse))};
  if (!p.backward) return errors;
  const auto backward = backward_args<Sequences>(p, at);
  const auto gradients = reference::backward(backward);
  const auto magnitudes =
      run.three_products ? reference::backward_magnitudes(backward) : reference::BackwardResult{};
  errors.push_back(error_of("dq", dense_q(p, t.dq, p.head_dim), gradients.dq,
                            bound(T{}, gradients.dq, there.backward.dq, back.backward.dq) +
                                reference::three_products_error(magnitudes.dq)));
  errors.push_back(error_of("dk", dense_k(p, t.dk, p.head_dim), gradients.dk,
                            bound(T{}, gradients.dk, there.backward.dk, back.backward.dk) +
                                reference::three_products_error(magnitudes.dk)));
  errors.push_back(error_of("dv", dense_k(p, t.dv, p.head_dim_v), gradients.dv,
                            bound(T{}, gradients.dv, there.backward.dv, back.backward.dv) +
                                reference::three_products_error(magnitudes.dv)));
  if (!p.sinks) return errors;
  const auto roots = reference::backward_magnitudes(backward).dsinks;
  errors.push_back(
      error_of("dsinks", {t.dsinks.begin(), t.dsinks.end()}, gradients.dsinks,
               bound(0.0f, gradients.dsinks, there.backward.dsinks, back.backward.dsinks) +
                   reference::sink_gradient_error<T>(
                       roots, gradients.dsinks, reference::sink_exponents(backward, exact.lse))));
  return errors;
}
template <class T>
std::vector<Error> errors_against_fp64(const Problem& p, Tensors<T>& t, const Run& run) {
  return with_sequences(p, [&]<class Sequences>() { return errors_of<Sequences>(p, t, run); });
}

/// The error of O against a given one in the same layout.
template <class T>
Error error_against(const std::vector<float>& expected, const Tensors<T>& t) {
  std::vector<double> x;
  x.reserve(t.o.size());
  for (const T value : t.o) x.push_back(attile::to_float(value));
  return error_of("o", x, {expected.begin(), expected.end()},
                  std::numeric_limits<double>::infinity());
}

}  // namespace attend
