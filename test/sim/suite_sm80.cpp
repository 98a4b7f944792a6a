// SPDX-License-Identifier: MIT
#include <attile/kernel/sm80/forward.cuh>

#include "kernel/suite_executor.cuh"
#include "sim/suite.h"

namespace {

using namespace attile_test;

/// Kernels of the family sm80; its backward pass is the portable one.
template <int Br, int Bc, class Tuning>
struct MatrixTiles {
  template <class Args, class Dim>
  using Forward = attile::sm80::ForwardTraits<Br, Bc, Dim::D, typename Args::ElementType,
                                              typename Args::MaskType, typename Args::ScoreModType,
                                              typename Args::DropoutType, Dim::Dv, Tuning>;
  template <class Args, class Dim, attile::DqMode kMode>
  using Backward = DefaultTiles::Backward<Args, Dim, kMode>;
};

using Large = GpuExecutor<Dims<64>, MatrixTiles<128, 64, attile::sm80::Tuning<4, 2>>>;
using Small = GpuExecutor<Dims<64>, MatrixTiles<32, 48, attile::sm80::Tuning<2, 2>>>;
// Rows of O lie elsewhere than those of Q.
using Narrow = GpuExecutor<Dims<64, 32>, MatrixTiles<32, 48, attile::sm80::Tuning<2, 2>>>;

constexpr double kMostCost = 4e6;

const bool kRegistered = [] {
#define ATTILE_REGISTER(name, policy) \
  register_cases<Direction::kForward, __half, Policy::policy>("sm80_fp16", Large{}, kMostCost);
  ATTILE_EACH_POLICY(ATTILE_REGISTER)
#undef ATTILE_REGISTER
  register_cases<Direction::kForward, __nv_bfloat16, Policy::kCausal>("sm80_bf16_32x48", Small{},
                                                                      kMostCost);
  register_cases<Direction::kForward, __half, Policy::kNone>("sm80_64_32", Narrow{}, kMostCost);
  register_cases<Direction::kForward, __half, Policy::kCausal>("sm80_64_32", Narrow{}, kMostCost);
  return true;
}();

}  // namespace
