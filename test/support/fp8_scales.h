// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/args.h>
#include <attile/core/element.h>
#include <attile/core/fp8.h>
#include <attile/reference.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/random.h"
#include "support/tensors.h"

// Scales of each sequence and kv head, with heads that share keys and a softcap: a scale that is
// dropped, taken from another head, or applied behind the tanh is seen (vLLM's pull request 51363).

namespace attile_test {

/// Runs an executor of the suite with keys in K and values in V, and scales that are no powers of
/// two, and holds the result against fp64 of the same elements: within the error of plain
/// attention in Q's type. Units    dim, dim_v: head_dim and head_dim_v.
template <attile::Element Q, attile::Fp8 K, attile::Fp8 V, class Executor>
void check_fp8_scales(const Executor& executor, int dim, int dim_v) {
  constexpr int kBatch = 2, kHeads = 6, kKvHeads = 3, kRows = 5, kKeys = 70;
  const auto normal = []<class T>(T, std::uint64_t seed, int count) {
    const Random random(seed);
    std::vector<T> numbers;
    for (int i = 0; i < count; ++i) numbers.push_back(attile::from_float<T>(random.normal(i)));
    return numbers;
  };
  auto q = normal(Q(), 1, kBatch * kHeads * kRows * dim);
  auto k = normal(K(), 2, kBatch * kKvHeads * kKeys * dim);
  auto v = normal(V(), 3, kBatch * kKvHeads * kKeys * dim_v);
  std::vector<Q> o(std::size_t{kBatch * kHeads * kRows} * dim_v);
  std::vector<float> lse(kBatch * kHeads * kRows);
  std::vector<float> scales{0.5f,   2.0f, 4.0f, 0.37f, 1.1f, 2.9f,
                            0.013f, 3.7f, 1.0f, 2.2f,  0.6f, 9.0f};
  attile::ForwardArgs<attile::Elements<Q, K, V>, attile::Causal, attile::Softcap> args{
      .q = attile::bhsd<const Q>(q.data(), kRows, kHeads, dim),
      .k = attile::bshd<const K>(k.data(), kKeys, kKvHeads, dim),
      .v = attile::bshd<const V>(v.data(), kKeys, kKvHeads, dim_v),
      .k_scale = {scales.data(), kKvHeads, 1},
      .v_scale = {scales.data() + kBatch * kKvHeads, kKvHeads, 1},
      .o = attile::bhsd(o.data(), kRows, kHeads, dim_v),
      .lse = lse.data(),
      .batch = kBatch,
      .q_heads = kHeads,
      .kv_heads = kKvHeads,
      .q_len = kRows,
      .kv_len = kKeys,
      .head_dim = dim,
      .head_dim_v = dim_v,
      .score_mod = {2.0f},
  };
  const auto region = [](auto& x) { return Region{x.data(), x.size() * sizeof(x[0])}; };
  const std::vector<Region> regions{region(q), region(k),   region(v),
                                    region(o), region(lse), region(scales)};
  const auto numbers = [](const auto& values) {
    std::vector<double> result;
    for (const auto& x : values) result.push_back(attile::to_float(x));
    return result;
  };
  namespace reference = attile::reference;
  const auto errors = [&](const auto& exact) {
    return std::vector{reference::max_error(numbers(o), exact.o),
                       reference::max_error(numbers(lse), exact.lse)};
  };
  for (const bool is_one : {false, true}) {
    if (is_one) args.k_scale = {scales.data() + 5}, args.v_scale = {scales.data() + 7};
    REQUIRE(std::string(executor.forward(args, regions).why) == "");
    const auto exact = reference::forward(args);
    const auto plain = reference::plain_forward(args, {.keep_scores = false});
    const double o_tolerance = reference::tolerance<Q>(exact.o, plain.o);
    const std::vector found = errors(exact);
    CHECK(found[0] <= o_tolerance);
    CHECK(found[1] <= reference::tolerance<Q>(exact.lse, plain.lse));
    auto without_k = args, without_v = args;
    without_k.k_scale = {}, without_v.v_scale = {};
    CHECK(errors(reference::forward(without_k))[1] > 0.01);
    CHECK(errors(reference::forward(without_v))[0] > 10 * o_tolerance);
  }
}

/// Runs an executor with queries in bf16, keys in K and values in V, which it may multiply in fp16:
/// of rows of very small and very large queries, and of one whose small P make all of its O, each
/// element has to have the bits of bf16.
template <attile::Fp8 K, attile::Fp8 V, class Executor>
void check_fp8_query_range(const Executor& executor) {
  using Q = __nv_bfloat16;
  constexpr int kRows = 3, kKeys = 3000, kDim = 64;
  std::vector<Q> q(kRows * kDim), o(kRows * kDim);
  std::vector<K> k(kKeys * kDim);
  std::vector<V> v(kKeys * kDim);
  std::vector<float> lse(kRows);
  const Random random(4);
  for (int i = 0; i < kRows * kDim; ++i) {
    const int row = i / kDim, col = i % kDim;
    const float x = random.normal(i);
    q[i] = attile::from_float<Q>(row == 0   ? 0x1p-110f * x  // all scores are 0
                                 : row == 1 ? (col == 0 ? 0x1p20f : x)
                                 : col == 1 ? 9.0f  // key 0 has 2^26 times the P of others
                                            : 0.0f);
  }
  for (int i = 0; i < kKeys * kDim; ++i) {
    const int key = i / kDim, col = i % kDim;
    k[i] = attile::from_float<K>(col == 0   ? 0.0f
                                 : col == 1 ? (key == 0 ? 16.0f : 0.0f)
                                            : random.normal(1000 + i));
    v[i] = attile::from_float<V>(key == 0 ? 0.0f : 1.0f + 0.5f * random.normal(500000 + i));
  }
  attile::ForwardArgs<attile::Elements<Q, K, V>> args{
      .q = attile::bshd<const Q>(q.data(), kRows, 1, kDim),
      .k = attile::bshd<const K>(k.data(), kKeys, 1, kDim),
      .v = attile::bshd<const V>(v.data(), kKeys, 1, kDim),
      .o = attile::bshd(o.data(), kRows, 1, kDim),
      .lse = lse.data(),
      .batch = 1,
      .q_heads = 1,
      .kv_heads = 1,
      .q_len = kRows,
      .kv_len = kKeys,
      .head_dim = kDim,
  };
  const auto region = [](auto& x) { return Region{x.data(), x.size() * sizeof(x[0])}; };
  REQUIRE(
      std::string(
          executor.forward(args, {region(q), region(k), region(v), region(o), region(lse)}).why) ==
      "");
  const auto exact = attile::reference::forward(args);
  for (int i = 0; i < kRows * kDim; ++i) {
    INFO("row " << i / kDim << ", column " << i % kDim);
    CHECK(std::abs(attile::to_float(o[i]) - exact.o[i]) <= 0.006 * std::abs(exact.o[i]));
  }
  for (int row = 0; row < kRows; ++row) CHECK(std::abs(lse[row] - exact.lse[row]) < 1e-4);
}

}  // namespace attile_test
