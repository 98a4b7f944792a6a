// SPDX-License-Identifier: MIT
// The one call, forward: the kernels that the device has the instructions for, in default tiles.
#include "kernel/suite_executor.cuh"

namespace suite_call_forward_fp16 {

using namespace attile_test;

const bool kRegistered = [] {
  using enum Policy;
  const Suite suite("gpu.call", in_full(kAllPolicies + kBlockPolicies + kForwardOnlyPolicies));
  suite.forward<__half>(
      "d64", OneCall<Dims<64>>{},
      in_full(kUnlearnedPolicies + kSequencePolicies + kSinkPolicies, policies<kCausal>));
  suite.forward<__half>("d64", OneCall<Dims<64>>{}, in_full(kForwardOnlyPolicies));
  suite.forward<__half>("d256", OneCall<Dims<256, 256, 64>>{}, in_full(kForwardOnlyPolicies));
  // The smaller ones too, padded inside.
  suite.forward<__half>("d128", OneCall<Dims<128>>{}, in_full(kUnlearnedPolicies));
  suite.forward<__half>("d256", OneCall<Dims<256>>{}, in_full(kUnlearnedPolicies));
  suite.forward<__half>("d128", OneCall<Dims<128>>{}, in_full(kBlockPolicies));
  suite.forward<__nv_bfloat16>("d256", OneCall<Dims<256>>{}, in_full(kBlockPolicies));
  return true;
}();

}  // namespace suite_call_forward_fp16
