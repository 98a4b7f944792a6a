// SPDX-License-Identifier: MIT
#include "support/cpu_executor.h"
#include "support/suite_cases.h"

namespace {

using namespace attile_test;

const bool kRegistered = [] {
  const Suite suite("cpu.host", kOtherTypePolicies);
  suite.both<__nv_bfloat16>("default", SampledCpuExecutor{},
                            kOtherTypePolicies + policies<Policy::kBlockSparse>);
  suite.forward<__nv_bfloat16>("default", SampledCpuExecutor{}, kEarlierPolicies);
  return true;
}();

}  // namespace
