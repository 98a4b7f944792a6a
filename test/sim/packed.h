// SPDX-License-Identifier: MIT
#pragma once

#include <attile/attile.cuh>

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/one_head.h"
#include "sim/suite.h"
#include "support/catch.h"
#include "support/packed_bits.h"
#include "support/random.h"

// Kernels with Packed sequences, or PackedBatches, whose offsets and lengths are anything:
// negative, too large, falling. Nothing is accessed out of bounds, which the machine sees, and
// every kernel ends. Where offsets fall, rows are given to two sequences, which both write them (a
// race), or a sequence is left out, whose sums of dQ nobody has written: what its rows get is not
// defined.

namespace attile_test {

template <class Traits, int kBatch>
void run_any_offsets() {
  using Sequences = typename Traits::SequencesType;
  constexpr int kRows = 190, kKeys = attile::kIsInBatches<Sequences> ? kRows : 230;
  const OneHead<Traits> head(kRows, kKeys, /*lse_of_rows=*/3.0f);
  // Lengths are given with every second one, and offsets fall with every third.
  const std::vector<std::uint64_t> seeds = kTestLarge ? std::vector<std::uint64_t>{1, 2, 3, 4, 5, 6}
                                                      : std::vector<std::uint64_t>{2, 3, 6};
  for (const std::uint64_t seed : seeds) {
    const bool fall = seed % 3 == 0;
    const Random random(seed);
    const auto any = [&](int list, int most) {
      std::vector<int> numbers(kBatch + 1);
      for (int i = 0; i <= kBatch; ++i) {
        constexpr int kAny[] = {-1, INT_MIN, INT_MAX, 1 << 24};
        const double kind = random.uniform(100 * list + 2 * i);
        const double inside = random.uniform(100 * list + 2 * i + 1);
        numbers[i] = kind < 0.8 ? static_cast<int>(inside * (most + 1)) : kAny[i % 4];
      }
      if (list < 2 && !fall) std::sort(numbers.begin(), numbers.end());
      return numbers;
    };
    using Ints = example::DeviceArray<int>;
    const Ints cu_q(any(0, kRows)), cu_k(any(1, kKeys)), used_q(any(2, kRows)),
        used_k(any(3, kKeys));
    Sequences packed;
    if constexpr (attile::kIsInBatches<Sequences>) {
      constexpr int kBatches = 5;
      packed = {cu_q.get(), kBatches, kRows / kBatches};
    } else {
      packed = {cu_q.get(), cu_k.get(), kRows, kKeys};
      if (seed % 2 == 0) packed.seqused_q = used_q.get(), packed.seqused_k = used_k.get();
    }
    const cudaError_t error = head.try_packed(packed, kBatch, /*q_len=*/100, /*kv_len=*/150);
    for (const sim::Report& report : sim::take_reports()) {
      if (fall && (report.kind == "race" || report.kind == "uninitialised")) continue;
      CHECK(report.kind + ": " + report.text == "");
    }
    if (!fall) REQUIRE(error == cudaSuccess);
  }
}

/// Strides of axes with one element, which are not read, leave rows to be moved in vectors.
template <class Traits>
void check_odd_strides() {
  using T = typename Traits::ElementType;
  alignas(16) static T element[1];
  typename Traits::Args a;
  a.q = {element, 1, 3, Traits::kD};
  a.k = a.v = a.q;
  a.o = {element, 1, 3, Traits::kD};
  a.batch = a.q_heads = a.kv_heads = 1;
  a.q_len = a.kv_len = 30;
  a.sequences = attile::Packed{nullptr, nullptr, 30, 30};
  const auto p = attile::forward_params<Traits>(a);
  CHECK((p.q.vectors && p.k.vectors && p.v.vectors && p.o.vectors));
  a.batch = a.q_heads = 2;
  a.sequences.total_q = 1;
  a.q.row_stride = a.q.head_stride = 5;
  CHECK(!attile::forward_params<Traits>(a).q.vectors);  // that of the heads is read
  a.q.head_stride = 8;
  CHECK(attile::forward_params<Traits>(a).q.vectors);
}

/// Adds the tests of packed sequences that are none of the cases: of the bits of two kernels, and
/// of these and others with any offsets.
template <class Forward, class Backward, class... Others>
void add_packed_tests(const Suite& suite, int q_heads, int kv_heads) {
  suite.test("packed_causal", "both", "bits_follow_from_the_sequence", [q_heads, kv_heads] {
    check_packed_bits<ByTraits<Forward, Backward>>(70, 100, q_heads, kv_heads);
    CHECK(machine_reports() == "");
  });
  suite.test("packed_causal", "both", "a_row_beside_longer_sequences", [q_heads, kv_heads] {
    check_decode_bits<ByTraits<Forward, Backward>>(kTestLarge ? 300 : 150, q_heads, kv_heads);
    CHECK(machine_reports() == "");
  });
  suite.test("packed_causal", "forward", "odd_strides", check_odd_strides<Forward>);
  suite.test("packed_causal", "both", "any_offsets", [] {
    run_any_offsets<Forward, 7>();
    run_any_offsets<Backward, 7>();
    (run_any_offsets<Others, 7>(), ...);
    run_any_offsets<Backward, 40>();  // more than a warp reads at once
  });
}

}  // namespace attile_test
