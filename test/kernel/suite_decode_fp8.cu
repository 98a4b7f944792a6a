// SPDX-License-Identifier: MIT
// Keys and values in fp8: decode kernels with the default tiles, the one calls, and the kernels of
// forward that take them.
#include <string>

#include "kernel/decode_executor.cuh"
#include "support/fp8_cases.h"
#include "support/fp8_executor.h"

namespace suite_decode_fp8 {

using namespace attile_test;
using E4m3 = __nv_fp8_e4m3;
using E5m2 = __nv_fp8_e5m2;

template <class Dim, int kSharedKb, SplitKind kSplits>
using Default = DecodeExecutor<Dim, DefaultDecodeTiles<kSharedKb>, kSplits>;

using FillD128On227 = Default<Dims<128>, 227, SplitKind::kFill>;
using FixedD128On99 = Default<Dims<128>, 99, SplitKind::kFixed>;
using NoneD256On227 = Default<Dims<256, 256, 64>, 227, SplitKind::kNone>;
using FillD64On163 = Default<Dims<64>, 163, SplitKind::kFill>;
using FixedD128On163 = Default<Dims<128>, 163, SplitKind::kFixed>;

const bool kRegistered = [] {
  using enum Policy;
  constexpr auto kFew = kFewPolicies + kSequencePolicies + kSinkPolicies + kForwardOnlyPolicies;
  const Suite suite("gpu.decode", policies<>);
  suite.forward<__nv_bfloat16>("fp8.fill_d128_on_227", Fp8Cache<FillD128On227, E4m3, E4m3>{},
                               in_full(kDecodePolicies, policies<kPagedWindow>));
  suite.forward<__half>("fp8.fixed_d128_on_99", Fp8Cache<FixedD128On99, E5m2, E4m3>{},
                        in_full(kFew, policies<kCachedCausal>));
  suite.forward<__half>("fp8.none_d256_on_227", Fp8Cache<NoneD256On227, E4m3, E5m2>{},
                        in_full(kFew));
  suite.forward<__nv_bfloat16>("fp8.fill_d64_on_163", Fp8Cache<FillD64On163, E5m2, E5m2>{},
                               in_full(kFew));
  suite.forward<__nv_bfloat16>("fp8.fixed_d128_on_163", Fp8Cache<FixedD128On163, E4m3, E4m3>{},
                               in_full(policies<kNone, kCausal, kPagedWindow>));
  using FillCall = DecodeCall<Dims<128>, SplitKind::kFill>;
  suite.forward<__nv_bfloat16>("fp8.call_fill_d128", Fp8Cache<FillCall, E4m3, E5m2>{},
                               in_full(kFew));
  suite.test("softcap", "forward", "fp8_scales", [] {
    check_fp8_scales<attile::Elements<__half, E4m3, E5m2>>(DecodeCall<Dims<64>, SplitKind::kFill>{},
                                                           64, 64);
    check_fp8_scales<attile::Elements<__nv_bfloat16, E5m2, E4m3>>(OneCall<Dims<64>>{}, 40, 24);
    check_fp8_query_range<E4m3, E5m2>(DecodeCall<Dims<64>, SplitKind::kFill>{});
    check_fp8_large_scores<E4m3, E5m2>(DecodeCall<Dims<64>, SplitKind::kFill>{});
  });
  const Suite forward("gpu.call", policies<>);
  forward.test("none", "forward", "fp8_runs_sm80_everywhere", [] {
    // Of no sequence: nothing is accessed.
    const attile::ForwardArgs<attile::Elements<__half, E4m3, E4m3>> args{
        .batch = 0, .q_heads = 1, .kv_heads = 1, .q_len = 1, .kv_len = 1};
    CHECK(std::string(attile::kernel_name<128>(args)).substr(0, 5) == "sm80 ");
    CHECK(attile::forward<128>(args) == cudaSuccess);
  });
  forward.forward<__nv_bfloat16>("fp8.d128", Fp8Cache<OneCall<Dims<128>>, E4m3, E4m3>{},
                                 in_full(kFew + policies<kBlockSparse>, policies<kPagedWindow>));
  forward.forward<__half>("fp8.d256", Fp8Cache<OneCall<Dims<256>>, E5m2, E4m3>{}, in_full(kFew));
  using Portable = GpuExecutor<Dims<128>, PortableTiles<>>;
  const Suite portable("gpu.portable", policies<>);
  portable.forward<__half>("fp8.d128", Fp8Cache<Portable, E4m3, E5m2>{}, in_full(kFew));
  return true;
}();

}  // namespace suite_decode_fp8
