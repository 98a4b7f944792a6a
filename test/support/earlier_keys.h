// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/args.h>
#include <attile/core/cache.h>
#include <attile/core/merge.h>
#include <attile/reference.h>
#include <attile/tolerance.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "support/catch.h"
#include "support/random.h"
#include "support/tensors.h"

// Calls over parts of the keys, each of which goes on from the one before, against one over all.

namespace attile_test {

/// The sizes of a problem, and where its parts end: the last one with the last key.
struct PartsCase {
  int batch, q_heads, kv_heads, q_len, head_dim;
  std::vector<int> ends;  ///< multiples of 16, but for the last one
};

/// Attention over keys in parts. The first call has the sinks, the calls between write fp32 where
/// they read, and the last one rounds to T, elsewhere. S: the sequences, of which some have no key
/// in a part, or in none; P: the dropout; M: the mask of all keys, and of the last part.
template <class T, class S = attile::Uniform, class P = attile::NoDropout, class M = attile::NoMask>
class KeysInParts {
 public:
  using Types = attile::Elements<T, T, T, float>;
  using Whole = attile::ForwardArgs<T, M, P, S, attile::Sink<>>;
  using First = attile::ForwardArgs<Types, P, S, attile::Sink<>>;
  using Between = attile::ForwardArgs<Types, P, S, attile::EarlierKeys<>>;
  using Last = attile::ForwardArgs<T, M, P, S, attile::EarlierKeys<>>;
  static constexpr bool kPacked = attile::kIsPacked<S>;
  static constexpr bool kPadded = std::is_same_v<S, attile::Padded>;
  static constexpr bool kPaged = attile::kIsPaged<S>;
  static constexpr bool kCached = std::is_same_v<S, attile::Cached>;
  static constexpr int kPage = 16;

  explicit KeysInParts(const PartsCase& the_case) : c(the_case), kv_len(c.ends.back()) {
    cu_q.push_back(0);
    for (int b = 0; b < c.batch; ++b) {
      const int of_queries[] = {c.q_len, 1, c.q_len - 1}, of_keys[] = {kv_len, kv_len / 2 + 1, 0};
      used_q.push_back(S::kUniform ? c.q_len : of_queries[b % 3]);
      length.push_back(S::kUniform ? kv_len : of_keys[b % 3]);
      cu_q.push_back(cu_q.back() + used_q.back());
    }
    kv_rows = attile::round_up(kv_len, kPage);
    for (int i = 0; i < c.batch * kv_rows / kPage; ++i) table.push_back(i);
    for (int part = -1; part < parts(); ++part) add_lengths(part);
    for (int h = 0; h < c.q_heads; ++h) sinks.push_back(h % 2 == 0 ? 0.7f : -attile::kInf);
    const std::int64_t rows = std::int64_t{c.batch} * c.q_len * c.q_heads;
    const std::int64_t keys = std::int64_t{c.batch} * kv_rows * c.kv_heads;
    q = filled(rows * c.head_dim, 1);
    k = filled(keys * c.head_dim, 2);
    v = filled(keys * c.head_dim, 3);
    o = Buffer<T>(rows * c.head_dim);
    o32 = Buffer<float>(rows * c.head_dim);
    lse = Buffer<float>(rows);
    lse32 = Buffer<float>(rows);
  }

  int parts() const { return static_cast<int>(c.ends.size()); }
  std::vector<Region> regions() {
    std::vector<Region> all{q.region(),   k.region(),   v.region(),    o.region(),
                            o32.region(), lse.region(), lse32.region()};
    const auto add = [&](auto& x) { all.push_back({x.data(), x.size() * sizeof(x[0])}); };
    add(used_q), add(cu_q), add(table), add(sinks);
    for (PartLengths& x : lengths) add(x.used), add(x.first);
    return all;
  }

  Whole whole() {
    Whole a = described<Whole>(-1);
    a.sink = {sinks.data()};
    a.o = attile::bshd(o.data(), {.rows = c.q_len, .heads = c.q_heads, .dim = c.head_dim});
    a.lse = lse.data();
    return a;
  }
  First first() {
    First a = described<First>(0);
    a.sink = {sinks.data()};
    a.o = fp32_output();
    a.lse = lse32.data();
    return a;
  }
  Between between(int part) {
    Between a = described<Between>(part);
    a.sink = {fp32_output(), fp32_lse()};
    a.o = fp32_output();
    a.lse = lse32.data();
    return a;
  }
  Last last() {
    Last a = described<Last>(parts() - 1);
    a.sink = {fp32_output(), fp32_lse()};
    a.o = attile::bshd(o.data(), {.rows = c.q_len, .heads = c.q_heads, .dim = c.head_dim});
    a.lse = lse.data();
    return a;
  }

  /// Runs the parts by `run(args, regions)`, which says what went wrong.
  template <class Run>
  std::string run_parts(const Run& run) {
    std::string faults = run(first(), regions());
    for (int part = 1; part + 1 < parts(); ++part) faults += run(between(part), regions());
    return faults + run(last(), regions());
  }

  /// Holds the results against those of all keys in fp64. Each part adds the roundings of an LSE to
  /// the exponents, and those of two exponentials, a reciprocal and a sum (PTX ISA: 2^-22 and
  /// less).
  void check() {
    using attile::reference::max_error;
    const Whole all = whole();
    const auto exact = attile::reference::forward(all);
    const auto plain = attile::reference::plain_forward(all, {.keep_scores = sizeof(T) == 4});
    const auto plain_lse = attile::reference::plain_forward(all, {.keep_scores = true});
    const double exponent = attile::reference::largest_finite(exact.lse) + 10;
    const double of_parts = parts() * (exponent * 0x1p-23 + 0x1p-20);
    std::vector<double> got_o(exact.o.size()), got_lse(exact.lse.size());
    std::int64_t row = 0;
    for (int b = 0; b < c.batch; ++b) {
      for (int h = 0; h < c.q_heads; ++h) {
        for (int i = 0; i < c.q_len; ++i, ++row) {
          if (i >= used_q[b]) continue;
          const attile::RowOrigin at = all.sequences.q_origin(b);
          const T* const from = all.o.row(at.batch, h, std::int64_t{at.row} + i);
          for (int x = 0; x < c.head_dim; ++x) {
            got_o[row * c.head_dim + x] = attile::to_float(from[x]);
          }
          got_lse[row] = *attile::per_row(all, lse.data()).row(at.batch, h, at.row + i);
          if (std::isinf(exact.lse[row])) CHECK(got_lse[row] == exact.lse[row]);
        }
      }
    }
    CHECK(max_error(got_o, exact.o) <= attile::reference::tolerance<T>(exact.o, plain.o) +
                                           of_parts * attile::reference::largest_finite(exact.o));
    CHECK(max_error(got_lse, exact.lse) <=
          attile::reference::tolerance<float>(exact.lse, plain_lse.lse) + of_parts);
  }

  Buffer<T> q, k, v, o;
  Buffer<float> o32, lse, lse32;
  std::vector<float> sinks;
  PartsCase c;
  int kv_len;

  /// The arguments of a part, or of all keys, without outputs and sinks.
  template <class Args>
  Args described(int part) {
    const int begin = part <= 0 ? 0 : c.ends[part - 1], end = part < 0 ? kv_len : c.ends[part];
    Args a{};
    a.q = attile::bshd<const T>(q.data(), {.rows = c.q_len, .heads = c.q_heads, .dim = c.head_dim});
    a.k = attile::bshd<const T>(
        k.data(), {.rows = kPaged ? kPage : kv_rows, .heads = c.kv_heads, .dim = c.head_dim});
    a.v = attile::bshd<const T>(
        v.data(), {.rows = kPaged ? kPage : kv_rows, .heads = c.kv_heads, .dim = c.head_dim});
    a.batch = c.batch, a.q_heads = c.q_heads, a.kv_heads = c.kv_heads;
    a.q_len = c.q_len, a.head_dim = c.head_dim;
    if constexpr (S::kUniform || kPadded) {
      a.kv_len = end - begin;
      a.k.data += begin * a.k.row_stride;
      a.v.data += begin * a.v.row_stride;
    } else {
      a.kv_len = kCached ? kv_rows : kv_len;
    }
    PartLengths& of_part = lengths[part + 1];
    auto& s = a.sequences;
    if constexpr (kPadded) s = {used_q.data(), of_part.used.data()};
    if constexpr (kPacked) {
      s = {cu_q.data(), of_part.first.data(), cu_q.back(), c.batch * kv_rows,
           nullptr,     of_part.used.data()};
    }
    if constexpr (kCached || kPaged) {
      s.queries = {used_q.data()};
      s.seqused_k = of_part.used.data();
      s.leftpad_k = of_part.first.data();
    }
    if constexpr (kPaged) {
      s.page_table = table.data();
      s.pages_per_sequence = kv_rows / kPage;
      s.page_size = kPage;
      s.pages = static_cast<int>(table.size());
    }
    if constexpr (P::kEnabled) {
      a.dropout = {{0.3f, 5, 9}, begin};
    }
    return a;
  }

 private:
  /// The lengths of a part of each sequence's keys, and where it begins, as the policy has them.
  struct PartLengths {
    std::vector<int> used, first;
  };

  void add_lengths(int part) {
    const int begin = part <= 0 ? 0 : c.ends[part - 1], end = part < 0 ? kv_len : c.ends[part];
    PartLengths x;
    for (int b = 0; b < c.batch; ++b) {
      const int from = std::min(begin, length[b]), to = std::min(end, length[b]);
      x.used.push_back(kCached || kPaged ? to : to - from);
      x.first.push_back(kPacked ? b * kv_rows + from : from);
    }
    if (kPacked) x.first.push_back(c.batch * kv_rows);
    lengths.push_back(x);
  }
  static Buffer<T> filled(std::int64_t elements, std::uint64_t seed) {
    Buffer<T> x(elements);
    const Random random(seed);
    for (std::int64_t i = 0; i < elements; ++i) {
      x.data()[i] = attile::from_float<T>(random.normal(i));
    }
    return x;
  }
  attile::Tensor<float> fp32_output() {
    return attile::bshd(o32.data(), {.rows = c.q_len, .heads = c.q_heads, .dim = c.head_dim});
  }
  attile::Tensor<const float> fp32_lse() {
    return attile::bhs<const float>(lse32.data(),
                                    {.rows = kPacked ? cu_q.back() : c.q_len, .heads = c.q_heads});
  }

  int kv_rows = 0;
  std::vector<int> used_q, length, cu_q, table;
  std::vector<PartLengths> lengths;  // of all keys, then of each part
};

/// Runs a problem in parts, and holds the result against that of all keys.
template <class Problem, class Run>
void check_parts(const PartsCase& c, const Run& run) {
  Problem problem(c);
  REQUIRE(problem.run_parts(run) == std::string());
  problem.check();
}

/// Does so for a GQA problem in T with sequences of each kind.
template <class T, class... Sequences, class Run>
void check_parts_of_sequences(const Run& run) {
  (check_parts<KeysInParts<T, Sequences>>({5, 4, 2, 9, 32, {48, 64, 200, 203}}, run), ...);
}

}  // namespace attile_test
