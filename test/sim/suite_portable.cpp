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
using ListedTwoPass = GpuExecutor<Dims<64>, Tiles<16, 32>, attile::DqMode::kTwoPass>;
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
  using enum Policy;
  const Suite suite("sim.portable", kSimulatedPolicies + kLearnedPolicies + kSequencePolicies + kBlockPolicies);
  suite.both<float>("d64", simulated<Default>(),
                    kSimulatedPolicies + kSequencePolicies + kBlockPolicies);
  suite.backward<float>("d64", simulated<Default>(kLessCost), policies<kLearned>);
  suite.backward<float>("d64", simulated<Default>(), policies<kLearnedDropout>);
  suite.both<__half>("d64", simulated<Default>(kLessCost), policies<kCausal>);
  suite.backward<float>("two_pass", simulated<TwoPass>(kLessCost),
                        policies<kCausal, kEverything, kLearned, kOwnLengthsCausal>);
  suite.backward<float>("two_pass", simulated<ListedTwoPass>(), kBlockPolicies);
  suite.test("learned", "backward", "two_pass.sums_are_refused",
             check_that_sums_are_refused<TwoPass>);
  // Rows that do not fill the threads' places.
  suite.both<float>("20x24", simulated<Odd>(kLessCost), policies<kCausal>);
  // Rows and columns whose last vector reaches into the padding.
  suite.both<float>("57x57", simulated<Padded>(kLessCost), policies<kCausal>);
  return true;
}();

}  // namespace
