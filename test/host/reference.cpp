// SPDX-License-Identifier: MIT
// What everything else is held against is itself held against hand-made results and against finite
// differences of its own forward pass.
#include <attile/reference.h>

#include <cmath>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/catch.h"
#include "support/fp8_cases.h"
#include "support/problem.h"
#include "support/random.h"
#include "support/suite_cases.h"

namespace {

using namespace attile_test;
namespace reference = attile::reference;

TEST_CASE("reference.two_keys_by_hand") {
  const float q[] = {2.0f}, k[] = {0.0f, 0.5f}, v[] = {1.0f, 3.0f};
  attile::ForwardArgs<float> a{.q = attile::bshd<const float>(q, {.rows = 1, .heads = 1, .dim = 1}),
                               .k = attile::bshd<const float>(k, {.rows = 2, .heads = 1, .dim = 1}),
                               .v = attile::bshd<const float>(v, {.rows = 2, .heads = 1, .dim = 1}),
                               .batch = 1,
                               .q_heads = 1,
                               .kv_heads = 1,
                               .q_len = 1,
                               .kv_len = 2,
                               .head_dim = 1,
                               .scale = 2.0f};
  // S = {0, 2}
  const double e2 = std::exp(2.0);
  reference::ForwardResult result = reference::forward(a);
  CHECK(result.o[0] == Approx((1 + 3 * e2) / (1 + e2)).epsilon(1e-14));
  CHECK(result.lse[0] == Approx(std::log(1 + e2)).epsilon(1e-14));
  a.scale.reset();  // 1 / sqrt(1): S = {0, 1}
  result = reference::forward(a);
  CHECK(result.lse[0] == Approx(std::log(1 + std::exp(1.0))).epsilon(1e-14));
}

/// Elements in fp8 and their scales are numbers: those of fp32, in which they are exact.
TEST_CASE("reference.fp8_is_numbers") {
  constexpr int kHeads = 2, kKeys = 7, kDim = 8, kSize = kHeads * kKeys * kDim;
  const Random random(5);
  std::vector<float> q(2 * kSize), k(kSize), v(kSize);
  std::vector<__nv_fp8_e5m2> q_codes;
  std::vector<__nv_fp8_e4m3> k_codes;
  std::vector<__nv_fp8_e5m2> v_codes;
  const float q_scales[] = {1.3f, 0.6f}, k_scales[] = {0.7f, 3.1f}, v_scales[] = {1.9f, 0.3f};
  for (int i = 0; i < 2 * kSize; ++i) {
    q_codes.push_back(attile::from_float<__nv_fp8_e5m2>(random.normal(i)));
    q[i] = attile::to_float(q_codes[i]);
  }
  for (int i = 0; i < kSize; ++i) {
    k_codes.push_back(attile::from_float<__nv_fp8_e4m3>(random.normal(1000 + i)));
    v_codes.push_back(attile::from_float<__nv_fp8_e5m2>(random.normal(2000 + i)));
    k[i] = attile::to_float(k_codes[i]), v[i] = attile::to_float(v_codes[i]);
  }
  const auto describe = [&](auto& a) {
    a.batch = 1, a.q_heads = 2 * kHeads, a.kv_heads = kHeads, a.q_len = a.kv_len = kKeys;
    a.head_dim = kDim, a.score_mod.cap = 3.0f;
  };
  using E = attile::Elements<__nv_fp8_e5m2, __nv_fp8_e4m3, __nv_fp8_e5m2, __half>;
  attile::ForwardArgs<E, attile::Causal, attile::Softcap> fp8{};
  describe(fp8);
  fp8.q = attile::bhsd<const __nv_fp8_e5m2>(q_codes.data(),
                                            {.rows = kKeys, .heads = 2 * kHeads, .dim = kDim});
  fp8.k = attile::bhsd<const __nv_fp8_e4m3>(k_codes.data(),
                                            {.rows = kKeys, .heads = kHeads, .dim = kDim});
  fp8.v = attile::bhsd<const __nv_fp8_e5m2>(v_codes.data(),
                                            {.rows = kKeys, .heads = kHeads, .dim = kDim});
  fp8.q_scale = {q_scales, 0, 1}, fp8.k_scale = {k_scales, 0, 1}, fp8.v_scale = {v_scales, 0, 1};
  const auto found = reference::forward(fp8);
  // Of each kv head by itself, with its scale as a factor of the scale and of O.
  for (int h = 0; h < kHeads; ++h) {
    attile::ForwardArgs<float, attile::Causal, attile::Softcap> wide{};
    describe(wide);
    wide.q_heads = 2, wide.kv_heads = 1;
    wide.q = attile::bhsd<const float>(q.data() + 2 * h * kKeys * kDim,
                                       {.rows = kKeys, .heads = 2, .dim = kDim});
    wide.k = attile::bhsd<const float>(k.data() + h * kKeys * kDim,
                                       {.rows = kKeys, .heads = 1, .dim = kDim});
    wide.v = attile::bhsd<const float>(v.data() + h * kKeys * kDim,
                                       {.rows = kKeys, .heads = 1, .dim = kDim});
    wide.scale = attile::scale_of(wide, kDim) * q_scales[h] * k_scales[h];
    const auto wanted = reference::forward(wide);
    for (std::size_t i = 0; i < wanted.lse.size(); ++i) {
      CHECK(found.lse[h * wanted.lse.size() + i] == Approx(wanted.lse[i]).epsilon(1e-6));
    }
    for (std::size_t i = 0; i < wanted.o.size(); ++i) {
      CHECK(found.o[h * wanted.o.size() + i] ==
            Approx(wanted.o[i] * v_scales[h]).epsilon(1e-6).margin(1e-6));
    }
  }
}

TEST_CASE("reference.equal_scores_give_the_mean") {
  Case c{.name = "",
         .q_heads = 4,
         .kv_heads = 2,
         .q_len = 3,
         .kv_len = 10,
         .head_dim = 8,
         .data = Data::kZero};
  Problem<float, Policy::kNone> p(c);
  const auto result = reference::forward(p.forward_args());
  const std::vector<double> v = p.v.gather();
  for (int h = 0; h < 4; ++h) {
    for (int i = 0; i < 3; ++i) {
      CHECK(result.lse[h * 3 + i] == Approx(std::log(10.0)));
      for (int x = 0; x < 8; ++x) {
        double mean = 0;
        for (int j = 0; j < 10; ++j) mean += v[((h / 2) * 10 + j) * 8 + x] / 10;
        CHECK(result.o[(h * 3 + i) * 8 + x] == Approx(mean).margin(1e-12));
      }
    }
  }
}

TEST_CASE("reference.empty_rows") {
  Case c{
      .name = "", .policy = Policy::kCausal, .q_len = 5, .kv_len = 2, .head_dim = 8, .dlse = true};
  Problem<float, Policy::kCausal> p(c);
  const auto forward = reference::forward(p.forward_args());
  const auto backward = reference::backward(p.backward_args());
  for (int i = 0; i < 5; ++i) {
    CHECK((forward.lse[i] == -std::numeric_limits<double>::infinity()) == (i < 3));
    double sum = 0;
    for (int x = 0; x < 8; ++x) {
      sum += std::abs(forward.o[i * 8 + x]) + std::abs(backward.dq[i * 8 + x]);
    }
    CHECK((sum == 0) == (i < 3));
  }
}

/// sum(O * dO) + sum(LSE * dLSE), whose gradients the backward pass gives.
template <class P>
double loss(P& p, const Case& c) {
  auto forward_args = p.forward_args();
  const auto result = reference::forward(forward_args);
  const std::vector<double> dout = p.dout.gather();
  double sum = 0;
  for (std::size_t i = 0; i < dout.size(); ++i) sum += result.o[i] * dout[i];
  const std::vector<double> dlse = p.dlse().gather();
  for (std::size_t i = 0; c.dlse && i < result.lse.size(); ++i) {
    if (std::isfinite(result.lse[i])) sum += result.lse[i] * dlse[i];
  }
  return sum;
}

/// A central difference at one element.
template <class P>
double difference_at(P& p, const Case& c, float& x) {
  const float old = x, h = 1e-3f;
  x = old + h;
  const double above = loss(p, c), step_above = x;
  x = old - h;
  const double below = loss(p, c), step_below = x;
  x = old;
  return (above - below) / (step_above - step_below);
}

/// Central differences at some elements of one input.
template <class P>
void check_gradient(P& p, const Case& c, TestTensor<float>& input,
                    const std::vector<double>& want) {
  std::vector<std::pair<float*, std::int64_t>> elements;  // and their indices in a dense tensor
  input.for_each([&](float& x, std::int64_t i) { elements.emplace_back(&x, i); });
  for (std::size_t n = 0; n < elements.size(); n += 1 + elements.size() / 7) {
    const auto [place, i] = elements[n];
    INFO(input.name << " " << i);
    CHECK(want[i] == Approx(difference_at(p, c, *place)).margin(2e-5).epsilon(2e-5));
  }
}

template <Policy kPolicy>
void check_gradients() {
  const Case c{.name = "",
               .policy = kPolicy,
               .batch = 2,
               .q_heads = 4,
               .kv_heads = 2,
               .q_len = 9,
               .kv_len = 7,
               .head_dim = 5,
               .head_dim_v = 6,
               .dlse = true,
               .left = 3,
               .right = 2,
               .prefix = 2,
               .hide = true};
  Problem<float, kPolicy> p(c);
  auto args = p.backward_args();
  args.o.data = nullptr;  // the reference computes O and LSE itself
  args.lse = nullptr;
  const auto gradients = reference::backward(args);
  check_gradient(p, c, p.q, gradients.dq);
  check_gradient(p, c, p.k, gradients.dk);
  check_gradient(p, c, p.v, gradients.dv);
  if constexpr (std::is_same_v<typename decltype(args)::SinkType, attile::Sink<float>>) {
    float* const sinks = const_cast<float*>(args.sink.sinks);  // those of the problem's policies
    for (int head = 0; head < c.q_heads; ++head) {
      INFO("sink " << head);
      CHECK(gradients.dsinks[head] ==
            Approx(difference_at(p, c, sinks[head])).margin(2e-5).epsilon(2e-5));
    }
  }
}

#define ATTILE_GRADIENTS(name, policy) \
  TEST_CASE("reference.gradients." #name) { check_gradients<Policy::policy>(); }
ATTILE_EACH_GRADIENT_POLICY(ATTILE_GRADIENTS)
#undef ATTILE_GRADIENTS

TEST_CASE("reference.plain_error_is_of_the_size_of_the_type") {
  const Case c{.name = "", .batch = 2, .q_heads = 2, .kv_heads = 2, .q_len = 100, .kv_len = 120};
  const auto error = [&](auto element) {
    using T = decltype(element);
    Problem<T, Policy::kNone> p(c);
    const auto args = p.forward_args();
    return reference::max_error(reference::plain_forward(args).o, reference::forward(args).o);
  };
  CHECK(error(float{}) < 2e-6);
  CHECK(error(float{}) > 1e-8);
  CHECK(error(__half{}) < 4e-3);
  CHECK(error(__half{}) > 1e-4);
  CHECK(error(__nv_bfloat16{}) < 4e-2);
  CHECK(error(__nv_bfloat16{}) > 1e-3);
}

TEST_CASE("reference.tf32_rounds_the_operands_of_products_to_eleven_bits") {
  const Case c{.name = "", .batch = 2, .q_heads = 2, .kv_heads = 2, .q_len = 100, .kv_len = 120};
  Problem<float, Policy::kNone> p(c);
  const auto args = p.forward_args();
  const double error = reference::max_error(reference::plain_forward(args, {.tf32 = true}).o,
                                            reference::forward(args).o);
  CHECK(error < 2e-3);
  CHECK(error > 1e-5);

  // One key: LSE = S. Halves are rounded away from zero.
  float q[] = {0.0f}, k[] = {1.0f};
  attile::ForwardArgs<float> one{
      .q = attile::bshd<const float>(q, {.rows = 1, .heads = 1, .dim = 1}),
      .k = attile::bshd<const float>(k, {.rows = 1, .heads = 1, .dim = 1}),
      .v = attile::bshd<const float>(k, {.rows = 1, .heads = 1, .dim = 1}),
      .batch = 1,
      .q_heads = 1,
      .kv_heads = 1,
      .q_len = 1,
      .kv_len = 1,
      .head_dim = 1,
      .scale = 1.0f};
  const auto score = [&](float x) {
    q[0] = x;
    return reference::plain_forward(one, {.tf32 = true}).lse[0];
  };
  CHECK(score(1 + 0x1p-10f) == 1 + 0x1p-10);
  CHECK(score(1 + 0x1p-11f) == 1 + 0x1p-10);
  CHECK(score(-1 - 0x1p-11f) == -1 - 0x1p-10);
  CHECK(score(1 + 0x1.fp-12f) == 1);
  CHECK(score(0x1.ffffp0f) == 2);
}

/// x = big + rest, and what TF32 cuts off of the rest, as the family sm80 has it.
struct Split {
  float big, rest;
  explicit Split(float x)
      : big(attile::float_of((attile::word_of(x) + 0x1000u) & 0xFFFFE000u)),
        rest(attile::float_of(attile::word_of(x - big) & 0xFFFFE000u)) {}
};

TEST_CASE("reference.sums_in_any_order") {
  CHECK(reference::any_order_error({0.5, std::nan(""), 3.0}) == 0x3p-22);
  CHECK(reference::any_order_error({}) == 0.0);
}

TEST_CASE("reference.three_products_are_within_their_bound") {
  double worst = 0, worst_of_two = 0;
  for (int i = 0; i < 3000; ++i) {
    for (int j = 0; j < 300; ++j) {
      const float x = 1 + static_cast<float>(i * 2741 % 8388608) * 0x1p-23f;
      const float y = -1 - static_cast<float>(j * 28657 % 8388608) * 0x1p-23f;
      const Split a(x), b(y);
      const double exact = static_cast<double>(x) * y;
      const double two = static_cast<double>(a.big) * b.big + static_cast<double>(a.rest) * b.big;
      const double three = two + static_cast<double>(a.big) * b.rest;
      worst = std::max(worst, std::abs(three / exact - 1));
      worst_of_two = std::max(worst_of_two, std::abs(two / exact - 1));
    }
  }
  const double bound = reference::three_products_error({1.0, std::nan(""), 0.5});
  CHECK(bound == 0x1p-21);
  CHECK(worst < bound);
  CHECK(worst > bound / 2);
  CHECK(worst_of_two > 100 * bound);
}

TEST_CASE("reference.magnitudes") {
  const Case c{.name = "", .policy = Policy::kCausalDropout, .q_heads = 2, .q_len = 5, .kv_len = 9};
  Problem<float, Policy::kCausalDropout> p(c);
  const auto forward = reference::forward(p.forward_args());
  p.set_forward_result(forward);
  // Without signs they are what they are the magnitudes of.
  p.v.for_each([](float& x, std::int64_t) { x = std::abs(x); });
  p.dout.for_each([](float& x, std::int64_t) { x = std::abs(x); });
  const auto args = p.forward_args();
  const auto positive = reference::forward(args).o;
  CHECK(reference::max_error(reference::forward_magnitudes(args).o, positive) < 1e-12);
  const auto got = reference::backward_magnitudes(p.backward_args()).dv;
  const auto want = reference::backward(p.backward_args()).dv;
  CHECK(reference::max_error(got, want) < 1e-5);
  p.v.for_each([](float& x, std::int64_t at) { x = at % 2 == 0 ? x : -x; });
  CHECK(reference::max_error(reference::forward_magnitudes(args).o, positive) < 1e-12);
}

/// Where a row sees one key dS is 0, and its terms are those of dP.
TEST_CASE("reference.magnitudes_of_one_key") {
  const Case c{.name = "", .q_len = 3, .kv_len = 1};
  Problem<float, Policy::kNone> p(c);
  p.set_forward_result(reference::forward(p.forward_args()));
  const auto args = p.backward_args();
  const auto got = reference::backward_magnitudes(args).dq;
  double dp_terms = 0;
  for (int d = 0; d < args.head_dim; ++d) {
    dp_terms += std::abs(double{args.dout.row(0, 0, 2)[d]} * args.v.row(0, 0, 0)[d]);
  }
  const double scale = attile::scale_of(args, args.head_dim);
  const double want = scale * dp_terms * std::abs(args.k.row(0, 0, 0)[1]);
  CHECK(std::abs(got[std::size_t(2) * args.head_dim + 1] / want - 1) < 1e-6);
}

/// What the suite allows a kernel of three products is still too little for one of one product.
TEST_CASE("reference.one_product_is_more_than_three_are_allowed") {
  for (const int kv_len : {1, 65, 1000}) {
    const Case c{.name = "", .q_heads = 2, .kv_heads = 2, .q_len = 65, .kv_len = kv_len};
    Problem<float, Policy::kNone> p(c);
    const auto args = p.forward_args();
    const auto exact = reference::forward(args).o;
    const double allowed = reference::tolerance<float>(exact, reference::plain_forward(args).o) +
                           reference::three_products_error(reference::forward_magnitudes(args).o);
    const auto one_product = reference::plain_forward(args, {.tf32 = true}).o;
    CHECK(reference::max_error(one_product, exact) > 10 * allowed);
  }
}

TEST_CASE("reference.roots") {
  Case c{.name = "", .q_len = 2, .kv_len = 10, .head_dim = 8, .data = Data::kZero};
  Problem<float, Policy::kNone> p(c);
  const auto roots = reference::forward_roots(p.forward_args());
  const std::vector<double> v = p.v.gather();
  for (int x = 0; x < 8; ++x) {
    double squares = 0;
    for (int j = 0; j < 10; ++j) squares += v[j * 8 + x] * v[j * 8 + x] / 100;
    CHECK(roots.o[8 + x] == Approx(std::sqrt(squares)));
  }
  CHECK(roots.lse[1] == Approx(std::log(10.0)));
}

/// Where all products are positive, a score's error is that of a relative error of the scale.
TEST_CASE("reference.score_shifts") {
  const Case c{.name = "", .policy = Policy::kCausal, .q_heads = 2, .q_len = 5, .kv_len = 9};
  Problem<float, Policy::kCausal> p(c);
  p.q.for_each([](float& x, std::int64_t) { x = std::abs(x); });
  p.k.for_each([](float& x, std::int64_t) { x = std::abs(x); });
  auto args = p.forward_args();
  const auto shifts = reference::forward_score_shifts(args);
  const float scale = attile::scale_of(args, args.head_dim), change = scale * 0x1p-10f;
  args.scale = scale + change;
  const auto above = reference::forward(args);
  args.scale = scale - change;
  const auto below = reference::forward(args);
  for (std::size_t i = 0; i < shifts.lse.size(); ++i) {
    CHECK(shifts.lse[i] == Approx((above.lse[i] - below.lse[i]) * 512).epsilon(1e-4));
  }
  double most = 0;
  for (std::size_t i = 0; i < shifts.o.size(); ++i) {
    const double slope = std::abs(above.o[i] - below.o[i]) * 512;
    CHECK(slope <= shifts.o[i] * (1 + 1e-4));
    most = std::max(most, slope / shifts.o[i]);
  }
  CHECK(most > 0.05);
}

/// What the suite allows for P in e4m3 and for sums of 14 bits is what these need, within a factor.
TEST_CASE("reference.fp8_errors") {
  constexpr int kRows = 40, kKeys = 300, kDim = 128;
  const auto numbers = [](std::uint64_t seed, int count) {
    std::vector<float> result = normal_numbers<float>(seed, count);
    for (float& x : result) x = attile::to_float(rounded<__nv_fp8_e4m3>(x));
    return result;
  };
  const auto q = numbers(1, kRows * kDim), k = numbers(2, kKeys * kDim),
             v = numbers(3, kKeys * kDim);
  attile::ForwardArgs<float> args{};
  args.q = attile::bhsd(q.data(), {.rows = kRows, .heads = 1, .dim = kDim}),
  args.k = attile::bhsd(k.data(), {.rows = kKeys, .heads = 1, .dim = kDim});
  args.v = attile::bhsd(v.data(), {.rows = kKeys, .heads = 1, .dim = kDim});
  args.batch = args.q_heads = args.kv_heads = 1;
  args.q_len = kRows, args.kv_len = kKeys, args.head_dim = kDim;
  const auto exact = reference::forward(args);
  const auto as_doubles = [](const auto& x) { return std::vector<double>(x.begin(), x.end()); };
  const auto o = quantised_attention(as_doubles(q), as_doubles(k), as_doubles(v), kDim, true);
  const double allowed = reference::fp8_probability_error(reference::forward_roots(args).o);
  CHECK(reference::max_error(o, exact.o) < allowed);
  CHECK(reference::max_error(o, exact.o) > allowed / 4);

  double error = 0, magnitude = 0;
  for (int i = 0; i < kRows * kKeys; ++i) {
    double sum = 0, terms = 0, cut = 0;
    for (int first = 0; first < kDim; first += 32) {
      double largest = std::abs(cut);
      double products[32];
      for (int c = 0; c < 32; ++c) {
        const int at = first + c;
        products[c] = double{q[i / kKeys * kDim + at]} * k[i % kKeys * kDim + at];
        sum += products[c], terms += std::abs(products[c]);
        largest = std::max(largest, std::abs(products[c]));
      }
      const double unit = std::ldexp(1.0, std::ilogb(largest) - 13);
      cut = std::trunc(cut / unit) * unit;
      for (const double x : products) cut += std::trunc(x / unit) * unit;
    }
    error = std::max(error, std::abs(cut - sum)), magnitude = std::max(magnitude, terms);
  }
  CHECK(error < reference::fp8_score_error({magnitude}));
  CHECK(error > reference::fp8_score_error({magnitude}) / 16);

  CHECK(reference::fp8_sum_error({1.0}, attile::Fp8Sums::kPromoted, 1 << 17) == 0x1p-10);
  CHECK(reference::fp8_sum_error({1.0}, attile::Fp8Sums::kPromoted, 33) == 0x1p-12);
  CHECK(reference::fp8_sum_error({1.0}, attile::Fp8Sums::kUnpromoted, 1 << 17) == 0.5);
}

TEST_CASE("reference.tolerance") {
  const std::vector<double> exact = {1.0, -3.0, std::numeric_limits<double>::infinity()};
  CHECK(reference::rounding<float>(exact) == 0x1p-22);  // the spacing between 2 and 4
  CHECK(reference::rounding<__half>(exact) == 0x1p-10);
  CHECK(reference::rounding<__nv_bfloat16>(exact) == 0x1p-7);
  CHECK(reference::max_error({1.5, -3.0, 0.0}, exact) == 0.5);
  CHECK(std::isinf(reference::max_error({std::nan(""), -3.0, 0.0}, exact)));
  CHECK(reference::tolerance<__half>(exact, {1.25, -3.0, 0.0}) == 0.5 + 0x1p-10);
  CHECK(reference::rounding<float>({0.0}) > 0);
}

}  // namespace
