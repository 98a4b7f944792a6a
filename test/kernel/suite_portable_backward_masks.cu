// SPDX-License-Identifier: MIT
#include "kernel/suite_executor.cuh"

namespace suite_portable_backward_masks {

using namespace attile_test;

const bool kRegistered = [] {
  using enum Policy;
  const Suite suite("gpu.portable", in_full(kAllPolicies + kBlockPolicies));
  suite.backward<float>(
      "d64", GpuExecutor<Dims<64>>{},
      in_full(kMaskPolicies + kSequencePolicies + kSinkPolicies, policies<kNone, kCausal>));
  suite.backward<float>("d256", GpuExecutor<Dims<256, 256, 64>>{},
                        in_full(policies<kNone, kCausal>, policies<kCausal>));
  suite.backward<float>("d256", GpuExecutor<Dims<256>>{}, in_full(kBlockPolicies));
  return true;
}();

}  // namespace suite_portable_backward_masks
