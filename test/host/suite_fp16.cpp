// SPDX-License-Identifier: MIT
#include "support/cpu_executor.h"
#include "support/suite_cases.h"

namespace {

using namespace attile_test;

const bool kRegistered = [] {
  const Suite suite("cpu.host", kOtherTypePolicies);
  suite.both<__half>("default", SampledCpuExecutor{},
                     kOtherTypePolicies + policies<Policy::kBlockSparse>);
  suite.forward<__half>("default", SampledCpuExecutor{},
                        policies<Policy::kPagedWindow> + kEarlierPolicies);
  return true;
}();

}  // namespace
