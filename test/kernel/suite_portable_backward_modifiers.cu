// SPDX-License-Identifier: MIT
#include "kernel/suite_executor.cuh"

namespace suite_portable_backward_modifiers {

using namespace attile_test;

const bool kRegistered = [] {
  using enum Policy;
  const Suite suite("gpu.portable", in_full(kAllPolicies));
  suite.backward<float>("d64", GpuExecutor<Dims<64>>{},
                        in_full(kModifierPolicies + kLearnedPolicies, policies<kEverything>));
  return true;
}();

}  // namespace suite_portable_backward_modifiers
