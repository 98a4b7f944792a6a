// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/args.h>
#include <attile/core/score_mod.h>
#include <attile/core/status.h>
#include <attile/reference.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/any_policies.h"
#include "support/cases.h"
#include "support/fp8_errors.h"
#include "support/learned_places.h"
#include "support/problem.h"
#include "support/suite.h"

// What suite.h declares: a case's problem, what the fp64 reference makes of it, and the comparison.
// For yardstick_*.cpp alone.
namespace attile_test {

/// What a run of a case did wrong, one line each; empty when nothing.
class Faults {
 public:
  template <class... Parts>
  void add(const Parts&... parts) {
    std::ostringstream line;
    line.precision(9);
    (line << ... << parts);
    text_ += line.str() + "\n";
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

/// What a tensor has to be, and by how much it may differ anywhere.
struct Expected {
  std::vector<double> value;
  double tolerance = 0;
};

namespace detail {

/// The plain computations that make the yardstick. They differ in the order of their sums: the
/// error of a few numbers in one order is luck.
inline std::vector<attile::reference::PlainOptions> plain_options(bool keep_scores, bool tf32) {
  return {{keep_scores, false, 1, tf32},
          {keep_scores, true, 1, tf32},
          {keep_scores, false, 4, tf32},
          {keep_scores, true, 16, tf32}};
}

/// The exact tensor, and the largest tolerance that one of the plain computations gives it.
template <attile::Element T, class Result>
Expected expect(std::vector<double> Result::*tensor, const Result& exact,
                const std::vector<Result>& plain) {
  Expected expected{exact.*tensor};
  for (const Result& p : plain) {
    const double tolerance = attile::reference::tolerance<T>(exact.*tensor, p.*tensor);
    expected.tolerance = std::max(expected.tolerance, tolerance);
  }
  return expected;
}

/// Scores that T cannot hold make a yardstick that holds everything good: they stay fp32.
inline bool extreme(Data data) {
  return data == Data::kLarge || data == Data::kVeryNegative || data == Data::kNegative ||
         data == Data::kOverflow;
}

inline std::string position(const Shape& s, std::int64_t index) {
  std::ostringstream text;
  text << "[" << index / s.dim / s.rows / s.heads << ", " << index / s.dim / s.rows % s.heads
       << ", " << index / s.dim % s.rows << ", " << index % s.dim << "]";
  return text.str();
}

inline bool accepts(double got, double want, double tolerance) {
  if (std::isnan(want)) return std::isnan(got);
  if (std::isinf(want)) return got == want;
  return std::abs(got - want) <= tolerance;
}

inline void compare(Faults& faults, const char* name, const Shape& shape,
                    const std::vector<double>& got, const Expected& expected) {
  if (!std::isfinite(expected.tolerance)) {
    faults.add(name, ": the plain computation overflows, so that there is no tolerance");
  }
  std::int64_t wrong = 0, worst = -1;
  double worst_error = -1;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(got.size()); ++i) {
    const double want = expected.value[i];
    if (accepts(got[i], want, expected.tolerance)) continue;
    const double error = std::abs(got[i] - want);
    if (++wrong == 1 || error > worst_error) {
      worst = i;
      worst_error = error;
    }
  }
  if (wrong == 0) return;
  faults.add(name, ": ", wrong, " of ", got.size(), " values are wrong, worst at ",
             position(shape, worst), ": ", got[worst], " instead of ", expected.value[worst],
             ", tolerance ", expected.tolerance);
}

/// Rows that see nothing have to be exactly zero.
inline void compare_empty_rows(Faults& faults, const char* name, const Shape& shape,
                               const std::vector<double>& got, const std::vector<double>& lse) {
  for (std::size_t row = 0; row < lse.size(); ++row) {
    if (lse[row] != -std::numeric_limits<double>::infinity()) continue;
    for (int c = 0; c < shape.dim; ++c) {
      const std::int64_t at = static_cast<std::int64_t>(row) * shape.dim + c;
      if (got[at] == 0) continue;
      faults.add(name, ": an empty row is not 0: ", got[at], " at ", position(shape, at));
      return;
    }
  }
}

/// Everything of an output's buffer that belongs to no element has to be as it was.
template <attile::Element T>
void check_gaps(Faults& faults, std::initializer_list<const TestTensor<T>*> tensors) {
  for (const TestTensor<T>* first : tensors) {
    std::vector<T> storage = first->buffer->storage();
    for (const TestTensor<T>* t : tensors) {
      if (t->buffer != first->buffer) continue;
      t->for_each(
          [&](T& x, std::int64_t) { storage[&x - first->buffer->storage().data()] = poison<T>(); });
    }
    const auto touched = std::find_if_not(storage.begin(), storage.end(),
                                          [](const T& x) { return same_bits(x, poison<T>()); });
    if (touched != storage.end()) {
      faults.add(first->name, ": written outside of its elements, ",
                 touched - storage.begin() - Buffer<T>::kGuard, " after its buffer's begin");
    }
  }
}

inline bool buffer_of_poison(const std::vector<float>& storage) {
  return std::all_of(storage.begin(), storage.end(),
                     [](float x) { return same_bits(x, poison<float>()); });
}

/// Compares what is learned, which has to be exactly 0 where only hidden scores would add, and
/// looks between its elements.
inline void compare_learned(Faults& faults, const LearnedPlaces& places,
                            const Buffer<float>& buffer, const Expected& want) {
  const int count = static_cast<int>(places.at.size());
  std::vector<double> got;
  std::vector<float> storage = buffer.storage();
  for (int i = 0; i < count; ++i) {
    const float x = *places.at[i];
    got.push_back(x);
    storage[places.at[i] - buffer.storage().data()] = poison<float>();
    if (places.visible[i] == 0 && x != 0) {
      faults.add("learned: ", x, " at ", i, ", where all scores are hidden");
    }
  }
  compare(faults, "learned", {1, 1, 1, count}, got, want);
  for (const float& x : storage) {
    if (same_bits(x, poison<float>())) continue;
    faults.add("learned: written outside of its elements, ",
               &x - storage.data() - Buffer<float>::kGuard, " after its buffer's begin");
    break;
  }
}

/// Compares the gradient of the sinks, and looks beside its elements.
inline void compare_dsinks(Faults& faults, const Buffer<float>& buffer, const Expected& want) {
  const int count = static_cast<int>(want.value.size());
  std::vector<float> storage = buffer.storage();
  const auto first = storage.begin() + Buffer<float>::kGuard;
  compare(faults, "dsinks", {1, 1, 1, count}, std::vector<double>(first, first + count), want);
  std::fill_n(first, count, poison<float>());
  if (!buffer_of_poison(storage)) faults.add("dsinks: written outside of its elements");
}

/// Remembers buffers, and says whether they changed.
template <class... Buffers>
auto snapshot(const Buffers&... buffers) {
  return [... stored = buffers.storage(), ... buffer = &buffers](Faults& faults, const char* what) {
    if (!(buffer->equals(stored) && ...)) faults.add(what);
  };
}

/// What a case has to give.
struct ForwardYardstick {
  attile::reference::ForwardResult exact;
  Expected o, lse;
};
struct BackwardYardstick {
  attile::reference::ForwardResult forward;
  Expected dq, dk, dv, learned, dsinks;
};

/// What make() gives for a case of the suite in T, made once for each number of products, and for
/// the types and products of fp8: for all executors that it is the same for. It takes longer than
/// their kernels.
template <attile::Element T, class Value>
std::shared_ptr<const Value> remembered(const Case& c, Policy policy, const Promises& promises,
                                        const std::function<Value()>& make) {
  static std::map<std::tuple<const Case*, Policy, int, Fp8Types, Fp8Products>,
                  std::shared_ptr<const Value>>
      known;
  if (&c < kCases.data() || &c >= kCases.data() + kCases.size()) {
    return std::make_shared<const Value>(make());
  }
  std::shared_ptr<const Value>& value =
      known[{&c, policy, promises.tf32_products, promises.fp8, promises.fp8_products}];
  if (value == nullptr) value = std::make_shared<const Value>(make());
  return value;
}

/// Whether executors may take several products of less precision for one of T.
template <attile::Element T>
inline constexpr bool kMayBeSplit = std::is_same_v<T, float>;

template <attile::Element T, class Args>
ForwardYardstick forward_yardstick(const Case& c, const Promises& promises, const Args& args) {
  using Result = attile::reference::ForwardResult;
  const int tf32_products = promises.tf32_products;
  ForwardYardstick want{attile::reference::forward(args), {}, {}};
  const auto plain = [&](bool keep_scores) {
    std::vector<Result> results;
    for (const auto& options : plain_options(keep_scores, tf32_products == 1)) {
      results.push_back(attile::reference::plain_forward(args, options));
    }
    return results;
  };
  // LSE never passes through T, so that its yardstick keeps the scores.
  const std::vector<Result> kept = plain(true);
  want.lse = expect<float>(&Result::lse, want.exact, kept);
  const bool keep = extreme(c.data) || sizeof(T) == 4;
  using TO = typename Args::Elements::O;
  want.o = expect<TO>(&Result::o, want.exact, keep ? kept : plain(false));
  if constexpr (kMayBeSplit<T>) {
    if (tf32_products == 3) {
      want.o.tolerance +=
          attile::reference::three_products_error(attile::reference::forward_magnitudes(args).o);
    }
  }
  if constexpr (sizeof(T) == 2) {
    const bool has_v = promises.fp8.v != Fp8Type::kNone;
    const Fp8Errors errors = fp8_errors(promises.fp8_products, has_v, args);
    want.o.tolerance += errors.o;
    want.lse.tolerance += errors.lse;
  }
  return want;
}

/// `args` have O and LSE of `forward`, the exact forward pass.
template <attile::Element T, class Args>
BackwardYardstick backward_yardstick(const Case& c, int tf32_products, const Args& args,
                                     attile::reference::ForwardResult forward) {
  using Result = attile::reference::BackwardResult;
  using attile::reference::three_products_error;
  BackwardYardstick want{std::move(forward), {}, {}, {}, {}, {}};
  const Result exact = attile::reference::backward(args);
  std::vector<Result> plain;
  for (const auto& options : plain_options(extreme(c.data), tf32_products == 1)) {
    plain.push_back(attile::reference::plain_backward(args, options));
  }
  want.dq = expect<T>(&Result::dq, exact, plain);
  want.dk = expect<T>(&Result::dk, exact, plain);
  want.dv = expect<T>(&Result::dv, exact, plain);
  want.learned = expect<float>(&Result::learned, exact, plain);
  if constexpr (attile::kHasGradient<typename Args::ScoreModType>) {
    if (!attile::adds_once(args.score_mod, attile::score_shape(args))) {
      want.learned.tolerance +=
          attile::reference::any_order_error(attile::reference::backward_magnitudes(args).learned);
    }
  }
  if constexpr (Args::SinkType::kEnabled) {
    want.dsinks = expect<float>(&Result::dsinks, exact, plain);
    want.dsinks.tolerance += attile::reference::sink_gradient_error<T>(
        attile::reference::backward_magnitudes(args).dsinks, exact.dsinks,
        attile::reference::sink_exponents(args, want.forward.lse));
  }
  if constexpr (kMayBeSplit<T>) {
    if (tf32_products == 3) {
      const Result magnitudes = attile::reference::backward_magnitudes(args);
      want.dq.tolerance += three_products_error(magnitudes.dq);
      want.dk.tolerance += three_products_error(magnitudes.dk);
      want.dv.tolerance += three_products_error(magnitudes.dv);
      want.learned.tolerance += three_products_error(magnitudes.learned);
    }
  }
  return want;
}

/// A pass over a problem; what it says of it.
using AnyPass = std::function<attile::Check()>;

template <attile::Element T, attile::Element TO>
std::string faults_of_forward(const Case& c, ProblemData<T, TO>& p, const ForwardYardstick& want,
                              const AnyPass& pass) {
  Faults faults;
  const auto inputs = snapshot(*p.q.buffer, *p.k.buffer, *p.v.buffer);
  const auto run = [&] {
    p.clear_outputs();
    const attile::Check check = pass();
    if (!check) faults.add("forward is refused: ", check.why);
    return bool(check);
  };
  if (!run()) return faults.text();
  compare(faults, "o", p.o.shape, p.o.gather(), want.o);
  compare_empty_rows(faults, "o", p.o.shape, p.o.gather(), want.exact.lse);
  check_gaps(faults, {&p.o});
  const TestTensor<float> lse = p.lse();
  TestTensor<float> written = lse;
  if (!c.lse) written.shape = {};
  check_gaps(faults, {&written});
  if (c.lse) compare(faults, "lse", lse.shape, lse.gather(), want.lse);
  inputs(faults, "forward writes to its inputs");

  const auto first = snapshot(*p.o.buffer, p.lse_buffer());
  if (run()) first(faults, "a second forward pass gives other bits");
  return faults.text();
}

template <attile::Element T>
std::string faults_of_backward(const Case& c, const Promises& promises, ProblemData<T>& p,
                               const LearnedPlaces& places, const BackwardYardstick& want,
                               const AnyPass& pass) {
  Faults faults;
  const auto inputs = snapshot(*p.q.buffer, *p.k.buffer, *p.v.buffer, *p.o.buffer, *p.dout.buffer,
                               p.lse_buffer(), p.dlse_buffer());
  const auto run = [&] {
    for (const TestTensor<T>* t : {&p.dq, &p.dk, &p.dv}) t->buffer->repoison();
    p.learned_buffer().repoison();
    p.dsinks_buffer().repoison();
    const attile::Check check = pass();
    if (!check) faults.add("backward is refused: ", check.why);
    return bool(check);
  };
  if (!run()) return faults.text();
  compare(faults, "dq", p.dq.shape, p.dq.gather(), want.dq);
  compare(faults, "dk", p.dk.shape, p.dk.gather(), want.dk);
  compare(faults, "dv", p.dv.shape, p.dv.gather(), want.dv);
  compare_empty_rows(faults, "dq", p.dq.shape, p.dq.gather(), want.forward.lse);
  check_gaps(faults, {&p.dq, &p.dk, &p.dv});
  compare_learned(faults, places, p.learned_buffer(), want.learned);
  compare_dsinks(faults, p.dsinks_buffer(), want.dsinks);
  inputs(faults, "backward writes to its inputs");

  if (!promises.repeats_backward && !has_sinks(c.policy)) return faults.text();
  const auto first = snapshot(*p.dq.buffer, *p.dk.buffer, *p.dv.buffer);
  const auto learned = snapshot(p.learned_buffer());
  const auto dsinks = snapshot(p.dsinks_buffer());
  if (!run()) return faults.text();
  dsinks(faults, "a second backward pass gives other bits of dsinks");
  if (!promises.repeats_backward) return faults.text();
  first(faults, "a second backward pass gives other bits");
  if (promises.repeats_sums || !has_sums(c)) {
    learned(faults, "a second backward pass gives other bits in what is learned");
  }
  return faults.text();
}

}  // namespace detail

template <attile::Element T, Policy kPolicy>
std::string faults_of_forward(const Case& c, const Promises& promises,
                              const Pass<ForwardArgsOf<T, kPolicy>>& pass) {
  Problem<T, kPolicy> p(c);
  p.round_inputs_to(promises.fp8);
  const auto want = detail::remembered<T, detail::ForwardYardstick>(c, kPolicy, promises, [&] {
    const auto args = p.forward_args();
    return detail::forward_yardstick<T>(c, promises, with_any_policies(args));
  });
  const auto args = p.executor_args();
  return detail::faults_of_forward(c, p, *want, [&] { return pass(args, p.regions()); });
}

template <attile::Element T, Policy kPolicy>
std::string faults_of_backward(const Case& c, const Promises& promises,
                               const Pass<BackwardArgsOf<T, kPolicy>>& pass) {
  Problem<T, kPolicy> p(c);
  const auto args = p.backward_args();
  const auto want = detail::remembered<T, detail::BackwardYardstick>(c, kPolicy, promises, [&] {
    const auto forward_args = p.forward_args();
    auto forward = attile::reference::forward(with_any_policies(forward_args));
    p.set_forward_result(forward);
    return detail::backward_yardstick<T>(c, promises.tf32_products, with_any_policies(args),
                                         std::move(forward));
  });
  p.set_forward_result(want->forward);
  return detail::faults_of_backward<T>(c, promises, p, LearnedPlaces(args), *want,
                                       [&] { return pass(args, p.regions()); });
}

}  // namespace attile_test

#define ATTILE_INSTANTIATE_FORWARD(T, policy)                                     \
  template std::string faults_of_forward<T, policy>(const Case&, const Promises&, \
                                                    const Pass<ForwardArgsOf<T, policy>>&);
#define ATTILE_INSTANTIATE_BACKWARD(T, policy)                                     \
  template std::string faults_of_backward<T, policy>(const Case&, const Promises&, \
                                                     const Pass<BackwardArgsOf<T, policy>>&);
