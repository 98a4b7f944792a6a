// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/merge.h>
#include <attile/core/packed.h>
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

// `merge` against what it is: weighted sums in fp64.

namespace attile_test {

/// One call of `merge`. What a policy does not have is not read.
struct MergeCase {
  const char* name;
  int batch = 3, q_heads = 4, q_len = 5, dim = 32;
  std::vector<int> counts = {1, 1};  ///< parts of each tensor of parts
  double empty = 0.3;                ///< share of the parts of rows without keys
  float spread = 3;                  ///< of the LSE of a row's parts
  bool unaligned = false;            ///< no row begins at a multiple of 16 bytes
  int in_place = -1;                 ///< the tensor of parts whose O is the result's; -1: none
  bool lse = true;                   ///< it is wanted
};

inline std::vector<MergeCase> merge_cases() {
  return {
      {.name = "two parts"},
      {.name = "one part", .counts = {1}},
      {.name = "many parts of one tensor", .counts = {13}},
      {.name = "all tensors", .counts = {1, 3, 1, 1, 7, 1, 1, 2}},
      {.name = "no keys", .empty = 1},
      {.name = "keys in all parts", .counts = {1, 4}, .empty = 0},
      {.name = "weights that underflow", .counts = {2, 2}, .spread = 200},
      {.name = "unaligned", .dim = 32, .unaligned = true},
      {.name = "odd dimension", .q_heads = 3, .dim = 37, .unaligned = true},
      {.name = "heads that end within a warp", .q_heads = 5, .dim = 72, .counts = {1, 2}},
      {.name = "a head of several warps", .q_heads = 2, .q_len = 2, .dim = 256},
      {.name = "in place of the first", .counts = {1, 1}, .in_place = 0},
      {.name = "in place of the second", .counts = {2, 3}, .in_place = 1},
      {.name = "in place, unaligned", .dim = 20, .unaligned = true, .in_place = 0},
      {.name = "LSE is not wanted", .lse = false},
      {.name = "one row of one head", .batch = 1, .q_heads = 1, .q_len = 1, .counts = {1, 1, 1}},
      {.name = "many sequences", .batch = 70, .q_heads = 1, .q_len = 2, .dim = 8},
  };
}

/// What the fp32 arithmetic of a merge may add to a plain computation. Each weight is off by up to
/// 2^-22 of itself (ex2.approx, PTX ISA), in the sum of the products and in that of the weights.
/// `largest`: of the parts' |O|. A difference of two LSE, d, is multiplied by log2(e), which is
/// off by 2^-24 d, and d e^-d is less than 1/2.
inline double merge_error(double largest) { return largest * 0x1p-20; }
inline constexpr double kMergedLseError = 0x1p-21;

/// The memory of a case on the host, and what it has to be afterwards. The tensors of parts have in
/// turn rows of all heads interleaved with LSE as `forward` writes it, and heads apart with LSE as
/// it is of a batch of 1, as the shared prefix of a cascade has it. What belongs to no row, and the
/// O of parts without keys, is NaN.
template <class TO, class T, class S, class K>
class MergeProblem {
 public:
  using Args = attile::MergeArgs<TO, T, S, K>;
  static constexpr bool kPacked = attile::kIsPacked<S>;
  static constexpr bool kPadded = std::is_same_v<S, attile::Padded>;
  static constexpr bool kInPlace = std::is_same_v<T, TO>;

  explicit MergeProblem(const MergeCase& the_case) : c(the_case) {
    if (!kInPlace) c.in_place = -1;
    for (int b = 0; b < c.batch; ++b) {
      const int some[] = {c.q_len, 1, 0, c.q_len - 1};
      lengths.push_back(kPacked || kPadded ? some[b % 4] : c.q_len);
      offsets.push_back(offsets.back() + lengths.back());
    }
    batches = kPacked ? 1 : c.batch;
    rows = kPacked ? offsets.back() + 2 : c.q_len;
    for (const int count : c.counts) {
      part_o.emplace_back(count * o_elements());
      part_lse.emplace_back(count * lse_elements());
    }
    o = Buffer<TO>(o_elements());
    lse = Buffer<float>(lse_elements());
    for (int h = 0; h < c.q_heads; ++h) sinks.push_back(h == 1 ? -attile::kInf : 0.5f * h - 1);
    fill_and_expect();
    before_o = result().storage();
    before_lse = lse.storage();
  }

  std::vector<Region> regions() {
    std::vector<Region> all{o.region(), lse.region()};
    for (auto& x : part_o) all.push_back(x.region());
    for (auto& x : part_lse) all.push_back(x.region());
    const auto add = [&](auto& x) { all.push_back({x.data(), x.size() * sizeof(x[0])}); };
    add(lengths), add(offsets), add(sinks);
    return all;
  }
  /// The arguments; `at(pointer)` is where host memory lies for the executor.
  template <class At>
  Args args(const At& at) {
    Args a{};
    for (std::size_t i = 0; i < c.counts.size(); ++i) {
      const Placement of_o = o_placement(static_cast<int>(i));
      const Placement of_lse = lse_placement(static_cast<int>(i));
      a.parts[i] = {.o = {at(part_o[i].data()) + of_o.first, of_o.batch_stride, of_o.head_stride,
                          of_o.row_stride},
                    .lse = {at(part_lse[i].data()), of_lse.batch_stride, of_lse.head_stride,
                            of_lse.row_stride},
                    .count = c.counts[i],
                    .o_stride = o_elements(),
                    .lse_stride = lse_elements()};
    }
    a.part_tensors = static_cast<int>(c.counts.size());
    const Placement to = o_placement(std::max(c.in_place, 0));
    a.o = {at(result().data()) + to.first, to.batch_stride, to.head_stride, to.row_stride};
    if (c.lse) a.lse = at(lse.data());
    a.batch = c.batch, a.q_heads = c.q_heads, a.q_len = c.q_len, a.head_dim_v = c.dim;
    if constexpr (kPadded) a.sequences.seqused_q = at(lengths.data());
    if constexpr (kPacked) {
      a.sequences.cu_seqlens_q = a.sequences.cu_seqlens_k = at(offsets.data());
      a.sequences.total_q = rows, a.sequences.total_k = 0;
    }
    if constexpr (K::kEnabled) a.sink.sinks = at(sinks.data());
    return a;
  }

  /// Whether another run of the case gave the same bits.
  bool has_results_of(MergeProblem& other) {
    return result().equals(other.result().storage()) && lse.equals(other.lse.storage());
  }

  /// Holds the outputs against what they have to be, and all else against what it was.
  void check() {
    const auto [got_o, got_lse] = take_results();
    using attile::reference::max_error;
    using attile::reference::tolerance;
    CHECK(max_error(got_o, exact_o) <= tolerance<TO>(exact_o, plain_o) + merge_error(largest));
    if (c.lse) {
      CHECK(max_error(got_lse, exact_lse) <=
            tolerance<float>(exact_lse, plain_lse) + kMergedLseError);
    }
    // What is not finite, and the zeros of rows without keys, are what they have to be.
    for (std::size_t r = 0; r < exact_lse.size(); ++r) {
      const bool is_empty = weightless[r];
      if (c.lse && std::isinf(exact_lse[r])) CHECK(got_lse[r] == exact_lse[r]);
      for (int x = 0; is_empty && x < c.dim; ++x) CHECK(got_o[r * c.dim + x] == 0.0);
    }
    CHECK(result().equals(before_o));
    CHECK(lse.equals(before_lse));
  }

 private:
  Buffer<TO>& result() {
    if constexpr (kInPlace) {
      if (c.in_place >= 0) return part_o[c.in_place];
    }
    return o;
  }
  std::int64_t odd() const { return c.unaligned ? 1 : 16; }
  std::int64_t row_elements() const { return std::int64_t{c.q_heads} * c.dim + odd(); }
  std::int64_t o_elements() const { return batches * rows * row_elements() + odd(); }
  std::int64_t lse_elements() const { return std::int64_t{batches} * c.q_heads * rows; }
  /// Where the O of the first part lies in its buffer.
  Placement o_placement(int tensor) const {
    const std::int64_t first = c.unaligned ? 1 : 0, size = rows * row_elements();
    if (tensor % 2 == 0) return {first, size, c.dim, row_elements(), 0};
    return {first, size, std::int64_t{rows} * c.dim, c.dim, 0};
  }
  Placement lse_placement(int tensor) const {
    if (tensor % 2 == 0) return {0, std::int64_t{c.q_heads} * rows, rows, 1, 0};
    return {0, rows, std::int64_t{batches} * rows, 1, 0};
  }

  /// Calls f(batch, head, row), as the tensors count them, for the rows that there are.
  template <class F>
  void for_each_row(const F& f) {
    for (int b = 0; b < c.batch; ++b) {
      for (int h = 0; h < c.q_heads; ++h) {
        for (int i = 0; i < lengths[b]; ++i) f(kPacked ? 0 : b, h, kPacked ? offsets[b] + i : i);
      }
    }
  }

  void fill_and_expect() {
    const Random random(5);
    std::uint64_t drawn = 0;
    for_each_row([&](int b, int h, int row) {
      std::vector<float> lses;
      std::vector<std::vector<double>> outputs;
      for (std::size_t i = 0; i < c.counts.size(); ++i) {
        for (int n = 0; n < c.counts[i]; ++n) {
          const bool is_empty = random.uniform(drawn++) < c.empty;
          const float of_part = is_empty ? -attile::kInf : c.spread * random.normal(drawn++) + 7;
          part_lse[i].data()[lse_placement(i).at(b, h, row, 0) + n * lse_elements()] = of_part;
          if (is_empty) continue;
          T* const to = part_o[i].data() + o_placement(i).at(b, h, row, 0) + n * o_elements();
          lses.push_back(of_part);
          outputs.emplace_back();
          for (int x = 0; x < c.dim; ++x) {
            to[x] = attile::from_float<T>(random.normal(drawn++));
            outputs.back().push_back(attile::to_float(to[x]));
            largest = std::max(largest, std::abs(outputs.back().back()));
          }
        }
      }
      weightless.push_back(lses.empty());
      const float sink = K::kEnabled ? sinks[h] : -attile::kInf;
      expect<double>(lses, outputs, sink, exact_o, exact_lse);
      expect<float>(lses, outputs, sink, plain_o, plain_lse);
    });
    for (Buffer<T>& x : part_o) x.fill_gaps_of_input();
  }
  /// Appends a row of O and its LSE in the arithmetic Real.
  template <class Real>
  void expect(const std::vector<float>& lses, const std::vector<std::vector<double>>& outputs,
              float sink, std::vector<double>& to_o, std::vector<double>& to_lse) const {
    Real m = sink, l = 0;
    for (const float x : lses) m = std::max(m, Real(x));
    if (m > -attile::kInf) l = std::exp(sink - m);
    std::vector<Real> sums(c.dim);
    for (std::size_t i = 0; i < lses.size(); ++i) {
      const Real weight = std::exp(lses[i] - m);
      l += weight;
      for (int x = 0; x < c.dim; ++x) sums[x] += weight * static_cast<Real>(outputs[i][x]);
    }
    for (const Real sum : sums) {
      const Real x = l > 0 ? sum / l : Real(0);
      const bool rounds = std::is_same_v<Real, float>;
      to_o.push_back(rounds ? attile::to_float(attile::from_float<TO>(static_cast<float>(x))) : x);
    }
    to_lse.push_back(m + std::log(l));
  }

  struct Results {
    std::vector<double> o, lse;
  };
  /// Returns the rows of the outputs, and puts back what was there before.
  Results take_results() {
    Results got;
    const std::int64_t guard = Buffer<float>::kGuard;
    for_each_row([&](int b, int h, int row) {
      const std::int64_t first = o_placement(std::max(c.in_place, 0)).at(b, h, row, 0);
      for (int x = 0; x < c.dim; ++x) {
        TO& element = result().data()[first + x];
        got.o.push_back(attile::to_float(element));
        element = before_o[guard + first + x];
      }
      if (!c.lse) return;
      const std::int64_t at = lse_placement(0).at(b, h, row, 0);
      got.lse.push_back(lse.data()[at]);
      lse.data()[at] = before_lse[guard + at];
    });
    return got;
  }

  MergeCase c;
  int batches = 0, rows = 0;
  std::vector<int> lengths, offsets{0};
  std::vector<float> sinks;
  std::vector<Buffer<T>> part_o;
  std::vector<Buffer<float>> part_lse;
  Buffer<TO> o;
  Buffer<float> lse;
  std::vector<TO> before_o;
  std::vector<float> before_lse;
  std::vector<double> exact_o, exact_lse, plain_o, plain_lse;
  std::vector<bool> weightless;  ///< whether no part of a row has keys
  double largest = 0;
};

/// Attention of some rows over many keys, in parts: what `merge` makes of the parts is held against
/// one computation over all keys. Scores are random numbers, and everything is computed in fp64 and
/// rounded to T, as an exact kernel would give it.
template <class T, class K>
class PartsOfAWhole {
 public:
  using Args = attile::MergeArgs<T, T, attile::Uniform, K>;
  static constexpr int kParts = 16, kHeads = 2, kRows = 3, kDim = 8;
  /// The part that has counted the sink, if `merge` has none.
  static constexpr int kPartOfSink = K::kEnabled ? -1 : 3;

  explicit PartsOfAWhole(int keys)
      : part_o(kParts * kRowsOfAll * kDim),
        part_lse(kParts * kRowsOfAll),
        o(kRowsOfAll * kDim),
        lse(kRowsOfAll),
        sinks{5.0f, -attile::kInf} {
    const Random scores(21), values(22);
    for (int row = 0; row < kRowsOfAll; ++row) {
      const float sink = sinks[row / kRows];
      const auto attend = [&](int begin, int end, float its_sink) {
        std::vector<double> result(kDim + 1);
        double l = its_sink > -attile::kInf ? std::exp(double{its_sink}) : 0;
        for (int key = begin; key < end; ++key) {
          const double p = std::exp(3.0 * scores.normal(std::uint64_t(row) * keys + key));
          l += p;
          for (int x = 0; x < kDim; ++x) {
            result[x] += p * values.normal(std::uint64_t(key) * kDim + x);
          }
        }
        for (int x = 0; x < kDim; ++x) result[x] /= l;
        result[kDim] = std::log(l);
        return result;
      };
      for (int part = 0; part < kParts; ++part) {
        const std::vector<double> exact =
            attend(part * (keys / kParts), (part + 1) * (keys / kParts),
                   part == kPartOfSink ? sink : -attile::kInf);
        const std::int64_t at = part * kRowsOfAll + row;
        for (int x = 0; x < kDim; ++x) {
          T& element = part_o.data()[at * kDim + x];
          element = attile::from_float<T>(static_cast<float>(exact[x]));
          o_error = std::max(o_error, std::abs(attile::to_float(element) - exact[x]));
          largest = std::max(largest, std::abs(exact[x]));
        }
        part_lse.data()[at] = static_cast<float>(exact[kDim]);
        lse_error = std::max(lse_error, std::abs(part_lse.data()[at] - exact[kDim]));
      }
      const std::vector<double> whole = attend(0, keys, sink);
      exact_o.insert(exact_o.end(), whole.begin(), whole.end() - 1);
      exact_lse.push_back(whole[kDim]);
    }
  }

  std::vector<Region> regions() {
    return {part_o.region(),
            part_lse.region(),
            o.region(),
            lse.region(),
            {sinks.data(), sinks.size() * sizeof(float)}};
  }
  template <class At>
  Args args(const At& at) {
    Args a{};
    a.parts[0] = {
        .o =
            attile::bhsd<const T>(at(part_o.data()), {.rows = kRows, .heads = kHeads, .dim = kDim}),
        .lse = attile::bhs<const float>(at(part_lse.data()), {.rows = kRows, .heads = kHeads}),
        .count = kParts,
        .o_stride = kRowsOfAll * kDim,
        .lse_stride = kRowsOfAll};
    a.part_tensors = 1;
    a.o = attile::bhsd(at(o.data()), {.rows = kRows, .heads = kHeads, .dim = kDim});
    a.lse = at(lse.data());
    a.batch = 1, a.q_heads = kHeads, a.q_len = kRows, a.head_dim_v = kDim;
    if constexpr (K::kEnabled) a.sink.sinks = at(sinks.data());
    return a;
  }

  bool has_results_of(const PartsOfAWhole& other) const {
    return o.equals(other.o.storage()) && lse.equals(other.lse.storage());
  }

  /// The roundings of the parts, of what they weigh, of the merge and of the result.
  void check() const {
    using attile::reference::max_error;
    using attile::reference::rounding;
    std::vector<double> got_o, got_lse(lse.data(), lse.data() + kRowsOfAll);
    for (int i = 0; i < kRowsOfAll * kDim; ++i) got_o.push_back(attile::to_float(o.data()[i]));
    CHECK(max_error(got_o, exact_o) <=
          o_error + 2 * lse_error * largest + merge_error(largest) + rounding<T>(exact_o));
    CHECK(max_error(got_lse, exact_lse) <=
          lse_error + kMergedLseError + rounding<float>(exact_lse));
  }

 private:
  static constexpr std::int64_t kRowsOfAll = kHeads * kRows;

  Buffer<T> part_o;
  Buffer<float> part_lse;
  Buffer<T> o;
  Buffer<float> lse;
  std::vector<float> sinks;
  std::vector<double> exact_o, exact_lse;
  double o_error = 0, lse_error = 0, largest = 0;
};

/// Runs a problem: `merge(problem)` returns what went wrong, or "".
template <class Problem, class Merge>
void check_merge(Problem problem, const Merge& merge) {
  REQUIRE(merge(problem) == std::string());
  problem.check();
}

/// Runs every case with every kind of parts, sequences and sinks.
template <class Merge>
void check_all_merges(const Merge& merge) {
  using attile::NoSink;
  using attile::Sink;
  using attile::Uniform;
  using Half = __half;
  using Bf16 = __nv_bfloat16;
  for (const MergeCase& c : merge_cases()) {
    INFO(c.name);
    check_merge(MergeProblem<Half, Half, Uniform, NoSink>(c), merge);
    check_merge(MergeProblem<Bf16, float, attile::Padded, Sink<>>(c), merge);
    check_merge(MergeProblem<float, float, attile::Packed, Sink<>>(c), merge);
  }
}

/// Merges 16 parts of that many keys. A sink is counted by one part, or by the merge.
template <class Merge>
void check_parts_of_a_whole(const Merge& merge, int keys) {
  check_merge(PartsOfAWhole<float, attile::NoSink>(keys), merge);
  check_merge(PartsOfAWhole<__half, attile::Sink<>>(keys), merge);
}

}  // namespace attile_test
