// SPDX-License-Identifier: MIT
// The one call of decode, with whatever kernel it chooses.
#include "kernel/decode_executor.cuh"

namespace suite_decode_call {

using namespace attile_test;

const bool kRegistered = [] {
  using enum Policy;
  constexpr auto kFew = kFewPolicies + kSequencePolicies + kSinkPolicies + kForwardOnlyPolicies;
  const Suite suite("gpu.decode", policies<>);
  suite.forward<__nv_bfloat16>("call_d128", DecodeCall<Dims<128>, SplitKind::kNone>{},
                               in_full(kDecodePolicies));
  suite.forward<__half>("call_fill_d256", DecodeCall<Dims<256>, SplitKind::kFill>{}, in_full(kFew));
  suite.forward<float>("call_fixed_d64", DecodeCall<SplitDims<64>, SplitKind::kFixed>{},
                       in_full(kFew));
  return true;
}();

}  // namespace suite_decode_call
