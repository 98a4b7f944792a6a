// SPDX-License-Identifier: MIT
// The sm90 kernels: their default tiles, and tiles and tunings that a caller may choose.
#include "kernel/suite_executor.cuh"
#include "kernel/suite_kernels.h"

namespace suite_sm90 {

using namespace attile_test;
using attile::sm90::Rows;
using attile::sm90::Tuning;

using HalfType = __half;
using Bf16Type = __nv_bfloat16;
using Dims64 = Dims<64>;

template <int Br, int Bc, class Dim = Dims64, class T = Tuning<>>
using Own = GpuExecutor<Dim, Sm90Tiles<Br, Bc, T>>;

using D64 = GpuExecutor<Dims<64>, Sm90DefaultTiles<>>;
using D96 = GpuExecutor<Dims<96>, Sm90DefaultTiles<>>;
using D128 = GpuExecutor<Dims<128>, Sm90DefaultTiles<>>;
using D192x128 = GpuExecutor<Dims<192, 128>, Sm90DefaultTiles<>>;
using D192 = GpuExecutor<Dims<192, 192, 96>, Sm90DefaultTiles<>>;
using D256 = GpuExecutor<Dims<256>, Sm90DefaultTiles<>>;
using Packed64 = GpuExecutor<Dims<64>, Sm90DefaultTiles<Rows::kPacked>>;
using Packed128 = GpuExecutor<Dims<128>, Sm90DefaultTiles<Rows::kPacked>>;
using Many64 = GpuExecutor<Dims<64>, Sm90DefaultTiles<Rows::kMany>>;
using Many96 = GpuExecutor<Dims<96>, Sm90DefaultTiles<Rows::kMany>>;
using Many128 = GpuExecutor<Dims<128>, Sm90DefaultTiles<Rows::kMany>>;
using Many192 = GpuExecutor<Dims<192, 192, 96>, Sm90DefaultTiles<Rows::kMany>>;
// Panels of 64, 32 and 16 columns; Q's and O's apart.
using Own64x64D40 = Own<64, 64, Dims<40>>;
using Own128x48D72 = Own<128, 48, Dims<72>>;
using Own128x96D80 = Own<128, 96, Dims<80>>;
using Own192x64D64x32 = Own<192, 64, Dims<64, 32>>;
using Own128x64D64x256 = Own<128, 64, Dims<64, 256>>;
// Wide tiles, and stages.
using NotPersistent = Own<64, 128, Dims64, Tuning<2, false, false>>;
using ThreeGroups = Own<192, 80, Dims<128>, Tuning<2>>;
// Two blocks that share K and V.
using Cluster = Own<128, 128, Dims<128>, Tuning<2, false, true, 2>>;
using FourStages = Own<128, 32, Dims64, Tuning<4>>;
using Widest = Own<128, 208, Dims64, Tuning<2>>;

// X(element type, Policy, executor)
#if ATTILE_TEST_FULL
#define ATTILE_DEFAULTS(X, policy) \
  X(HalfType, policy, D64) X(Bf16Type, policy, D128) X(HalfType, policy, D256)
#define ATTILE_SM90(X)                  \
  X(HalfType, kNone, Packed64)          \
  X(Bf16Type, kCausal, Packed64)        \
  X(Bf16Type, kWindow, Packed64)        \
  X(HalfType, kEverything, Packed64)    \
  X(Bf16Type, kCausal, Packed128)       \
  X(HalfType, kCausal, Many64)          \
  X(Bf16Type, kCausal, Many96)          \
  X(HalfType, kCausal, Many128)         \
  X(Bf16Type, kCausal, Many192)         \
  X(HalfType, kNone, D96)               \
  X(Bf16Type, kCausal, D96)             \
  X(HalfType, kNone, D192x128)          \
  X(Bf16Type, kCausal, D192x128)        \
  X(HalfType, kCausal, D192)            \
  X(Bf16Type, kNone, D192)              \
  X(HalfType, kCausal, Own64x64D40)     \
  X(HalfType, kNone, Own128x48D72)      \
  X(Bf16Type, kNone, Own128x96D80)      \
  X(HalfType, kCausal, Own192x64D64x32) \
  X(HalfType, kNone, Own128x64D64x256)  \
  X(HalfType, kWindow, NotPersistent)   \
  X(HalfType, kNone, ThreeGroups)       \
  X(HalfType, kCausal, ThreeGroups)     \
  X(Bf16Type, kPrefix, FourStages)      \
  X(HalfType, kNone, Widest)            \
  X(HalfType, kNone, Cluster)           \
  X(Bf16Type, kCausal, Cluster)
#else
#define ATTILE_DEFAULTS(X, policy)
#define ATTILE_SM90(X) \
  X(HalfType, kCausal, D64) X(Bf16Type, kEverything, D128) X(Bf16Type, kCausal, Packed128)
#endif

#define ATTILE_SUITE(type, policy, executor)                          \
  TEST_CASE("suite.gpu.sm90." #type "." #policy "." #executor) {      \
    run_suite<Direction::kForward, type, Policy::policy>(executor{}); \
  }
#define ATTILE_POLICY(name, policy) ATTILE_DEFAULTS(ATTILE_SUITE, policy)
ATTILE_EACH_POLICY(ATTILE_POLICY)
ATTILE_SM90(ATTILE_SUITE)
#undef ATTILE_POLICY
#undef ATTILE_SUITE

#define ATTILE_ONE(...) +1
#define ATTILE_POLICY(name, policy) ATTILE_DEFAULTS(ATTILE_ONE, policy)
static_assert(kSuiteSm90Kernels == 0 ATTILE_EACH_POLICY(ATTILE_POLICY) ATTILE_SM90(ATTILE_ONE));
#undef ATTILE_POLICY
#undef ATTILE_ONE

#undef ATTILE_DEFAULTS
#undef ATTILE_SM90

}  // namespace suite_sm90
