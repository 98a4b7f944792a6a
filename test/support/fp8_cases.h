// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/args.h>
#include <attile/core/element.h>
#include <attile/core/fp8.h>
#include <attile/reference.h>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.h"
#include "support/fp8.h"
#include "support/fp8_errors.h"
#include "support/random.h"
#include "support/tensors.h"

// Attention with inputs in fp8, of which something can go wrong that no other has. All functions
// run an executor of the suite with Elements E.

namespace attile_test {

/// Q, K, V, O and LSE of a problem in host memory.
template <class E>
struct Fp8Problem {
  std::vector<typename E::Q> q{};
  std::vector<typename E::K> k{};
  std::vector<typename E::V> v{};
  std::vector<typename E::O> o{};
  std::vector<float> lse{};
  std::vector<float> scales{};

  std::vector<Region> regions() {
    const auto region = [](auto& x) { return Region{x.data(), x.size() * sizeof(x[0])}; };
    return {region(q), region(k), region(v), region(o), region(lse), region(scales)};
  }
};

template <class T>
T rounded(float x) {
  return attile::from_float<T>(x);
}
template <class T>
std::vector<double> numbers_of(const std::vector<T>& values) {
  std::vector<double> result;
  for (const T& x : values) result.push_back(attile::to_float(x));
  return result;
}
template <class T>
std::vector<T> normal_numbers(std::uint64_t seed, std::size_t count) {
  const Random random(seed);
  std::vector<T> numbers;
  for (std::size_t i = 0; i < count; ++i) numbers.push_back(rounded<T>(random.normal(i)));
  return numbers;
}

/// Scales of each sequence and kv head, with heads that share keys and a softcap: one that is
/// dropped, taken from another head, or applied behind the tanh is seen (vLLM's pull request
/// 51363). The result is within the error of plain attention, where scores are rounded to 16 bits.
/// Units    dim, dim_v: head_dim and head_dim_v.
template <class E, class Executor>
void check_fp8_scales(const Executor& executor, int dim, int dim_v,
                      Fp8Products products = Fp8Products::kNone) {
  constexpr int kBatch = 2, kHeads = 6, kKvHeads = 3, kRows = 5, kKeys = 70;
  using Q = typename E::Q;
  using O = typename E::O;
  Fp8Problem<E> p{normal_numbers<Q>(1, kBatch * kHeads * kRows * dim),
                  normal_numbers<typename E::K>(2, kBatch * kKvHeads * kKeys * dim),
                  normal_numbers<typename E::V>(3, kBatch * kKvHeads * kKeys * dim_v),
                  std::vector<O>(std::size_t{kBatch * kHeads * kRows} * dim_v),
                  std::vector<float>(kBatch * kHeads * kRows),
                  {0.5f, 2.0f, 4.0f, 0.37f, 1.1f, 2.9f,   // of K
                   0.013f, 3.7f, 1.0f, 2.2f, 0.6f, 9.0f,  // of V
                   1.7f, 0.9f, 0.6f, 1.2f, 0.7f, 1.3f}};
  attile::ForwardArgs<E, attile::Causal, attile::Softcap> args{
      .q = attile::bhsd<const Q>(p.q.data(), {.rows = kRows, .heads = kHeads, .dim = dim}),
      .k = attile::bshd<const typename E::K>(p.k.data(),
                                             {.rows = kKeys, .heads = kKvHeads, .dim = dim}),
      .v = attile::bshd<const typename E::V>(p.v.data(),
                                             {.rows = kKeys, .heads = kKvHeads, .dim = dim_v}),
      .o = attile::bhsd(p.o.data(), {.rows = kRows, .heads = kHeads, .dim = dim_v}),
      .lse = p.lse.data(),
      .batch = kBatch,
      .q_heads = kHeads,
      .kv_heads = kKvHeads,
      .q_len = kRows,
      .kv_len = kKeys,
      .head_dim = dim,
      .head_dim_v = dim_v,
      .score_mod = {2.0f},
  };
  constexpr bool kHasQ = attile::Fp8<Q>, kHasV = attile::Fp8<typename E::V>;
  const float* const of_q = p.scales.data() + 2 * kBatch * kKvHeads;
  const float* const of_v = p.scales.data() + kBatch * kKvHeads;
  args.k_scale = {p.scales.data(), kKvHeads, 1};
  if constexpr (kHasV) args.v_scale = {of_v, kKvHeads, 1};
  if constexpr (kHasQ) args.q_scale = {of_q, kKvHeads, 1};
  namespace reference = attile::reference;
  const auto errors = [&](const auto& exact) {
    return std::vector{reference::max_error(numbers_of(p.o), exact.o),
                       reference::max_error(numbers_of(p.lse), exact.lse)};
  };
  for (const bool is_one : {false, true}) {
    if (is_one) {
      args.k_scale = {p.scales.data() + 5};
      if constexpr (kHasV) args.v_scale = {of_v + 1};
      if constexpr (kHasQ) args.q_scale = {of_q + 2};
    }
    REQUIRE(std::string(executor.forward(args, p.regions()).why) == "");
    const auto exact = reference::forward(args);
    const auto plain = reference::plain_forward(args, {.keep_scores = false});
    const Fp8Errors allowed = fp8_errors(products, kHasV, args);
    const double o_tolerance = reference::tolerance<O>(exact.o, plain.o) + allowed.o;
    const std::vector found = errors(exact);
    CHECK(found[0] <= o_tolerance);
    using T = typename E::Operand;
    CHECK(found[1] <= reference::tolerance<T>(exact.lse, plain.lse) + allowed.lse);
    auto without_k = args;
    without_k.k_scale = {};
    CHECK(errors(reference::forward(without_k))[1] > 0.01);
    if constexpr (kHasV) {
      auto without_v = args;
      without_v.v_scale = {};
      CHECK(errors(reference::forward(without_v))[0] > 2 * o_tolerance);
    }
    if constexpr (kHasQ) {
      auto without_q = args;
      without_q.q_scale = {};
      CHECK(errors(reference::forward(without_q))[1] > 0.01);
    }
  }
}

/// Returns the arguments of one head.
template <class E>
auto one_head(Fp8Problem<E>& p, int rows, int keys, int dim) {
  using Q = typename E::Q;
  p.o.resize(static_cast<std::size_t>(rows) * dim), p.lse.resize(rows);
  attile::ForwardArgs<E> args{
      .q = attile::bhsd<const Q>(p.q.data(), {.rows = rows, .heads = 1, .dim = dim}),
      .k = attile::bhsd<const typename E::K>(p.k.data(), {.rows = keys, .heads = 1, .dim = dim}),
      .v = attile::bhsd<const typename E::V>(p.v.data(), {.rows = keys, .heads = 1, .dim = dim}),
      .o = attile::bhsd(p.o.data(), {.rows = rows, .heads = 1, .dim = dim}),
      .lse = p.lse.data(),
      .batch = 1,
      .q_heads = 1,
      .kv_heads = 1,
      .q_len = rows,
      .kv_len = keys,
      .head_dim = dim,
  };
  return args;
}

/// Sums over many keys do not drift: all probabilities are the same, and V is 1 or a neighbour of
/// 1. Sums of 14 bits would be 2^-13 too small for every 32 keys (vLLM's issue 23813).
template <class E, class Executor>
void check_fp8_sum(const Executor& executor, int keys, int dim) {
  constexpr int kRows = 2;
  Fp8Problem<E> p;
  p.q.assign(std::size_t{kRows} * dim, rounded<typename E::Q>(0.0f));
  p.k = normal_numbers<typename E::K>(1, static_cast<std::size_t>(keys) * dim);
  const Random random(2);
  std::vector<double> mean(dim);
  for (int i = 0; i < keys * dim; ++i) {
    const float noise = std::clamp(random.normal(i), -2.0f, 2.0f) / 8;
    p.v.push_back(rounded<typename E::V>(1 + noise));
    mean[i % dim] += attile::to_float(p.v.back()) / static_cast<double>(keys);
  }
  const auto args = one_head(p, kRows, keys, dim);
  REQUIRE(std::string(executor.forward(args, p.regions()).why) == "");
  double worst = 0;
  for (int i = 0; i < kRows * dim; ++i) {
    worst = std::max(worst, std::abs(attile::to_float(p.o[i]) - mean[i % dim]));
  }
  CHECK(worst < 1e-3);
  CHECK(std::abs(p.lse[0] - std::log(double(keys))) < 1e-5);
}

/// A long flat tail counts beside one key with 0.99 of the probability: without the factor 2^8 its
/// probabilities are 0 in e4m3.
template <class E, class Executor>
void check_fp8_tail(const Executor& executor, int dim) {
  constexpr int kRows = 3;
  for (const int tail : {100, 128, 200, 400}) {
    Fp8Problem<E> p;
    const std::size_t keys = tail + 1;
    p.q.assign(std::size_t{kRows} * dim, rounded<typename E::Q>(1.0f));
    p.k.assign(keys * dim, rounded<typename E::K>(0.0f));
    p.v.assign(keys * dim, rounded<typename E::V>(1.0f));
    const std::size_t peak = tail / 3;
    std::fill_n(p.k.begin() + peak * dim, dim, rounded<typename E::K>(0.5f));
    std::fill_n(p.v.begin() + peak * dim, dim, rounded<typename E::V>(0.0f));
    auto args = one_head(p, kRows, static_cast<int>(keys), dim);
    args.scale = static_cast<float>(std::log(99.0 * tail) / (0.5 * dim));
    REQUIRE(std::string(executor.forward(args, p.regions()).why) == "");
    // Each probability is off by 2^-4 of itself at most, or by 2^-18 of the largest.
    const double wanted = 0.01, each = wanted / tail;
    const double allowed = tail * std::max(each * 0x1p-4, 0.99 * 0x1p-18) + wanted * 0x1p-8;
    for (const auto& x : p.o) REQUIRE(std::abs(attile::to_float(x) - wanted) <= allowed);
  }
}

/// V by rows and by columns, with columns that are a multiple of 16 bytes apart and others, and
/// numbers of keys that fill no step of a product.
template <class E, class Executor>
void check_fp8_columns(const Executor& executor, int dim, Fp8Products products) {
  constexpr int kRows = 20;
  namespace reference = attile::reference;
  for (const int keys : {77, 33, 130, 9}) {
    Fp8Problem<E> p{normal_numbers<typename E::Q>(1, std::size_t{kRows} * dim),
                    normal_numbers<typename E::K>(2, std::size_t(keys) * dim),
                    normal_numbers<typename E::V>(3, std::size_t(keys) * dim)};
    auto args = one_head(p, kRows, keys, dim);
    const auto exact = reference::forward(args);
    const auto plain = reference::plain_forward(args);
    const double tolerance =
        reference::tolerance<typename E::O>(exact.o, plain.o) + fp8_errors(products, true, args).o;
    const auto check = [&] {
      p.o.assign(p.o.size(), rounded<typename E::O>(7.0f));
      REQUIRE(std::string(executor.forward(args, p.regions()).why) == "");
      CHECK(reference::max_error(numbers_of(p.o), exact.o) <= tolerance);
    };
    check();
    const auto rows = p.v;
    for (const int stride : {(keys + 15) / 16 * 16, keys + 3}) {
      typename E::V nan;
      nan.__x = static_cast<__nv_fp8_storage_t>(attile::Fp8Format<typename E::V>::kNan);
      p.v.assign(static_cast<std::size_t>(stride) * dim, nan);
      for (int j = 0; j < keys; ++j) {
        for (int c = 0; c < dim; ++c) p.v[c * stride + j] = rows[j * dim + c];
      }
      // With the type: nvcc forgets designators where the object's type depends on a parameter.
      args.v = attile::Tensor<const typename E::V>{.data = p.v.data(), .row_stride = 1};
      args.v_col_stride = stride;
      CHECK(reference::forward(args).o == exact.o);
      check();
    }
  }
}

/// O of one head in fp64, where P, times 2^8, is rounded to e4m3 before it is multiplied, or not.
/// q, k, v: the numbers, (rows, dim) and (keys, dim).
inline std::vector<double> quantised_attention(const std::vector<double>& q,
                                               const std::vector<double>& k,
                                               const std::vector<double>& v, int dim,
                                               bool rounds_p) {
  const std::size_t rows = q.size() / dim, keys = k.size() / dim;
  std::vector<double> o(q.size(), 0.0), s(keys);
  for (std::size_t i = 0; i < rows; ++i) {
    double m = -1e300, l = 0;
    for (std::size_t j = 0; j < keys; ++j) {
      s[j] = 0;
      for (int c = 0; c < dim; ++c) s[j] += q[i * dim + c] * k[j * dim + c];
      s[j] /= std::sqrt(double(dim));
      m = std::max(m, s[j]);
    }
    for (std::size_t j = 0; j < keys; ++j) {
      double p = std::exp(s[j] - m);
      l += p;
      if (rounds_p) p = attile::to_float(rounded<__nv_fp8_e4m3>(static_cast<float>(p * 256))) / 256;
      for (int c = 0; c < dim; ++c) o[i * dim + c] += p * v[j * dim + c];
    }
    for (int c = 0; c < dim; ++c) o[i * dim + c] /= l;
  }
  return o;
}

/// The error against fp64 of the numbers before they were quantised is at most a tenth more than
/// that of fp64 with Q, K, V and P quantised alike. outliers: whether one in a thousand of the
/// numbers is ten times as large.
template <class E, class Executor>
void check_fp8_error(const Executor& executor, int rows, int keys, int dim, bool outliers) {
  const auto numbers = [&](std::uint64_t seed, int count) {
    const Random random(seed);
    std::vector<double> result;
    for (int i = 0; i < count; ++i) {
      const double x = random.normal(2 * i);
      result.push_back(outliers && i % 1000 == 17 ? x + 10 * random.normal(2 * i + 1) : x);
    }
    return result;
  };
  Fp8Problem<E> p;
  p.scales.resize(3);
  const auto quantise = [](const std::vector<double>& from, float& scale, auto& to) {
    using F = typename std::remove_cvref_t<decltype(to)>::value_type;
    const double largest = attile::to_float(attile::largest_number<F>());
    scale = static_cast<float>(attile::reference::largest_finite(from) / largest);
    std::vector<double> result;
    for (const double x : from) {
      to.push_back(rounded<F>(static_cast<float>(x) / scale));
      result.push_back(double(scale) * attile::to_float(to.back()));
    }
    return result;
  };
  const auto q = numbers(1, rows * dim), k = numbers(2, keys * dim), v = numbers(3, keys * dim);
  const auto q_rounded = quantise(q, p.scales[0], p.q), k_rounded = quantise(k, p.scales[1], p.k);
  const auto v_rounded = quantise(v, p.scales[2], p.v);
  auto args = one_head(p, rows, keys, dim);
  args.q_scale = {&p.scales[0]}, args.k_scale = {&p.scales[1]}, args.v_scale = {&p.scales[2]};
  REQUIRE(std::string(executor.forward(args, p.regions()).why) == "");
  const auto exact = quantised_attention(q, k, v, dim, false);
  const auto quantised = quantised_attention(q_rounded, k_rounded, v_rounded, dim, true);
  const auto rms = [&](const std::vector<double>& o) {
    double sum = 0;
    for (std::size_t i = 0; i < o.size(); ++i) sum += (o[i] - exact[i]) * (o[i] - exact[i]);
    return std::sqrt(sum / static_cast<double>(o.size()));
  };
  const double found = rms(numbers_of(p.o));
  CHECK(found <= 1.1 * rms(quantised));
  CHECK(found > 0.2 * rms(quantised));  // the inputs' own error is seen
}

/// Runs an executor with queries in bf16, keys in K and values in V, which it may multiply in fp16:
/// of rows of very small and very large queries, and of one whose small P make all of its O, each
/// element has to have the bits of bf16.
template <attile::Fp8 K, attile::Fp8 V, class Executor>
void check_fp8_query_range(const Executor& executor) {
  using Q = __nv_bfloat16;
  constexpr int kRows = 3, kKeys = 3000, kDim = 64;
  Fp8Problem<attile::Elements<Q, K, V>> p;
  const Random random(4);
  for (int i = 0; i < kRows * kDim; ++i) {
    const int row = i / kDim, col = i % kDim;
    const float x = random.normal(i);
    p.q.push_back(rounded<Q>(row == 0   ? 0x1p-110f * x  // all scores are 0
                             : row == 1 ? (col == 0 ? 0x1p20f : x)
                             : col == 1 ? 9.0f  // key 0 has 2^26 times the P of others
                                        : 0.0f));
  }
  for (int i = 0; i < kKeys * kDim; ++i) {
    const int key = i / kDim, col = i % kDim;
    p.k.push_back(rounded<K>(col == 0   ? 0.0f
                             : col == 1 ? (key == 0 ? 16.0f : 0.0f)
                                        : random.normal(1000 + i)));
    p.v.push_back(rounded<V>(key == 0 ? 0.0f : 1.0f + 0.5f * random.normal(500000 + i)));
  }
  const auto args = one_head(p, kRows, kKeys, kDim);
  REQUIRE(std::string(executor.forward(args, p.regions()).why) == "");
  const auto exact = attile::reference::forward(args);
  for (int i = 0; i < kRows * kDim; ++i) {
    INFO("row " << i / kDim << ", column " << i % kDim);
    CHECK(std::abs(attile::to_float(p.o[i]) - exact.o[i]) <= 0.006 * std::abs(exact.o[i]));
  }
  for (int row = 0; row < kRows; ++row) CHECK(std::abs(p.lse[row] - exact.lse[row]) < 1e-4);
}

/// Runs the same with scores so large that their rounding in log2 units is that of P's exponent: of
/// equal keys and V = 1, O = 1 whatever P is.
template <attile::Fp8 K, attile::Fp8 V, class Executor>
void check_fp8_large_scores(const Executor& executor) {
  using Q = __nv_bfloat16;
  constexpr int kKeys = 40, kDim = 64;
  Fp8Problem<attile::Elements<Q, K, V>> p{.q = std::vector<Q>(kDim),
                                          .k = std::vector(kKeys * kDim, rounded<K>(448.0f)),
                                          .v = std::vector(kKeys * kDim, rounded<V>(1.0f))};
  auto args = one_head(p, 1, kKeys, kDim);
  args.scale = 0.1234f;
  for (const float size : {1000.0f, 4736.0f, 4992.0f, 6528.0f, 7808.0f, 8064.0f, 8320.0f}) {
    for (const float x : {size, -size}) {
      INFO("elements of Q: " << x);
      std::ranges::fill(p.q, rounded<Q>(x));
      REQUIRE(std::string(executor.forward(args, p.regions()).why) == "");
      for (const Q& element : p.o) CHECK(std::abs(attile::to_float(element) - 1.0f) <= 0x1p-7f);
    }
  }
}

/// Runs with extreme scales of scores, of which in one call two have a product that fp32 has not,
/// though all three have one: with V = 1 all of O is 1.
template <class E, class Executor>
void check_fp8_extreme_scales(const Executor& executor) {
  constexpr int kRows = 3, kKeys = 70, kDim = 64;
  Fp8Problem<E> p{.q = normal_numbers<typename E::Q>(1, kRows * kDim),
                  .k = normal_numbers<typename E::K>(2, kKeys * kDim),
                  .v = std::vector(kKeys * kDim, rounded<typename E::V>(1.0f)),
                  .scales = {0.0f}};
  auto args = one_head(p, kRows, kKeys, kDim);
  args.q_scale = args.k_scale = {p.scales.data()};
  for (const auto& [scale, of_inputs] : {std::pair{0x1p100f, 0x1p-80f}, {0x1p-100f, 0x1p50f}}) {
    INFO("scale " << scale);
    args.scale = scale;
    p.scales[0] = of_inputs;
    REQUIRE(std::string(executor.forward(args, p.regions()).why) == "");
    const auto exact = attile::reference::forward(args);
    for (const auto& x : p.o) CHECK(std::abs(attile::to_float(x) - 1.0f) < 0x1p-3f);
    for (int row = 0; row < kRows; ++row) {
      CHECK(std::abs(p.lse[row] - exact.lse[row]) <= 0x1p-10 * std::abs(exact.lse[row]));
    }
  }
}

/// Runs with a V of one column, the stride between whose columns says nothing: what lies between
/// its rows is not read as keys.
template <class E, class Executor>
void check_fp8_one_column(const Executor& executor) {
  static_assert(std::same_as<typename E::O, float>);
  constexpr int kRows = 3, kKeys = 70, kDim = 64, kApart = 32;
  Fp8Problem<E> p{.q = normal_numbers<typename E::Q>(1, kRows * kDim),
                  .k = normal_numbers<typename E::K>(2, kKeys * kDim),
                  .v = std::vector(kKeys * kApart, rounded<typename E::V>(-5.0f))};
  for (int key = 0; key < kKeys; ++key) p.v[key * kApart] = rounded<typename E::V>(2.0f);
  auto args = one_head(p, kRows, kKeys, kDim);
  p.o.resize(kRows);
  args.v =
      attile::bshd<const typename E::V>(p.v.data(), {.rows = kKeys, .heads = 1, .dim = kApart});
  args.o = attile::bshd(p.o.data(), {.rows = kRows, .heads = 1, .dim = 1});
  args.head_dim_v = 1;
  args.v_col_stride = 2 * kApart;
  REQUIRE(std::string(executor.forward(args, p.regions()).why) == "");
  for (const float x : p.o) CHECK(std::abs(x - 2.0f) < 0x1p-3f);
}

}  // namespace attile_test
