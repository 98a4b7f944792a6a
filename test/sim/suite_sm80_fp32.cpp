// SPDX-License-Identifier: MIT
// The sm80 kernels of fp32: three TF32 products for each, and one.
#include "kernel/suite_executor.cuh"
#include "sim/suite.h"

namespace {

using namespace attile_test;
using attile::sm80::BackwardTuning;
using attile::sm80::BackwardTuningValues;
using attile::sm80::Tuning;
using attile::sm80::TuningValues;

// Two warps share rows of dQ, and of dK and dV.
using TwoWarpsARow =
    BackwardTuning<BackwardTuningValues{.warps = 4, .warps_n = 2, .dq_warps_n = 2}>;

template <class Dim, int Br, int Bc, class T, class B>
using Own = GpuExecutor<Dim, Tiles<Br, Bc, T, B>>;

using D64 = Own<SplitDims<64>, 64, 64, Tuning<TuningValues{.warps = 4, .blocks_per_sm = 2}>,
                BackwardTuning<BackwardTuningValues{.warps = 4, .warps_n = 1, .dq_warps_n = 2}>>;
// 32 rows of a warp; warps that share rows; K and V in pieces that no power of two divides.
using WarpsN = Own<SplitDims<96>, 32, 48, Tuning<TuningValues{.warps = 1, .blocks_per_sm = 2}>,
                   BackwardTuning<BackwardTuningValues{.warps = 6, .warps_n = 2, .dq_warps_n = 3}>>;
// Panels of 16 columns of P and dS, of 32 of everything else; Q's and O's apart.
using Narrow = Own<SplitDims<64, 32>, 16, 32, Tuning<TuningValues{.warps = 1, .blocks_per_sm = 2}>,
                   BackwardTuning<BackwardTuningValues{.warps = 2, .warps_n = 1, .dq_warps_n = 2}>>;
// P by way of shared memory.
using Lines =
    Own<SplitDims<64, 40>, 32, 64, Tuning<TuningValues{.warps = 4, .warps_n = 2}>, TwoWarpsARow>;
using InOrder = GpuExecutor<SplitDims<64>,
                            Tiles<32, 32, Tuning<TuningValues{.warps = 2}>,
                                  BackwardTuning<BackwardTuningValues{
                                      .warps = 2, .warps_n = 1, .dq_warps_n = 1, .stages = 2}>>,
                            attile::DqMode::kInOrder>;
using D256 = Own<SplitDims<256, 256, 96>, 32, 32, Tuning<TuningValues{.warps = 2}>, TwoWarpsARow>;

using attile::sm80::Products;
using One = GpuExecutor<
    ModerateDims<96>,
    Tiles<32, 48,
          Tuning<TuningValues{.warps = 1, .blocks_per_sm = 2, .products = Products::k1xTf32}>,
          BackwardTuning<BackwardTuningValues{
              .warps = 6, .warps_n = 2, .dq_warps_n = 3, .products = Products::k1xTf32}>>>;
// Nobody gets it who does not name it.
template <class Args>
inline constexpr bool kThreeByDefault =
    attile::sm80::DefaultForwardTraits<Args, 64>::kProducts == Products::k3xTf32;
static_assert(kThreeByDefault<attile::ForwardArgs<float>>);
static_assert(Tuning<>::kProducts == Products::k3xTf32);
static_assert(BackwardTuning<>::kProducts == Products::k3xTf32);

const bool kRegistered = [] {
  using enum Policy;
  const Suite suite("sim.sm80_fp32", policies<kNone, kCausal, kEverything, kLearned>);
  suite.both<float>("d64", simulated<D64>(),
                    policies<kNone, kEverything> + in_large(policies<kCausal, kOwnLengths>));
  suite.forward<float>("d64", simulated<D64>(), in_large(policies<kEarlier>));
  suite.both<float>("across", simulated<WarpsN>(kLessCost), policies<kNone>);
  suite.both<float>("d64x32", simulated<Narrow>(kLessCost), policies<kCausal>);
  suite.forward<float>("lines", simulated<Lines>(kLessCost), policies<kCausal>);
  suite.both<float>("one_product", simulated<One>(kLessCost),
                    policies<kNone> + in_large(policies<kCausalDropout>));
  suite.both<float>("d256", simulated<D256>(kWideCost),
                    policies<kCausal> + in_large(policies<kNone>));
  suite.backward<float>("in_order", simulated<InOrder>(kLessCost),
                        policies<kLearned> + in_large(policies<kCausal>));
  return true;
}();

}  // namespace
