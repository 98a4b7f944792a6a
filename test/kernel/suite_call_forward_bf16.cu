// SPDX-License-Identifier: MIT
// The one call, forward: the kernels that the device has the instructions for, in default tiles.
#include "kernel/suite_executor.cuh"

namespace suite_call_forward_bf16 {

using namespace attile_test;

const bool kRegistered = [] {
  using enum Policy;
  const Suite suite("gpu.call", in_full(kAllPolicies));
  suite.forward<__nv_bfloat16>("d64", OneCall<Dims<64>>{},
                               in_full(kUnlearnedPolicies, policies<kEverything>));
  // The smaller ones too, padded inside.
  suite.forward<__nv_bfloat16>("d128", OneCall<Dims<128>>{},
                               in_full(kUnlearnedPolicies, policies<kNone>));
  suite.forward<__nv_bfloat16>("d256", OneCall<Dims<256>>{}, in_full(kAllPolicies));
  return true;
}();

}  // namespace suite_call_forward_bf16
