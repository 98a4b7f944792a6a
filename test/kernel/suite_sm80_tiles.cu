// SPDX-License-Identifier: MIT
// Tiles of the sm80 kernels that a caller may choose, head dimensions that fill no panel, the
// default tiles of devices with less shared memory, and fp32 (that with the one call's tiles is in
// suite_call_fp32.cu).
#include "kernel/suite_executor.cuh"
#include "kernel/suite_kernels.h"

namespace suite_sm80_tiles {

using namespace attile_test;
using attile::sm80::BackwardTuning;
using attile::sm80::Tuning;

using HalfType = __half;
using Bf16Type = __nv_bfloat16;
using Dims64 = Dims<64>;

template <int Br, int Bc, class Dim = Dims64, class T = Tuning<>, class B = BackwardTuning<>>
using Own = GpuExecutor<Dim, Tiles<Br, Bc, T, B>>;

// One warp, of 16 and of 32 rows; more warps than a multiprocessor has schedulers; tiles of K and V
// that no power of two divides.
using Own16x16 = Own<16, 16>;
using Own32x48 = Own<32, 48>;
using Own64x96 = Own<64, 96>;
using Own128x128 = Own<128, 128>;
using Own192x64 = Own<192, 64>;
using Own48x80 = Own<48, 80>;
using Narrow128x32 = Own<128, 32, Dims64, Tuning<8, 1, 1>>;
using Wide64x32 = Own<64, 32, Dims<128>, Tuning<1>>;
// Panels of 64, 32 and 16 columns; Q's and O's apart.
using Own64x64D40 = Own<64, 64, Dims<40>>;
using Own64x64D72 = Own<64, 64, Dims<72>>;
using Own64x64D80 = Own<64, 64, Dims<80>>;
using Own64x48D96x128 = Own<64, 48, Dims<96, 128>>;
using Own64x64D128x96 = Own<64, 64, Dims<128, 96>>;
using Own64x32D192x128 = Own<64, 32, Dims<192, 128>>;
using Own64x64D64x256 = Own<64, 64, Dims<64, 256>>;
// Warps that share rows: two in a line, and four.
using Lines64x64D192x136 = Own<64, 64, Dims<192, 136>, Tuning<0, 2>>;
using Lines32x96D256 = Own<32, 96, Dims<256, 256, 64>, Tuning<4, 2>>;
using Line32x64 = Own<32, 64, Dims64, Tuning<4, 4>>;
using Default128On99 = GpuExecutor<Dims<128>, Sm80Tiles<99>>;
using Default256On227 = GpuExecutor<Dims<256, 256, 64>, Sm80Tiles<227>>;
using Default256On163 = GpuExecutor<Dims<256, 256, 64>, Sm80Tiles<163>>;

// fp32.
using FloatD128 = GpuExecutor<SplitDims<128, 128, 64>, Sm80Tiles<99>>;
using FloatD256 = GpuExecutor<SplitDims<256, 256, 128>, Sm80Tiles<163>>;
using FloatInOrder = GpuExecutor<SplitDims<64>, Sm80Tiles<99>, attile::DqMode::kInOrder>;
using Float32x48D96 = Own<32, 48, SplitDims<96>, Tuning<1, 1, 2>, BackwardTuning<6, 2, 3>>;
using FloatLines = Own<32, 64, SplitDims<64, 40>, Tuning<4, 2>, BackwardTuning<4, 2, 2>>;
using Float16x32D64x40 = Own<16, 32, SplitDims<64, 40>, Tuning<1>, BackwardTuning<2, 1, 2>>;
using attile::sm80::Products;
using Tf32D64 = GpuExecutor<ModerateDims<64>, Tiles<64, 64, Tuning<4, 1, 2, Products::kOne>,
                                                    BackwardTuning<4, 2, 2, 2, 1, Products::kOne>>>;
using Tf32D128 =
    GpuExecutor<ModerateDims<128, 128, 64>, Tiles<64, 32, Tuning<4, 1, 2, Products::kOne>,
                                                  BackwardTuning<4, 2, 2, 2, 1, Products::kOne>>>;

// X(element type, Policy, executor)
#define ATTILE_FEW_TILES(X) X(Bf16Type, kCausal, Own64x48D96x128)

#define ATTILE_MORE_TILES(X)                \
  X(HalfType, kNone, Own16x16)              \
  X(Bf16Type, kCausal, Own16x16)            \
  X(HalfType, kWindow, Own32x48)            \
  X(Bf16Type, kEverything, Own64x96)        \
  X(HalfType, kCausal, Own128x128)          \
  X(Bf16Type, kWindowPrefix, Own192x64)     \
  X(HalfType, kCausalDropout, Own48x80)     \
  X(HalfType, kLearned, Own48x80)           \
  X(HalfType, kCausal, Narrow128x32)        \
  X(Bf16Type, kPrefix, Wide64x32)           \
  X(HalfType, kCausal, Own64x64D40)         \
  X(HalfType, kNone, Own64x64D72)           \
  X(Bf16Type, kNone, Own64x64D80)           \
  X(HalfType, kNone, Own64x64D128x96)       \
  X(Bf16Type, kNone, Own64x32D192x128)      \
  X(HalfType, kNone, Own64x64D64x256)       \
  X(Bf16Type, kCausal, Default128On99)      \
  X(HalfType, kCausal, Default256On163)     \
  X(Bf16Type, kEverything, Default256On227) \
  X(HalfType, kDropout, Default256On227)    \
  X(HalfType, kCausal, Lines64x64D192x136)  \
  X(Bf16Type, kNone, Lines32x96D256)        \
  X(HalfType, kCausalDropout, Line32x64)    \
  X(float, kCausal, FloatLines)             \
  X(float, kNone, FloatD128)                \
  X(float, kCausal, FloatD128)              \
  X(float, kNone, FloatD256)                \
  X(float, kCausal, FloatD256)              \
  X(float, kCausal, FloatInOrder)           \
  X(float, kLearned, FloatInOrder)          \
  X(float, kNone, Float32x48D96)            \
  X(float, kCausal, Float16x32D64x40)       \
  X(float, kNone, Tf32D64)                  \
  X(float, kEverything, Tf32D64)            \
  X(float, kCausal, Tf32D128)

#define ATTILE_SUITE(type, policy, executor)                                    \
  TEST_CASE("suite.gpu.sm80.tiles." #type "." #policy "." #executor) {          \
    run_suite<Direction::kForward, type, Policy::policy>(executor{});           \
  }                                                                             \
  TEST_CASE("suite.gpu.sm80.tiles.backward." #type "." #policy "." #executor) { \
    run_suite<Direction::kBackward, type, Policy::policy>(executor{});          \
  }
ATTILE_FEW_TILES(ATTILE_SUITE)
#if ATTILE_TEST_FULL
ATTILE_MORE_TILES(ATTILE_SUITE)
#endif
#undef ATTILE_SUITE

#define ATTILE_ONE(...) +2
static_assert(kSuiteSm80TileKernels == (ATTILE_TEST_FULL ? 0 ATTILE_FEW_TILES(ATTILE_ONE)
                                                               ATTILE_MORE_TILES(ATTILE_ONE)
                                                         : 0 ATTILE_FEW_TILES(ATTILE_ONE)));
#undef ATTILE_ONE

#undef ATTILE_FEW_TILES
#undef ATTILE_MORE_TILES

}  // namespace suite_sm80_tiles
