// SPDX-License-Identifier: MIT
#include "support/cpu_executor.h"
#include "support/fp8_cases.h"
#include "support/fp8_executor.h"
#include "support/suite_cases.h"

namespace {

using namespace attile_test;
using E4m3 = __nv_fp8_e4m3;
using E5m2 = __nv_fp8_e5m2;

const bool kRegistered = [] {
  const Suite suite("cpu.host", kOtherTypePolicies);
  suite.both<__half>("default", SampledCpuExecutor{},
                     kOtherTypePolicies + policies<Policy::kBlockSparse>);
  suite.forward<__half>("default", SampledCpuExecutor{},
                        in_large(policies<Policy::kPagedWindow> + kEarlierPolicies));
  suite.forward<__half>(
      "fp8", Fp8Cache<SampledCpuExecutor, E4m3, E5m2>{},
      policies<Policy::kPagedPackedEverything> +
          in_large(policies<Policy::kCausal, Policy::kCachedPackedAlibi, Policy::kEarlierPaged>));
  suite.test("softcap", "forward", "fp8_scales", [] {
    check_fp8_scales<attile::Elements<__half, E4m3, E5m2>>(CpuExecutor{}, 64, 64);
    check_fp8_scales<attile::Elements<__nv_bfloat16, E5m2, E4m3>>(CpuExecutor{}, 40, 24);
  });
  using Queries = Fp8Executor<SampledCpuExecutor, E4m3, E5m2, E4m3, Fp8Products::kNone>;
  using Columns =
      Fp8Executor<SampledCpuExecutor, E5m2, E4m3, E5m2, Fp8Products::kNone, Fp8Layout::kColumns>;
  using Mix = Fp8Executor<SampledCpuExecutor, E5m2, E5m2, AsItIs, Fp8Products::kNone>;
  suite.forward<__half>(
      "fp8_queries", Queries{},
      policies<Policy::kPackedCausal> +
          in_large(
              policies<Policy::kCausal, Policy::kPagedPackedEverything, Policy::kEarlierPaged>));
  suite.forward<__half>("fp8_columns", Columns{},
                        policies<Policy::kOwnLengthsSink> +
                            in_large(policies<Policy::kCausal, Policy::kPagedWindow>));
  suite.forward<__half>("fp8_mix", Mix{}, policies<Policy::kCausal>);
  suite.test("none", "forward", "fp8_cases", [] {
    using All = attile::Elements<E4m3, E4m3, E4m3, __half>;
    check_fp8_scales<All>(CpuExecutor{}, 64, 40);
    check_fp8_scales<attile::Elements<E5m2, E4m3, E5m2, __nv_bfloat16>>(CpuExecutor{}, 40, 64);
    check_fp8_scales<attile::Elements<E5m2, E5m2, __half, __half>>(CpuExecutor{}, 64, 64);
    check_fp8_sum<All>(CpuExecutor{}, 128 * 1024, 8);
    check_fp8_tail<All>(CpuExecutor{}, 64);
    for (const int dim : {64, 40}) {
      check_fp8_columns<All>(CpuExecutor{}, dim, Fp8Products::kNone);
    }
    for (const bool outliers : {false, true}) {
      check_fp8_error<All>(CpuExecutor{}, 64, 200, 64, outliers);
    }
  });
  return true;
}();

}  // namespace
