// SPDX-License-Identifier: MIT
// Decode kernels with the default tiles, and the one call.
#include "kernel/decode_executor.cuh"

namespace suite_decode {

using namespace attile_test;

template <class Dim, int kSharedKb, SplitKind kSplits>
using Default = DecodeExecutor<Dim, DefaultDecodeTiles<kSharedKb>, kSplits>;

using FillD64On227 = Default<Dims<64>, 227, SplitKind::kFill>;
using FillD128On227 = Default<Dims<128>, 227, SplitKind::kFill>;
using FixedD128On99 = Default<Dims<128>, 99, SplitKind::kFixed>;
using NoneD256On227 = Default<Dims<256, 256, 64>, 227, SplitKind::kNone>;
using FixedD256On99 = Default<Dims<256, 256, 64>, 99, SplitKind::kFixed>;
using Fp32D64On227 = Default<SplitDims<64>, 227, SplitKind::kFixed>;
using Fp32D128On99 = Default<SplitDims<128, 128, 64>, 99, SplitKind::kFill>;
using Fp32D256On99 = Default<SplitDims<256, 256, 128>, 99, SplitKind::kNone>;

const bool kRegistered = [] {
  using enum Policy;
  constexpr auto kFew = kFewPolicies + kSequencePolicies + kSinkPolicies + kCachePolicies;
  const Suite suite("gpu.decode", in_full(kDecodePolicies, policies<kPagedWindow>));
  suite.forward<__half>("fill_d64_on_227", FillD64On227{}, in_full(kDecodePolicies));
  suite.forward<__nv_bfloat16>("fill_d128_on_227", FillD128On227{},
                               in_full(kFew, policies<kPagedWindow>));
  suite.forward<__nv_bfloat16>("fixed_d128_on_99", FixedD128On99{}, in_full(kFew));
  suite.forward<__nv_bfloat16>("none_d256_on_227", NoneD256On227{}, in_full(kFew));
  suite.forward<__half>("fixed_d256_on_99", FixedD256On99{}, in_full(kFew));
  suite.forward<float>("fixed_d64_on_227", Fp32D64On227{}, in_full(kFew));
  suite.forward<float>("fill_d128_on_99", Fp32D128On99{}, in_full(kFew));
  suite.forward<float>("none_d256_on_99", Fp32D256On99{},
                       in_full(policies<kCausal, kSinkEverything, kPagedWindow>));
  suite.forward<__nv_bfloat16>("call_d128", DecodeCall<Dims<128>, SplitKind::kNone>{},
                               in_full(kDecodePolicies));
  suite.forward<__half>("call_fill_d256", DecodeCall<Dims<256>, SplitKind::kFill>{}, in_full(kFew));
  suite.forward<float>("call_fixed_d64", DecodeCall<SplitDims<64>, SplitKind::kFixed>{},
                       in_full(kFew));
  return true;
}();

}  // namespace suite_decode
