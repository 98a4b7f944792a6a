// SPDX-License-Identifier: MIT
// Decode kernels with the default tiles, fp16: every policy.
#include "kernel/decode_executor.cuh"

namespace suite_decode_fp16 {

using namespace attile_test;

template <class Dim, int kSharedKb, SplitKind kSplits>
using Default = DecodeExecutor<Dim, DefaultDecodeTiles<kSharedKb>, kSplits>;

using FillD64On227 = Default<Dims<64>, 227, SplitKind::kFill>;
using FixedD256On99 = Default<Dims<256, 256, 64>, 99, SplitKind::kFixed>;

const bool kRegistered = [] {
  using enum Policy;
  constexpr auto kFew = kFewPolicies + kSequencePolicies + kSinkPolicies + kForwardOnlyPolicies;
  const Suite suite("gpu.decode", in_full(kDecodePolicies));
  suite.forward<__half>("fill_d64_on_227", FillD64On227{}, in_full(kDecodePolicies));
  suite.forward<__half>("fixed_d256_on_99", FixedD256On99{}, in_full(kFew));
  return true;
}();

}  // namespace suite_decode_fp16
