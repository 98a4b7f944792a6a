// SPDX-License-Identifier: MIT
// The sm90 kernels with Q, K and V in fp8, and with Q and K alone.
#include <attile/attile.cuh>

#include <cstddef>
#include <utility>

#include "kernel/suite_executor.cuh"
#include "sim/suite.h"
#include "support/catch.h"
#include "support/fp8_cases.h"
#include "support/fp8_executor.h"

namespace {

using namespace attile_test;
using attile::sm90::Tuning;
using attile::sm90::TuningValues;

using E4m3 = __nv_fp8_e4m3;
using E5m2 = __nv_fp8_e5m2;
template <class Q, class K, class V, class Inner, Fp8Layout kLayout = Fp8Layout::kRows>
using Promoted = Fp8Executor<Inner, Q, K, V, Fp8Products::kPromoted, kLayout>;
template <class Q, class K, class V, class Inner>
using Unpromoted = Fp8Executor<Inner, Q, K, V, Fp8Products::kUnpromoted>;
template <int Br, int Bc, class Dim, int kStages, int kParts, bool kOrders, bool kOverlaps,
          bool kWaitsLate = false, int kTransposedFromRows = 0>
using Fp8OrSm80 =
    GpuExecutor<Dim, Sm90Tiles<Br, Bc,
                               Tuning<TuningValues{.stages = kStages,
                                                   .output_parts = kParts,
                                                   .orders = kOrders,
                                                   .overlaps = kOverlaps,
                                                   .waits_late = kWaitsLate,
                                                   .transposed_from_rows = kTransposedFromRows}>>>;
using Fp8Two = Fp8OrSm80<128, 64, Dims<64>, 2, 1, false, true>;
using Fp8Three = Fp8OrSm80<192, 32, Dims<64>, 3, 4, false, true>;
using Fp8Ordered = Fp8OrSm80<128, 64, Dims<64>, 2, 1, true, true, true>;
using Fp8Ahead = Fp8OrSm80<128, 64, Dims<64>, 2, 1, false, true, false, 1>;
using Fp8Apart = Fp8OrSm80<128, 64, Dims<64>, 2, 1, false, false>;
using Fp8Wide = Fp8OrSm80<128, 160, Dims<128, 128, 64>, 2, 2, false, true>;
using Fp8Deep = GpuExecutor<Dims<256, 256, 128>, Sm90DefaultTiles<>>;
using Fp8Packed = GpuExecutor<Dims<64>, Sm90DefaultTiles<attile::sm90::TileSet::kPackedHeads>>;

/// Whether there are default tiles off the fast path, too, for every dim that is a multiple of 32.
template <class E, std::size_t... kThirtyTwos>
constexpr bool has_tiles(std::index_sequence<kThirtyTwos...>) {
  using Args = attile::ForwardArgs<E, attile::NoMask, attile::NoScoreMod, attile::PhiloxDropout>;
  return ((attile::sm90::DefaultForwardTraits<Args, 32 * kThirtyTwos + 32>::kSharedBytes > 0) &&
          ...);
}
static_assert(has_tiles<attile::Elements<E4m3, E4m3, E4m3, __half>>(std::make_index_sequence<8>()));

// The same case takes longer here than in the other families.
constexpr double kMost = kTestFull ? kLessCost : kMostCost;
constexpr double kWide = 1.2e6;

// Where TMA cannot address the inputs, a kernel of sm80 stands in, and sm90 has to say so. P V is
// promoted in parts beside S, or behind it in the registers of S, or not promoted.
const bool kRegistered = [] {
  using enum Policy;
  const Suite suite("sim.sm90_fp8",
                    in_large(kSimulatedPolicies + kSequencePolicies + kBlockPolicies +
                             policies<kSink, kOwnLengthsSink, kCachedCausal, kEarlier,
                                      kPreparedAlibi, kPagedWindow, kEarlierEverything>));
  suite.demand(policies<kNone, kCausal, kWindow, kEverything, kOwnLengths, kPackedCausal, kSink,
                        kBlockSparse, kCachedCausal, kPagedWindow>);
  suite.forward<__half>("fp8.128x64", simulated<Promoted<E4m3, E4m3, E4m3, Fp8Two>>(kMost),
                        in_large(kSimulatedPolicies + kSequencePolicies + kBlockPolicies +
                                     policies<kSink, kOwnLengthsSink, kCachedCausal, kEarlier>,
                                 policies<kNone, kEverything, kBlockSparse, kCachedCausal>));
  suite.forward<__nv_bfloat16>(
      "fp8.192x32", simulated<Promoted<E5m2, E4m3, E5m2, Fp8Three>>(kMost),
      policies<kCausal, kPackedCausal, kPagedWindow> +
          in_large(policies<kWindow, kCausalDropout, kPreparedAlibi, kEarlierEverything>));
  suite.forward<__half>("fp8_unpromoted.128x64",
                        simulated<Unpromoted<E4m3, E5m2, E4m3, Fp8Ordered>>(kMost),
                        policies<kCausal, kSink> + in_large(policies<kNone, kOwnLengths>));
  suite.forward<__half>("fp8_apart.128x64", simulated<Promoted<E4m3, E4m3, E5m2, Fp8Apart>>(kMost),
                        policies<kCausal> + in_large(policies<kNone, kPackedCausal, kSink>));
  using Fp8Columns = Promoted<E4m3, E4m3, E5m2, Fp8Two, Fp8Layout::kColumns>;
  suite.forward<__half>("fp8_columns.128x64", simulated<Fp8Columns>(kMost),
                        policies<kOwnLengths> + in_large(policies<kNone, kCausal, kPagedWindow>));
  // V is transposed ahead, of every second batch size.
  using AheadColumns = Promoted<E4m3, E4m3, E5m2, Fp8Ahead, Fp8Layout::kColumns>;
  suite.forward<__half>("fp8_ahead.128x64", simulated<Promoted<E4m3, E4m3, E4m3, Fp8Ahead>>(kMost),
                        policies<kWindow> + in_large(policies<kNone, kCausal, kSink>));
  suite.forward<__half>("fp8_ahead_columns.128x64", simulated<AheadColumns>(kMost),
                        policies<kCausal> + in_large(policies<kNone>));
  using Mix = Fp8Executor<Fp8Two, E5m2, E5m2, AsItIs, Fp8Products::kScores>;
  suite.forward<__half>("fp8_mix.128x64", simulated<Mix>(kMost),
                        policies<kPackedCausal> + in_large(policies<kNone, kCausal>));
  suite.forward<__half>("fp8.d128", simulated<Promoted<E4m3, E4m3, E4m3, Fp8Wide>>(kWide),
                        policies<kCausal> + in_large(policies<kNone>));
  suite.forward<__nv_bfloat16>("fp8.d256", simulated<Promoted<E4m3, E4m3, E4m3, Fp8Deep>>(kWide),
                               policies<kNone> + in_large(policies<kCausal, kOwnLengths>));
  suite.forward<__half>("fp8_unpromoted.d256",
                        simulated<Unpromoted<E4m3, E4m3, E4m3, Fp8Deep>>(kWide),
                        in_large(policies<kCausal>));
  suite.forward<__half>("fp8.packed", simulated<Promoted<E4m3, E4m3, E4m3, Fp8Packed>>(kMost),
                        policies<kSink> + in_large(policies<kNone, kCausal>));
  suite.test("none", "forward", "fp8_cases", [] {
    constexpr auto kPromoted = Fp8Products::kPromoted;
    using Half = attile::Elements<E4m3, E4m3, E4m3, __half>;
    using Bf16 = attile::Elements<E5m2, E4m3, E5m2, __nv_bfloat16>;
    check_fp8_scales<Half>(Fp8Two{}, 64, 64, kPromoted);
    check_fp8_scales<Bf16>(Fp8Three{}, 48, 64, kPromoted);
    check_fp8_scales<attile::Elements<E5m2, E5m2, __half, __half>>(Fp8Two{}, 64, 32,
                                                                   Fp8Products::kScores);
    check_fp8_sum<Half>(Fp8Two{}, 4096, 64);
#if ATTILE_TEST_LARGE
    check_fp8_sum<Half>(Fp8Apart{}, 4096, 64);
    check_fp8_columns<Half>(Fp8Deep{}, 192, kPromoted);
#endif
    check_fp8_tail<Half>(Fp8Two{}, 64);
    check_fp8_extreme_scales<Half>(Fp8Two{});
    check_fp8_one_column<attile::Elements<E4m3, E4m3, E4m3, float>>(Fp8Two{});
    check_fp8_columns<Half>(Fp8Two{}, 64, kPromoted);
    check_fp8_columns<attile::Elements<E5m2, E4m3, E4m3, float>>(Fp8Three{}, 48, kPromoted);
    for (const bool outliers : {false, true}) {
      check_fp8_error<Half>(Fp8Two{}, 64, 200, 64, outliers);
    }
    CHECK(machine_reports() == "");
  });
  return true;
}();

}  // namespace
