// SPDX-License-Identifier: MIT
#include "kernel/suite_executor.cuh"

namespace suite_portable_forward_modifiers {

using namespace attile_test;

const bool kRegistered = [] {
  using enum Policy;
  const Suite suite("gpu.portable", in_full(kAllPolicies));
  suite.forward<float>("d64", GpuExecutor<Dims<64>>{}, kModifierPolicies);
  return true;
}();

}  // namespace suite_portable_forward_modifiers
