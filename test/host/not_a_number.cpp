// SPDX-License-Identifier: MIT
// What a NaN in Q, K or V reaches in a forward pass (docs/contract.md, "NaN and infinities").
#include <attile/host.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "support/catch.h"
#include "support/random.h"

namespace {

using namespace attile_test;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// A small forward pass on the CPU; heads share keys two by two.
template <class M, class S = attile::NoScoreMod, class P = attile::NoDropout>
struct Pass {
  static constexpr int kBatch = 2, kHeads = 4, kKvHeads = 2, kDim = 24, kDimV = 40;
  using Args = attile::ForwardArgs<float, M, S, P>;

  int rows, cols;
  std::vector<float> q, k, v, o, lse;
  Args args{};

  Pass(int q_len, int kv_len)
      : rows(q_len),
        cols(kv_len),
        q(normal(kBatch * kHeads * q_len * kDim, 1)),
        k(normal(kBatch * kKvHeads * kv_len * kDim, 2)),
        v(normal(kBatch * kKvHeads * kv_len * kDimV, 3)),
        o(std::size_t(kBatch) * kHeads * q_len * kDimV, kNan),
        lse(std::size_t(kBatch) * kHeads * q_len, kNan) {}

  static std::vector<float> normal(int count, int seed) {
    std::vector<float> x;
    for (int i = 0; i < count; ++i) x.push_back(Random(seed).normal(i));
    return x;
  }

  attile::Extent extent() const { return {rows, cols}; }
  float& q_at(int b, int h, int i, int d) { return q[((b * kHeads + h) * rows + i) * kDim + d]; }
  float& k_at(int b, int h, int j, int d) { return k[((b * kKvHeads + h) * cols + j) * kDim + d]; }
  float& v_at(int b, int h, int j, int d) { return v[((b * kKvHeads + h) * cols + j) * kDimV + d]; }

  void run(int tile_cols) {
    args.q = attile::bhsd<const float>(q.data(), {.rows = rows, .heads = kHeads, .dim = kDim});
    args.k = attile::bhsd<const float>(k.data(), {.rows = cols, .heads = kKvHeads, .dim = kDim});
    args.v = attile::bhsd<const float>(v.data(), {.rows = cols, .heads = kKvHeads, .dim = kDimV});
    args.o = attile::bhsd(o.data(), {.rows = rows, .heads = kHeads, .dim = kDimV});
    args.lse = lse.data();
    args.batch = kBatch;
    args.q_heads = kHeads;
    args.kv_heads = kKvHeads;
    args.q_len = rows;
    args.kv_len = cols;
    args.head_dim = kDim;
    args.head_dim_v = kDimV;
    REQUIRE(attile::host::forward(args, {.tile_cols = tile_cols}));
  }

  /// Calls visit(batch, head, row, the row's place in LSE).
  template <class Visit>
  void for_each_row(const Visit& visit) const {
    int at = 0;
    for (int b = 0; b < kBatch; ++b) {
      for (int h = 0; h < kHeads; ++h) {
        for (int i = 0; i < rows; ++i) visit(b, h, i, at++);
      }
    }
  }
};

bool same(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

/// Expects NaN throughout in the rows that reached(batch, head, row) names, in O and in LSE, and
/// the bits of `clean` in all others.
template <class P, class Reached>
void hold_rows(const P& spoilt, const P& clean, const Reached& reached) {
  int wrong = 0, count = 0;
  spoilt.for_each_row([&](int b, int h, int i, int at) {
    const bool spoils = reached(b, h, i);
    count += spoils;
    const auto right = [&](float x, float y) { return spoils ? std::isnan(x) : same(x, y); };
    wrong += !right(spoilt.lse[at], clean.lse[at]);
    for (int d = 0; d < P::kDimV; ++d) {
      wrong += !right(spoilt.o[at * P::kDimV + d], clean.o[at * P::kDimV + d]);
    }
  });
  CHECK(wrong == 0);
  CHECK(count > 0);
}

/// Calls visit(pass, the same without a NaN in it, run) for lengths and tiles.
template <class P, class Visit>
void for_passes(const Visit& visit) {
  for (const attile::Extent e : {attile::Extent{70, 70}, {33, 90}, {90, 50}}) {
    for (const int tile_cols : {0, 32, 96}) {
      INFO("q_len " << e.q_len << ", kv_len " << e.kv_len << ", tiles of " << tile_cols);
      P clean(e.q_len, e.kv_len), spoilt(e.q_len, e.kv_len);
      clean.run(tile_cols);
      visit(spoilt, clean, [&] { spoilt.run(tile_cols); });
    }
  }
}

TEMPLATE_TEST_CASE("nan.in_a_row_of_q_stays_in_that_row", "", attile::NoMask, attile::Causal) {
  for_passes<Pass<TestType>>([](auto& spoilt, const auto& clean, const auto& run) {
    const int row = spoilt.rows - 8;
    spoilt.q_at(1, 2, row, 5) = kNan;
    run();
    hold_rows(spoilt, clean, [&](int b, int h, int i) { return b == 1 && h == 2 && i == row; });
  });
}

TEMPLATE_TEST_CASE("nan.in_a_row_of_k_reaches_the_rows_that_see_it", "", attile::NoMask,
                   attile::Causal) {
  for_passes<Pass<TestType>>([](auto& spoilt, auto& clean, const auto& run) {
    const int col = spoilt.cols - 10;
    spoilt.k_at(1, 0, col, 5) = kNan;
    run();
    hold_rows(spoilt, clean, [&](int b, int h, int i) {
      return b == 1 && h < 2 && TestType{}.visible({b, h, i, col}, spoilt.extent());
    });
  });
}

TEMPLATE_TEST_CASE("nan.in_v_stays_in_its_column_of_o", "", attile::NoMask, attile::Causal) {
  for_passes<Pass<TestType>>([](auto& spoilt, auto& clean, const auto& run) {
    using P = std::decay_t<decltype(spoilt)>;
    constexpr int kCol = 17;
    const int col = spoilt.cols / 2;
    spoilt.v_at(1, 0, col, kCol) = kNan;
    run();
    int wrong = 0;
    spoilt.for_each_row([&](int b, int h, int i, int at) {
      wrong += !same(spoilt.lse[at], clean.lse[at]);
      for (int d = 0; d < P::kDimV; ++d) {
        const float x = spoilt.o[at * P::kDimV + d], y = clean.o[at * P::kDimV + d];
        const bool of_its_heads = b == 1 && h < 2 && d == kCol;
        if (!of_its_heads) {
          wrong += !same(x, y);
        } else if (TestType{}.visible({b, h, i, col}, spoilt.extent())) {
          wrong += !std::isnan(x);
        } else if (std::isinf(clean.lse[at])) {
          wrong += x != 0.0f;  // the row sees no key
        } else {
          wrong += !same(x, y) && !std::isnan(x);  // 0 * NaN, where a tile has both
        }
      }
    });
    CHECK(wrong == 0);
  });
}

/// 0 * NaN: neither a dropped key nor one whose weight is 0 after rounding is hidden.
TEST_CASE("nan.in_v_shows_whatever_the_weight") {
  Pass<attile::NoMask, attile::NoScoreMod, attile::PhiloxDropout> dropped(5, 60);
  dropped.args.dropout = {.probability = 0.9f, .seed = 3};
  dropped.v_at(0, 0, 30, 7) = kNan;
  dropped.run(0);
  for (int i = 0; i < 5; ++i) CHECK(std::isnan(dropped.o[i * dropped.kDimV + 7]));

  Pass<attile::NoMask> light(5, 60);
  for (int d = 0; d < light.kDim; ++d) {
    for (int i = 0; i < 5; ++i) light.q_at(0, 0, i, d) = 30.0f;
    light.k_at(0, 0, 30, d) = -30.0f;
  }
  light.v_at(0, 0, 30, 7) = kNan;
  light.run(0);
  for (int i = 0; i < 5; ++i) CHECK(std::isnan(light.o[i * light.kDimV + 7]));
}

/// -inf + NaN is NaN: a bias does not hide a row of K as a mask does.
TEST_CASE("nan.in_k_is_not_hidden_by_a_bias") {
  std::vector<float> bias(60, 0.0f);
  bias[30] = -attile::kInf;
  Pass<attile::NoMask, attile::AdditiveBias<float>> pass(5, 60);
  pass.args.score_mod.bias = bias.data();
  pass.k_at(0, 0, 30, 7) = kNan;
  pass.run(0);
  CHECK(std::isnan(pass.o[0]));
}

}  // namespace
