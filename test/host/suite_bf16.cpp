// SPDX-License-Identifier: MIT
#include "support/cpu_executor.h"
#include "support/fp8_executor.h"
#include "support/suite_cases.h"

namespace {

using namespace attile_test;

const bool kRegistered = [] {
  const Suite suite("cpu.host", in_large(kOtherTypePolicies));
  suite.both<__nv_bfloat16>("default", SampledCpuExecutor{},
                            in_large(kOtherTypePolicies + policies<Policy::kBlockSparse>,
                                     policies<Policy::kCausal, Policy::kEverything>));
  suite.forward<__nv_bfloat16>("default", SampledCpuExecutor{}, in_large(kEarlierPolicies));
  using Fp8 = Fp8Cache<SampledCpuExecutor, __nv_fp8_e5m2, __nv_fp8_e4m3>;
  suite.forward<__nv_bfloat16>(
      "fp8", Fp8{}, policies<Policy::kPagedWindow> + in_large(policies<Policy::kDropout>));
  return true;
}();

}  // namespace
