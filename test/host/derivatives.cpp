// SPDX-License-Identifier: MIT
// The gradients of the fp64 reference against finite differences of its own forward pass, with each
// score modifier: dQ, dK, dV, and what the modifier learns.
#include <attile/core/args.h>
#include <attile/reference.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "support/catch.h"
#include "support/differences.h"
#include "support/policies.h"
#include "support/random.h"

namespace {

using namespace attile_test;
using attile::AdditiveBias;
using attile::Alibi;
using attile::LearnedBias;
using attile::NoScoreMod;
using attile::Softcap;
using attile::Then;

constexpr int kBatch = 2, kHeads = 4, kKvHeads = 2, kRows = 4, kColumns = 5, kDim = 3, kDimV = 2;
constexpr int kSlices = kBatch * kHeads, kScores = kSlices * kRows * kColumns;
constexpr attile::ScoreShape kShape{kBatch, kHeads, {kRows, kColumns}};
/// A step that leaves inputs of 12 binary places exact.
constexpr double kStep = 0x1p-10;

std::vector<float> numbers(int count, int seed) {
  std::vector<float> x;
  for (int i = 0; i < count; ++i) {
    x.push_back(std::round(Random(seed).normal(i) * 0x1p12f) * 0x1p-12f);
  }
  return x;
}

/// ALiBi whose slopes are learned: a user's own.
struct LearnedSlopes {
  Alibi alibi{};
  float* gradient = nullptr;  // (q_heads)

  static constexpr bool kHasGradient = true;

  template <class Real>
  ATTILE_HOST_DEVICE attile::ModifiedScore<Real> operator()(Real s, attile::ScoreIndex i,
                                                            attile::Extent e) const {
    return alibi(s, i, e);
  }
  template <class Real, class Add>
  ATTILE_HOST_DEVICE void add_gradient(Real, Real ds, attile::ScoreIndex i, attile::Extent e,
                                       const Add& add) const {
    const int distance = i.row + e.shift() - i.col;
    add(gradient + i.head, ds * -Real(distance < 0 ? -distance : distance));
  }
  ATTILE_HOST_DEVICE std::int64_t gradient_lines(const attile::ScoreShape&) const { return 1; }
  ATTILE_HOST_DEVICE attile::GradientLine gradient_line(std::int64_t,
                                                        const attile::ScoreShape& s) const {
    return {gradient, s.heads, 1};
  }
};

/// The arrays of one problem and of its modifiers.
struct Inputs {
  std::vector<float> q = numbers(kSlices * kRows * kDim, 1);
  std::vector<float> k = numbers(kBatch * kKvHeads * kColumns * kDim, 2);
  std::vector<float> v = numbers(kBatch * kKvHeads * kColumns * kDimV, 3);
  std::vector<float> dout = numbers(kSlices * kRows * kDimV, 4);
  std::vector<float> dlse = numbers(kSlices * kRows, 5);
  std::vector<float> slopes = {0.5f, 0.25f, 0.125f, 1.0f};
  std::vector<float> bias = numbers(kScores, 6);
  std::vector<float> gradient = std::vector<float>(kScores);  // named, never written

  Inputs() {
    for (int i = 3; i < kScores; i += 11) bias[i] = -attile::kInf;
  }

  AdditiveBias<float> whole_bias() const {
    return {bias.data(), kHeads * kRows * kColumns, kRows * kColumns, kColumns, 1};
  }
  /// A score has a bias of its own, or shares it with those of all batches and rows.
  LearnedBias<float> learned_bias() { return {whole_bias(), bias_gradient()}; }
  LearnedBias<float> shared_bias() {
    return {{bias.data(), 0, kColumns, 0, 1}, {gradient.data(), 0, kColumns, 0, 1}};
  }
  attile::BiasGradient bias_gradient() {
    return {gradient.data(), kHeads * kRows * kColumns, kRows * kColumns, kColumns, 1};
  }

  template <class Args>
  Args args(const typename Args::ScoreModType& mod) {
    Args a{};
    a.q = attile::bhsd<const float>(q.data(), {.rows = kRows, .heads = kHeads, .dim = kDim});
    a.k = attile::bhsd<const float>(k.data(), {.rows = kColumns, .heads = kKvHeads, .dim = kDim});
    a.v = attile::bhsd<const float>(v.data(), {.rows = kColumns, .heads = kKvHeads, .dim = kDimV});
    a.batch = kBatch;
    a.q_heads = kHeads;
    a.kv_heads = kKvHeads;
    a.q_len = kRows;
    a.kv_len = kColumns;
    a.head_dim = kDim;
    a.head_dim_v = kDimV;
    a.score_mod = mod;
    return a;
  }
};

/// sum(O dO) + sum(LSE dLSE), and the sum of its terms' absolute values.
struct Loss {
  double value = 0, magnitude = 0;

  void add(double x, double factor) {
    if (!std::isfinite(x)) return;  // LSE of an empty row
    value += x * factor;
    magnitude += std::abs(x * factor);
  }
};

template <class S>
Loss loss(Inputs& inputs, const S& mod) {
  const auto result =
      attile::reference::forward(inputs.args<attile::ForwardArgs<float, attile::Causal, S>>(mod));
  Loss loss;
  for (std::size_t i = 0; i < result.o.size(); ++i) loss.add(result.o[i], inputs.dout[i]);
  for (std::size_t i = 0; i < result.lse.size(); ++i) loss.add(result.lse[i], inputs.dlse[i]);
  return loss;
}

/// Holds the gradient by `input` against differences, at each of its elements.
template <class S>
void check_by(Inputs& inputs, const S& mod, const char* name, std::vector<float>& input,
              const std::vector<double>& gradient) {
  REQUIRE(gradient.size() <= input.size());
  // A value of the loss: each O is a sum of kColumns products of an exponential of a sum of kDim
  // products, some ten roundings for each term.
  const double error =
      10 * (kDim + kColumns) * std::numeric_limits<double>::epsilon() * loss(inputs, mod).magnitude;
  double largest = 0, most_tolerance = 0;
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const float x = input[i];
    if (std::isinf(x)) {
      CHECK(gradient[i] == 0);
      continue;
    }
    const auto at = [&](double step) {
      input[i] = static_cast<float>(x + step);
      return loss(inputs, mod).value;
    };
    const Difference difference = central_difference(at, kStep, error);
    input[i] = x;
    INFO(name << " " << i << ": " << gradient[i] << ", by differences " << difference.value
              << ", tolerance " << difference.tolerance);
    CHECK(difference.accepts(gradient[i]));
    largest = std::max(largest, std::abs(gradient[i]));
    most_tolerance = std::max(most_tolerance, difference.tolerance);
  }
  INFO(name);
  CHECK(most_tolerance < 1e-4 * largest);  // or it would take anything
}

template <class S>
attile::reference::BackwardResult gradients(Inputs& inputs, const S& mod) {
  auto args = inputs.args<attile::BackwardArgs<float, attile::Causal, S>>(mod);
  args.dout =
      attile::bhsd<const float>(inputs.dout.data(), {.rows = kRows, .heads = kHeads, .dim = kDimV});
  args.dlse = inputs.dlse.data();
  return attile::reference::backward(args);
}

/// `learned`: what the modifier reads, in the order of its gradient's lines.
template <class S>
void check_all(Inputs& inputs, const S& mod, std::vector<float>* learned = nullptr) {
  const auto result = gradients(inputs, mod);
  check_by(inputs, mod, "q", inputs.q, result.dq);
  check_by(inputs, mod, "k", inputs.k, result.dk);
  check_by(inputs, mod, "v", inputs.v, result.dv);
  CHECK(result.learned.empty() == (learned == nullptr));
  if (learned != nullptr) check_by(inputs, mod, "learned", *learned, result.learned);
}

TEST_CASE("derivatives.none") {
  Inputs inputs;
  check_all(inputs, NoScoreMod{});
}

TEST_CASE("derivatives.alibi") {
  Inputs inputs;
  check_all(inputs, Alibi{inputs.slopes.data(), 0});
}

TEST_CASE("derivatives.softcap") {
  Inputs inputs;
  check_all(inputs, Softcap{1.5f});
}

TEST_CASE("derivatives.bias") {
  Inputs inputs;
  check_all(inputs, inputs.whole_bias());
}

TEST_CASE("derivatives.learned_bias") {
  Inputs inputs;
  check_all(inputs, inputs.learned_bias(), &inputs.bias);
}

TEST_CASE("derivatives.learned_bias_of_many_scores") {
  Inputs inputs;
  check_all(inputs, inputs.shared_bias(), &inputs.bias);
}

TEST_CASE("derivatives.softcap_then_learned_bias") {
  Inputs inputs;
  check_all(inputs, Then<Softcap, LearnedBias<float>>{{1.5f}, inputs.learned_bias()}, &inputs.bias);
}

TEST_CASE("derivatives.learned_bias_then_softcap") {
  Inputs inputs;
  for (float& x : inputs.bias) x = std::isinf(x) ? 1.0f : x;  // softcap would show what is hidden
  check_all(inputs, Then<LearnedBias<float>, Softcap>{inputs.learned_bias(), {1.5f}}, &inputs.bias);
}

TEST_CASE("derivatives.users") {
  Inputs inputs;
  check_all(inputs, Bend{});
  check_all(inputs, LearnedSlopes{{inputs.slopes.data(), 0}, inputs.gradient.data()},
            &inputs.slopes);
}

TEST_CASE("derivatives.two_that_learn") {
  Inputs inputs;
  float* const behind = inputs.gradient.data() + kScores - kHeads;
  const LearnedSlopes slopes{{inputs.slopes.data(), 0}, behind};
  const Then<Then<LearnedSlopes, Bend>, LearnedBias<float>> mod{{slopes, {}}, inputs.shared_bias()};
  const std::vector<double> learned = gradients(inputs, mod).learned;
  REQUIRE(learned.size() == kHeads + kHeads * kColumns);
  const auto of_bias = learned.begin() + kHeads;
  check_by(inputs, mod, "slopes", inputs.slopes, {learned.begin(), of_bias});
  check_by(inputs, mod, "bias", inputs.bias, {of_bias, learned.end()});
}

}  // namespace
