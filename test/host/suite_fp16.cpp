// SPDX-License-Identifier: MIT
#include "support/cpu_executor.h"
#include "support/fp8_cache.h"
#include "support/suite_cases.h"

namespace {

using namespace attile_test;

const bool kRegistered = [] {
  const Suite suite("cpu.host", kOtherTypePolicies);
  suite.both<__half>("default", SampledCpuExecutor{},
                     kOtherTypePolicies + policies<Policy::kBlockSparse>);
  suite.forward<__half>("default", SampledCpuExecutor{}, policies<Policy::kPagedWindow>);
  using Fp8 = Fp8Cache<SampledCpuExecutor, __nv_fp8_e4m3, __nv_fp8_e5m2>;
  suite.forward<__half>(
      "fp8", Fp8{},
      policies<Policy::kCausal, Policy::kPagedPackedEverything, Policy::kCachedPackedAlibi>);
  return true;
}();

}  // namespace
