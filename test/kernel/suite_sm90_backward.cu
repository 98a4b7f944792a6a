// SPDX-License-Identifier: MIT
// The sm90 backward kernels: their default tiles, and tiles that a caller may choose.
#include "kernel/suite_executor.cuh"
#include "kernel/suite_kernels.h"

namespace suite_sm90_backward {

using namespace attile_test;
using attile::DqMode;
using attile::sm90::BackwardTuning;

using HalfType = __half;
using Bf16Type = __nv_bfloat16;

using D64 = GpuExecutor<Dims<64>, Sm90DefaultTiles<>>;
using D96 = GpuExecutor<Dims<96>, Sm90DefaultTiles<>>;
using D128 = GpuExecutor<Dims<128>, Sm90DefaultTiles<>>;
using D192 = GpuExecutor<Dims<192, 192, 96>, Sm90DefaultTiles<>>;
using D192x128 = GpuExecutor<Dims<192, 128>, Sm90DefaultTiles<>>;
using InOrder192x128 = GpuExecutor<Dims<192, 128>, Sm90DefaultTiles<>, DqMode::kInOrder>;
using D256 = GpuExecutor<Dims<256>, Sm90DefaultTiles<>>;
using InOrder96 = GpuExecutor<Dims<96>, Sm90DefaultTiles<>, DqMode::kInOrder>;
using InOrder192 = GpuExecutor<Dims<192>, Sm90DefaultTiles<>, DqMode::kInOrder>;
using InOrder256 = GpuExecutor<Dims<256>, Sm90DefaultTiles<>, DqMode::kInOrder>;
using InOrder64 = GpuExecutor<Dims<64>, Sm90DefaultTiles<>, DqMode::kInOrder>;
using InOrder128 = GpuExecutor<Dims<128>, Sm90DefaultTiles<>, DqMode::kInOrder>;
template <int Br, int Bc, class Dim, class Tuning = BackwardTuning<>>
using Own = GpuExecutor<Dim, Sm90Tiles<Br, Bc, attile::sm90::Tuning<>, Tuning>>;
using OneGroup = Own<64, 64, Dims<64>, BackwardTuning<3>>;
using ThreeGroups = Own<64, 192, Dims<32>>;
using D72 = Own<128, 128, Dims<72>, BackwardTuning<>>;
using D64x32 = Own<128, 128, Dims<64, 32>>;
using D192x64 = Own<64, 64, Dims<192, 64>>;
using D64x160 = Own<64, 64, Dims<64, 160>>;

// X(element type, Policy, executor)
#if ATTILE_TEST_FULL
#define ATTILE_DEFAULTS(X, policy) X(HalfType, policy, D64) X(Bf16Type, policy, D128)
#define ATTILE_SM90(X)                 \
  X(HalfType, kNone, D96)              \
  X(Bf16Type, kCausal, D96)            \
  X(HalfType, kNone, D192)             \
  X(HalfType, kNone, D192x128)         \
  X(Bf16Type, kEverything, D192x128)   \
  X(Bf16Type, kCausal, InOrder192x128) \
  X(HalfType, kNone, D256)             \
  X(Bf16Type, kCausal, D256)           \
  X(HalfType, kEverything, D256)       \
  X(HalfType, kCausal, InOrder96)      \
  X(Bf16Type, kDocument, InOrder192)   \
  X(HalfType, kCausal, InOrder256)     \
  X(HalfType, kEverything, InOrder256) \
  X(Bf16Type, kCausal, D192x64)        \
  X(HalfType, kNone, D64x160)          \
  X(HalfType, kNone, InOrder64)        \
  X(HalfType, kCausal, InOrder128)     \
  X(Bf16Type, kEverything, InOrder64)  \
  X(HalfType, kDocument, InOrder128)   \
  X(HalfType, kLearned, D64)           \
  X(Bf16Type, kLearned, D128)          \
  X(HalfType, kLearned, InOrder64)     \
  X(HalfType, kLearnedDropout, D64)    \
  X(HalfType, kCausal, OneGroup)       \
  X(HalfType, kNone, ThreeGroups)      \
  X(Bf16Type, kNone, D72)              \
  X(HalfType, kCausal, D64x32)
#else
#define ATTILE_DEFAULTS(X, policy)
#define ATTILE_SM90(X) X(HalfType, kCausal, D64) X(Bf16Type, kEverything, D128)
#endif

#define ATTILE_SUITE(type, policy, executor)                              \
  TEST_CASE("suite.gpu.sm90.backward." #type "." #policy "." #executor) { \
    run_suite<Direction::kBackward, type, Policy::policy>(executor{});    \
  }
#define ATTILE_POLICY(name, policy) ATTILE_DEFAULTS(ATTILE_SUITE, policy)
ATTILE_EACH_POLICY(ATTILE_POLICY)
ATTILE_SM90(ATTILE_SUITE)
#undef ATTILE_POLICY
#undef ATTILE_SUITE

#define ATTILE_ONE(...) +1
#define ATTILE_POLICY(name, policy) ATTILE_DEFAULTS(ATTILE_ONE, policy)
static_assert(kSuiteSm90BackwardKernels == 0 ATTILE_EACH_POLICY(ATTILE_POLICY)
                                               ATTILE_SM90(ATTILE_ONE));
#undef ATTILE_POLICY
#undef ATTILE_ONE

#undef ATTILE_DEFAULTS
#undef ATTILE_SM90

}  // namespace suite_sm90_backward
