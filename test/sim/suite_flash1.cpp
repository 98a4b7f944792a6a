// SPDX-License-Identifier: MIT
#include "kernel/flash1_executor.cuh"
#include "sim/suite.h"

namespace {

using namespace attile_test;

using Small = Flash1Executor<64, 0, 16, 24>;
using Listed = Flash1Executor<64, 0, 16, 32>;

/// Where not everything is built, a few: all others run in the families portable and sm80.
constexpr auto kSharedPolicies =
    in_full(kSimulatedPolicies + kSequencePolicies,
            policies<Policy::kCausal, Policy::kPackedCausal> +
                in_large(policies<Policy::kNone, Policy::kCausalDropout, Policy::kEverything,
                                  Policy::kKeyPadding, Policy::kBias>));

const bool kRegistered = [] {
  const Suite suite("sim.flash1",
                    kSharedPolicies + policies<Policy::kSink> + in_large(kBlockPolicies));
  suite.both<float>("16x32", simulated<Listed>(),
                    in_large(kBlockPolicies, policies<Policy::kBlockSparseEverything>));
  suite.both<float>("16x24", simulated<Small>(kLessCost),
                    kSharedPolicies + policies<Policy::kSink>);
  return true;
}();

}  // namespace
