// SPDX-License-Identifier: MIT
// Decode kernels with the default tiles, bf16.
#include "kernel/decode_executor.cuh"

namespace suite_decode_bf16 {

using namespace attile_test;

template <class Dim, int kSharedKb, SplitKind kSplits>
using Default = DecodeExecutor<Dim, DefaultDecodeTiles<kSharedKb>, kSplits>;

using FillD128On227 = Default<Dims<128>, 227, SplitKind::kFill>;
using FixedD128On99 = Default<Dims<128>, 99, SplitKind::kFixed>;
using NoneD256On227 = Default<Dims<256, 256, 64>, 227, SplitKind::kNone>;

const bool kRegistered = [] {
  using enum Policy;
  constexpr auto kFew = kFewPolicies + kSequencePolicies + kSinkPolicies + kForwardOnlyPolicies;
  const Suite suite("gpu.decode", in_full(kForwardOnlyPolicies, policies<kPagedWindow>));
  suite.forward<__nv_bfloat16>("fill_d128_on_227", FillD128On227{},
                               in_full(kFew, policies<kPagedWindow>));
  suite.forward<__nv_bfloat16>("fixed_d128_on_99", FixedD128On99{}, in_full(kFew));
  suite.forward<__nv_bfloat16>("none_d256_on_227", NoneD256On227{}, in_full(kFew));
  return true;
}();

}  // namespace suite_decode_bf16
