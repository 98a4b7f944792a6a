// SPDX-License-Identifier: MIT
// FlashAttention-1, in tiles of several kinds.
#include "kernel/flash1_executor.cuh"

namespace suite_flash1 {

using namespace attile_test;

using Small = Flash1Executor<64, 0, 32, 48>;
using Odd = Flash1Executor<64, 0, 17, 5>;
using Default64 = Flash1Executor<64>;
using Default256 = Flash1Executor<256, 64>;

const bool kRegistered = [] {
  using enum Policy;
  const Suite suite("gpu.flash1", in_full(kAllPolicies + kBlockPolicies));
  suite.both<float>("d64", Default64{}, in_full(kBlockPolicies));
  suite.both<float>("32x48", Small{}, in_full(kAllPolicies, policies<kEverything>));
  suite.both<__half>("32x48", Small{}, in_full(policies<kNone>));
  suite.both<__nv_bfloat16>("32x48", Small{}, in_full(policies<kCausal>));
  suite.both<float>("17x5", Odd{}, policies<kCausal>);
  suite.both<__half>("17x5", Odd{}, in_full(policies<kEverything>));
  suite.both<__half>("d64", Default64{}, policies<kDropout>);
  suite.both<float>("d64", Default64{}, in_full(policies<kNone, kCausal>));
  suite.both<__nv_bfloat16>("d64", Default64{}, in_full(policies<kEverything>));
  suite.both<float>("d256", Default256{}, in_full(policies<kNone>));
  suite.both<__half>("d256", Default256{}, in_full(policies<kCausal>));
  return true;
}();

}  // namespace suite_flash1
