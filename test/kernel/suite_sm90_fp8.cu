// SPDX-License-Identifier: MIT
// Queries, keys and values in fp8: tiles and tunings of the family sm90 that a caller may choose.
// suite_call_fp8.cu has the default ones.
#include "kernel/suite_executor.cuh"
#include "support/fp8_cases.h"
#include "support/fp8_executor.h"

namespace suite_sm90_fp8 {

using namespace attile_test;
using attile::sm90::Tuning;
using attile::sm90::TuningValues;
using E4m3 = __nv_fp8_e4m3;
using E5m2 = __nv_fp8_e5m2;

template <class Inner, class Q, class K, class V, Fp8Layout kLayout = Fp8Layout::kRows>
using Promoted = Fp8Executor<Inner, Q, K, V, Fp8Products::kPromoted, kLayout>;
template <class Inner, class Q, class K, class V>
using Unpromoted = Fp8Executor<Inner, Q, K, V, Fp8Products::kUnpromoted>;
template <int Br, int Bc, class Dim, int kParts, bool kOverlaps = true, bool kOrders = false,
          int kTransposedFromRows = 0>
using Own =
    GpuExecutor<Dim, Sm90Tiles<Br, Bc,
                               Tuning<TuningValues{.output_parts = kParts,
                                                   .orders = kOrders,
                                                   .overlaps = kOverlaps,
                                                   .transposed_from_rows = kTransposedFromRows}>>>;

using Whole = Own<192, 96, Dims<64>, 1>;
using TwoParts = Own<192, 128, Dims<64>, 2>;
using Narrow = Own<64, 32, Dims<32>, 1>;
using Panels = Own<128, 96, Dims<96>, 3>;
using Ordered = Own<128, 128, Dims<128>, 1, true, true>;
using Apart = Own<128, 192, Dims<128>, 2, false>;
using FourParts = Own<128, 64, Dims<256, 256, 128>, 4>;
using ApartDeep = Own<128, 128, Dims<256, 256, 128>, 2, false, true>;
using Ahead = Own<192, 96, Dims<64>, 1, true, false, 1>;
using AheadDeep = Own<128, 128, Dims<256, 256, 128>, 2, false, true, 1>;

const bool kRegistered = [] {
  using enum Policy;
  constexpr auto kFew = kFewPolicies + kSequencePolicies + kSinkPolicies + kForwardOnlyPolicies;
  const Suite suite("gpu.sm90", policies<>);
  suite.forward<__half>("fp8.192x96", Promoted<Whole, E4m3, E4m3, E5m2>{}, in_full(kFew));
  suite.forward<__nv_bfloat16>("fp8.192x128", Promoted<TwoParts, E4m3, E5m2, E4m3>{},
                               in_full(kFew));
  suite.forward<__half>("fp8.64x32_d32", Promoted<Narrow, E5m2, E5m2, E5m2>{}, in_full(kFew));
  suite.forward<__half>("fp8.128x96_d96", Promoted<Panels, E4m3, E4m3, E4m3>{}, in_full(kFew));
  suite.forward<__half>("fp8.128x128_in_order", Promoted<Ordered, E4m3, E4m3, E4m3>{},
                        in_full(kFew, policies<kCausal>));
  suite.forward<__nv_bfloat16>("fp8.128x192_apart", Promoted<Apart, E4m3, E4m3, E4m3>{},
                               in_full(kFew));
  suite.forward<__half>("fp8.128x64_d256", Promoted<FourParts, E4m3, E4m3, E4m3>{}, in_full(kFew));
  suite.forward<__half>("fp8.128x128_d256", Promoted<ApartDeep, E4m3, E4m3, E4m3>{}, in_full(kFew));
  // V is transposed ahead, of every second batch size.
  suite.forward<__half>("fp8_ahead.192x96", Promoted<Ahead, E4m3, E4m3, E5m2>{}, in_full(kFew));
  suite.forward<__half>("fp8_ahead.128x128_d256", Promoted<AheadDeep, E4m3, E4m3, E4m3>{},
                        in_full(kFew));
  suite.forward<__half>("fp8_ahead_columns.128x128_d256",
                        Promoted<AheadDeep, E4m3, E4m3, E4m3, Fp8Layout::kColumns>{},
                        in_full(kFew));
  suite.forward<__half>("fp8_columns.192x128",
                        Promoted<TwoParts, E4m3, E4m3, E4m3, Fp8Layout::kColumns>{}, in_full(kFew));
  suite.forward<__half>("fp8_unpromoted.192x96", Unpromoted<Whole, E4m3, E4m3, E5m2>{},
                        in_full(kFew));
  suite.forward<__half>("fp8_unpromoted.128x192_apart", Unpromoted<Apart, E4m3, E4m3, E4m3>{},
                        in_full(policies<kNone, kCausal>));
  return true;
}();

}  // namespace suite_sm90_fp8
