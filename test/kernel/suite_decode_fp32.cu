// SPDX-License-Identifier: MIT
// Decode kernels with the default tiles, fp32.
#include "kernel/decode_executor.cuh"

namespace suite_decode_fp32 {

using namespace attile_test;

template <class Dim, int kSharedKb, SplitKind kSplits>
using Default = DecodeExecutor<Dim, DefaultDecodeTiles<kSharedKb>, kSplits>;

using FixedD64On227 = Default<SplitDims<64>, 227, SplitKind::kFixed>;
using FillD128On99 = Default<SplitDims<128, 128, 64>, 99, SplitKind::kFill>;
using NoneD256On99 = Default<SplitDims<256, 256, 128>, 99, SplitKind::kNone>;

const bool kRegistered = [] {
  using enum Policy;
  constexpr auto kFew = kFewPolicies + kSequencePolicies + kSinkPolicies + kForwardOnlyPolicies;
  const Suite suite("gpu.decode", policies<>);
  suite.forward<float>("fixed_d64_on_227", FixedD64On227{}, in_full(kFew));
  suite.forward<float>("fill_d128_on_99", FillD128On99{}, in_full(kFew));
  suite.forward<float>("none_d256_on_99", NoneD256On99{},
                       in_full(policies<kCausal, kSinkEverything, kPagedWindow>));
  return true;
}();

}  // namespace suite_decode_fp32
