// SPDX-License-Identifier: MIT
// Queries, keys and values in fp8: the default tiles of the family sm80, tiles of the caller's, and
// the portable kernels.
#include "kernel/suite_executor.cuh"
#include "support/fp8_cases.h"
#include "support/fp8_executor.h"

namespace suite_sm80_fp8 {

using namespace attile_test;
using attile::sm80::BackwardTuning;
using attile::sm80::Tuning;
using attile::sm80::TuningValues;
using E4m3 = __nv_fp8_e4m3;
using E5m2 = __nv_fp8_e5m2;

template <class Inner, class Q, class K, class V, Fp8Layout kLayout = Fp8Layout::kRows>
using Fp8 = Fp8Executor<Inner, Q, K, V, Fp8Products::kScores, kLayout>;

using D64On99 = GpuExecutor<Dims<64>, Sm80Tiles<99>>;
using D128On163 = GpuExecutor<Dims<128>, Sm80Tiles<163>>;
using D128On227 = GpuExecutor<Dims<128>, Sm80Tiles<227>>;
using D256On227 = GpuExecutor<Dims<256, 256, 64>, Sm80Tiles<227>>;
using D256On99 = GpuExecutor<Dims<256, 256, 64>, Sm80Tiles<99>>;
using Line32x64 =
    GpuExecutor<Dims<64>,
                Tiles<32, 64, Tuning<TuningValues{.warps = 4, .warps_n = 4}>, BackwardTuning<>>>;
using Own48x80D96x128 = GpuExecutor<Dims<96, 128>, Tiles<48, 80, Tuning<>, BackwardTuning<>>>;
using Portable = GpuExecutor<Dims<128>, PortableTiles<>>;

const bool kRegistered = [] {
  using enum Policy;
  constexpr auto kFew = kFewPolicies + kSequencePolicies + kSinkPolicies + kForwardOnlyPolicies;
  const Suite suite("gpu.sm80", policies<>);
  suite.forward<__nv_bfloat16>("fp8_queries.d64_on_99", Fp8<D64On99, E4m3, E4m3, E4m3>{},
                               in_full(kFew + kBlockPolicies));
  suite.forward<__half>("fp8_queries.d128_on_163", Fp8<D128On163, E5m2, E4m3, E5m2>{},
                        in_full(kFew));
  suite.forward<__nv_bfloat16>("fp8_queries.d128_on_227", Fp8<D128On227, E4m3, E5m2, E4m3>{},
                               in_full(kFew, policies<kPagedWindow>));
  suite.forward<__half>("fp8_queries.d256_on_227", Fp8<D256On227, E4m3, E4m3, E4m3>{},
                        in_full(kFew));
  suite.forward<__nv_bfloat16>("fp8_queries.d256_on_99", Fp8<D256On99, E5m2, E5m2, E5m2>{},
                               in_full(kFew));
  suite.forward<__half>("fp8_queries.line32x64", Fp8<Line32x64, E4m3, E4m3, E5m2>{},
                        in_full(policies<kCausal, kCausalDropout>));
  suite.forward<__half>("fp8_queries.48x80_d96x128", Fp8<Own48x80D96x128, E4m3, E4m3, E4m3>{},
                        in_full(policies<kNone, kPackedCausal>));
  suite.forward<__half>("fp8_columns.d128_on_227",
                        Fp8<D128On227, E4m3, E4m3, E4m3, Fp8Layout::kColumns>{}, in_full(kFew));
  suite.forward<__half>("fp8_mix.d64_on_99", Fp8<D64On99, E5m2, E5m2, AsItIs>{}, in_full(kFew));
  suite.forward<__nv_bfloat16>("fp8_mix.d128_on_227", Fp8<D128On227, E4m3, E5m2, AsItIs>{},
                               in_full(kFew));
  suite.test("none", "forward", "fp8_cases", [] {
    using All = attile::Elements<E4m3, E4m3, E4m3, __half>;
    const D128On227 executor;
    constexpr auto kScores = Fp8Products::kScores;
    check_fp8_scales<All>(executor, 64, 40, kScores);
    check_fp8_sum<All>(executor, 128 * 1024, 128);
    check_fp8_tail<All>(executor, 64);
    check_fp8_columns<All>(executor, 128, kScores);
    for (const bool outliers : {false, true})
      check_fp8_error<All>(executor, 128, 500, 128, outliers);
  });
  const Suite portable("gpu.portable", policies<>);
  portable.forward<__half>("fp8_queries.d128",
                           Fp8Executor<Portable, E4m3, E5m2, E4m3, Fp8Products::kNone>{},
                           in_full(kFew));
  portable.forward<__half>(
      "fp8_columns.d128",
      Fp8Executor<Portable, E4m3, E5m2, E4m3, Fp8Products::kNone, Fp8Layout::kColumns>{},
      in_full(policies<kCausal, kPagedWindow>));
  return true;
}();

}  // namespace suite_sm80_fp8
