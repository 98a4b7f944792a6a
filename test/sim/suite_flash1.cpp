// SPDX-License-Identifier: MIT
#include "kernel/flash1_executor.cuh"
#include "sim/suite.h"

namespace {

using namespace attile_test;

using Small = Flash1Executor<64, 0, 16, 24>;
using Listed = Flash1Executor<64, 0, 16, 32>;

const bool kRegistered = [] {
  const Suite suite("sim.flash1", kSimulatedPolicies + kSequencePolicies + policies<Policy::kSink> +
                                      kBlockPolicies);
  suite.both<float>("16x32", simulated<Listed>(), kBlockPolicies);
  suite.both<float>("16x24", simulated<Small>(kLessCost),
                    kSimulatedPolicies + kSequencePolicies + policies<Policy::kSink>);
  return true;
}();

}  // namespace
