// SPDX-License-Identifier: MIT
#include <attile/attile.cuh>

#include "kernel/suite_executor.cuh"
#include "sim/one_head.h"
#include "sim/suite.h"
#include "support/catch.h"

namespace {

using namespace attile_test;
using attile::sm90::Tuning;

template <int Br, int Bc, class Tuning>
using Warpgroups = GpuExecutor<Dims<64>, Sm90Tiles<Br, Bc, Tuning>>;
using Two = Warpgroups<128, 64, Tuning<>>;
using Three = Warpgroups<192, 32, Tuning<3>>;
using Plain = Warpgroups<64, 64, Tuning<2, false, false>>;
// Two blocks that share K and V.
using Cluster = Warpgroups<128, 64, Tuning<2, false, true, 2>>;
using Packed = Warpgroups<128, 64, Tuning<2, true>>;
// Rows of O lie elsewhere than those of Q.
using Narrow = GpuExecutor<Dims<64, 32>, Sm90Tiles<128, 64, Tuning<>>>;
// O is staged in halves.
using Deep = GpuExecutor<Dims<256, 256, 64>, Sm90DefaultTiles<>>;
using D96 = GpuExecutor<Dims<96, 96, 64>, Sm90DefaultTiles<>>;

// Backward: dQ shared by its rows, and by its columns; above 128 columns each product is one
// warpgroup's.
using Rows = GpuExecutor<Dims<64>, Sm90Tiles<128, 128, Tuning<>>>;
using Columns = GpuExecutor<Dims<128>, Sm90Tiles<64, 128, Tuning<>>>;
using ColumnsInOrder =
    GpuExecutor<Dims<128>, Sm90Tiles<64, 128, Tuning<>>, attile::DqMode::kInOrder>;
using OneGroup =
    GpuExecutor<Dims<64>, Sm90Tiles<64, 64, Tuning<>, attile::sm90::BackwardTuning<3>>>;
using InOrder = GpuExecutor<Dims<64>, Sm90Tiles<64, 128, Tuning<>>, attile::DqMode::kInOrder>;
// dQ is added from registers, in the turns that other warps keep.
using KeepsTurns = GpuExecutor<Dims<96, 96, 64>, Sm90DefaultTiles<>, attile::DqMode::kInOrder>;
using Roles256 = GpuExecutor<Dims<256, 256, 96>, Sm90DefaultTiles<>>;
using RolesInOrder = GpuExecutor<Dims<160, 64>, Sm90DefaultTiles<>, attile::DqMode::kInOrder>;
using Roles192 = GpuExecutor<Dims<192>, Sm90DefaultTiles<>>;

using PackedDeep = GpuExecutor<Dims<256>, Sm90DefaultTiles<attile::sm90::Rows::kPacked>>;

// The same case takes longer here than in the other families.
constexpr double kMost = ATTILE_TEST_FULL ? kLessCost : kMostCost;
constexpr double kWide = 1.2e6;

const bool kRegistered = [] {
#define ATTILE_REGISTER(name, policy) \
  register_cases<Direction::kForward, __half, Policy::policy>("sm90_fp16", Two{}, kMost);
  ATTILE_SIMULATED_POLICIES(ATTILE_REGISTER)
#undef ATTILE_REGISTER
  register_cases<Direction::kForward, __nv_bfloat16, Policy::kCausal>("sm90_192", Three{}, kMost);
  register_cases<Direction::kForward, __nv_bfloat16, Policy::kCausal>("sm90_64", Plain{}, kMost);
  register_cases<Direction::kForward, __half, Policy::kCausal>("sm90_cluster", Cluster{}, kMost);
  register_cases<Direction::kForward, __half, Policy::kNone>("sm90_cluster", Cluster{}, kMost);
  register_cases<Direction::kForward, __half, Policy::kNone>("sm90_packed", Packed{}, kMost);
  register_cases<Direction::kForward, __half, Policy::kCausal>("sm90_packed", Packed{}, kMost);
  register_cases<Direction::kForward, __half, Policy::kCausal>("sm90_64_32", Narrow{}, kMost);
  register_cases<Direction::kForward, __half, Policy::kNone>("sm90_256", Deep{}, kWide);
  register_cases<Direction::kForward, __half, Policy::kCausal>("sm90_256", Deep{}, kWide);
  register_cases<Direction::kForward, __half, Policy::kCausal>("sm90_packed_256", PackedDeep{},
                                                               kWide / 8);
  register_cases<Direction::kForward, __half, Policy::kNone>("sm90_96", D96{}, kWide);
  register_cases<Direction::kBackward, __half, Policy::kNone>("sm90_rows", Rows{}, kMost);
  register_cases<Direction::kBackward, __half, Policy::kCausal>("sm90_columns", Columns{}, kMost);
  register_cases<Direction::kBackward, __half, Policy::kNone>("sm90_columns", Columns{}, kMost);
  register_cases<Direction::kBackward, __half, Policy::kDocument>("sm90_columns", Columns{}, kWide);
  register_cases<Direction::kBackward, __half, Policy::kEverything>("sm90_columns", Columns{},
                                                                    kMost);
  register_cases<Direction::kBackward, __half, Policy::kLearned>("sm90_columns", Columns{}, kMost);
  register_cases<Direction::kBackward, __half, Policy::kDocument>("sm90_columns_in_order",
                                                                  ColumnsInOrder{}, kWide);
  register_cases<Direction::kBackward, __nv_bfloat16, Policy::kCausal>("sm90_one", OneGroup{},
                                                                       kMost);
  register_cases<Direction::kBackward, __half, Policy::kCausal>("sm90_in_order", InOrder{}, kMost);
  register_cases<Direction::kBackward, __half, Policy::kLearned>("sm90_rows", Rows{}, kMost);
  register_cases<Direction::kBackward, __half, Policy::kLearnedDropout>("sm90_rows", Rows{}, kMost);
  register_cases<Direction::kBackward, __half, Policy::kNone>("sm90_96", D96{}, kWide / 4);
  register_cases<Direction::kBackward, __half, Policy::kCausal>("sm90_96_in_order", KeepsTurns{},
                                                                kWide / 4);
  register_cases<Direction::kBackward, __half, Policy::kNone>("sm90_256", Roles256{}, kWide);
  register_cases<Direction::kBackward, __half, Policy::kCausal>("sm90_160_64", RolesInOrder{},
                                                                kWide / 4);
  register_cases<Direction::kBackward, __half, Policy::kEverything>("sm90_160_64", RolesInOrder{},
                                                                    kWide / 4);
  register_cases<Direction::kBackward, __nv_bfloat16, Policy::kEverything>("sm90_192", Roles192{},
                                                                           kWide);
  return true;
}();

struct Nothing {
  static constexpr bool kIntervals = true;

  ATTILE_HOST_DEVICE bool visible(attile::ScoreIndex, attile::Extent) const { return false; }
  ATTILE_HOST_DEVICE attile::Span columns(int, int, attile::Interval, attile::Extent) const {
    return {};
  }
  ATTILE_HOST_DEVICE attile::Span rows(int, int, attile::Interval, attile::Extent) const {
    return {};
  }
};

/// No row sees a key of any tile: none of them adds to dQ, and all of them have to tell so behind
/// the zeros that it is made of.
template <int D>
void nothing_is_visible() {
  using Args = attile::BackwardArgs<__half, Nothing>;
  using Traits = attile::sm90::DefaultBackwardTraits<Args, D, D, attile::DqMode::kAccumulate>;
  const OneHead<Traits> head(/*rows=*/60, /*keys=*/160, -attile::kInf);
  head.run_backward();
  REQUIRE(machine_reports() == "");
  for (const auto* gradient : {&head.dq, &head.dk, &head.dv}) {
    for (const __half x : gradient->download()) REQUIRE(attile::to_float(x) == 0.0f);
  }
}

TEST_CASE("sm90.backward.nothing_is_visible") {
  nothing_is_visible<64>();
  nothing_is_visible<96>();
  nothing_is_visible<192>();
}

}  // namespace
