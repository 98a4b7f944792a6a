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

/// A (batch, head, row, dim) copy, the order of the reference's results.
template <class T>
std::vector<double> dense(const Problem& p, const std::vector<T>& x, int rows, int heads, int dim) {
  const attile::Tensor<const T> view = p.view(x.data(), rows, heads, dim);
  std::vector<double> copy;
  copy.reserve(x.size());
  for (int b = 0; b < p.batch; ++b) {
    for (int h = 0; h < heads; ++h) {
      for (int row = 0; row < rows; ++row) {
        const T* at = view.row(b, h, row);
        for (int d = 0; d < dim; ++d) copy.push_back(attile::to_float(at[d]));
      }
    }
  }
  return copy;
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

template <class T>
Plain plain_attention(const Problem& p, const Pointers<T>& at, bool reverse) {
  namespace reference = attile::reference;
  Plain plain;
  plain.forward = reference::plain_forward(forward_args(p, at), {.reverse = reverse});
  plain.lse =
      reference::plain_forward(forward_args(p, at), {.keep_scores = true, .reverse = reverse}).lse;
  if (!p.backward) return plain;
  // Its backward pass takes what its own forward pass gave.
  std::vector<T> o;
  for (const double x : plain.forward.o) o.push_back(attile::from_float<T>(static_cast<float>(x)));
  const std::vector<float> lse(plain.lse.begin(), plain.lse.end());
  auto args = backward_args(p, at);
  args.o = attile::bhsd<const T>(o.data(), p.q_len, p.q_heads, p.head_dim_v);
  args.lse = lse.data();
  plain.backward = reference::plain_backward(args, {.reverse = reverse});
  return plain;
}

/// The errors of all outputs against fp64, each with the bound of the contract: twice the error of
/// the plain computation in T, and one rounding to T. The plain computation is made twice, with
/// sums in opposite orders, and the larger error counts: that of few numbers is luck. What three
/// products of TF32 for each one are off by comes on top.
template <class T>
std::vector<Error> errors_against_fp64(const Problem& p, Tensors<T>& t, const Run& run) {
  namespace reference = attile::reference;
  const Pointers<T> at = t.pointers();
  const Plain there = plain_attention(p, at, false);
  const Plain back = plain_attention(p, at, true);
  const auto bound = []<class U>(U, const auto& exact, const auto& plain, const auto& reversed) {
    return std::max(reference::tolerance<U>(exact, plain),
                    reference::tolerance<U>(exact, reversed));
  };
  const auto terms = run.three_products ? reference::forward_magnitudes(forward_args(p, at))
                                        : reference::ForwardResult{};
  const auto exact = reference::forward(forward_args(p, at));
  std::vector<Error> errors = {
      error_of("o", dense(p, t.o, p.q_len, p.q_heads, p.head_dim_v), exact.o,
               bound(T{}, exact.o, there.forward.o, back.forward.o) +
                   reference::three_products_error(terms.o)),
      error_of("lse", {t.lse.begin(), t.lse.end()}, exact.lse,
               bound(0.0f, exact.lse, there.lse, back.lse))};
  if (!p.backward) return errors;
  const auto gradients = reference::backward(backward_args(p, at));
  const auto magnitudes = run.three_products ? reference::backward_magnitudes(backward_args(p, at))
                                             : reference::BackwardResult{};
  errors.push_back(error_of("dq", dense(p, t.dq, p.q_len, p.q_heads, p.head_dim), gradients.dq,
                            bound(T{}, gradients.dq, there.backward.dq, back.backward.dq) +
                                reference::three_products_error(magnitudes.dq)));
  errors.push_back(error_of("dk", dense(p, t.dk, p.kv_len, p.kv_heads, p.head_dim), gradients.dk,
                            bound(T{}, gradients.dk, there.backward.dk, back.backward.dk) +
                                reference::three_products_error(magnitudes.dk)));
  errors.push_back(error_of("dv", dense(p, t.dv, p.kv_len, p.kv_heads, p.head_dim_v), gradients.dv,
                            bound(T{}, gradients.dv, there.backward.dv, back.backward.dv) +
                                reference::three_products_error(magnitudes.dv)));
  if (!p.sinks) return errors;
  const auto roots = reference::backward_magnitudes(backward_args(p, at)).dsinks;
  errors.push_back(
      error_of("dsinks", {t.dsinks.begin(), t.dsinks.end()}, gradients.dsinks,
               bound(0.0f, gradients.dsinks, there.backward.dsinks, back.backward.dsinks) +
                   reference::rounded_rows_error<T>(roots)));
  return errors;
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
