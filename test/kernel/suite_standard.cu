// SPDX-License-Identifier: MIT
// Standard attention.
#include "kernel/standard_executor.cuh"

namespace suite_standard {

using namespace attile_test;

const bool kRegistered = [] {
  using enum Policy;
  const Suite suite("gpu.standard", in_full(kUnlearnedPolicies + kLearnedPolicies + kBlockPolicies +
                                            policies<kSink, kSinkEverything>));
  constexpr StandardExecutor kForward{Direction::kForward}, kBackward{Direction::kBackward};
  constexpr auto kFp32 =
      in_full(kUnlearnedPolicies + kLearnedPolicies + policies<kSink, kSinkEverything>,
              policies<kNone, kCausal, kEverything>);
  constexpr auto kFp16 = in_full(kFewPolicies + policies<kSink>, policies<kCausal>);
  constexpr auto kBf16 = in_full(kFewPolicies, policies<kEverything>);
  suite.forward<float>("cublas", kForward, kFp32);
  suite.backward<float>("cublas", kBackward, kFp32);
  suite.forward<float>("cublas", kForward, in_full(kBlockPolicies));
  suite.backward<float>("cublas", kBackward, in_full(kBlockPolicies));
  suite.forward<__half>("cublas", kForward, kFp16);
  suite.backward<__half>("cublas", kBackward, kFp16);
  suite.forward<__nv_bfloat16>("cublas", kForward, kBf16);
  suite.backward<__nv_bfloat16>("cublas", kBackward, kBf16);
  return true;
}();

}  // namespace suite_standard
