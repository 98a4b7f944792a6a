// SPDX-License-Identifier: MIT
// Tiles that a caller may choose, odd ones too, and both ways to dQ.
#include "kernel/suite_executor.cuh"
#include "kernel/suite_kernels.h"

namespace suite_tiles {

using namespace attile_test;
using attile::DqMode;
using attile::portable::Tuning;

using HalfType = __half;
using Bf16Type = __nv_bfloat16;
using Dims64 = Dims<64>;
using Dims192x128 = Dims<192, 128>;

template <int Br, int Bc>
using OneWarp = Tiles<Br, Bc, Tuning<32>>;

using Default192x128 = GpuExecutor<Dims192x128>;
using Default41 = GpuExecutor<Dims<41>>;
using Forward57x57 = GpuExecutor<Dims64, Tiles<57, 57>>;
using Forward16x16 = GpuExecutor<Dims64, Tiles<16, 16>>;
using Forward128x64 = GpuExecutor<Dims64, Tiles<128, 64>>;
using Forward64x128 = GpuExecutor<Dims64, Tiles<64, 128>>;
using Forward1x1 = GpuExecutor<Dims64, OneWarp<1, 1>>;
using Forward7x100 = GpuExecutor<Dims64, Tiles<7, 100>>;
using Backward57x57 = GpuExecutor<Dims64, Tiles<57, 57>>;
using Backward64x32 = GpuExecutor<Dims64, Tiles<64, 32>>;
using Backward7x100 = GpuExecutor<Dims64, Tiles<7, 100>>;
// A warp that prefetches: more vectors of K and V than a thread holds at once.
using Prefetch32x64 = GpuExecutor<Dims64, Tiles<32, 64, Tuning<32, 1, true>>>;
using Large64 = GpuExecutor<Dims64, PortableTiles<227>>;
using Large128 = GpuExecutor<Dims<128>, PortableTiles<227>>;
using Large256 = GpuExecutor<Dims<256, 256, 128>, PortableTiles<227>>;
using TwoPass64 = GpuExecutor<Dims64, PortableTiles<>, DqMode::kTwoPass>;
using InOrder64 = GpuExecutor<Dims64, PortableTiles<>, DqMode::kInOrder>;
using InOrder16x16 = GpuExecutor<Dims64, Tiles<16, 16>, DqMode::kInOrder>;
using InOrder1x1 = GpuExecutor<Dims64, OneWarp<1, 1>, DqMode::kInOrder>;
using TwoPassLarge = GpuExecutor<Dims<256>, PortableTiles<>, DqMode::kTwoPass>;
using TwoPass192x128 = GpuExecutor<Dims192x128, PortableTiles<>, DqMode::kTwoPass>;
using TwoPass57x40 = GpuExecutor<Dims64, Tiles<57, 40>, DqMode::kTwoPass>;
using TwoPass16x16 = GpuExecutor<Dims64, Tiles<16, 16>, DqMode::kTwoPass>;
using TwoPass1x1 = GpuExecutor<Dims64, OneWarp<1, 1>, DqMode::kTwoPass>;

// X(direction, element type, Policy, executor)
#define ATTILE_FEW_TILES(X)                 \
  X(kForward, float, kCausal, Forward57x57) \
  X(kBackward, float, kCausal, TwoPass57x40)

#define ATTILE_MORE_TILES(X)                         \
  X(kForward, float, kNone, Forward16x16)            \
  X(kForward, float, kCausal, Forward128x64)         \
  X(kForward, float, kCausal, Forward64x128)         \
  X(kForward, float, kCausal, Forward1x1)            \
  X(kForward, HalfType, kEverything, Forward7x100)   \
  X(kForward, float, kNone, Default192x128)          \
  X(kForward, float, kNone, Default41)               \
  X(kBackward, float, kCausal, Backward57x57)        \
  X(kBackward, float, kEverything, TwoPass64)        \
  X(kBackward, float, kLearned, TwoPass64)           \
  X(kBackward, float, kNone, TwoPass16x16)           \
  X(kBackward, float, kCausal, Backward64x32)        \
  X(kBackward, float, kCausal, TwoPass1x1)           \
  X(kBackward, HalfType, kEverything, Backward7x100) \
  X(kBackward, float, kNone, TwoPass192x128)         \
  X(kBackward, float, kCausal, TwoPassLarge)         \
  X(kBackward, Bf16Type, kEverything, TwoPass64)     \
  X(kBackward, HalfType, kCausal, InOrder64)         \
  X(kBackward, float, kWindow, InOrder1x1)           \
  X(kBackward, float, kDocument, InOrder16x16)       \
  X(kForward, float, kCausal, Large128)              \
  X(kForward, float, kWindow, Large128)              \
  X(kForward, float, kWindow, Prefetch32x64)         \
  X(kForward, HalfType, kDocument, Prefetch32x64)    \
  X(kForward, HalfType, kEverything, Large128)       \
  X(kForward, float, kNone, Large256)                \
  X(kBackward, float, kCausal, Large64)              \
  X(kBackward, float, kCausal, Large128)

#define ATTILE_SUITE(direction, type, policy, executor)                          \
  TEST_CASE("suite.gpu.tiles." #direction "." #type "." #policy "." #executor) { \
    run_suite<Direction::direction, type, Policy::policy>(executor{});           \
  }
ATTILE_FEW_TILES(ATTILE_SUITE)
#if ATTILE_TEST_FULL
ATTILE_MORE_TILES(ATTILE_SUITE)
#endif
#undef ATTILE_SUITE

#define ATTILE_ONE(...) +1
static_assert(kSuiteTileKernels == (ATTILE_TEST_FULL ? 0 ATTILE_FEW_TILES(ATTILE_ONE)
                                                           ATTILE_MORE_TILES(ATTILE_ONE)
                                                     : 0 ATTILE_FEW_TILES(ATTILE_ONE)));
#undef ATTILE_ONE

#undef ATTILE_FEW_TILES
#undef ATTILE_MORE_TILES

}  // namespace suite_tiles
