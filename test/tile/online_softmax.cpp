// SPDX-License-Identifier: MIT
#include <attile/kernel/backward/log2_lse.cuh>
#include <attile/tile/merge_lse.h>
#include <attile/tile/online_softmax.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "support/catch.h"
#include "support/random.h"

namespace {

using attile::kInf;
using attile::kLog2e;
using attile::tile::merge_lse;
using attile::tile::Merged;
using attile::tile::OnlineSoftmax;
using attile::tile::softmax_weight;
using attile_test::Random;

constexpr int kRows = 3;
constexpr int kDim = 4;

/// Scores of kRows rows, as a thread that holds whole rows would have them.
struct Scores {
  std::vector<float> s[kRows];

  float row_max(int r) const {
    float m = -kInf;
    for (const float x : s[r]) m = std::max(m, x);
    return m;
  }
  float lane_max(int r) const { return row_max(r); }
  float lane_max_above(int r, float floor) const {
    for (const float x : s[r]) floor = attile::arch::fmax_above(floor, x, floor);
    return floor;
  }
  float exponentiate(int r, float unit, float base) {
    float sum = 0;
    for (float& x : s[r]) sum += x = std::exp2(x * unit - base);
    return sum;
  }
  static bool any_lane(bool x) { return x; }
};

struct Output {
  float o[kRows][kDim] = {};
  int scaled = 0;  ///< rows, so far

  void scale_row(int r, float factor) {
    for (float& x : o[r]) x *= factor;
    ++scaled;
  }
  void clear_row(int r) {
    for (float& x : o[r]) x = 0;
  }
  float sum_lanes(float x) const { return x; }
};

/// Rows of scores and the values they weigh.
struct Problem {
  int columns;
  std::vector<float> s[kRows];
  std::vector<float> v;

  Problem(int n, float mean, float spread, std::uint64_t seed) : columns(n), v(n * kDim) {
    const Random random(seed);
    for (int r = 0; r < kRows; ++r) {
      for (int j = 0; j < n; ++j) s[r].push_back(mean + spread * random.normal(r * n + j));
    }
    for (int i = 0; i < n * kDim; ++i) v[i] = random.normal(1000000 + i);
  }
};

struct Result {
  Output output;
  float lse[kRows];
};

/// A state and its output before `finish`.
struct Partial {
  OnlineSoftmax<kRows> softmax;
  Output output;
};

/// One row after the other over tiles of the given columns; `order` says which tile comes when.
template <int kThreshold = 0>
Partial accumulate(const Problem& p, int tile, float unit, const std::vector<int>& order) {
  Partial partial;
  partial.softmax.reset();
  for (const int t : order) {
    Scores scores;
    const int begin = t * tile, end = std::min(begin + tile, p.columns);
    for (int r = 0; r < kRows; ++r) scores.s[r].assign(&p.s[r][begin], &p.s[r][0] + end);
    partial.softmax.step<kThreshold>(scores, partial.output, unit);
    for (int r = 0; r < kRows; ++r) {
      for (int j = begin; j < end; ++j) {
        for (int c = 0; c < kDim; ++c) {
          partial.output.o[r][c] += scores.s[r][j - begin] * p.v[j * kDim + c];
        }
      }
    }
  }
  return partial;
}

Result finish(Partial partial, float unit, float factor = 1.0f) {
  Result result;
  partial.softmax.finish(partial.output, factor);
  result.output = partial.output;
  for (int r = 0; r < kRows; ++r) result.lse[r] = partial.softmax.lse(r, unit);
  return result;
}

template <int kThreshold = 0>
Result run(const Problem& p, int tile, float unit, const std::vector<int>& order,
           float factor = 1.0f) {
  return finish(accumulate<kThreshold>(p, tile, unit, order), unit, factor);
}

std::vector<int> in_order(int columns, int tile) {
  std::vector<int> order((columns + tile - 1) / tile);
  for (int i = 0; i < static_cast<int>(order.size()); ++i) order[i] = i;
  return order;
}

/// The sink of all rows.
struct OneSink {
  static constexpr bool kEnabled = true;

  float sink, scale_log2;

  float logit(int) const { return sink; }
};

Result finish_with_sink(Partial partial, float unit, float sink) {
  Result result;
  partial.softmax.finish(partial.output, 1.0f, OneSink{sink, unit});
  result.output = partial.output;
  for (int r = 0; r < kRows; ++r) result.lse[r] = partial.softmax.lse(r, unit, sink);
  return result;
}

/// Holds a result against the softmax in fp64.
void check(const Problem& p, const Result& got, float unit, double factor = 1.0,
           double sink = -std::numeric_limits<double>::infinity()) {
  const double scale = double{unit} / double{kLog2e};
  for (int r = 0; r < kRows; ++r) {
    double m = sink;
    for (const float s : p.s[r]) m = std::max(m, scale * s);
    if (std::isinf(m) && m < 0) {
      CHECK(got.lse[r] == -kInf);
      for (const float x : got.output.o[r]) CHECK(x == 0.0f);
      continue;
    }
    double l = std::exp(sink - m), o[kDim] = {};
    for (int j = 0; j < p.columns; ++j) {
      const double weight = std::exp(scale * p.s[r][j] - m);
      l += weight;
      for (int c = 0; c < kDim; ++c) o[c] += weight * p.v[j * kDim + c];
    }
    // Scores of size |m| have a spacing of about 1e-7 |m|, and so has their exponential.
    const double slack = 1e-6 * (1 + std::abs(m));
    CHECK(std::abs(got.lse[r] - (m + std::log(l))) <= slack);
    for (int c = 0; c < kDim; ++c) {
      CHECK(std::abs(got.output.o[r][c] - factor * o[c] / l) <= 5 * factor * slack);
    }
  }
}

TEST_CASE("online_softmax.any_tile_width") {
  for (const int columns : {1, 2, 16, 57, 200}) {
    for (const int tile : {1, 3, 16, 64, 200}) {
      const Problem p(columns, 0.0f, 2.0f, columns);
      check(p, run(p, tile, kLog2e, in_order(columns, tile)), kLog2e);
    }
  }
}

TEST_CASE("online_softmax.any_order_of_tiles") {
  const Problem p(100, 1.0f, 3.0f, 5);
  std::vector<int> order = in_order(100, 7);
  for (int i = 0; i < 20; ++i) {
    check(p, run(p, 7, kLog2e, order), kLog2e);
    std::next_permutation(order.begin(), order.end());
    std::rotate(order.begin(), order.begin() + 4, order.end());
  }
}

TEST_CASE("online_softmax.raw_products_with_a_scale") {
  const Problem p(80, 5.0f, 30.0f, 6);
  for (const float scale : {0.125f, 0.01f, 1.0f}) {
    check(p, run(p, 16, scale * kLog2e, in_order(80, 16)), scale * kLog2e);
  }
}

TEST_CASE("online_softmax.factor_of_the_output") {
  const Problem p(80, 0.0f, 1.0f, 7);
  check(p, run(p, 16, kLog2e, in_order(80, 16), 2.5f), kLog2e, 2.5);
}

TEST_CASE("online_softmax.scores_of_any_size") {
  for (const float mean : {-1e5f, -2e4f, -100.0f, 100.0f, 2e4f, 1e5f}) {
    const Problem p(64, mean, 1.0f, 8);
    check(p, run(p, 16, kLog2e, in_order(64, 16)), kLog2e);
  }
}

TEST_CASE("online_softmax.rising_and_falling_maximum") {
  for (const float step : {-50.0f, -1.0f, 1.0f, 50.0f}) {
    Problem p(64, 0.0f, 0.5f, 9);
    for (int r = 0; r < kRows; ++r) {
      for (int j = 0; j < 64; ++j) p.s[r][j] += step * static_cast<float>(j);
    }
    check(p, run(p, 8, kLog2e, in_order(64, 8)), kLog2e);
  }
}

TEST_CASE("online_softmax.hidden_scores") {
  // Rows: the first tiles hidden; all hidden; every third hidden.
  Problem p(64, -30.0f, 2.0f, 10);
  for (int j = 0; j < 64; ++j) {
    if (j < 40) p.s[0][j] = -kInf;
    p.s[1][j] = -kInf;
    if (j % 3 == 0) p.s[2][j] = -kInf;
  }
  for (const int tile : {1, 8, 64}) {
    check(p, run(p, tile, kLog2e, in_order(64, tile)), kLog2e);
  }
}

TEST_CASE("online_softmax.no_tile_at_all") {
  const Problem p(4, 0.0f, 1.0f, 11);
  const Result result = run(p, 4, kLog2e, {});
  for (int r = 0; r < kRows; ++r) {
    CHECK(result.lse[r] == -kInf);
    for (const float x : result.output.o[r]) CHECK(x == 0.0f);
  }
}

TEST_CASE("online_softmax.sinks_of_any_size") {
  for (const float scale : {0x1p-100f, 0.125f, 1.0f, 0x1p100f}) {
    const float unit = scale * kLog2e;
    for (const float mean : {-200.0f, 0.0f, 200.0f}) {
      const Problem p(40, mean / scale, 2.0f / scale, 9);
      const Partial partial = accumulate(p, 16, unit, in_order(40, 16));
      for (const float sink : {-kInf, -1e30f, -200.0f, -3.0f, 0.0f, 4.0f, 197.0f, 203.0f, 1e30f}) {
        INFO(scale << " " << mean << " " << sink);
        check(p, finish_with_sink(partial, unit, sink), unit, 1.0, sink);
      }
    }
  }
}

TEST_CASE("online_softmax.sink_of_rows_without_keys") {
  const Problem p(0, 0, 0, 1);
  Partial partial;
  partial.softmax.reset();
  for (float& x : partial.output.o[0]) x = std::numeric_limits<float>::quiet_NaN();
  constexpr float kMost = std::numeric_limits<float>::max();
  for (const float sink : {-kInf, -kMost, -1e30f, 0.0f, 80.0f, 1e30f, kMost}) {
    const Result got = finish_with_sink(partial, kLog2e, sink);
    for (int r = 0; r < kRows; ++r) {
      CHECK(got.lse[r] == sink);
      for (const float x : got.output.o[r]) CHECK(x == 0.0f);
    }
  }
}

TEST_CASE("online_softmax.lse_in_log2_units_of_any_size") {
  constexpr float kMost = std::numeric_limits<float>::max();
  for (const float scale : {0x1p-100f, 0.125f, 0.7f, 1.0f, 0x1p100f}) {
    const attile::Log2Lse log2_lse(scale);
    const double exact = static_cast<double>(log2_lse.scale_log2) / static_cast<double>(scale);
    for (const float lse :
         {-2.3e38f, -1e30f, -80.0f, -1.0f, 0.0f, 3.1f, 80.0f, 1e30f, 1e38f, 2.3e38f}) {
      const double want = exact * static_cast<double>(lse);
      CHECK(std::abs(static_cast<double>(log2_lse.of(lse)) - want) <= 0x1p-24 * std::abs(want));
    }
    CHECK(log2_lse.of(kInf) == kInf);
    CHECK(log2_lse.of(kMost) == kInf);
    // A row that sees nothing but a sink: the exponent of a hidden score must not be NaN.
    CHECK(-kInf - log2_lse.of(-kMost) == -kInf);
    CHECK(std::isnan(log2_lse.of(std::numeric_limits<float>::quiet_NaN())));
  }
}

TEST_CASE("online_softmax.nan_shows") {
  Problem p(32, 0.0f, 1.0f, 12);
  p.s[0][20] = std::numeric_limits<float>::quiet_NaN();
  for (int j = 0; j < 32; ++j) p.s[1][j] = j == 3 ? p.s[0][20] : -kInf;
  for (const int tile : {1, 8, 32}) {
    const Result result = run(p, tile, kLog2e, in_order(32, tile));
    CHECK(std::isnan(result.lse[0]));
    CHECK(std::isnan(result.output.o[0][1]));
    CHECK(std::isnan(result.lse[1]));
    CHECK(std::isnan(result.output.o[1][0]));
    CHECK_FALSE(std::isnan(result.lse[2]));
  }
}

/// Scores whose maximum grows by `step` in each column, from -10 on; the last row sees nothing of
/// the first half.
Problem rising(float step) {
  Problem p(64, -10.0f, 0.25f, 13);
  for (int r = 0; r < kRows; ++r) {
    for (int j = 0; j < 64; ++j) p.s[r][j] += step * static_cast<float>(j);
  }
  for (int j = 0; j < 32; ++j) p.s[kRows - 1][j] = -kInf;
  return p;
}

TEST_CASE("online_softmax.slack_gives_the_same_result") {
  for (const int tile : {1, 8, 64}) {
    const std::vector<int> order = in_order(64, tile);
    for (const float step : {-50.0f, -0.1f, 0.0f, 0.05f, 0.7f, 6.0f, 50.0f}) {
      const Problem p = rising(step);
      for (const float unit : {kLog2e, 0.125f * kLog2e}) {
        check(p, run<8>(p, tile, unit, order), unit);
        check(p, run(p, tile, unit, order), unit);
      }
    }
    Problem empty = rising(0.0f);
    for (int r = 0; r < kRows; ++r) empty.s[r].assign(64, -kInf);
    check(empty, run<8>(empty, tile, kLog2e, order), kLog2e);
    Problem nan = rising(1.0f);
    nan.s[0][40] = std::numeric_limits<float>::quiet_NaN();
    const Result result = run<8>(nan, tile, kLog2e, order);
    CHECK(std::isnan(result.lse[0]));
    CHECK(std::isnan(result.output.o[0][0]));
    CHECK_FALSE(std::isnan(result.lse[1]));
  }
}

TEST_CASE("online_softmax.slack_and_a_maximum_of_minus_zero") {
  Problem p(8, 0.0f, 0.0f, 1);
  for (int j = 0; j < 8; ++j) {
    p.s[0][j] = j < 6 ? -0.0f : -kInf;
    p.s[1][j] = j < 4 ? 1.0f : 20.0f;  // has both rows rescaled
  }
  check(p, run<8>(p, 4, kLog2e, in_order(8, 4)), kLog2e);
  for (int j = 4; j < 8; ++j) p.s[0][j] = -5.0f - j;
  check(p, run<8>(p, 4, kLog2e, in_order(8, 4)), kLog2e);
}

TEST_CASE("online_softmax.slack_rescales_only_what_has_grown") {
  // Rows 0 and 1 begin with tile 0, row 2 with tile 4: all rows of a thread are scaled together.
  const auto scaled = [](const Problem& p) {
    return accumulate<8>(p, 8, kLog2e, in_order(64, 8)).output.scaled;
  };
  CHECK(scaled(rising(0.0f)) == 2 * kRows);
  CHECK(scaled(rising(0.05f)) == 2 * kRows);   // by 3.2 in all, 4.6 in log2 units
  CHECK(scaled(rising(1.0f)) == 8 * kRows);    // by 8 from tile to tile, 11.5 in log2 units
  CHECK(scaled(rising(-50.0f)) == 2 * kRows);  // never again
  CHECK(accumulate(rising(0.0f), 8, kLog2e, in_order(64, 8)).output.scaled == 8 * kRows);
}

TEST_CASE("online_softmax.slack_keeps_weights_below_a_power_of_two") {
  // P is rounded to 16-bit types: at most 2^8 with a slack of 8.
  for (const float step : {0.05f, 0.3f, 0.69f, 5.5f}) {
    const Problem p = rising(step);
    OnlineSoftmax<kRows> softmax;
    softmax.reset();
    Output output;
    for (int t = 0; t < 8; ++t) {
      Scores scores;
      for (int r = 0; r < kRows; ++r) scores.s[r].assign(&p.s[r][t * 8], &p.s[r][t * 8] + 8);
      softmax.step<8>(scores, output, kLog2e);
      for (int r = 0; r < kRows; ++r) CHECK(scores.row_max(r) <= 256.0f * (1 + 1e-5f));
    }
  }
}

Partial merge(Partial a, Partial b, float unit) {
  a.softmax.merge(b.softmax, a.output, b.output, unit);
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kDim; ++c) a.output.o[r][c] += b.output.o[r][c];
  }
  return a;
}

/// Three runs of tiles, some of them empty, merged in any order, equal the whole.
void check_merge(const Problem& p, int tile, float unit) {
  const std::vector<int> order = in_order(p.columns, tile);
  for (auto i = order.begin(); i <= order.end(); ++i) {
    for (auto j = i; j <= order.end(); ++j) {
      const Partial a = accumulate(p, tile, unit, {order.begin(), i});
      const Partial b = accumulate(p, tile, unit, {i, j});
      const Partial c = accumulate(p, tile, unit, {j, order.end()});
      check(p, finish(merge(merge(a, b, unit), c, unit), unit), unit);
      check(p, finish(merge(a, merge(b, c, unit), unit), unit), unit);
      check(p, finish(merge(c, merge(b, a, unit), unit), unit), unit);
    }
  }
}

TEST_CASE("online_softmax.merge_of_any_splits") {
  for (const float scale : {0.125f, 1.0f}) {
    check_merge(Problem(100, -3.0f, 4.0f, 16), 8, scale * kLog2e);
  }
  for (const float mean : {-2e4f, 2e4f}) check_merge(Problem(60, mean, 2.0f, 17), 16, kLog2e);
}

TEST_CASE("online_softmax.merge_of_hidden_scores") {
  // Rows: the first tiles hidden; all hidden; the last tiles hidden.
  Problem p(64, -30.0f, 2.0f, 18);
  for (int j = 0; j < 64; ++j) {
    if (j < 40) p.s[0][j] = -kInf;
    p.s[1][j] = -kInf;
    if (j >= 10) p.s[2][j] = -kInf;
  }
  check_merge(p, 8, kLog2e);
}

TEST_CASE("online_softmax.merge_shows_nan") {
  Problem p(32, 0.0f, 1.0f, 19);
  p.s[0][20] = std::numeric_limits<float>::quiet_NaN();
  for (int j = 0; j < 32; ++j) p.s[1][j] = j == 20 ? p.s[0][20] : -kInf;
  const Partial a = accumulate(p, 16, kLog2e, {0}), b = accumulate(p, 16, kLog2e, {1});
  for (const Partial& both : {merge(a, b, kLog2e), merge(b, a, kLog2e)}) {
    const Result result = finish(both, kLog2e);
    CHECK(std::isnan(result.lse[0]));
    CHECK(std::isnan(result.lse[1]));
    CHECK(std::isnan(result.output.o[1][0]));
    CHECK_FALSE(std::isnan(result.lse[2]));
  }
}

TEST_CASE("softmax_weight.of_nothing_is_zero") {
  CHECK(softmax_weight(-kInf, -kInf, kLog2e) == 0.0f);
  CHECK(softmax_weight(-kInf, 3.0f, kLog2e) == 0.0f);
  CHECK(softmax_weight(3.0f, 3.0f, kLog2e) == 1.0f);
  CHECK(softmax_weight(2.0f, 3.0f, kLog2e) == Approx(std::exp(-1.0)));
  CHECK(softmax_weight(-1e30f, 1e30f, kLog2e) == 0.0f);
}

// Merging an empty part is where (-inf) - (-inf) waits.
TEST_CASE("merge_lse.empty_parts") {
  const Merged none = merge_lse(-kInf, -kInf);
  CHECK(none.lse == -kInf);
  CHECK(none.weight_a == 0.0f);
  CHECK(none.weight_b == 0.0f);
  for (const float lse : {-2.5e5f, -3.0f, 0.0f, 88.0f, 1e5f}) {
    const Merged first = merge_lse(lse, -kInf);
    CHECK(first.lse == lse);
    CHECK(first.weight_a == 1.0f);
    CHECK(first.weight_b == 0.0f);
    const Merged second = merge_lse(-kInf, lse);
    CHECK(second.lse == lse);
    CHECK(second.weight_a == 0.0f);
    CHECK(second.weight_b == 1.0f);
  }
}

TEST_CASE("merge_lse.two_parts") {
  const Random random(13);
  for (int i = 0; i < 200; ++i) {
    const float a = 20 * random.normal(2 * i), b = 20 * random.normal(2 * i + 1);
    const Merged m = merge_lse(a, b);
    const double lse = std::max(a, b) + std::log1p(std::exp(-std::abs(double{a} - b)));
    CHECK(m.lse == Approx(lse).epsilon(1e-6).margin(1e-6));
    CHECK(m.weight_a == Approx(std::exp(a - lse)).epsilon(1e-4).margin(1e-7));
    CHECK(m.weight_a + m.weight_b == Approx(1.0).epsilon(1e-6));
  }
}

struct Part {
  float lse = -kInf;
  float o = 0;
};

Part merge(const Part& a, const Part& b) {
  const Merged m = merge_lse(a.lse, b.lse);
  return {m.lse, m.weight_a * a.o + m.weight_b * b.o};
}

TEST_CASE("merge_lse.is_associative_and_commutative") {
  const Random random(14);
  for (int i = 0; i < 200; ++i) {
    Part x[3];
    for (int j = 0; j < 3; ++j) {
      const bool empty = random.uniform(9 * i + j) < 0.2;
      x[j] = {empty ? -kInf : 5 * random.normal(9 * i + j),
              empty ? 0.0f : random.normal(9 * i + 3 + j)};
    }
    const Part left = merge(merge(x[0], x[1]), x[2]), right = merge(x[0], merge(x[1], x[2]));
    const Part swapped = merge(x[2], merge(x[1], x[0]));
    CHECK(left.o == Approx(right.o).margin(2e-6));
    CHECK(left.o == Approx(swapped.o).margin(2e-6));
    if (left.lse == -kInf) {
      CHECK(right.lse == -kInf);
      CHECK(swapped.lse == -kInf);
    } else {
      CHECK(left.lse == Approx(right.lse).margin(2e-6));
      CHECK(left.lse == Approx(swapped.lse).margin(2e-6));
    }
  }
}

/// Splits of the columns, some of them empty, merged, equal the whole (flash-attention #1647).
TEST_CASE("merge_lse.splits_equal_the_whole") {
  Problem p(120, -3.0f, 4.0f, 15);
  for (int j = 0; j < 60; ++j) p.s[1][j] = -kInf;
  for (int j = 0; j < 120; ++j) p.s[2][j] = -kInf;
  const Result whole = run(p, 16, kLog2e, in_order(120, 16));
  for (const int splits : {1, 2, 3, 7, 40, 120}) {
    const int width = (120 + splits - 1) / splits;
    Part merged[kRows][kDim];
    for (int begin = 0; begin < 120; begin += width) {
      Problem part = p;
      part.columns = std::min(width, 120 - begin);
      for (auto& row : part.s) row.assign(row.begin() + begin, row.begin() + begin + part.columns);
      part.v.assign(p.v.begin() + begin * kDim, p.v.begin() + (begin + part.columns) * kDim);
      const Result result = run(part, 16, kLog2e, in_order(part.columns, 16));
      for (int r = 0; r < kRows; ++r) {
        for (int c = 0; c < kDim; ++c) {
          merged[r][c] = merge(merged[r][c], {result.lse[r], result.output.o[r][c]});
        }
      }
    }
    for (int r = 0; r < kRows; ++r) {
      if (whole.lse[r] == -kInf) CHECK(merged[r][0].lse == -kInf);
      if (whole.lse[r] != -kInf) CHECK(merged[r][0].lse == Approx(whole.lse[r]).margin(3e-6));
      for (int c = 0; c < kDim; ++c) {
        CHECK(merged[r][c].o == Approx(whole.output.o[r][c]).margin(5e-6));
      }
    }
  }
}

}  // namespace
