// SPDX-License-Identifier: MIT
// The sm80 backward kernels that add up dQ in order: the same bits at every run.
#include "kernel/suite_executor.cuh"

namespace suite_sm80_in_order {

using namespace attile_test;
using attile::DqMode;
using InOrder64 = GpuExecutor<Dims<64>, Sm80Tiles<227>, DqMode::kInOrder>;
using InOrder256 = GpuExecutor<Dims<256>, Sm80Tiles<227>, DqMode::kInOrder>;

const bool kRegistered = [] {
  using enum Policy;
  const Suite suite("gpu.sm80", policies<>);
  constexpr auto kSome = in_full(kSequencePolicies + kSinkPolicies +
                                 policies<kNone, kCausal, kEverything> + kBlockPolicies);
  suite.backward<__half>("in_order_d64", InOrder64{}, kSome);
  suite.backward<__half>("in_order_d256", InOrder256{}, kSome);
  return true;
}();

}  // namespace suite_sm80_in_order
