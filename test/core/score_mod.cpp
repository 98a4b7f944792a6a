// SPDX-License-Identifier: MIT
#include <attile/core/bias.h>
#include <attile/core/modifier_gradient_sums.h>
#include <attile/core/score_mod.h>
#include <attile/core/then.h>
#include <attile/tile/modifier_math.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <vector>

#include "support/catch.h"
#include "support/differences.h"
#include "support/policies.h"

namespace {

using namespace attile;
using attile_test::Bend;

/// A user's modifier of the score alone.
struct Squeezed {
  template <class Real>
  ATTILE_HOST_DEVICE ModifiedScore<Real> operator()(Real s, ScoreIndex, Extent) const {
    return {Real(0.5) * s, Real(0.5)};
  }
};

}  // namespace

template <>
inline constexpr bool attile::kIgnoresPlace<Squeezed> = true;

namespace {

const float kSlopes[] = {0.5f, 0.25f, 0.125f, 1.0f, 2.0f, 4.0f, 8.0f, 16.0f};

constexpr double kScores[] = {-40.0, -3.0, -0.5, 0.0, 1e-3, 0.7, 2.0, 10.0, 60.0};

/// Holds the derivative against central differences in fp64.
template <class S>
void check_derivative(const S& mod) {
  const Extent e{7, 9};
  for (const ScoreIndex at : {ScoreIndex{0, 0, 0, 0}, {1, 3, 6, 2}, {1, 2, 3, 8}}) {
    for (const double s : kScores) {
      const auto value = [&](double step) { return mod(s + step, at, e).value; };
      const double error = 0x1p-48 * (std::abs(s) + std::abs(value(0)) + 1);
      const auto difference = attile_test::central_difference(value, 0x1p-12, error);
      INFO("at " << s << ": " << mod(s, at, e).derivative << ", by differences " << difference.value
                 << ", tolerance " << difference.tolerance);
      CHECK(difference.accepts(mod(s, at, e).derivative));
      CHECK(difference.tolerance < 1e-4);
    }
  }
}

TEST_CASE("score_mod.derivatives") {
  check_derivative(NoScoreMod{});
  check_derivative(Alibi{kSlopes, 4});
  for (const float cap : {0.5f, 3.0f, 50.0f}) check_derivative(Softcap{cap});
  const std::vector<float> bias(2 * 4 * 7 * 9, 0.75f);
  check_derivative(AdditiveBias<float>{bias.data(), 4 * 7 * 9, 7 * 9, 9, 1});
  const LearnedBias<float> learned{{bias.data(), 4 * 7 * 9, 7 * 9, 9, 1}, {}};
  check_derivative(learned);
  check_derivative(Then<Softcap, LearnedBias<float>>{{5.0f}, learned});
  check_derivative(Then<Softcap, Alibi>{{5.0f}, {kSlopes, 0}});
  check_derivative(Then<Alibi, Softcap>{{kSlopes, 0}, {5.0f}});
  check_derivative(Then<Then<Bend, Softcap>, Bend>{{{}, {7.0f}}, {}});
  check_derivative(Bend{});
}

/// What a modifier adds to the gradient of one bias, against differences of ds * value by it.
template <class S>
void check_learned(const S& mod, float& bias, const float* gradient) {
  const Extent e{1, 1};
  for (const double s : kScores) {
    constexpr double ds = -0.75;
    const float b = bias;
    const auto value = [&](double step) {
      bias = static_cast<float>(b + step);
      return ds * mod(s, {}, e).value;
    };
    const double error = 0x1p-48 * (std::abs(s) + std::abs(value(0)) + 1);
    const auto difference = attile_test::central_difference(value, 0x1p-12, error);
    bias = b;
    ModifierGradientSums<double> sums(mod, {1, 1, e});
    mod.add_gradient(s, ds, {}, e, sums.add());
    INFO("at " << s << ", by differences " << difference.value);
    CHECK(mod.gradient_line(0, {1, 1, e}).first == gradient);
    CHECK(difference.accepts(sums.values()[0]));
    CHECK(difference.tolerance < 1e-4);
  }
}

TEST_CASE("score_mod.what_is_learned") {
  using Learned = LearnedBias<float>;
  float bias = 0.75f, other = -0.5f, gradients[2] = {};
  const Learned learned{{&bias}, {&gradients[0]}};
  check_learned(learned, bias, &gradients[0]);
  check_learned(Then<Softcap, Learned>{{5.0f}, learned}, bias, &gradients[0]);
  check_learned(Then<Learned, Softcap>{learned, {5.0f}}, bias, &gradients[0]);
  check_learned(Then<Then<Softcap, Learned>, Bend>{{{5.0f}, learned}, {}}, bias, &gradients[0]);
  const Then<Learned, Then<Softcap, Learned>> two{learned, {{5.0f}, {{&other}, {&gradients[1]}}}};
  check_learned(two, bias, &gradients[0]);
  CHECK(two.gradient_lines({1, 1, {1, 1}}) == 2);
  CHECK(two.gradient_line(1, {1, 1, {1, 1}}).first == &gradients[1]);
}

/// A modifier with a gradient that does not say what its scores share.
struct SilentOfItsOwn {
  static constexpr bool kHasGradient = true;
  ModifiedScore<float> operator()(float s, ScoreIndex, Extent) const { return {s, 1.0f}; }
};

TEST_CASE("score_mod.what_scores_share") {
  using Learned = LearnedBias<float>;
  struct Silent : Learned {};
  float memory[10];
  const auto per = [&](std::int64_t row_stride, std::int64_t col_stride) {
    return Learned{{}, {memory, 4, 2, row_stride, col_stride}}.gradient_per();
  };
  CHECK(per(0, 0) == GradientPer::kHead);
  CHECK(per(0, 1) == GradientPer::kCol);
  CHECK(per(0, -2) == GradientPer::kCol);
  CHECK(per(1, 0) == GradientPer::kRow);
  CHECK(per(-1, 1) == GradientPer::kDiagonal);
  CHECK(per(3, -3) == GradientPer::kDiagonal);
  CHECK(per(1, 1) == GradientPer::kScore);
  CHECK(per(-9, 1) == GradientPer::kScore);
  static_assert(kGradientTerms<Learned> == 1 && kGradientTerms<AdditiveBias<float>> == 0);
  static_assert(kGradientTerms<Then<Softcap, Learned>> == 1);
  static_assert(kGradientTerms<Then<Learned, Alibi>> == 1);
  static_assert(kGradientTerms<SilentOfItsOwn> == 0);
  static_assert(kGradientTerms<Then<SilentOfItsOwn, Learned>> == 1);
  static_assert(kHasGradient<Silent> && kGradientTerms<Silent> == 0);  // what it inherits
  // In the order in which they are added: the second modifier's first.
  using Two = Then<Learned, Then<Softcap, Learned>>;
  static_assert(kGradientTerms<Two> == 2);
  const Two two{{{}, {memory, 0, 1, 0, 0}}, {{5.0f}, {{}, {memory, 0, 0, -1, 1}}}};
  CHECK(two.gradient_per().of[0] == GradientPer::kDiagonal);
  CHECK(two.gradient_per().of[1] == GradientPer::kHead);
}

TEST_CASE("score_mod.elements_of_a_gradient") {
  // (2, 3, 5, 7), and what of it is summed over.
  const ScoreShape shape{2, 3, {5, 7}};
  float memory[1000];
  const auto count = [&](const BiasGradient& gradient) {
    std::set<const float*> places;
    std::size_t visited = 0;
    for (std::int64_t n = 0; n < gradient.lines(shape); ++n) {
      const GradientLine line = gradient.line(n, shape);
      for (int i = 0; i < line.count; ++i) places.insert(line.first + i * line.stride);
      visited += line.count;
    }
    CHECK(visited == places.size());
    std::set<const float*> of_scores;
    for (int i = 0; i < 2 * 3 * 5 * 7; ++i) {
      of_scores.insert(gradient.at(i / 105, i / 35 % 3, i / 7 % 5, i % 7));
    }
    CHECK(places == of_scores);
    return places.size();
  };
  const BiasGradient dense{memory, 105, 35, 7, 1}, padded{memory, 400, 120, 17, 2};
  const BiasGradient of_heads{memory, 0, 1, 0, 0}, of_distances{memory + 10, 0, 20, -1, 1};
  CHECK(count(dense) == 210);
  CHECK(count(padded) == 210);
  CHECK(count({memory + 6, 105, 35, 7, -1}) == 210);
  CHECK(count({memory, 0, 35, 7, 1}) == 105);
  CHECK(count(of_heads) == 3);
  CHECK(count(of_distances) == 33);
  CHECK(count({memory, 0, 20, 1, 1}) == 33);
  CHECK(count({memory, 0, 0, 0, 0}) == 1);
  CHECK_FALSE(of_distances.overlaps_itself(shape));
  CHECK_FALSE(BiasGradient{memory, 33, 11, 1, 1}.overlaps_itself(shape));
  CHECK(BiasGradient{memory, 33, 10, 1, 1}.overlaps_itself(shape));
  CHECK(BiasGradient{memory, 0, 0, 1, 2}.overlaps_itself(shape));
  CHECK_FALSE(BiasGradient{memory, 0, 0, 1, 5}.overlaps_itself(shape));
  CHECK(dense.one_for_each(shape));
  CHECK(padded.one_for_each(shape));
  CHECK_FALSE(of_heads.one_for_each(shape));
  CHECK_FALSE(of_distances.one_for_each(shape));
  CHECK(of_heads.one_for_each({1, 3, {1, 1}}));
  for (const ScoreShape& empty : {ScoreShape{0, 3, {5, 7}}, ScoreShape{2, 0, {5, 7}},
                                  ScoreShape{2, 3, {0, 7}}, ScoreShape{2, 3, {5, 0}}}) {
    CHECK(of_heads.one_for_each(empty));
    CHECK(of_distances.one_for_each(empty));
  }
  // Nothing to sum over is a sum of 0.
  CHECK(dense.lines({2, 3, {5, 0}}) == 0);
  CHECK(dense.lines({2, 3, {0, 7}}) == 0);
  CHECK(of_heads.lines({2, 3, {0, 0}}) == 3);
  CHECK(BiasGradient{memory, 0, 0, 0, 1}.line(0, {0, 3, {0, 7}}).count == 7);
}

TEST_CASE("score_mod.softcap") {
  const auto f = [](double s, float cap) { return Softcap{cap}(s, {}, {}).value; };
  CHECK(f(2.0, 4.0f) == Approx(4 * std::tanh(0.5)));
  CHECK(f(1e6, 30.0f) == 30.0);
  CHECK(f(-1e6, 30.0f) == -30.0);
  CHECK(f(1e-3, 1e6f) == Approx(1e-3));
  // 1 / cap is no float, or one with few digits.
  using Limits = std::numeric_limits<float>;
  const auto in_float = [](float s, float cap) { return Softcap{cap}(s, {}, {}).value; };
  for (const float cap : {Limits::denorm_min(), Limits::min(), Limits::max()}) {
    CHECK(in_float(0.0f, cap) == 0.0f);
  }
  CHECK(in_float(1.0f, Limits::denorm_min()) == Limits::denorm_min());
  CHECK(in_float(-1.0f, Limits::min()) == -Limits::min());
  CHECK(in_float(1.0f, Limits::max()) == Approx(1.0));
}

TEST_CASE("score_mod.alibi") {
  const Extent e{3, 5};  // row i is aligned with column i + 2
  const Alibi shared{kSlopes, 0};
  CHECK(shared(1.0f, {0, 0, 0, 2}, e).value == 1.0f);
  CHECK(shared(1.0f, {0, 0, 0, 0}, e).value == 0.0f);
  CHECK(shared(1.0f, {0, 0, 0, 4}, e).value == 0.0f);
  CHECK(shared(1.0f, {1, 1, 2, 0}, e).value == 0.0f);
  const Alibi by_batch{kSlopes, 4};
  CHECK(by_batch(1.0f, {1, 0, 0, 1}, e).value == -1.0f);
  CHECK(by_batch(1.0f, {1, 3, 0, 1}, e).value == -15.0f);
}

TEST_CASE("score_mod.bias") {
  std::vector<float> values(24);
  for (int i = 0; i < 24; ++i) values[i] = static_cast<float>(i);
  const auto at = [](const AdditiveBias<float>& bias, ScoreIndex i) {
    return bias(100.0f, i, {}).value - 100.0f;
  };
  const AdditiveBias<float> dense{values.data(), 12, 6, 3, 1};  // (2, 2, 2, 3)
  CHECK(at(dense, {1, 1, 1, 2}) == 23.0f);
  CHECK(at(dense, {0, 1, 0, 2}) == 8.0f);
  const AdditiveBias<float> of_columns{values.data(), 0, 0, 0, 1};
  CHECK(at(of_columns, {1, 1, 1, 2}) == 2.0f);
  const AdditiveBias<float> transposed{values.data(), 0, 0, 1, 2};
  CHECK(at(transposed, {1, 1, 1, 2}) == 5.0f);
  const __nv_bfloat16 half = from_float<__nv_bfloat16>(0.5f);
  CHECK(AdditiveBias<__nv_bfloat16>{&half}(1.0f, {}, {}).value == 1.5f);
  const float hidden = -kInf;
  CHECK(AdditiveBias<float>{&hidden}(1.0f, {}, {}).value == -kInf);
}

TEST_CASE("score_mod.bias_beyond_2_to_the_31") {
  // Reads the last element of an array that would be that large.
  const float value = 3.0f;
  const std::int64_t stride = std::int64_t{1} << 20;
  const float* first = reinterpret_cast<const float*>(reinterpret_cast<std::uintptr_t>(&value) -
                                                      4000u * stride * sizeof(float));
  const AdditiveBias<float> bias{first, 0, 0, stride, 1};
  CHECK(bias(0.0f, {0, 0, 4000, 0}, {}).value == 3.0f);
}

TEST_CASE("score_mod.then_applies_the_second_to_the_first") {
  const Extent e{1, 5};
  const Then<Softcap, Alibi> mod{{2.0f}, {kSlopes, 0}};
  CHECK(mod(3.0, {0, 0, 0, 0}, e).value == Approx(2 * std::tanh(1.5) - 0.5 * 4));
  const Then<Alibi, Softcap> other{{kSlopes, 0}, {2.0f}};
  CHECK(other(3.0, {0, 0, 0, 0}, e).value == Approx(2 * std::tanh((3.0 - 0.5 * 4) / 2)));
}

/// Products that a modifier may ask about: of one thread.
struct OneThread {
  bool all(bool condition) const { return condition; }
  bool all_within(float limit) const { return 1.25f <= limit; }
};

/// Products, all of which are small, of which a modifier may know nothing else.
struct SmallProducts {
  bool all(bool) const { return false; }
  bool all_within(float limit) const { return 1.25f <= limit; }
};

/// However a kernel reads what a modifier reads, the bits are the same: the element of each score,
/// or the word of its column or diagonal.
template <class Math, class S>
void check_given(const S& mod, ScoreIndex first, Extent e) {
  const ScoreBlock block{first, e, 3, 4, 0.75f};
  const auto tile = modifier_of_tile(mod, block, Math());
  const auto check = [&](const auto& apply) {
    for (int dr = 0; dr < 3; ++dr) {
      for (int dc = 0; dc < 4; ++dc) {
        const auto wanted = apply_tile(tile, 1.25f, tile.row(dr), tile.col(dc));
        const auto got = apply(dr, dc);
        CHECK(got.value == wanted.value);
        CHECK(got.derivative == wanted.derivative);
      }
    }
  };
  int ways = 0;
  const auto check_all = [&](const auto& whole, const auto& apply) {
    check([&](int dr, int dc) { return apply(whole, dr, dc); });
    simplify_given(whole, SmallProducts(), [&](const auto& simple) {
      check([&](int dr, int dc) { return apply(simple, dr, dc); });
      ++ways;
    });
  };
  const auto check_ways = [&](const auto& given) {
    if constexpr (kHasElements<S, Math>) {
      const auto whole = modifier_of_tile(given, block, Math());
      check_all(whole, [&](const auto& t, int dr, int dc) {
        return t(1.25f, t.row(dr), t.col(dc), whole.read(whole.row(dr), whole.col(dc)));
      });
    }
    if constexpr (kHasColumnTiles<S, Math>) {
      if (mod.reads_columns()) {
        const auto whole = modifier_of_columns(given, mod, block, Math());
        const auto word = [&](int dc) { return whole.col(dc); };
        check_all(whole,
                  [&](const auto& t, int dr, int dc) { return t(1.25f, t.row(dr), word(dc)); });
      }
    }
    if constexpr (kHasDiagonalTiles<S, Math>) {
      if (mod.reads_diagonals()) {
        const auto whole = modifier_of_diagonals(given, mod, block, Math());
        check_all(whole, [&](const auto& t, int dr, int dc) {
          return t(1.25f, whole.diagonal(first.col + dc - first.row - dr));
        });
      }
    }
  };
  check_ways(mod);
  check_ways(prepared(mod, block.scale, Math()));
  CHECK(ways >= 2);
}

/// What a modifier says about a tile of scores, and about a simplified one, is what it says about
/// each of them.
template <class S>
void check_tile(const S& mod, ScoreIndex first, Extent e) {
  const float scale = 0.75f;
  const ScoreBlock block{first, e, 3, 4, scale};
  const auto check = [&](const auto& tile) {
    for (int dr = 0; dr < 3; ++dr) {
      const auto row = tile.row(dr);
      for (int dc = 0; dc < 4; ++dc) {
        const auto got = apply_tile(tile, 1.25f, row, tile.col(dc));
        const ScoreIndex at{first.batch, first.head, first.row + dr, first.col + dc};
        const auto wanted = mod(1.25f * scale, at, e);
        CHECK(got.value == Approx(wanted.value).epsilon(1e-6));
        // That of a softcap is 1 - t^2, with the absolute error of t.
        CHECK(got.derivative == Approx(wanted.derivative).epsilon(1e-6).margin(2e-7));
      }
    }
  };
  const auto tile = modifier_of_tile(mod, block, StandardMath());
  check(tile);
  int calls = 0;
  simplify(tile, OneThread(), [&](const auto& simple) {
    check(simple);
    ++calls;
  });
  CHECK(calls == 1);
  check(modifier_of_tile(prepared(mod, scale, StandardMath()), block, StandardMath()));
  if constexpr (kHasColumnTiles<S, StandardMath>) {
    if (mod.reads_columns()) check(mod.column_tile(block, StandardMath()));
  }
  if constexpr (kHasDiagonalTiles<S, StandardMath>) {
    if (!mod.reads_diagonals()) return;
    const auto of_head = mod.diagonal_tile(block, StandardMath());
    for (int dr = 0; dr < 3; ++dr) {
      for (int dc = 0; dc < 4; ++dc) {
        const ScoreIndex at{first.batch, first.head, first.row + dr, first.col + dc};
        const auto got = of_head(1.25f, of_head.diagonal(at.col - at.row));
        const auto wanted = mod(1.25f * scale, at, e);
        CHECK(got.value == Approx(wanted.value).epsilon(1e-6));
        CHECK(got.derivative == Approx(wanted.derivative).epsilon(1e-6).margin(2e-7));
      }
    }
  }
}

/// Doubles what a softcap says, and inherits what that says about tiles, which is not taken.
struct TwiceCapped : Softcap {
  template <class Real>
  ModifiedScore<Real> operator()(Real s, ScoreIndex i, Extent e) const {
    const auto once = Softcap::operator()(s, i, e);
    return {Real(2) * once.value, Real(2) * once.derivative};
  }
};

TEST_CASE("score_mod.tiles_say_what_single_scores_do") {
  std::vector<float> values(64);
  for (int i = 0; i < 64; ++i) values[i] = static_cast<float>(i);
  const Extent e{9, 20};
  const ScoreIndex first{1, 1, 2, 3};
  const AdditiveBias<float> bias{values.data(), 3, 2, 5, 1};
  const Alibi alibi{kSlopes, 2};
  check_tile(alibi, first, e);
  check_tile(alibi, {0, 0, 0, 14}, e);  // right of the diagonal
  for (int col = 0; col < 16; ++col) check_tile(Alibi{kSlopes, 0}, {0, 0, 3, col}, {9, 20});
  for (const float slope : {-2.0f, 0.0f}) check_tile(Alibi{&slope, 0}, {0, 0, 2, 3}, e);
  check_tile(Softcap{2.0f}, first, e);
  check_tile(TwiceCapped{{2.0f}}, first, e);
  struct OtherBias : AdditiveBias<float> {};
  CHECK(kHasColumnTiles<AdditiveBias<float>, StandardMath>);
  CHECK(kHasColumnTiles<LearnedBias<float>, StandardMath>);
  CHECK(!kHasColumnTiles<OtherBias, StandardMath>);
  CHECK(kHasDiagonalTiles<AdditiveBias<float>, StandardMath>);
  CHECK(kHasDiagonalTiles<LearnedBias<float>, StandardMath>);
  CHECK(!kHasDiagonalTiles<OtherBias, StandardMath>);
  const AdditiveBias<float> of_distances{values.data() + 20, 3, 2, -1, 1};
  CHECK(of_distances.reads_diagonals());
  CHECK(!bias.reads_diagonals());
  check_tile(of_distances, first, e);
  check_tile(LearnedBias<float>{of_distances, {}}, first, e);
  check_tile(LearnedBias<float>{{values.data(), 3, 2, 0, 2}, {}}, first, e);
  CHECK(kPrepares<Softcap, StandardMath>);
  CHECK(kPrepares<Then<Alibi, Softcap>, StandardMath>);
  CHECK(!kPrepares<TwiceCapped, StandardMath>);
  check_tile(Then<Alibi, Softcap>{alibi, {3.0f}}, first, e);
  check_tile(bias, first, e);
  check_tile(AdditiveBias<float>{values.data(), 3, 2, 0, 2}, first, e);  // one row for all
  check_tile(LearnedBias<float>{bias, {}}, first, e);
  check_tile(Then<Softcap, Alibi>{{2.0f}, alibi}, first, e);
  check_tile(Then<Then<Alibi, Softcap>, AdditiveBias<float>>{{alibi, {2.0f}}, bias}, first, e);
  struct Columns {  // a modifier that says nothing of tiles
    ATTILE_HOST_DEVICE ModifiedScore<float> operator()(float s, ScoreIndex i, Extent) const {
      return {s * i.col + i.row, float(i.col)};
    }
  };
  check_tile(Columns{}, first, e);
  check_tile(Then<Columns, Alibi>{{}, alibi}, first, e);
  struct Doubled : Alibi {  // what it inherits is another modifier's
    ATTILE_HOST_DEVICE ModifiedScore<float> operator()(float s, ScoreIndex i, Extent e) const {
      return {2 * Alibi::operator()(s, i, e).value, 2.0f};
    }
  };
  check_tile(Doubled{alibi}, first, e);
}

TEST_CASE("score_mod.what_then_reads_is_what_its_parts_do") {
  using Bias = AdditiveBias<float>;
  using Capped = Then<Softcap, Bias>;
  std::vector<float> values(64);
  for (int i = 0; i < 64; ++i) values[i] = 0.1f * static_cast<float>(i);
  const Extent e{9, 20};
  const ScoreIndex first{1, 1, 2, 3};
  const Bias scores{values.data(), 3, 2, 5, 1}, columns{values.data(), 3, 2, 0, 2},
      distances{values.data() + 20, 3, 2, -1, 1};
  for (const Bias& bias : {scores, columns, distances}) {
    for (const float cap : {0.5f, 30.0f}) {  // beyond and within where tanh is a polynomial
      check_given<tile::FastMath>(Capped{{cap}, bias}, first, e);
      check_given<StandardMath>(Capped{{cap}, bias}, first, e);
      check_given<tile::FastMath>(Then<Bias, Softcap>{bias, {cap}}, first, e);
      check_given<tile::FastMath>(Then<ApproximateSoftcap, LearnedBias<float>>{{cap}, {bias, {}}},
                                  first, e);
      check_given<tile::FastMath>(Then<Then<Squeezed, Softcap>, Bias>{{{}, {cap}}, bias}, first, e);
      check_given<tile::FastMath>(Then<Squeezed, Then<Bias, Softcap>>{{}, {bias, {cap}}}, first, e);
    }
    check_given<tile::FastMath>(Then<Alibi, Bias>{{kSlopes, 2}, bias}, first, e);
    check_tile(Capped{{2.0f}, bias}, first, e);
    check_tile(Then<Bias, Softcap>{bias, {2.0f}}, first, e);
    check_tile(Then<Squeezed, Bias>{{}, bias}, first, e);
  }
  const Capped capped{{2.0f}, columns};
  CHECK(capped.reads_columns());
  CHECK(!capped.reads_diagonals());
  CHECK(Capped{{2.0f}, distances}.reads_diagonals());
  CHECK(capped.elements().data == values.data());
  CHECK(capped.elements().col_stride == 2);

  const auto has_columns = []<class S>(S) { return kHasColumnTiles<S, StandardMath>; };
  const auto has_diagonals = []<class S>(S) { return kHasDiagonalTiles<S, StandardMath>; };
  const auto has_elements = []<class S>(S) {
    return kHasElements<S, StandardMath> && kHasElementTensor<S>;
  };
  CHECK((has_columns(Capped{}) && has_diagonals(Capped{}) && has_elements(Capped{})));
  using WithAlibi = Then<Alibi, Bias>;  // a score's place says what Alibi adds
  CHECK((!has_columns(WithAlibi{}) && !has_diagonals(WithAlibi{}) && has_elements(WithAlibi{})));
  using Twice = Then<Bias, Capped>;  // two elements for each score
  CHECK((!has_columns(Twice{}) && !has_diagonals(Twice{}) && !has_elements(Twice{})));
  using WithNone = Then<Softcap, Squeezed>;
  CHECK((!has_columns(WithNone{}) && !has_diagonals(WithNone{}) && !has_elements(WithNone{})));
  CHECK(kIgnoresPlace<WithNone>);
  CHECK(!kIgnoresPlace<Capped>);
  CHECK(!kIgnoresPlace<TwiceCapped>);  // what it inherits is not taken
}

/// Beyond 2^24 the distance is rounded, as a float is.
TEST_CASE("score_mod.alibi_far_away") {
  constexpr int kFar = 1 << 28;
  const float slope = 1.0f;
  const Alibi alibi{&slope, 0};
  const Extent e{1, kFar};
  const auto tile = modifier_of_tile(alibi, {{0, 0, 0, 5}, e, 1, 100, 1.0f}, StandardMath());
  for (const int dc : {0, 1, 77}) {
    CHECK(tile(0.0f, tile.row(0), tile.col(dc)).value ==
          Approx(double(5 + dc - (kFar - 1))).epsilon(1e-7));
  }
  const auto near = modifier_of_tile(alibi, {{0, 0, 0, kFar - 3}, e, 1, 1, 1.0f}, StandardMath());
  CHECK(near(0.0f, near.row(0), near.col(1)).value == -1.0f);
}

TEST_CASE("score_mod.traits") {
  static_assert(kIsIdentity<NoScoreMod> && !kIsIdentity<Softcap>);
  static_assert(!kMayHide<NoScoreMod> && !kMayHide<Softcap> && !kMayHide<Alibi>);
  static_assert(kMayHide<AdditiveBias<float>>);
  static_assert(kMayHide<Then<Softcap, AdditiveBias<float>>>);
  static_assert(kMayHide<Then<AdditiveBias<float>, Softcap>>);
  static_assert(!kMayHide<Then<Softcap, Alibi>>);
  static_assert(kHasGradient<LearnedBias<float>> && kMayHide<LearnedBias<float>>);
  static_assert(kHasGradient<Then<LearnedBias<float>, Alibi>>);
  static_assert(kHasGradient<Then<Softcap, LearnedBias<__half>>>);
  static_assert(!kHasGradient<AdditiveBias<float>> && !kHasGradient<Then<Softcap, Alibi>>);
  static_assert(!kNeedsScores<NoScoreMod> && !kNeedsScores<Alibi> && kNeedsScores<Softcap>);
  static_assert(!kNeedsScores<Then<Alibi, LearnedBias<float>>>);
  static_assert(kNeedsScores<Then<Softcap, LearnedBias<float>>> && kNeedsScores<Bend>);
  static_assert(ScoreMod<Bend>);
  struct OnlyFloat {
    ModifiedScore<float> operator()(float s, ScoreIndex, Extent) const { return {s, 1.0f}; }
  };
  static_assert(ScoreMod<OnlyFloat>);
  static_assert(!ScoreMod<int>);
  SUCCEED();
}

}  // namespace
