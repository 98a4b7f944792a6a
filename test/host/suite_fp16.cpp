// SPDX-License-Identifier: MIT
#include "support/cpu_executor.h"
#include "support/fp8_cache.h"
#include "support/fp8_scales.h"
#include "support/suite_cases.h"

namespace {

using namespace attile_test;

const bool kRegistered = [] {
  const Suite suite("cpu.host", kOtherTypePolicies);
  suite.both<__half>("default", SampledCpuExecutor{},
                     kOtherTypePolicies + policies<Policy::kBlockSparse>);
  suite.forward<__half>("default", SampledCpuExecutor{},
                        policies<Policy::kPagedWindow> + kEarlierPolicies);
  using Fp8 = Fp8Cache<SampledCpuExecutor, __nv_fp8_e4m3, __nv_fp8_e5m2>;
  suite.forward<__half>("fp8", Fp8{},
                        policies<Policy::kCausal, Policy::kPagedPackedEverything,
                                 Policy::kCachedPackedAlibi, Policy::kEarlierPaged>);
  suite.test("softcap", "forward", "fp8_scales", [] {
    check_fp8_scales<__half, __nv_fp8_e4m3, __nv_fp8_e5m2>(CpuExecutor{}, 64, 64);
    check_fp8_scales<__nv_bfloat16, __nv_fp8_e5m2, __nv_fp8_e4m3>(CpuExecutor{}, 40, 24);
  });
  return true;
}();

}  // namespace
