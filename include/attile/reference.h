// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/args.h>
#include <attile/core/check.h>
#include <attile/core/element.h>
#include <attile/core/learned_sums.h>
#include <attile/tolerance.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <thread>
#include <vector>

namespace attile::reference {

/// What a forward pass gives, dense.
struct ForwardResult {
  std::vector<double> o;    ///< (batch, q_heads, q_len, head_dim_v)
  std::vector<double> lse;  ///< (batch, q_heads, q_len)
};

/// What a backward pass gives, dense.
struct BackwardResult {
  std::vector<double> dq;  ///< (batch, q_heads, q_len, head_dim)
  std::vector<double> dk;  ///< (batch, kv_heads, kv_len, head_dim)
  std::vector<double> dv;  ///< (batch, kv_heads, kv_len, head_dim_v)
  /// Of a score modifier that learns: its gradient, by its lines and their elements.
  std::vector<double> learned;
};

/// How the plain same-dtype computation may differ from itself.
struct PlainOptions {
  /// S and dP stay fp32 instead of being rounded to T, and the backward pass takes LSE and O from
  /// its arguments, P = exp(S' - LSE), as it has to where P is not stored. Always so for float.
  bool keep_scores = false;
  bool reverse = false;  ///< sums run from their last term to their first
  int lanes = 1;         ///< partial sums that a dot product is kept in; up to 16
  /// float: Q, K, V, P, dO and dS are rounded to TF32, 11 significant bits, where they are
  /// multiplied, as Products::kOne does.
  bool tf32 = false;
};

namespace detail {

/// fp64 throughout.
struct Exact {
  using Real = double;
  static constexpr bool reverse = false;
  static constexpr int lanes = 1;
  Real score(Real x) const { return x; }
  Real operand(Real x) const { return x; }
  Real factor(Real x) const { return x; }
  Real term(Real x) const { return x; }
  static constexpr bool kMagnitudes = false;
  static constexpr bool recomputes() { return false; }
};

/// fp64, and O, dQ, dK and dV are sums of their terms' absolute values, to which dS brings P times
/// the terms of dP. All else is as it is, so that the backward pass needs the O that it is given.
struct Magnitudes : Exact {
  Real term(Real x) const { return std::abs(x); }
  static constexpr bool kMagnitudes = true;
  static constexpr bool recomputes() { return true; }
};

/// fp32 sums; whatever standard attention writes to memory is rounded to T.
template <Element T>
struct Plain {
  using Real = float;
  bool keep_scores;
  bool reverse;
  int lanes;
  bool tf32;
  Real score(Real x) const { return keep_scores ? x : operand(x); }
  Real operand(Real x) const { return to_float(from_float<T>(x)); }
  /// An operand of a product.
  Real factor(Real x) const {
    if (!tf32 || !std::isfinite(x)) return operand(x);
    return float_of((word_of(x) + 0x1000u) & 0xFFFFE000u);
  }
  /// A term of O, dQ, dK or dV.
  Real term(Real x) const { return x; }
  static constexpr bool kMagnitudes = false;
  /// Whether the backward pass makes P = exp(S' - LSE) from the LSE that it is given.
  bool recomputes() const { return keep_scores || std::same_as<T, float>; }
};

/// Calls work(i) for 0 <= i < count, on every core.
inline void parallel(int count, const std::function<void(int)>& work) {
  std::atomic<int> next{0};
  const auto run = [&] {
    for (int i = next++; i < count; i = next++) work(i);
  };
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  std::vector<std::jthread> helpers;
  for (int i = 1; i < std::min(cores, count); ++i) helpers.emplace_back(run);
  run();
}

/// One row of P and what belongs to it; hidden scores have p = 0.
template <class Real>
struct Row {
  std::vector<Real> raw;         // S, of a modifier that learns
  std::vector<Real> s;           // S', -inf where hidden
  std::vector<Real> p;           // softmax
  std::vector<Real> derivative;  // score_mod'(S)
  std::vector<Real> keep;        // dropout's factor: 0, or 1 / keep probability
  Real lse;
};

/// What is made of rows, whatever the policies.
template <class Math>
struct RowMath : Math {
  using Real = typename Math::Real;
  using Values = std::vector<Real>;

  /// The n indices of a sum, in its order.
  template <class Term>
  void for_each(int n, const Term& term) const {
    for (int i = 0; i < n; ++i) term(this->reverse ? n - 1 - i : i);
  }

  Real dot(const Real* x, const Real* y, int n, bool reverse) const {
    Real part[16] = {};
    for (int i = 0; i < n; ++i) {
      const int c = reverse ? n - 1 - i : i;
      part[i % this->lanes] += x[c] * y[c];
    }
    Real sum = 0;
    for (const Real x : part) sum += x;
    return sum;
  }

  void add_scaled(Real* sum, Real factor, const Real* x, int n) const {
    for (int c = 0; c < n; ++c) sum[c] += this->term(factor * x[c]);
  }

  /// A dense (rows, dim) copy of rows of one head.
  template <class T>
  static Values read(const Tensor<T>& t, int batch, int head, int first, int rows, int dim) {
    Values copy;
    copy.reserve(static_cast<std::size_t>(rows) * dim);
    for (int i = first; i < first + rows; ++i) {
      const T* row = t.row(batch, head, i);
      for (int c = 0; c < dim; ++c) copy.push_back(to_float(row[c]));
    }
    return copy;
  }

  /// The same of a matrix that is multiplied.
  template <class T>
  Values read_factor(const Tensor<T>& t, int batch, int head, int rows, int dim) const {
    Values copy = read(t, batch, head, 0, rows, dim);
    for (Real& x : copy) x = this->factor(x);
    return copy;
  }

  /// Writes one head's (rows, dim) into its place in a dense tensor.
  void write(std::vector<double>& tensor, std::int64_t head_index, const Values& head) const {
    const std::int64_t at = head_index * static_cast<std::int64_t>(head.size());
    for (std::size_t i = 0; i < head.size(); ++i) tensor[at + i] = this->operand(head[i]);
  }

  /// P = softmax(S'), LSE = m + ln(l).
  void softmax(Row<Real>& r) const {
    const Real hidden = -std::numeric_limits<Real>::infinity();
    Real m = hidden;
    for (const Real s : r.s) m = std::max(m, s);
    const Real base = m == hidden ? Real(0) : m;
    Real l = 0;
    for_each(static_cast<int>(r.s.size()), [&](int j) { l += r.p[j] = std::exp(r.s[j] - base); });
    r.lse = hidden;
    if (l == Real(0)) return;
    for (Real& p : r.p) p = this->operand(p / l);
    r.lse = m + std::log(l);
  }

  /// O = dropout(P) V.
  Values output_row(const Row<Real>& r, const Values& v, int dim) const {
    Values o(dim, 0);
    for_each(static_cast<int>(r.p.size()), [&](int j) {
      if (r.p[j] == Real(0) && r.keep[j] == Real(0)) return;  // hidden: V is not looked at
      add_scaled(o.data(), this->factor(r.p[j] * r.keep[j]), v.data() + std::size_t(j) * dim, dim);
    });
    for (Real& x : o) x = this->operand(x);
    return o;
  }
};

/// Attention of one problem, row by row, in the arithmetic `Math`.
template <class Math, class Args>
struct Attention {
  using Real = typename Math::Real;
  using Values = std::vector<Real>;
  using ScoreModType = typename Args::ScoreModType;
  using Learned = LearnedSums<Real, Math::kMagnitudes>;

  const Args& args;
  RowMath<Math> math;
  int D = head_dims(args, 0, 0).qk;
  int Dv = head_dims(args, 0, 0).v;
  Real scale = static_cast<Real>(scale_of(args, D));
  Extent extent{args.q_len, args.kv_len};
  int group = args.q_heads / args.kv_heads;
  typename Args::DropoutType::Sampler sampler = args.dropout.sampler(args.q_heads);

  /// S = scale q K^T, S' = score_mod(S), -inf where hidden; its softmax.
  Row<Real> softmax_row(const Real* q, const Values& k, int batch, int head, int row) const {
    const int n = args.kv_len;
    const Real hidden = -std::numeric_limits<Real>::infinity();
    constexpr bool kRaw = kLearns<ScoreModType>;
    Row<Real> r{Values(kRaw ? n : 0), Values(n, hidden), Values(n), Values(n), Values(n), hidden};
    for (int j = 0; j < n; ++j) {
      const ScoreIndex at{batch, head, row, j};
      if (!args.mask.visible(at, extent)) continue;
      const Real product = math.score(math.dot(q, k.data() + std::size_t(j) * D, D, math.reverse));
      const Real raw = math.score(scale * product);
      if constexpr (kRaw) r.raw[j] = raw;
      const auto modified = args.score_mod(raw, at, extent);
      r.s[j] = math.score(static_cast<Real>(modified.value));
      r.derivative[j] = static_cast<Real>(modified.derivative);
      r.keep[j] = sampler.keep(at) ? static_cast<Real>(sampler.keep_scale()) : Real(0);
    }
    math.softmax(r);
    return r;
  }

  ForwardResult forward() const {
    ForwardResult result;
    const std::int64_t rows = std::int64_t{args.batch} * args.q_heads * args.q_len;
    result.o.resize(rows * Dv);
    result.lse.resize(rows);
    parallel(args.batch * args.q_heads, [&](int b_h) {
      const int b = b_h / args.q_heads, h = b_h % args.q_heads;
      const Values q = math.read_factor(args.q, b, h, args.q_len, D);
      const Values k = math.read_factor(args.k, b, h / group, args.kv_len, D);
      const Values v = math.read_factor(args.v, b, h / group, args.kv_len, Dv);
      Values o;
      for (int i = 0; i < args.q_len; ++i) {
        const Row<Real> r = softmax_row(q.data() + std::size_t(i) * D, k, b, h, i);
        const Values o_row = math.output_row(r, v, Dv);
        o.insert(o.end(), o_row.begin(), o_row.end());
        result.lse[std::int64_t{b_h} * args.q_len + i] = r.lse;
      }
      math.write(result.o, b_h, o);
    });
    return result;
  }

  /// The gradients of one query head; dk, dv and what is learned are added to.
  void backward_head(int b, int h, const Values& k, const Values& v, Values& dq, Values& dk,
                     Values& dv, Learned& learned) const {
    const Values q = math.read_factor(args.q, b, h, args.q_len, D);
    const Values dout = math.read(args.dout, b, h, 0, args.q_len, Dv);
    const Values dout_factor = math.read_factor(args.dout, b, h, args.q_len, Dv);
    const bool stored = math.recomputes() && args.lse != nullptr && args.o.data != nullptr;
    math.for_each(args.q_len, [&](int i) {
      const Real* q_i = q.data() + std::size_t(i) * D;
      const Real* do_i = dout_factor.data() + std::size_t(i) * Dv;
      const std::int64_t lse_at = (std::int64_t{b} * args.q_heads + h) * args.q_len + i;
      Row<Real> r = softmax_row(q_i, k, b, h, i);
      Values o = math.output_row(r, v, Dv);
      if (stored) {
        o = math.read(args.o, b, h, i, 1, Dv);
        const Real lse = args.lse[lse_at];
        for (int j = 0; j < args.kv_len && std::isfinite(lse); ++j) {
          r.p[j] = math.operand(std::exp(r.s[j] - lse));
        }
      }
      const Real dlse = args.dlse != nullptr ? static_cast<Real>(args.dlse[lse_at]) : Real(0);
      // Summed against the order of dP: with one visible key both are sums of the same terms, and
      // no machine can be held to take them in the same order.
      const Real delta = math.dot(dout.data() + std::size_t(i) * Dv, o.data(), Dv,
                                  !math.reverse);  // D = rowsum(dO * O)
      math.for_each(args.kv_len, [&](int j) {
        if (r.p[j] == Real(0)) return;
        const std::size_t k_at = std::size_t(j) * D, v_at = std::size_t(j) * Dv;
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
        if constexpr (kLearns<ScoreModType>) {
          args.score_mod.add_gradient(r.raw[j], ds_modified, {b, h, i, j}, extent, learned.add());
        }
        const Real ds = math.factor(ds_modified * r.derivative[j]);
        // dQ = scale dS K,  dK = scale dS^T Q
        math.add_scaled(dq.data() + std::size_t(i) * D, scale * ds, k.data() + k_at, D);
        math.add_scaled(dk.data() + k_at, scale * ds, q_i, D);
      });
    });
  }

  BackwardResult backward() const {
    BackwardResult result;
    const std::int64_t q_heads = std::int64_t{args.batch} * args.q_heads;
    const std::int64_t kv_heads = std::int64_t{args.batch} * args.kv_heads;
    result.dq.resize(q_heads * args.q_len * D);
    result.dk.resize(kv_heads * args.kv_len * D);
    result.dv.resize(kv_heads * args.kv_len * Dv);
    Learned learned(args.score_mod, score_shape(args));
    const auto work = [&](int b_h) {
      const int b = b_h / args.kv_heads, kv_head = b_h % args.kv_heads;
      const Values k = math.read_factor(args.k, b, kv_head, args.kv_len, D);
      const Values v = math.read_factor(args.v, b, kv_head, args.kv_len, Dv);
      Values dk(k.size(), 0), dv(v.size(), 0);
      for (int h = kv_head * group; h < (kv_head + 1) * group; ++h) {
        Values dq(static_cast<std::size_t>(args.q_len) * D, 0);
        backward_head(b, h, k, v, dq, dk, dv, learned);
        math.write(result.dq, std::int64_t{b} * args.q_heads + h, dq);
      }
      math.write(result.dk, b_h, dk);
      math.write(result.dv, b_h, dv);
    };
    const int slices = args.batch * args.kv_heads;
    if constexpr (kLearns<ScoreModType>) {
      math.for_each(slices, work);  // heads may add to the same sums
      result.learned = learned.values();
    } else {
      parallel(slices, work);
    }
    return result;
  }
};

}  // namespace detail

/// Standard attention in fp64, from the T inputs as they are; O and LSE of `args` are not written.
///   S = scale Q K^T,  S' = score_mod(S), -inf where hidden,  P = softmax(S'),
///   O = dropout(P) V,  LSE = m + ln(l)                                       [docs: the contract]
/// Shapes   those of ForwardArgs; head_dim must be given. Host pointers, in policies too.
/// Units    LSE in natural logarithms; an empty row has O = 0, LSE = -inf.
/// Errors   none are looked for: see check_arguments.
template <Element T, Mask M, ScoreMod S, Dropout P>
ForwardResult forward(const ForwardArgs<T, M, S, P>& args) {
  return detail::Attention<detail::Exact, ForwardArgs<T, M, S, P>>{args, {}}.forward();
}

/// The gradients in fp64, from Q, K, V, dO and dLSE alone: `args.o` and `args.lse` are not read,
/// and no output of `args` is written.
///   dV = dropout(P)^T dO,  dP = dropout(dO V^T),  dS = P * (dP - D + dLSE) * score_mod'(S),
///   D = rowsum(dO * O),  dQ = scale dS K,  dK = scale dS^T Q                 [docs: the contract]
/// Shapes   those of BackwardArgs; head_dim must be given; dk and dv are summed over a kv head's
///          group. `learned`: what add_gradient of a modifier that learns has added, with ds in
///          fp64; its memory is named but not written.
template <Element T, Mask M, ScoreMod S, Dropout P>
BackwardResult backward(const BackwardArgs<T, M, S, P>& args) {
  return detail::Attention<detail::Exact, BackwardArgs<T, M, S, P>>{args, {}}.backward();
}

/// The plain same-dtype computation that the contract measures errors by: standard attention with
/// fp32 sums, in which S, P and O are rounded to T as they are written to memory.
template <Element T, Mask M, ScoreMod S, Dropout P>
ForwardResult plain_forward(const ForwardArgs<T, M, S, P>& args, PlainOptions options = {}) {
  const detail::Plain<T> math{options.keep_scores, options.reverse, options.lanes, options.tf32};
  return detail::Attention<detail::Plain<T>, ForwardArgs<T, M, S, P>>{args, {math}}.forward();
}

/// Its backward pass; dP, dS and the gradients are rounded to T too.
template <Element T, Mask M, ScoreMod S, Dropout P>
BackwardResult plain_backward(const BackwardArgs<T, M, S, P>& args, PlainOptions options = {}) {
  const detail::Plain<T> math{options.keep_scores, options.reverse, options.lanes, options.tf32};
  return detail::Attention<detail::Plain<T>, BackwardArgs<T, M, S, P>>{args, {math}}.backward();
}

/// For each value of O the sum of |P V| that it has, in fp64; LSE is as ever.
template <Element T, Mask M, ScoreMod S, Dropout P>
ForwardResult forward_magnitudes(const ForwardArgs<T, M, S, P>& args) {
  return detail::Attention<detail::Magnitudes, ForwardArgs<T, M, S, P>>{args, {}}.forward();
}

/// For each value of dQ, dK and dV the sum of |scale dS K|, |scale dS Q| or |P dO|, given O and
/// LSE, where |dS| has P * score_mod'(S) * sum |dO V| besides: what an error of dP becomes in it.
/// For what is learned the same of dS', times its derivative.
template <Element T, Mask M, ScoreMod S, Dropout P>
BackwardResult backward_magnitudes(const BackwardArgs<T, M, S, P>& args) {
  return detail::Attention<detail::Magnitudes, BackwardArgs<T, M, S, P>>{args, {}}.backward();
}

}  // namespace attile::reference
