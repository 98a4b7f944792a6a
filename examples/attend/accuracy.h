// SPDX-License-Identifier: MIT
// How far attend's outputs are from fp64, and how far the contract lets them be.
#pragma once

#include <attile/reference.h>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "problem.h"
#include "progress.h"
#include "run.h"

namespace attend {

/// One tensor's error in max-norm.
struct Error {
  std::string tensor;
  double absolute;       ///< max |x - exact|
  double relative;       ///< that over max |exact|
  double bound;          ///< the most that `absolute` may be; infinite where there is no bound
  std::size_t nans = 0;  ///< values that are NaN in both

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
  std::size_t nans = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const bool same = x[i] == exact[i] || (std::isnan(x[i]) && std::isnan(exact[i]));
    if (same) {
      if (std::isnan(x[i])) ++nans;
      if (std::isfinite(x[i])) largest = std::max(largest, std::abs(x[i]));
      continue;
    }
    const double difference = std::abs(x[i] - exact[i]);
    error = std::isfinite(difference) ? std::max(error, difference)
                                      : std::numeric_limits<double>::infinity();
    if (!std::isfinite(error)) break;
    largest = std::max(largest, std::abs(exact[i]));
  }
  return {tensor, error, largest > 0 ? error / largest : error, bound, nans};
}

/// The mask of the problem, which says how far the reference is: that asks for the scores of a row
/// from the first one on.
struct WatchedMask {
  Mask mask;
  Progress* progress = nullptr;
  int steps = 0;  ///< of a row

  bool visible(attile::ScoreIndex at, attile::Extent extent) const {
    if (at.col == 0) progress->advance(steps);
    return mask.visible(at, extent);
  }
};

/// The arguments of the reference. A row takes some three times as long backward as forward.
inline constexpr int kForwardSteps = 1, kBackwardSteps = 3;
template <class T>
auto watched_forward_args(const Problem& p, const Pointers<T>& at, Progress& progress) {
  return forward_args<attile::Packed>(p, at, WatchedMask{p.mask, &progress, kForwardSteps});
}
template <class T>
auto watched_backward_args(const Problem& p, const Pointers<T>& at, Progress& progress) {
  return backward_args<attile::Packed>(p, at, WatchedMask{p.mask, &progress, kBackwardSteps});
}

/// The problem, and what the reference reads of it, as packed sequences in (row, head, dim) order:
/// so the reference is compiled for these alone.
template <class T>
struct PackedProblem {
  Problem problem;
  Tensors<T> tensors;  ///< inputs, O and LSE

  PackedProblem(const Problem& p, const Tensors<T>& t) : problem(p), tensors(t) {
    if (p.is_packed()) return;
    const std::int64_t most = std::int64_t{p.batch} * std::max(p.q_len, p.kv_len);
    if (most > attile::kMaxLength) {
      throw npy::Error("--check takes at most 2^30 rows of all sequences together.");
    }
    problem.layout = Layout::kBshd;
    problem.batches = 1;
    problem.q_rows = p.batch * p.q_len;
    problem.kv_rows = p.batch * p.kv_len;
    for (int b = 0; b <= p.batch; ++b) {
      problem.cu_seqlens_q.push_back(b * p.q_len);
      problem.cu_seqlens_k.push_back(b * p.kv_len);
    }
    tensors.q = rows_first(p, t.q, p.q_len, p.q_heads, p.head_dim);
    tensors.k = rows_first(p, t.k, p.kv_len, p.kv_heads, p.head_dim);
    tensors.v = rows_first(p, t.v, p.kv_len, p.kv_heads, p.head_dim_v);
    tensors.o = rows_first(p, t.o, p.q_len, p.q_heads, p.head_dim_v);
    if (p.backward) tensors.dout = rows_first(p, t.dout, p.q_len, p.q_heads, p.head_dim_v);
    const auto from = attile::bhsd(t.lse.data(), {.rows = p.q_len, .heads = p.q_heads, .dim = 1});
    const auto to =
        attile::bhsd(tensors.lse.data(), {.rows = problem.q_rows, .heads = p.q_heads, .dim = 1});
    for (int b = 0; b < p.batch; ++b) {
      for (int h = 0; h < p.q_heads; ++h) {
        for (int i = 0; i < p.q_len; ++i) *to.row(0, h, b * p.q_len + i) = *from.row(b, h, i);
      }
    }
  }

 private:
  static std::vector<T> rows_first(const Problem& p, const std::vector<T>& x, int rows, int heads,
                                   int dim) {
    std::vector<T> copy(x.size());
    const auto from = p.view(x.data(), rows, heads, dim);
    const auto to = attile::bshd(copy.data(), {.rows = rows, .heads = heads, .dim = dim});
    for (int b = 0; b < p.batch; ++b) {
      for (int h = 0; h < heads; ++h) {
        for (int i = 0; i < rows; ++i) std::copy_n(from.row(b, h, i), dim, to.row(b, h, i));
      }
    }
    return copy;
  }
};

/// The steps of all that `errors_against_fp64` computes.
inline std::int64_t steps_of_errors(const Problem& p, bool three_products) {
  std::int64_t rows = 0;
  for (int b = 0; b < p.batch; ++b) {
    if (p.extent(b).kv_len > 0) rows += std::int64_t{p.q_heads} * p.extent(b).q_len;
  }
  const int forward = 5 + three_products;
  const int backward = p.backward ? 3 + three_products + p.sinks : 0;
  return rows * (forward * kForwardSteps + backward * kBackwardSteps);
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

template <class T>
Plain plain_attention(const Problem& p, const Pointers<T>& at, bool reverse, Progress& progress) {
  namespace reference = attile::reference;
  Plain plain;
  const auto forward = watched_forward_args(p, at, progress);
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
      reference::plain_backward(watched_backward_args(p, given, progress), {.reverse = reverse});
  return plain;
}

/// The errors of all outputs against fp64, each with the bound of the contract: twice the error of
/// the plain computation in T, and one rounding to T. The plain computation is made twice, with
/// sums in opposite orders, and the larger error counts: that of few numbers is luck. What three
/// products of TF32 for each one are off by comes on top.
template <class T>
std::vector<Error> errors_against_fp64(const Problem& p, const Tensors<T>& t, const Run& run,
                                       const Pace& pace) {
  namespace reference = attile::reference;
  PackedProblem<T> packed(p, t);
  const Pointers<T> at = packed.tensors.pointers(packed.problem);
  Progress progress("errors against fp64", pace.progress);
  progress.expect(steps_of_errors(p, run.three_products));
  const auto forward = watched_forward_args(packed.problem, at, progress);
  const Plain there = plain_attention(packed.problem, at, false, progress);
  const Plain back = plain_attention(packed.problem, at, true, progress);
  const auto bound = []<class U>(U, const auto& exact, const auto& plain, const auto& reversed) {
    return std::max(reference::tolerance<U>(exact, plain),
                    reference::tolerance<U>(exact, reversed));
  };
  reference::ForwardResult terms;
  if constexpr (std::same_as<T, float>) {
    if (run.three_products) terms = reference::forward_magnitudes(forward);
  }
  const auto exact = reference::forward(forward);
  const attile::Tensor<const float> lse =
      attile::bhsd(t.lse.data(), {.rows = p.q_rows, .heads = p.q_heads, .dim = 1});
  std::vector<Error> errors = {error_of("o", dense_q(p, t.o, p.head_dim_v), exact.o,
                                        bound(T{}, exact.o, there.forward.o, back.forward.o) +
                                            reference::three_products_error(terms.o)),
                               error_of("lse", dense(p, lse, false, p.q_heads, 1), exact.lse,
                                        bound(0.0f, exact.lse, there.lse, back.lse))};
  if (!p.backward) return errors;
  const auto backward = watched_backward_args(packed.problem, at, progress);
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
