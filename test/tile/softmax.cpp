// SPDX-License-Identifier: MIT
#include <attile/tile/softmax.h>

#include <cmath>
#include <limits>
#include <vector>

#include "support/catch.h"
#include "support/random.h"
#include "tile/softmax_rows.h"

namespace {

using namespace attile_test;
using attile::kInf;
using attile::kLog2e;
using attile::tile::OnlineSoftmax;

constexpr int kBlocks[] = {1, 3, 16, 64, 1000, 5000};

/// One rung on a row, its output NaN before.
template <class Rung>
std::vector<float> run(const ScoreRow& row, Rung rung) {
  std::vector<float> y(row.x.size(), std::numeric_limits<float>::quiet_NaN());
  rung(row.x.data(), y.data(), static_cast<int>(row.x.size()), row.unit);
  return y;
}

auto blocks_of(int block) {
  return [block](const float* x, float* y, int n, float unit) {
    attile::tile::blockwise_softmax(x, y, n, block, unit);
  };
}

/// Calls f(name, rung) for every rung that is safe.
template <class F>
void for_each_safe_rung(F&& f) {
  f("safe", attile::tile::safe_softmax);
  f("three-pass", attile::tile::three_pass_softmax);
  f("online", attile::tile::online_softmax);
  for (const int block : kBlocks) f("blocks of " + std::to_string(block), blocks_of(block));
}

TEST_CASE("softmax.safe_rungs_against_fp64") {
  for (const ScoreRow& row : score_rows()) {
    for_each_safe_rung([&](const std::string& name, auto rung) {
      const std::vector<float> y = run(row, rung);
      INFO(name << ", " << row.name);
      CHECK(first_wrong(row, y.data()) == -1);
    });
  }
}

TEST_CASE("softmax.sums_to_one_or_to_zero") {
  for (const ScoreRow& row : score_rows()) {
    bool sees = false;
    for (const float x : row.x) sees = sees || x != -kInf;
    for_each_safe_rung([&](const std::string& name, auto rung) {
      double sum = 0;
      for (const float p : run(row, rung)) sum += p;
      INFO(name << ", " << row.name);
      CHECK(std::abs(sum - sees) <= 2 * sum_tolerance(row.x.size()));
    });
  }
}

TEST_CASE("softmax.output_in_place_of_the_scores") {
  for (const ScoreRow& row : score_rows()) {
    for_each_safe_rung([&](const std::string& name, auto rung) {
      std::vector<float> x = row.x;
      rung(x.data(), x.data(), static_cast<int>(x.size()), row.unit);
      INFO(name << ", " << row.name);
      CHECK(x == run(row, rung));
    });
  }
}

TEST_CASE("softmax.nan_shows") {
  ScoreRow row{"", {1.0f, 2.0f, std::numeric_limits<float>::quiet_NaN(), 3.0f}};
  for (int hidden = 0; hidden < 2; ++hidden) {
    for_each_safe_rung([&](const std::string& name, auto rung) {
      INFO(name);
      for (const float p : run(row, rung)) CHECK(std::isnan(p));
    });
    row.x[0] = row.x[1] = row.x[3] = -kInf;
  }
}

TEST_CASE("softmax.naive_is_right_in_its_range") {
  const Random random(1);
  for (const int n : {0, 1, 2, 17, 64, 1000}) {
    ScoreRow row{"", {}};
    for (int i = 0; i < n; ++i) row.x.push_back(5 * random.normal(i));
    const std::vector<float> y = run(row, attile::tile::naive_softmax);
    const std::vector<double> exact = exact_softmax(row);
    // The exponents are x itself, up to 25 here, and not x - m.
    const double bound = sum_tolerance(n) + 2 * 25 * kUnitRoundoff;
    for (int i = 0; i < n; ++i) CHECK(std::abs(y[i] - exact[i]) <= exact[i] * bound);
  }
}

TEST_CASE("softmax.naive_overflows_where_the_others_do_not") {
  // e^89 is above the largest float, e^-110 below the smallest.
  for (const float offset : {89.0f, -110.0f, 1e5f, -1e5f}) {
    const ScoreRow row{"", {offset, offset - 1, offset - 2}};
    const std::vector<float> naive = run(row, attile::tile::naive_softmax);
    CHECK(std::isnan(naive[0]));
    for_each_safe_rung([&](const std::string& name, auto rung) {
      const std::vector<float> y = run(row, rung);
      INFO(name << ", " << offset);
      CHECK(y[0] == Approx(0.66524096));
      CHECK(y[1] == Approx(0.24472847));
      CHECK(y[2] == Approx(0.09003057));
    });
  }
  CHECK(std::isnan(run({"", {-kInf, -kInf}}, attile::tile::naive_softmax)[0]));
}

// They take the same numerators, so that only l can differ.
TEST_CASE("softmax.online_and_blockwise_equal_three_pass") {
  for (const ScoreRow& row : score_rows()) {
    const std::vector<float> expected = run(row, attile::tile::three_pass_softmax);
    const double bound = 2 * sum_tolerance(row.x.size());
    const auto compare = [&](const std::vector<float>& y) {
      INFO(row.name);
      bool equal = true;
      for (std::size_t i = 0; i < y.size(); ++i) {
        equal = equal && std::abs(double{y[i]} - expected[i]) <= bound * expected[i] + 0x1p-125;
      }
      CHECK(equal);
    };
    compare(run(row, attile::tile::online_softmax));
    for (const int block : kBlocks) compare(run(row, blocks_of(block)));
  }
}

TEST_CASE("softmax.one_block_is_three_pass_to_the_bit") {
  for (const ScoreRow& row : score_rows()) {
    INFO(row.name);
    CHECK(run(row, blocks_of(5000)) == run(row, attile::tile::three_pass_softmax));
  }
}

OnlineSoftmax<1> merged(OnlineSoftmax<1> a, const OnlineSoftmax<1>& b, float unit) {
  const attile::tile::detail::NoOutput none;
  a.merge(b, none, none, unit);
  return a;
}

// (a b) c = a (b c) = c (b a) wherever the row is cut, empty parts included.
TEST_CASE("softmax.merge_of_blocks_is_associative_for_any_split") {
  for (const ScoreRow& row : score_rows()) {
    const int n = static_cast<int>(row.x.size());
    if (n > 64) continue;
    const OnlineSoftmax<1> whole = attile::tile::softmax_state(row.x.data(), n, row.unit);
    const double bound = 2 * sum_tolerance(row.x.size()) * whole.l[0];
    bool equal = true;
    for (int i = 0; i <= n; ++i) {
      for (int j = i; j <= n; ++j) {
        const auto part = [&](int begin, int end) {
          return attile::tile::softmax_state(row.x.data() + begin, end - begin, row.unit);
        };
        const OnlineSoftmax<1> a = part(0, i), b = part(i, j), c = part(j, n);
        for (const OnlineSoftmax<1>& got : {merged(merged(a, b, row.unit), c, row.unit),
                                            merged(a, merged(b, c, row.unit), row.unit),
                                            merged(c, merged(b, a, row.unit), row.unit)}) {
          equal = equal && got.m[0] == whole.m[0] && std::abs(got.l[0] - whole.l[0]) <= bound;
        }
      }
    }
    INFO(row.name);
    CHECK(equal);
  }
}

}  // namespace
