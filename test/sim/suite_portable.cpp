// SPDX-License-Identifier: MIT
#include <string>
#include <vector>

#include "kernel/suite_executor.cuh"
#include "sim/suite.h"
#include "support/problem.h"

namespace {

using namespace attile_test;

using Default = GpuExecutor<Dims<64>>;
using Odd = GpuExecutor<Dims<64>, Tiles<20, 24, attile::portable::Tuning<128>>>;
using Padded = GpuExecutor<Dims<64>, Tiles<57, 57, attile::portable::Tuning<128>>>;
using TwoPass = GpuExecutor<Dims<64>, Tiles<16, 24>, attile::DqMode::kTwoPass>;

/// Sums in no fixed order are refused where dQ has the same bits always, and nothing is written.
template <class Executor>
void check_that_sums_are_refused() {
  const char* const why =
      "kTwoPass and kInOrder: scores add to an element of score_mod's gradient in no fixed order; "
      "give it an element for each score, or take kAccumulate";
  for (const Case& c : kCases) {
    if (c.policy != Policy::kLearned || !has_sums(c)) continue;
    Problem<float, Policy::kLearned> p(c);
    const std::vector<float> before = p.learned_buffer().storage();
    CHECK(Executor{}.backward(p.backward_args(), p.regions()).why == std::string(why));
    CHECK(p.learned_buffer().equals(before));
  }
}

const bool kRegistered = [] {
#define ATTILE_REGISTER(name, policy)                                                           \
  register_cases<Direction::kForward, float, Policy::policy>("portable", Default{}, kMostCost); \
  register_cases<Direction::kBackward, float, Policy::policy>("portable", Default{}, kMostCost);
  ATTILE_SIMULATED_POLICIES(ATTILE_REGISTER)
#undef ATTILE_REGISTER
  register_cases<Direction::kBackward, float, Policy::kCausal>("portable_two_pass", TwoPass{},
                                                               kLessCost);
  register_cases<Direction::kBackward, float, Policy::kEverything>("portable_two_pass", TwoPass{},
                                                                   kLessCost);
  register_cases<Direction::kBackward, float, Policy::kLearned>("portable", Default{}, kLessCost);
  register_cases<Direction::kBackward, float, Policy::kLearnedDropout>("portable", Default{},
                                                                       kMostCost);
  register_cases<Direction::kBackward, float, Policy::kLearned>("portable_two_pass", TwoPass{},
                                                                kLessCost);
  register_test("portable_two_pass.learned_sums_are_refused", check_that_sums_are_refused<TwoPass>);
  // Rows that do not fill the threads' places.
  register_cases<Direction::kForward, float, Policy::kCausal>("portable_20x24", Odd{}, kLessCost);
  register_cases<Direction::kBackward, float, Policy::kCausal>("portable_20x24", Odd{}, kLessCost);
  // Rows and columns whose last vector reaches into the padding.
  register_cases<Direction::kForward, float, Policy::kCausal>("portable_57x57", Padded{},
                                                              kLessCost);
  register_cases<Direction::kBackward, float, Policy::kCausal>("portable_57x57", Padded{},
                                                               kLessCost);
  register_cases<Direction::kForward, __half, Policy::kCausal>("portable_fp16", Default{},
                                                               kLessCost);
  register_cases<Direction::kBackward, __half, Policy::kCausal>("portable_fp16", Default{},
                                                                kLessCost);
  return true;
}();

}  // namespace
