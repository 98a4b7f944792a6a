// SPDX-License-Identifier: MIT
#include "kernel/suite_executor.cuh"

namespace suite_portable_backward_fp16 {

using namespace attile_test;

const bool kRegistered = [] {
  using enum Policy;
  const Suite suite("gpu.portable", in_full(kAllPolicies));
  suite.backward<__half>("d64", GpuExecutor<Dims<64>>{},
                         in_full(kUnlearnedPolicies, policies<kCausal>));
  suite.backward<__half>("d256", GpuExecutor<Dims<256, 256, 64>>{},
                         in_full(policies<kNone, kCausal>));
  return true;
}();

}  // namespace suite_portable_backward_fp16
