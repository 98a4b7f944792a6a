// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/element.h>
#include <attile/core/tensor.h>

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

// The reference computes single rows with these functions, in the arithmetic that it is asked for.

namespace attile::reference {

/// Says how the plain same-dtype computation may vary.
struct PlainOptions {
  /// S and dP stay fp32 instead of being rounded to T, and the backward pass takes LSE and O from
  /// its arguments, P = exp(S' - LSE), as it has to where P is not stored. Always so for float.
  bool keep_scores = false;
  bool reverse = false;  ///< sums run from their last term to their first
  int lanes = 1;         ///< partial sums that a dot product is kept in; up to 16
  /// With float, Q, K, V, P, dO and dS are rounded to TF32, 11 significant bits, where they are
  /// multiplied, as Products::k1xTf32 does.
  bool tf32 = false;
};

namespace detail {

/// Computes in fp64 throughout.
struct Exact {
  using Real = double;
  static constexpr bool reverse = false;
  static constexpr int lanes = 1;
  Real score(Real x) const { return x; }
  Real operand(Real x) const { return x; }
  Real factor(Real x) const { return x; }
  Real output(Real x) const { return x; }
  Real term(Real x) const { return x; }
  /// Returns a result from the sum of its terms.
  Real result(Real sum) const { return sum; }
  static constexpr bool kMagnitudes = false;
  static constexpr bool recomputes() { return false; }
};

/// Computes in fp64, with O, dQ, dK and dV as sums of their terms' absolute values; dS also has P
/// times the terms of dP. All else is as in Exact, so that the backward pass needs a given O.
struct Magnitudes : Exact {
  Real term(Real x) const { return std::abs(x); }
  static constexpr bool kMagnitudes = true;
  static constexpr bool recomputes() { return true; }
};

/// Computes in fp64, with O as the root of the sum of its terms' squares. All else is as in Exact.
struct Roots : Exact {
  Real term(Real x) const { return x * x; }
  Real result(Real sum) const { return std::sqrt(sum); }
};

/// Computes fp32 sums, and rounds to T whatever standard attention writes to memory, but O to TO.
template <Element T, Element TO>
struct Plain : PlainOptions {
  using Real = float;
  Real score(Real x) const { return keep_scores ? x : operand(x); }
  Real operand(Real x) const { return to_float(from_float<T>(x)); }
  /// Rounds an operand of a product.
  Real factor(Real x) const {
    if (!tf32 || !std::isfinite(x)) return operand(x);
    return float_of((word_of(x) + 0x1000u) & 0xFFFFE000u);
  }
  Real output(Real x) const { return to_float(from_float<TO>(x)); }
  /// Returns a term of O, dQ, dK or dV.
  Real term(Real x) const { return x; }
  Real result(Real sum) const { return sum; }
  static constexpr bool kMagnitudes = false;
  /// Returns whether the backward pass computes P = exp(S' - LSE) from the LSE that it is given.
  bool recomputes() const { return keep_scores || std::same_as<T, float>; }
};

/// Calls work(i) for 0 <= i < count, on every core.
inline void parallel(int count, const std::function<void(int)>& work) {
  std::atomic<int> next{0};
  const auto run = [&] {
    for (int i = next++; i < count; i = next++) work(i);
  };
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  // They are joined on return, before `next` and `run`, which they use, are destroyed.
  std::vector<std::jthread> helpers;
  for (int i = 1; i < std::min(cores, count); ++i) helpers.emplace_back(run);
  run();
}

/// Is a std::vector whose length and indices are signed, as those of rows and columns are.
template <class Real>
struct Values : std::vector<Real> {
  using Vector = std::vector<Real>;

  Values() = default;
  explicit Values(std::int64_t n, Real x = 0) : Vector(static_cast<std::size_t>(n), x) {}
  Real& operator[](std::int64_t i) { return Vector::operator[](static_cast<std::size_t>(i)); }
  Real operator[](std::int64_t i) const { return Vector::operator[](static_cast<std::size_t>(i)); }
};

/// Holds one row of P and what belongs to it; hidden scores have p = 0.
template <class Real>
struct Row {
  Values<Real> raw;         // S, where score_mod has a gradient
  Values<Real> s;           // S', -inf where hidden
  Values<Real> p;           // softmax
  Values<Real> derivative;  // score_mod'(S)
  Values<Real> keep;        // dropout's factor: 0, or 1 / keep probability
  Real lse;
  Real p_sink = 0;  // the probability of the sink, or of all earlier keys
};

/// Computes rows, whatever the policies.
template <class Math>
struct RowMath : Math {
  using Real = typename Math::Real;
  using Values = detail::Values<Real>;

  /// Calls term(i) for the n indices of a sum, in its order.
  template <class Term>
  void for_each(int n, const Term& term) const {
    for (int i = 0; i < n; ++i) term(this->reverse ? n - 1 - i : i);
  }

  Real dot(const Real* x, const Real* y, int n, bool backwards) const {
    Real part[16] = {};
    int lane = 0;
    for (int i = 0; i < n; ++i) {
      const int c = backwards ? n - 1 - i : i;
      part[lane] += x[c] * y[c];
      if (++lane == this->lanes) lane = 0;
    }
    Real sum = 0;
    for (const Real lane_sum : part) sum += lane_sum;
    return sum;
  }

  void add_scaled(Real* sum, Real factor, const Real* x, int n) const {
    for (int c = 0; c < n; ++c) sum[c] += this->term(factor * x[c]);
  }

  /// Returns a dense (rows, dim) copy of rows of one head, whose columns are `col_stride` apart.
  template <class T>
  static Values read(const Tensor<T>& t, int batch, int head, int first, int rows, int dim,
                     std::int64_t col_stride = 1) {
    Values copy;
    copy.reserve(static_cast<std::size_t>(std::int64_t{rows} * dim));
    for (int i = first; i < first + rows; ++i) {
      const T* row = t.row(batch, head, i);
      for (int c = 0; c < dim; ++c) copy.push_back(to_float(row[c * col_stride]));
    }
    return copy;
  }

  /// Returns the same for a matrix that is multiplied, with its elements rounded as operands.
  template <class T>
  Values read_factor(const Tensor<T>& t, int batch, int head, int rows, int dim,
                     std::int64_t col_stride = 1) const {
    Values copy = read(t, batch, head, 0, rows, dim, col_stride);
    for (Real& x : copy) x = this->factor(x);
    return copy;
  }

  /// Writes one head's (rows, dim) to a dense tensor, from element `at` on.
  void write(std::vector<double>& tensor, std::int64_t at, const Values& head) const {
    std::transform(head.begin(), head.end(), tensor.begin() + at,
                   [&](Real x) { return this->operand(x); });
  }

  /// Computes P = softmax(S'), LSE = m + ln(l), with e^sink in the denominator; -inf: no sink.
  void softmax(Row<Real>& r, Real sink) const {
    const Real hidden = -std::numeric_limits<Real>::infinity();
    Real m = sink;
    for (const Real s : r.s) m = std::max(m, s);
    const Real base = m == hidden ? Real(0) : m;
    Real l = std::exp(sink - base);
    for_each(static_cast<int>(r.s.size()), [&](int j) { l += r.p[j] = std::exp(r.s[j] - base); });
    r.lse = hidden;
    if (l == Real(0)) return;
    for (Real& p : r.p) p = this->operand(p / l);
    r.p_sink = std::exp(sink - base) / l;
    r.lse = m + std::log(l);
  }

  /// Returns a row of O = dropout(P) V, times the scale of V, added to `o`.
  Values output_row(const Row<Real>& r, const Values& v, int dim, Real v_scale,
                    const Values& earlier) const {
    Values o(dim);
    for_each(static_cast<int>(r.p.size()), [&](int j) {
      if (r.p[j] == Real(0) && r.keep[j] == Real(0)) return;  // hidden: V is not read
      add_scaled(o.data(), this->factor(r.p[j] * r.keep[j]), v.data() + std::ptrdiff_t{j} * dim,
                 dim);
    });
    for (int c = 0; c < dim; ++c) o[c] = this->output(this->result(o[c]) * v_scale + earlier[c]);
    return o;
  }
};

}  // namespace detail

}  // namespace attile::reference
