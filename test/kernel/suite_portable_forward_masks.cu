// SPDX-License-Identifier: MIT
#include "kernel/suite_executor.cuh"

namespace suite_portable_forward_masks {

using namespace attile_test;

const bool kRegistered = [] {
  using enum Policy;
  const Suite suite("gpu.portable", in_full(kAllPolicies + kBlockPolicies + kForwardOnlyPolicies));
  suite.forward<float>("d64", GpuExecutor<Dims<64>>{},
                       kMaskPolicies + in_full(kSequencePolicies + kSinkPolicies));
  suite.forward<float>("d256", GpuExecutor<Dims<256, 256, 64>>{},
                       in_full(policies<kNone, kCausal>, policies<kCausal>));
  suite.forward<float>("d256", GpuExecutor<Dims<256>>{}, in_full(kBlockPolicies));
  suite.forward<float>("d64", GpuExecutor<Dims<64>>{}, in_full(kForwardOnlyPolicies));
  suite.forward<float>("d256", GpuExecutor<Dims<256, 256, 64>>{}, in_full(kForwardOnlyPolicies));
  return true;
}();

}  // namespace suite_portable_forward_masks
