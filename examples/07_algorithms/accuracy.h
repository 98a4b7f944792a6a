// SPDX-License-Identifier: MIT
// A few rows of O, LSE and the gradients in fp64, for lengths at which whole tensors take too long.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

namespace algorithms {

using Row = std::vector<double>;

/// What belongs to one row of Q.
struct RowResult {
  Row o, dq;
  double lse = 0, delta = 0;
};

/// What belongs to one row of K and V.
struct ColumnResult {
  Row dk, dv;
};

/// One head in fp64, dense (len, dim).
class Head {
 public:
  template <class T>
  Head(const T* q, const T* k, const T* v, const T* dout, int len, int dim, bool causal)
      : q_(widened(q, len, dim)),
        k_(widened(k, len, dim)),
        v_(widened(v, len, dim)),
        dout_(widened(dout, len, dim)),
        len_(len),
        dim_(dim),
        causal_(causal),
        scale_(1.0 / std::sqrt(static_cast<double>(dim))) {}

  int len() const { return len_; }

  /// P = softmax(S),  O = P V,  delta = dO O,  dQ = scale (P * (dO V^T - delta)) K.
  RowResult row(int i) const {
    const int columns = causal_ ? i + 1 : len_;
    std::vector<double> p(columns);
    double m = -std::numeric_limits<double>::infinity();
    for (int j = 0; j < columns; ++j) m = std::max(m, p[j] = scale_ * dot(q_, i, k_, j));
    double l = 0;
    for (double& x : p) l += x = std::exp(x - m);
    RowResult result{Row(dim_), Row(dim_), m + std::log(l), 0};
    for (int j = 0; j < columns; ++j) add(result.o, p[j] /= l, v_, j);
    for (int d = 0; d < dim_; ++d) result.delta += result.o[d] * dout_[at(i) + d];
    for (int j = 0; j < columns; ++j) {
      add(result.dq, scale_ * p[j] * (dot(dout_, i, v_, j) - result.delta), k_, j);
    }
    return result;
  }

  /// rowsum(dO * O) of one row of a given O.
  template <class T>
  double delta(int i, const T* o) const {
    double sum = 0;
    for (int d = 0; d < dim_; ++d) sum += dout_[at(i) + d] * static_cast<float>(o[at(i) + d]);
    return sum;
  }

  /// dV = P^T dO,  dK = scale (P * (dO V^T - delta))^T Q,  P = exp(S - LSE).
  ColumnResult column(int j, const std::vector<double>& lse,
                      const std::vector<double>& delta) const {
    ColumnResult result{Row(dim_), Row(dim_)};
    for (int i = causal_ ? j : 0; i < len_; ++i) {
      const double p = std::exp(scale_ * dot(q_, i, k_, j) - lse[i]);
      add(result.dv, p, dout_, i);
      add(result.dk, scale_ * p * (dot(dout_, i, v_, j) - delta[i]), q_, i);
    }
    return result;
  }

 private:
  template <class T>
  static Row widened(const T* data, int len, int dim) {
    Row values(static_cast<std::size_t>(len) * dim);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(data[i]);
    return values;
  }
  std::size_t at(int row) const { return static_cast<std::size_t>(row) * dim_; }
  double dot(const Row& a, int i, const Row& b, int j) const {
    double sum = 0;
    for (int d = 0; d < dim_; ++d) sum += a[at(i) + d] * b[at(j) + d];
    return sum;
  }
  void add(Row& sum, double factor, const Row& rows, int i) const {
    for (int d = 0; d < dim_; ++d) sum[d] += factor * rows[at(i) + d];
  }

  Row q_, k_, v_, dout_;
  int len_, dim_;
  bool causal_;
  double scale_;
};

/// Rows of one tensor of a head.
using Sample = std::vector<Row>;

/// Rows of a head's O, LSE, dQ, dK and dV: the first, the last and some between.
struct Reference {
  std::vector<int> places;
  Sample o, lse, dq, dk, dv;
};

/// Up to this length the statistics of all rows, which dK and dV need, are fp64 too.
inline constexpr int kExactLen = 2048;

/// Above kExactLen the statistics come from a kernel's O and LSE of this head.
template <class T>
Reference make_reference(const Head& head, const T* o, const float* lse) {
  constexpr int kSamples = 8;
  Reference r;
  for (int n = 0; n < kSamples; ++n) {
    const auto place = static_cast<int>((head.len() - 1LL) * n / (kSamples - 1));
    if (r.places.empty() || place != r.places.back()) r.places.push_back(place);
  }
  std::vector<double> all_lse(head.len()), delta(head.len());
  for (int i = 0; i < head.len(); ++i) {
    if (head.len() <= kExactLen) {
      const RowResult row = head.row(i);
      all_lse[i] = row.lse;
      delta[i] = row.delta;
    } else {
      all_lse[i] = lse[i];
      delta[i] = head.delta(i, o);
    }
  }
  for (const int place : r.places) {
    RowResult row = head.row(place);
    r.o.push_back(std::move(row.o));
    r.lse.push_back({row.lse});
    r.dq.push_back(std::move(row.dq));
    ColumnResult column = head.column(place, all_lse, delta);
    r.dk.push_back(std::move(column.dk));
    r.dv.push_back(std::move(column.dv));
  }
  return r;
}

/// The largest error of a head's rows, relative to the sample's largest value; NaN where there is
/// one.
template <class T>
double sample_error(const Reference& reference, const Sample& sample, const T* data) {
  double worst = 0, largest = 0;
  for (std::size_t n = 0; n < sample.size(); ++n) {
    const Row& row = sample[n];
    const T* const got = data + static_cast<std::size_t>(reference.places[n]) * row.size();
    for (std::size_t d = 0; d < row.size(); ++d) {
      const double error = std::abs(static_cast<float>(got[d]) - row[d]);
      if (std::isnan(error)) return error;
      worst = std::max(worst, error);
      largest = std::max(largest, std::abs(row[d]));
    }
  }
  return worst / largest;
}

/// The same of two whole tensors, relative to the largest value of `b`.
template <class T>
double tensor_difference(const std::vector<T>& a, const std::vector<T>& b) {
  float worst = 0, largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const float value = static_cast<float>(b[i]);
    const float difference = std::abs(static_cast<float>(a[i]) - value);
    if (std::isnan(difference)) return difference;
    worst = std::max(worst, difference);
    largest = std::max(largest, std::abs(value));
  }
  return static_cast<double>(worst) / largest;
}

}  // namespace algorithms
