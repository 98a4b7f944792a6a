// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/args.h>
#include <attile/core/check.h>
#include <attile/core/modifier_gradient_sums.h>
#include <attile/core/sequences.h>
#include <attile/core/tensor.h>
#include <attile/host/row_math.h>
#include <attile/tolerance.h>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace attile::reference {

/// Holds the dense results of forward; zeros where a sequence is shorter than the longest one.
struct ForwardResult {
  std::vector<double> o;    ///< (batch, q_heads, q_len, head_dim_v)
  std::vector<double> lse;  ///< (batch, q_heads, q_len)
};

/// Holds the dense results of backward, likewise.
struct BackwardResult {
  std::vector<double> dq;  ///< (batch, q_heads, q_len, head_dim)
  std::vector<double> dk;  ///< (batch, kv_heads, kv_len, head_dim)
  std::vector<double> dv;  ///< (batch, kv_heads, kv_len, head_dim_v)
  /// The gradient of the score modifier, if it has one, by its lines and their elements.
  std::vector<double> learned;
  std::vector<double> dsinks;  ///< (q_heads); empty without sinks
};

namespace detail {

/// Names the plain arithmetic of a problem.
template <class Args>
using PlainOf = Plain<typename Args::ElementType, typename Args::Elements::O>;

/// Is the smallest number of a type that has all its digits.
template <Element T>
inline constexpr double kSmallestNormal = std::same_as<T, __half> ? 0x1p-14 : 0x1p-126;

/// Computes attention of one problem, row by row, in the arithmetic `Math`.
template <class Math, class Args>
struct Attention {
  using Real = typename Math::Real;
  using Values = detail::Values<Real>;
  using ScoreModType = typename Args::ScoreModType;
  using T = typename Args::ElementType;
  using O = typename Args::Elements::O;
  using Learned = ModifierGradientSums<Real, Math::kMagnitudes>;
  static constexpr bool kHasSinks = Args::SinkType::kEnabled;

  const Args& args;
  RowMath<Math> math;
  int D = head_dims(args, 0, 0).qk;
  int Dv = head_dims(args, 0, 0).v;
  Real scale = static_cast<Real>(scale_of(args, D));
  int group = args.q_heads / args.kv_heads;
  typename Args::DropoutType::Sampler sampler = args.dropout.sampler(args.q_heads);

  /// Returns the factor from the products of a query head's elements to its scores.
  Real scale_of_products(int batch, int head) const {
    const int kv_head = head / group;
    return scale * static_cast<Real>(args.q_scale.at(batch, kv_head)) *
           static_cast<Real>(args.k_scale.at(batch, kv_head));
  }

  /// Computes S = scale q K^T, S' = score_mod(S), -inf where hidden; and its softmax.
  Row<Real> softmax_row(const Real* q, const Values& k, int batch, int head, int row) const {
    const Extent extent = extent_of(args, batch);
    const int n = extent.kv_len;
    const Real hidden = -std::numeric_limits<Real>::infinity();
    constexpr bool kRaw = kHasGradient<ScoreModType>;
    // Elements in fp8 are exact in every type, and their scales are factors of sums of products.
    const Real scale_of_head = scale_of_products(batch, head);
    Row<Real> r{Values(kRaw ? n : 0), Values(n, hidden), Values(n), Values(n), Values(n), hidden};
    for (int j = 0; j < n; ++j) {
      const ScoreIndex at{batch, head, row, j};
      if (!args.mask.visible(at, extent)) continue;
      const Real product =
          math.score(math.dot(q, k.data() + std::ptrdiff_t{j} * D, D, math.reverse));
      const Real raw = math.score(scale_of_head * product);
      if constexpr (kRaw) r.raw[j] = raw;
      const auto modified = args.score_mod(raw, at, extent);
      r.s[j] = math.score(static_cast<Real>(modified.value));
      r.derivative[j] = static_cast<Real>(modified.derivative);
      r.keep[j] = sampler.keep(at) ? static_cast<Real>(sampler.keep_scale()) : Real(0);
    }
    math.softmax(r, static_cast<Real>(sink_of(batch, head, row)));
    return r;
  }

  /// Returns the score of a row's sink, or the LSE of its earlier keys.
  float sink_of(int b, int h, int i) const {
    if constexpr (kIsEarlierKeys<typename Args::SinkType>) {
      return *rows_from(args.sink.lse, args.sequences.q_origin(b)).row(b, h, i);
    } else {
      return args.sink.logit(h);
    }
  }
  /// Returns a row of O.
  Values output_row(const Row<Real>& r, const Values& v, int b, int h, int i) const {
    Values earlier(Dv);
    if constexpr (kIsEarlierKeys<typename Args::SinkType> && !Math::kMagnitudes) {
      const auto* const value = rows_from(args.sink.o, args.sequences.q_origin(b)).row(b, h, i);
      const bool is_seen = sink_of(b, h, i) != -kInf;
      for (int c = 0; is_seen && c < Dv; ++c) {
        earlier[c] = r.p_sink * static_cast<Real>(to_float(value[c]));
      }
    }
    return math.output_row(r, v, Dv, static_cast<Real>(args.v_scale.at(b, h / group)), earlier);
  }

  /// Return one head's factors from a sequence's first query on, or from its first key on.
  template <class X>
  Values read_queries(const Tensor<X>& t, int b, int h, int dim) const {
    return math.read_factor(rows_from(t, args.sequences.q_origin(b)), b, h,
                            extent_of(args, b).q_len, dim);
  }
  template <class X>
  Values read_keys(const Tensor<X>& t, int b, int kv_head, int dim,
                   std::int64_t col_stride = 1) const {
    return math.read_factor(rows_from(t, args.sequences.kv_origin(b)), b, kv_head,
                            extent_of(args, b).kv_len, dim, col_stride);
  }
  /// Returns the factor of a query head's keys, or values. Of keys in pages it has zeros for those
  /// that lie before all that the head's rows may see, since their pages may be others' now.
  template <class X>
  Values read_keys_of(const Tensor<X>& t, int b, int h, int dim,
                      std::int64_t col_stride = 1) const {
    if constexpr (!kIsPaged<typename Args::SequencesType>) {
      return read_keys(t, b, h / group, dim, col_stride);
    } else {
      const Extent extent = extent_of(args, b);
      Values factor(std::int64_t{extent.kv_len} * dim);
      if (extent.q_len == 0 || extent.kv_len == 0) return factor;
      const Interval seen = visible_columns(args.mask, b, h, {0, extent.q_len}, extent).touched;
      if (seen.empty()) return factor;
      const RowOrigin origin = args.sequences.kv_origin(b);
      for (int j = seen.begin; j < extent.kv_len; ++j) {
        const RowOrigin at = args.sequences.kv_row(origin, j);
        const Values row =
            math.read_factor(rows_from(t, at), at.batch, h / group, 1, dim, col_stride);
        std::copy(row.begin(), row.end(), factor.begin() + std::ptrdiff_t{j} * dim);
      }
      return factor;
    }
  }

  ForwardResult forward() const {
    return rows_of([&](const Real* q, const Values& k, const Values& v, const ScoreIndex& at) {
      const Row<Real> r = softmax_row(q, k, at.batch, at.head, at.row);
      return std::pair(output_row(r, v, at.batch, at.head, at.row), r.lse);
    });
  }

  /// Returns dLSE = sum of P dS' and dO = sum of P dS' (V - O), all terms by their absolute values,
  /// where each dS is the sum of the score's products' absolute values, times its scale.
  ForwardResult score_shifts() const {
    return rows_of([&](const Real* q, const Values& k, const Values& v, const ScoreIndex& at) {
      const Row<Real> r = softmax_row(q, k, at.batch, at.head, at.row);
      const Real factor = std::abs(scale_of_products(at.batch, at.head));
      const auto v_scale = static_cast<Real>(args.v_scale.at(at.batch, at.head / group));
      Values terms(Dv), o = output_row(r, v, at.batch, at.head, at.row);
      Real lse = 0;
      for (std::int64_t j = 0; j < std::ssize(r.p); ++j) {
        Real products = 0;
        for (int c = 0; c < D; ++c) products += std::abs(q[c] * k[j * D + c]);
        if (r.p[j] == Real(0)) continue;
        const Real weight = r.p[j] * std::abs(r.derivative[j]) * factor * products;
        lse += weight;
        for (int c = 0; c < Dv; ++c) {
          terms[c] += std::abs(weight * r.keep[j] * v_scale * v[j * Dv + c]);
        }
      }
      for (int c = 0; c < Dv; ++c) o[c] = terms[c] + lse * std::abs(o[c]);
      return std::pair(o, lse);
    });
  }

  /// Calls of_row(q_i, k, v, at) for every query, and returns the O and LSE that it returns.
  template <class OfRow>
  ForwardResult rows_of(const OfRow& of_row) const {
    ForwardResult result;
    const std::int64_t rows = std::int64_t{args.batch} * args.q_heads * args.q_len;
    result.o = detail::Values<double>(rows * Dv);
    result.lse = detail::Values<double>(rows);
    parallel(args.batch * args.q_heads, [&](int b_h) {
      const int b = b_h / args.q_heads, h = b_h % args.q_heads;
      const Values q = read_queries(args.q, b, h, D);
      const Values k = read_keys_of(args.k, b, h, D);
      const Values v = read_keys_of(args.v, b, h, Dv, args.v_col_stride);
      for (int i = 0; i < extent_of(args, b).q_len; ++i) {
        const std::int64_t at = std::int64_t{b_h} * args.q_len + i;
        const auto [o, lse] =
            of_row(q.data() + std::ptrdiff_t{i} * D, k, v, ScoreIndex{b, h, i, 0});
        std::copy(o.begin(), o.end(), result.o.begin() + at * Dv);
        result.lse.data()[at] = lse;
      }
    });
    return result;
  }

  /// Computes the gradients of one query head of one sequence; adds to dk, dv, the score modifier's
  /// gradient and the sink's.
  void backward_head(int b, int h, const Values& k, const Values& v, Values& dq, Values& dk,
                     Values& dv, Learned& learned, Real& dsink) const {
    const Extent extent = extent_of(args, b);
    const RowOrigin origin = args.sequences.q_origin(b);
    const auto of_row = [&](const float* data, int i) {
      return *rows_from(per_row(args, data), origin).row(b, h, i);
    };
    const Values q = read_queries(args.q, b, h, D);
    const Values dout = math.read(rows_from(args.dout, origin), b, h, 0, extent.q_len, Dv);
    const Values dout_factor = read_queries(args.dout, b, h, Dv);
    const bool stored = math.recomputes() && args.lse != nullptr && args.o.data != nullptr;
    math.for_each(extent.q_len, [&](int i) {
      const Real* q_i = q.data() + std::ptrdiff_t{i} * D;
      const Real* do_i = dout_factor.data() + std::ptrdiff_t{i} * Dv;
      Row<Real> r = softmax_row(q_i, k, b, h, i);
      Values o = output_row(r, v, b, h, i);
      if (stored) {
        o = math.read(rows_from(args.o, origin), b, h, i, 1, Dv);
        const Real lse = of_row(args.lse, i);
        for (int j = 0; j < extent.kv_len && std::isfinite(lse); ++j) {
          r.p[j] = math.operand(std::exp(r.s[j] - lse));
        }
      }
      const Real dlse = args.dlse != nullptr ? static_cast<Real>(of_row(args.dlse, i)) : Real(0);
      const bool empty = std::ranges::all_of(r.s, [](Real s) { return s == -kInf; });
      if (empty) o = Values(Dv);
      // D = rowsum(dO * O) is 0 where O is that of a row without keys, whatever dO is. It is summed
      // in the reverse order of dP: with one visible key both are sums of the same terms, and no
      // machine has to sum them in the same order.
      const Real* const factor = empty ? o.data() : dout.data() + std::ptrdiff_t{i} * Dv;
      const Real delta = math.dot(factor, o.data(), Dv, !math.reverse);
      if constexpr (kHasSinks) {
        const Real lse = stored ? static_cast<Real>(of_row(args.lse, i)) : r.lse;
        const Real p_sink = lse == -kInf ? Real(0) : std::exp(args.sink.logit(h) - lse);
        if constexpr (Math::kMagnitudes) {
          const auto square = [&](Real x) { dsink += p_sink * x * p_sink * x; };
          for (int c = 0; c < Dv; ++c) {
            square(factor[c] * std::max(std::abs(o[c]), Real(kSmallestNormal<O>)));
          }
          square(dlse);
        } else {
          dsink -= p_sink * (delta - dlse);  // dsink = -sum of exp(sink - LSE) (D - dLSE)
        }
      }
      math.for_each(extent.kv_len, [&](int j) {
        if (r.p[j] == Real(0)) return;
        const std::ptrdiff_t k_at = std::ptrdiff_t{j} * D, v_at = std::ptrdiff_t{j} * Dv;
        // dV = dropout(P)^T dO,  dP = dropout(dO V^T)
        math.add_scaled(dv.data() + v_at, math.factor(r.p[j] * r.keep[j]), do_i, Dv);
        const Real dp = r.keep[j] * math.score(math.dot(do_i, v.data() + v_at, Dv, math.reverse));
        // dS' = P * (dP - D + dLSE),  dS = dS' * score_mod'(S)
        Real ds_modified = r.p[j] * (dp - delta + dlse);
        if constexpr (Math::kMagnitudes) {
          Real terms = 0;
          for (int c = 0; c < Dv; ++c) terms += std::abs(do_i[c] * v[v_at + c]);
          ds_modified = std::abs(ds_modified) + r.p[j] * r.keep[j] * terms;
        }
        if constexpr (kHasGradient<ScoreModType>) {
          args.score_mod.add_gradient(r.raw[j], ds_modified, {b, h, i, j}, extent, learned.add());
        }
        const Real ds = math.factor(ds_modified * r.derivative[j]);
        // dQ = scale dS K,  dK = scale dS^T Q
        math.add_scaled(dq.data() + std::ptrdiff_t{i} * D, scale * ds, k.data() + k_at, D);
        math.add_scaled(dk.data() + k_at, scale * ds, q_i, D);
      });
    });
  }

  BackwardResult backward() const {
    BackwardResult result;
    const std::int64_t q_heads = std::int64_t{args.batch} * args.q_heads;
    const std::int64_t kv_heads = std::int64_t{args.batch} * args.kv_heads;
    result.dq = detail::Values<double>(q_heads * args.q_len * D);
    result.dk = detail::Values<double>(kv_heads * args.kv_len * D);
    result.dv = detail::Values<double>(kv_heads * args.kv_len * Dv);
    Learned learned(args.score_mod, score_shape(args));
    Values dsinks(kHasSinks ? q_heads : 0);  // of each sequence
    const auto work = [&](int b_h) {
      const int b = b_h / args.kv_heads, kv_head = b_h % args.kv_heads;
      const Values k = read_keys(args.k, b, kv_head, D);
      const Values v = read_keys(args.v, b, kv_head, Dv);
      Values dk(std::ssize(k)), dv(std::ssize(v));
      for (int h = kv_head * group; h < (kv_head + 1) * group; ++h) {
        Values dq(std::int64_t{extent_of(args, b).q_len} * D);
        const std::int64_t q_head = std::int64_t{b} * args.q_heads + h;
        Real none = 0;
        backward_head(b, h, k, v, dq, dk, dv, learned, kHasSinks ? dsinks[q_head] : none);
        math.write(result.dq, q_head * args.q_len * D, dq);
      }
      math.write(result.dk, std::int64_t{b_h} * args.kv_len * D, dk);
      math.write(result.dv, std::int64_t{b_h} * args.kv_len * Dv, dv);
    };
    const int batch_heads = args.batch * args.kv_heads;
    if constexpr (kHasGradient<ScoreModType>) {
      math.for_each(batch_heads, work);  // heads may add to the same sums
      result.learned = learned.values();
    } else {
      parallel(batch_heads, work);
    }
    for (int h = 0; kHasSinks && h < args.q_heads; ++h) {
      Real sum = 0;
      math.for_each(args.batch, [&](int b) { sum += dsinks[std::int64_t{b} * args.q_heads + h]; });
      result.dsinks.push_back(Math::kMagnitudes ? std::sqrt(sum) : sum);
    }
    return result;
  }
};

}  // namespace detail

/// Computes standard attention in fp64, from the T inputs as they are, without writing `args`.
///   S = scale Q K^T,  S' = score_mod(S), -inf where hidden,  P = softmax(S'),
///   O = dropout(P) V,  LSE = m + ln(l), where l may include a sink, and both may include earlier
///   keys                                                                     [docs: the contract]
/// Shapes   those of ForwardArgs; head_dim must be given. Host pointers, in policies too.
/// Units    LSE in natural logarithms; an empty row has O = 0, LSE = -inf.
/// Errors   are not looked for: see check_arguments.
template <ForwardPass Args>
ForwardResult forward(const Args& args) {
  return detail::Attention<detail::Exact, Args>{args, {}}.forward();
}

/// Computes the gradients in fp64, from Q, K, V, dO and dLSE alone: `args.o` and `args.lse` are not
/// read, and no output of `args` is written.
///   dV = dropout(P)^T dO,  dP = dropout(dO V^T),  dS = P * (dP - D + dLSE) * score_mod'(S),
///   D = rowsum(dO * O),  dQ = scale dS K,  dK = scale dS^T Q,
///   dsink = -sum of exp(sink - LSE) (D - dLSE)                               [docs: the contract]
/// Shapes   those of BackwardArgs; head_dim must be given; dk and dv are summed over a kv head's
///          query heads. `learned`: what add_gradient of a modifier has added, with ds in fp64;
///          the gradient's memory is named but not written.
template <BackwardPass Args>
BackwardResult backward(const Args& args) {
  return detail::Attention<detail::Exact, Args>{args, {}}.backward();
}

/// Computes what the contract measures errors by, plain same-dtype attention: standard attention
/// with fp32 sums, in which S, P and O are rounded to T as they are written to memory.
template <ForwardPass Args>
ForwardResult plain_forward(const Args& args, PlainOptions options = {}) {
  const detail::PlainOf<Args> math{options};
  return detail::Attention<detail::PlainOf<Args>, Args>{args, {math}}.forward();
}

/// Computes the backward pass of the same; dP, dS and the gradients are rounded to T too.
template <BackwardPass Args>
BackwardResult plain_backward(const Args& args, PlainOptions options = {}) {
  const detail::PlainOf<Args> math{options};
  return detail::Attention<detail::PlainOf<Args>, Args>{args, {math}}.backward();
}

/// Computes, for each value of O, the sum of its |P V| in fp64; LSE is the usual one.
template <ForwardPass Args>
ForwardResult forward_magnitudes(const Args& args) {
  return detail::Attention<detail::Magnitudes, Args>{args, {}}.forward();
}

/// Computes, for each value of O, the root of the sum of the squares of its terms P V in fp64; LSE
/// is the usual one.
template <ForwardPass Args>
ForwardResult forward_roots(const Args& args) {
  return detail::Attention<detail::Roots, Args>{args, {}}.forward();
}

/// Computes, for each value of O and LSE, what it is off by at most, to first order, where each
/// score is off by the sum of its products' absolute values, times its scale.
template <ForwardPass Args>
ForwardResult forward_score_shifts(const Args& args) {
  return detail::Attention<detail::Exact, Args>{args, {}}.score_shifts();
}

/// Computes, for each value of dQ, dK and dV, the sum of |scale dS K|, |scale dS Q| or |P dO|,
/// given O and LSE, where |dS| has P * score_mod'(S) * sum |dO V| besides: what an error of dP
/// becomes in it. For a modifier's gradient it is the same of dS', times its derivative. For that
/// of a sink it is the root of the sum of the squares of exp(sink - LSE) dO O and exp(sink - LSE)
/// dLSE, with an |O| of at least the smallest normal number of its type.
template <BackwardPass Args>
BackwardResult backward_magnitudes(const Args& args) {
  return detail::Attention<detail::Magnitudes, Args>{args, {}}.backward();
}

}  // namespace attile::reference
