// SPDX-License-Identifier: MIT
// Tiles of the sm80 kernels that a caller may choose, head dimensions that fill no panel, the
// default tiles of devices with less shared memory, and fp32 (that with the one call's tiles is in
// suite_call_fp32.cu).
#include "kernel/suite_executor.cuh"

namespace suite_sm80_tiles {

using namespace attile_test;
using attile::sm80::BackwardTuning;
using attile::sm80::BackwardTuningValues;
using attile::sm80::Tuning;
using attile::sm80::TuningValues;

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
using Narrow128x32 = Own<128, 32, Dims64, Tuning<TuningValues{.warps = 8, .blocks_per_sm = 1}>>;
using Wide64x32 = Own<64, 32, Dims<128>, Tuning<TuningValues{.warps = 1}>>;
// Panels of 64, 32 and 16 columns; Q's and O's apart.
using Own64x64D40 = Own<64, 64, Dims<40>>;
using Own64x64D72 = Own<64, 64, Dims<72>>;
using Own64x64D80 = Own<64, 64, Dims<80>>;
using Own64x48D96x128 = Own<64, 48, Dims<96, 128>>;
using Own64x64D128x96 = Own<64, 64, Dims<128, 96>>;
using Own64x32D192x128 = Own<64, 32, Dims<192, 128>>;
using Own64x64D64x256 = Own<64, 64, Dims<64, 256>>;
// Warps that share rows: two in a line, and four.
using Lines64x64D192x136 = Own<64, 64, Dims<192, 136>, Tuning<TuningValues{.warps_n = 2}>>;
using Lines32x96D256 =
    Own<32, 96, Dims<256, 256, 64>, Tuning<TuningValues{.warps = 4, .warps_n = 2}>>;
using Line32x64 = Own<32, 64, Dims64, Tuning<TuningValues{.warps = 4, .warps_n = 4}>>;
using Default128On99 = GpuExecutor<Dims<128>, Sm80Tiles<99>>;
using Default256On227 = GpuExecutor<Dims<256, 256, 64>, Sm80Tiles<227>>;
using Default256On163 = GpuExecutor<Dims<256, 256, 64>, Sm80Tiles<163>>;

// fp32.
using FloatD128 = GpuExecutor<SplitDims<128, 128, 64>, Sm80Tiles<99>>;
using FloatD256 = GpuExecutor<SplitDims<256, 256, 128>, Sm80Tiles<163>>;
using FloatInOrder = GpuExecutor<SplitDims<64>, Sm80Tiles<99>, attile::DqMode::kInOrder>;
using Float32x48D96 =
    Own<32, 48, SplitDims<96>, Tuning<TuningValues{.warps = 1, .blocks_per_sm = 2}>,
        BackwardTuning<BackwardTuningValues{.warps = 6, .warps_n = 2, .dq_warps_n = 3}>>;
using FloatLines =
    Own<32, 64, SplitDims<64, 40>, Tuning<TuningValues{.warps = 4, .warps_n = 2}>,
        BackwardTuning<BackwardTuningValues{.warps = 4, .warps_n = 2, .dq_warps_n = 2}>>;
using Float16x32D64x40 =
    Own<16, 32, SplitDims<64, 40>, Tuning<TuningValues{.warps = 1}>,
        BackwardTuning<BackwardTuningValues{.warps = 2, .warps_n = 1, .dq_warps_n = 2}>>;
using attile::sm80::Products;
using OneTf32 =
    Tuning<TuningValues{.warps = 4, .blocks_per_sm = 2, .products = Products::k1xTf32}>;
using OneTf32Backward = BackwardTuning<BackwardTuningValues{.warps = 4,
                                                            .warps_n = 2,
                                                            .dq_warps_n = 2,
                                                            .blocks_per_sm = 2,
                                                            .products = Products::k1xTf32}>;
using Tf32D64 = GpuExecutor<ModerateDims<64>, Tiles<64, 64, OneTf32, OneTf32Backward>>;
using Tf32D128 = GpuExecutor<ModerateDims<128, 128, 64>, Tiles<64, 32, OneTf32, OneTf32Backward>>;

const bool kRegistered = [] {
  using enum Policy;
  // What sm80 has with the other policies, gpu.call demands.
  const Suite suite("gpu.sm80", policies<>);
  suite.forward<__half>("48x80", Own48x80{}, in_full(kForwardOnlyPolicies, policies<kPagedWindow>));
  suite.forward<__nv_bfloat16>("default128on99", Default128On99{}, in_full(kForwardOnlyPolicies));
  suite.forward<__nv_bfloat16>("default256on227", Default256On227{}, in_full(kForwardOnlyPolicies));
  suite.forward<float>("float_d128", FloatD128{}, in_full(kForwardOnlyPolicies));
  suite.both<__nv_bfloat16>("64x48_d96x128", Own64x48D96x128{}, policies<kCausal>);
  suite.both<__half>("16x16", Own16x16{}, in_full(policies<kNone>));
  suite.both<__nv_bfloat16>("16x16", Own16x16{}, in_full(policies<kCausal>));
  suite.both<__half>("32x48", Own32x48{}, in_full(policies<kWindow>));
  suite.both<__nv_bfloat16>("64x96", Own64x96{}, in_full(policies<kEverything>));
  suite.both<__half>("128x128", Own128x128{}, in_full(policies<kCausal>));
  suite.both<__nv_bfloat16>("192x64", Own192x64{}, in_full(policies<kWindowPrefix>));
  suite.both<__half>("48x80", Own48x80{},
                     in_full(kSequencePolicies + policies<kCausalDropout, kLearned>));
  suite.both<__half>("narrow128x32", Narrow128x32{}, in_full(policies<kCausal>));
  suite.both<__nv_bfloat16>("wide64x32", Wide64x32{}, in_full(policies<kPrefix>));
  suite.both<__half>("64x64_d40", Own64x64D40{}, in_full(policies<kCausal>));
  suite.both<__half>("64x64_d72", Own64x64D72{}, in_full(policies<kNone>));
  suite.both<__nv_bfloat16>("64x64_d80", Own64x64D80{}, in_full(policies<kNone>));
  suite.both<__half>("64x64_d128x96", Own64x64D128x96{}, in_full(policies<kNone>));
  suite.both<__nv_bfloat16>("64x32_d192x128", Own64x32D192x128{}, in_full(policies<kNone>));
  suite.both<__half>("64x64_d64x256", Own64x64D64x256{}, in_full(policies<kNone>));
  suite.both<__nv_bfloat16>("default128on99", Default128On99{}, in_full(policies<kCausal>));
  suite.both<__half>("default256on163", Default256On163{}, in_full(policies<kCausal>));
  suite.both<__nv_bfloat16>("default256on227", Default256On227{}, in_full(policies<kEverything>));
  suite.both<__half>("default256on227", Default256On227{}, in_full(policies<kDropout>));
  suite.both<__half>("lines64x64_d192x136", Lines64x64D192x136{}, in_full(policies<kCausal>));
  suite.both<__nv_bfloat16>("lines32x96_d256", Lines32x96D256{},
                            in_full(policies<kNone, kPackedCausal>));
  suite.both<__half>("line32x64", Line32x64{}, in_full(policies<kCausalDropout>));
  suite.both<float>("float_lines", FloatLines{}, in_full(policies<kCausal>));
  suite.both<float>("float_d128", FloatD128{},
                    in_full(kSequencePolicies + kSinkPolicies + policies<kNone, kCausal>));
  suite.both<float>("float_d128", FloatD128{}, in_full(kBlockPolicies));
  suite.both<__half>("default128on99", Default128On99{}, in_full(kBlockPolicies));
  suite.both<float>("float_d256", FloatD256{}, in_full(policies<kNone, kCausal>));
  suite.both<float>("float_in_order", FloatInOrder{}, in_full(policies<kCausal, kLearned>));
  suite.both<float>("float32x48_d96", Float32x48D96{}, in_full(policies<kNone>));
  suite.both<float>("float16x32_d64x40", Float16x32D64x40{}, in_full(policies<kCausal>));
  suite.both<float>("tf32_d64", Tf32D64{}, in_full(policies<kNone, kEverything>));
  suite.both<float>("tf32_d128", Tf32D128{}, in_full(policies<kCausal>));
  return true;
}();

}  // namespace suite_sm80_tiles
