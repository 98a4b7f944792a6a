// SPDX-License-Identifier: MIT
// The one calls for fp32: the sm80 kernels with their default tiles.
#include "kernel/suite_executor.cuh"

namespace suite_call_fp32 {

using namespace attile_test;

const bool kRegistered = [] {
  using enum Policy;
  const Suite suite("gpu.call", in_full(kAllPolicies));
  suite.both<float>("d64", OneCall<SplitDims<64>>{},
                    in_full(kUnlearnedPolicies, policies<kCausal>));
  suite.forward<float>("d64", OneCall<SplitDims<64>>{}, in_full(kForwardOnlyPolicies));
  constexpr auto kLarge = in_full(policies<kNone, kCausal, kDropout, kEverything>);
  suite.both<float>("d128", OneCall<SplitDims<128, 128, 64>>{}, kLarge);
  suite.both<float>("d256", OneCall<SplitDims<256, 256, 128>>{}, kLarge);
  return true;
}();

}  // namespace suite_call_fp32
