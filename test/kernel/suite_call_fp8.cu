// SPDX-License-Identifier: MIT
// Queries, keys and values in fp8: the one call, with the kernels that the device has the
// instructions for.
#include "kernel/suite_executor.cuh"
#include "support/fp8_cases.h"
#include "support/fp8_executor.h"

namespace suite_call_fp8 {

using namespace attile_test;
using E4m3 = __nv_fp8_e4m3;
using E5m2 = __nv_fp8_e5m2;

template <class Dim, class Q, class K, class V, Fp8Layout kLayout = Fp8Layout::kRows,
          Fp8Products kProducts = Fp8Products::kPromoted>
using Fp8 = Fp8Executor<OneCall<Dim>, Q, K, V, kProducts, kLayout>;

template <class E>
void all_cases() {
  constexpr auto kPromoted = Fp8Products::kPromoted;
  check_fp8_scales<E>(OneCall<Dims<64>>{}, 64, 40, kPromoted);
  check_fp8_scales<E>(OneCall<Dims<128>>{}, 128, 128, kPromoted);
  check_fp8_sum<E>(OneCall<Dims<64>>{}, 128 * 1024, 64);
  check_fp8_sum<E>(OneCall<Dims<128>>{}, 128 * 1024, 128);
  check_fp8_sum<E>(OneCall<Dims<256>>{}, 128 * 1024, 256);
  check_fp8_tail<E>(OneCall<Dims<64>>{}, 64);
  check_fp8_tail<E>(OneCall<Dims<128>>{}, 128);
  check_fp8_tail<E>(OneCall<Dims<256>>{}, 256);
  check_fp8_columns<E>(OneCall<Dims<64>>{}, 64, kPromoted);
  check_fp8_columns<E>(OneCall<Dims<128>>{}, 96, kPromoted);
  check_fp8_columns<E>(OneCall<Dims<128>>{}, 128, kPromoted);
  check_fp8_columns<E>(OneCall<Dims<256>>{}, 192, kPromoted);
  check_fp8_columns<E>(OneCall<Dims<256>>{}, 256, kPromoted);
  for (const bool outliers : {false, true}) {
    check_fp8_error<E>(OneCall<Dims<64>>{}, 256, 1000, 64, outliers);
    check_fp8_error<E>(OneCall<Dims<128>>{}, 256, 1000, 128, outliers);
    check_fp8_error<E>(OneCall<Dims<256>>{}, 256, 1000, 256, outliers);
  }
}

const bool kRegistered = [] {
  using enum Policy;
  constexpr auto kFew = kFewPolicies + kSequencePolicies + kSinkPolicies + kForwardOnlyPolicies;
  const Suite suite("gpu.call", policies<>);
  suite.forward<__nv_bfloat16>("fp8_queries.d64", Fp8<Dims<64>, E4m3, E4m3, E4m3>{},
                               in_full(kUnlearnedPolicies + kSequencePolicies + kSinkPolicies));
  suite.forward<__half>("fp8_queries.d128", Fp8<Dims<128>, E4m3, E5m2, E4m3>{},
                        in_full(kFew + kBlockPolicies, policies<kCausal>));
  suite.forward<__half>("fp8_queries.d256", Fp8<Dims<256, 256, 64>, E5m2, E4m3, E5m2>{},
                        in_full(kFew));
  suite.forward<__nv_bfloat16>("fp8_queries.d192x128", Fp8<Dims<192, 128>, E4m3, E4m3, E5m2>{},
                               in_full(kFew));
  suite.forward<__half>("fp8_columns.d64", Fp8<Dims<64>, E4m3, E4m3, E4m3, Fp8Layout::kColumns>{},
                        in_full(kFew));
  suite.forward<__half>("fp8_columns.d128", Fp8<Dims<128>, E4m3, E4m3, E5m2, Fp8Layout::kColumns>{},
                        in_full(kFew));
  suite.forward<__half>(
      "fp8_unpromoted.d128",
      Fp8<Dims<128>, E4m3, E4m3, E4m3, Fp8Layout::kRows, Fp8Products::kUnpromoted>{},
      in_full(policies<kNone, kCausal>));
  suite.forward<__half>("fp8_mix.d64", Fp8<Dims<64>, E5m2, E5m2, AsItIs>{}, in_full(kFew));
  suite.forward<__nv_bfloat16>("fp8_mix.d128", Fp8<Dims<128>, E5m2, E5m2, AsItIs>{}, in_full(kFew));
#if ATTILE_TEST_FULL
  suite.test("none", "forward", "fp8_cases.fp16",
             all_cases<attile::Elements<E4m3, E4m3, E4m3, __half>>);
#endif
  return true;
}();

}  // namespace suite_call_fp8
