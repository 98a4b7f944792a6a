// SPDX-License-Identifier: MIT
#pragma once

#include <attile/attile.cuh>

#include <climits>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "../../examples/support.cuh"
#include "sim/suite.h"
#include "support/catch.h"
#include "support/random.h"

namespace attile_test {

/// Runs a kernel of Policy::kPagedWindow whose page table, lengths and indices are anything.
/// Nothing is accessed out of bounds, which the machine sees, and the kernel ends. The family sm90
/// wants pages of a multiple of 8 rows, with which sequences begin.
template <class Traits, int kPage = 7>
void run_any_cache() {
  using E = typename Traits::Args::Elements;
  using T = typename E::Q;
  using K = typename E::K;
  using V = typename E::V;
  using Ints = example::DeviceArray<int>;
  constexpr int kBatch = 7, kRows = 40, kPages = 9, kEntries = 12, kLines = 4;
  constexpr int kD = Traits::kD;
  const auto ones = []<class X>(X one, int rows) {
    return example::DeviceArray<X>(std::vector<X>(static_cast<std::size_t>(rows) * kD, one));
  };
  const auto q = ones(attile::from_float<T>(1.0f), kBatch * kRows), o = ones(T{}, kBatch * kRows);
  const auto k = ones(attile::from_float<K>(1.0f), kPages * kPage);
  const auto v = ones(attile::from_float<V>(1.0f), kPages * kPage);
  const example::DeviceArray<float> sinks(std::vector<float>{0.5f});
  for (std::uint64_t seed = 1; seed < (kTestLarge ? 7 : 4); ++seed) {
    const Random random(seed);
    const auto any = [&](int list, int count, int most) {
      constexpr int kAny[] = {-1, INT_MIN, INT_MAX, 1 << 24};
      std::vector<int> numbers;
      for (int i = 0; i < count; ++i) {
        const bool is_good = random.uniform(1000 * list + 2 * i) < 0.7;
        const int good = static_cast<int>(random.uniform(1000 * list + 2 * i + 1) * (most + 1));
        numbers.push_back(is_good ? good : kAny[i % 4]);
      }
      return Ints(numbers);
    };
    const Ints table = any(0, kLines * kEntries, kPages - 1), used_k = any(1, kBatch, 90),
               lines = any(2, kBatch, kLines - 1), pad = any(3, kBatch, 20),
               used_q = any(4, kBatch, kRows);
    typename Traits::Args args;
    args.q = attile::bhsd<const T>(q.get(), {.rows = kRows, .heads = 1, .dim = kD});
    args.k = attile::bhsd<const K>(k.get(), {.rows = kPage, .heads = 1, .dim = kD});
    args.v = attile::bhsd<const V>(v.get(), {.rows = kPage, .heads = 1, .dim = kD});
    args.o = attile::bhsd(o.get(), {.rows = kRows, .heads = 1, .dim = kD});
    args.batch = kBatch, args.q_heads = args.kv_heads = 1, args.head_dim = kD;
    args.q_len = kRows, args.kv_len = seed % 2 == 0 ? 1 << 30 : 60;
    args.mask = {static_cast<int>(seed) * 9 - 10, 0};
    args.sink.sinks = sinks.get();
    args.sequences = {.queries = {used_q.get()},
                      .page_table = table.get(),
                      .pages_per_sequence = kEntries,
                      .page_size = kPage,
                      .pages = kPages,
                      .seqused_k = used_k.get(),
                      .cache_batch_idx = lines.get(),
                      .tables = kLines,
                      .leftpad_k = kPage % 8 == 0 ? nullptr : pad.get()};
    REQUIRE(attile::forward<Traits>(args) == cudaSuccess);
    CHECK(machine_reports() == "");
  }
}

}  // namespace attile_test
