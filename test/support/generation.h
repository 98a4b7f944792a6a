// SPDX-License-Identifier: MIT
#pragma once

#include <attile/append.cuh>
#include <attile/core/args.h>
#include <attile/host/append.h>
#include <attile/reference.h>
#include <attile/tolerance.h>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/catch.h"
#include "support/device.h"
#include "support/random.h"

namespace attile_test {

/// Generates text of two sequences in steps of some tokens each: new rows are appended to a cache
/// in pages, which the queries of the same rows then attend to. What comes out is held against
/// attention over the whole of both sequences, whose rows are rotated at once.
class Generation {
 public:
  using T = __half;
  using R = attile::Rotary<>;
  using Append = attile::AppendArgs<T, attile::PagedPacked, R>;
  using Attend = attile::ForwardArgs<T, attile::Causal, attile::PagedPacked>;
  static constexpr int kBatch = 2, kHeads = 4, kKvHeads = 2, kD = 64, kDims = 32;
  static constexpr int kPage = 16, kEntries = 3, kPages = 8, kLongest = 40, kMostRows = 28;

  Generation()
      : tables_(2 * kLongest * (kDims / 2)),
        q_(filled(1, kHeads)),
        k_(filled(2, kKvHeads)),
        v_(filled(3, kKvHeads)),
        o_(q_.size(), attile::from_float<T>(0.0f)),
        table_on_device_(tables_on_host()),
        page_table_(std::vector<int>{6, 1, 3, 2, 7, 4}),
        dropped_(std::vector<int>{0}) {}

  /// A step of the loop: `launch(append, attend)` runs both.
  template <class Launch>
  void step(const std::vector<int>& rows, const Launch& launch) {
    std::vector<int> offsets{0};
    std::vector<T> q, k, v;
    for (int b = 0; b < kBatch; ++b) {
      const auto take = [&](std::vector<T>& to, const std::vector<T>& from, int heads) {
        const auto row = static_cast<std::ptrdiff_t>(heads) * kD;
        const auto begin = from.begin() + (b * kLongest + used_[b]) * row;
        to.insert(to.end(), begin, begin + rows[b] * row);
      };
      take(q, q_, kHeads), take(k, k_, kKvHeads), take(v, v_, kKvHeads);
      offsets.push_back(offsets.back() + rows[b]);
      used_[b] += rows[b];
    }
    put(new_q_, q), put(new_k_, k), put(new_v_, v), put(offsets_, offsets), put(seqused_, used_);
    launch(append_args(), attend_args());
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    const std::vector<T> out = new_o_.download();
    for (int b = 0; b < kBatch; ++b) {
      const std::ptrdiff_t row = kHeads * kD;
      std::copy_n(out.begin() + offsets[b] * row, rows[b] * row,
                  o_.begin() + (b * kLongest + used_[b] - rows[b]) * row);
    }
  }

  /// Holds all that the steps gave against attention over everything.
  void check() {
    using Whole = attile::ForwardArgs<T, attile::Causal, attile::Padded>;
    std::vector<T> q(q_.size()), k(k_.size()), v(v_.size());
    const attile::AppendArgs<T, attile::Cached, R> append{
        .k_new = rows_of<const T>(k_, kKvHeads),
        .v_new = rows_of<const T>(v_, kKvHeads),
        .k = rows_of<T>(k, kKvHeads),
        .v = rows_of<T>(v, kKvHeads),
        .q = rows_of<const T>(q_, kHeads),
        .q_out = rows_of<T>(q, kHeads),
        .batch = kBatch,
        .q_heads = kHeads,
        .kv_heads = kKvHeads,
        .q_len = kLongest,
        .kv_len = kLongest,
        .head_dim = kD,
        .rotary = rotary(tables_.data()),
        .sequences = {.queries = {used_.data()}, .seqused_k = used_.data()}};
    REQUIRE(attile::host::append(append));
    Whole whole{.q = append.q_out, .k = append.k, .v = append.v};
    whole.batch = kBatch, whole.q_heads = kHeads, whole.kv_heads = kKvHeads;
    whole.q_len = whole.kv_len = kLongest, whole.head_dim = kD;
    whole.sequences = {used_.data(), used_.data()};
    const auto exact = attile::reference::forward(whole).o;
    const auto plain = attile::reference::plain_forward(whole).o;
    std::vector<double> steps;  // (batch, head, row, dim), as the reference has it
    for (int b = 0; b < kBatch; ++b) {
      for (int h = 0; h < kHeads; ++h) {
        for (int i = 0; i < kLongest; ++i) {
          const std::size_t at = ((std::size_t(b) * kLongest + i) * kHeads + h) * kD;
          for (int x = 0; x < kD; ++x) steps.push_back(attile::to_float(o_[at + x]));
        }
      }
    }
    REQUIRE(exact.size() == steps.size());
    CHECK(attile::reference::max_error(steps, exact) <=
          attile::reference::tolerance<T>(exact, plain));
    CHECK(attile::reference::largest_finite(exact) > 0.1);
    CHECK(dropped_.download()[0] == 0);
  }

  /// The arguments of every step, whose lengths and rows are in device memory.
  Append append_args() const {
    Append a{.k_new = rows_of<const T>(new_k_, kKvHeads),
             .v_new = rows_of<const T>(new_v_, kKvHeads),
             .k = pages_of<T>(k_cache_),
             .v = pages_of<T>(v_cache_),
             .q = rows_of<const T>(new_q_, kHeads),
             .q_out = rows_of<T>(new_q_, kHeads),
             .dropped = dropped_.get(),
             .rotary = rotary(table_on_device_.get())};
    describe(a);
    return a;
  }
  Attend attend_args() const {
    Attend a{.q = rows_of<const T>(new_q_, kHeads),
             .k = pages_of<const T>(k_cache_),
             .v = pages_of<const T>(v_cache_),
             .o = rows_of<T>(new_o_, kHeads)};
    describe(a);
    return a;
  }

 private:
  static std::vector<T> filled(int seed, int heads) {
    const Random random(static_cast<std::uint64_t>(seed));
    std::vector<T> values(std::size_t(kBatch) * kLongest * heads * kD);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = attile::from_float<T>(random.normal(i));
    }
    return values;
  }
  const std::vector<float>& tables_on_host() {
    for (int t = 0; t < kLongest; ++t) {
      for (int p = 0; p < kDims / 2; ++p) {
        const double angle = t * std::pow(10000.0, -2.0 * p / kDims);
        const std::size_t at = std::size_t(t) * (kDims / 2) + p;
        tables_[at] = static_cast<float>(std::cos(angle));
        tables_[tables_.size() / 2 + at] = static_cast<float>(std::sin(angle));
      }
    }
    return tables_;
  }
  static R rotary(const float* tables) {
    return {.cos = tables, .sin = tables + kLongest * kDims / 2, .rows = kLongest, .dims = kDims};
  }
  template <class X>
  static attile::Tensor<X> rows_of(std::vector<T>& rows, int heads) {
    return attile::bshd<X>(rows.data(), {.rows = kLongest, .heads = heads, .dim = kD});
  }
  template <class X>
  static attile::Tensor<X> rows_of(const Device<T>& rows, int heads) {
    return attile::bshd<X>(rows.get(), {.rows = kMostRows, .heads = heads, .dim = kD});
  }
  template <class X>
  static attile::Tensor<X> pages_of(const Device<T>& pages) {
    return attile::bshd<X>(pages.get(), {.rows = kPage, .heads = kKvHeads, .dim = kD});
  }
  template <class X>
  static void put(const Device<X>& to, const std::vector<X>& values) {
    REQUIRE(values.size() * sizeof(X) <= to.bytes());
    REQUIRE(cudaMemcpy(to.get(), values.data(), values.size() * sizeof(X),
                       cudaMemcpyHostToDevice) == cudaSuccess);
  }
  template <class Args>
  void describe(Args& a) const {
    a.batch = kBatch, a.q_heads = kHeads, a.kv_heads = kKvHeads;
    a.q_len = kMostRows, a.kv_len = kLongest, a.head_dim = kD;
    a.sequences.queries = {offsets_.get(), kMostRows};
    a.sequences.page_table = page_table_.get(), a.sequences.pages_per_sequence = kEntries;
    a.sequences.page_size = kPage, a.sequences.pages = kPages;
    a.sequences.seqused_k = seqused_.get();
  }

  std::vector<float> tables_;
  std::vector<T> q_, k_, v_, o_;  ///< (batch, row, head, dim)
  std::vector<int> used_ = std::vector<int>(kBatch);
  Device<float> table_on_device_;
  Device<int> page_table_, dropped_, offsets_{kBatch + 1}, seqused_{kBatch};
  Device<T> new_q_{kMostRows * kHeads * kD}, new_o_{kMostRows * kHeads * kD};
  Device<T> new_k_{kMostRows * kKvHeads * kD}, new_v_{kMostRows * kKvHeads * kD};
  Device<T> k_cache_{kPages * kPage * kKvHeads * kD}, v_cache_{kPages * kPage * kKvHeads * kD};
};

/// Runs the steps: two prompts, one token each, drafts of one sequence alone, more of both prompts.
template <class Launch>
void check_generation(const Launch& launch) {
  Generation generation;
  for (const std::vector<int>& rows : {std::vector{20, 5}, {1, 1}, {3, 0}, {13, 15}, {1, 1}}) {
    generation.step(rows, launch);
  }
  generation.check();
}

}  // namespace attile_test
