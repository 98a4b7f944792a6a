// SPDX-License-Identifier: MIT
// Tiles of decode kernels that a caller may choose, and head dimensions that fill no panel.
#include "kernel/decode_executor.cuh"

namespace suite_decode_tiles {

using namespace attile_test;
using attile::sm80::DecodeTuning;
using attile::sm80::DecodeTuningValues;
using attile::sm80::Products;

using FourGroupsOfOne = DecodeTuning<DecodeTuningValues{.warps = 4, .stages = 2}>;

template <int Br, int Bc, class Tuning, SplitKind kSplits, class Dim = Dims<64>>
using Own = DecodeExecutor<Dim, DecodeTiles<Br, Bc, Tuning>, kSplits>;

// One warp with one stage; many groups of one warp; one group of many warps; and between.
using One16x16 =
    Own<16, 16, DecodeTuning<DecodeTuningValues{.warps = 1, .stages = 1}>, SplitKind::kNone>;
using Groups16x256 =
    Own<16, 256, DecodeTuning<DecodeTuningValues{.warps = 16, .stages = 2}>, SplitKind::kFill>;
using Rows128x128 = Own<128, 128, DecodeTuning<DecodeTuningValues{.key_groups = 1, .stages = 2}>,
                        SplitKind::kFixed>;
using Both32x64 =
    Own<32, 64, DecodeTuning<DecodeTuningValues{.warps = 4, .key_groups = 2}>, SplitKind::kFill>;
using Both64x128 =
    Own<64, 128, DecodeTuning<DecodeTuningValues{.key_groups = 2, .stages = 4}>, SplitKind::kNone>;
using TwoBlocks16x64 =
    Own<16, 64, DecodeTuning<DecodeTuningValues{.warps = 4, .stages = 2, .blocks_per_sm = 2}>,
        SplitKind::kFill>;
using OneQ64x64 =
    Own<64, 64,
        DecodeTuning<DecodeTuningValues{
            .warps = 4, .key_groups = 1, .stages = 2, .blocks_per_sm = 2, .q_stages = 1}>,
        SplitKind::kFill>;
using OneQ32x64 =
    Own<32, 64,
        DecodeTuning<DecodeTuningValues{
            .warps = 4, .key_groups = 2, .stages = 2, .blocks_per_sm = 2, .q_stages = 1}>,
        SplitKind::kFixed>;
using D40 = Own<32, 64, TwoGroupsOfTwo, SplitKind::kFill, Dims<40>>;
using D72 = Own<32, 32, OneGroupOfTwo, SplitKind::kFixed, Dims<72>>;
using D80 = Own<16, 64, FourGroupsOfOne, SplitKind::kFill, Dims<80>>;
using D96x128 = Own<32, 64, TwoGroupsOfTwo, SplitKind::kFill, Dims<96, 128>>;
using D128x96 = Own<16, 32, DecodeTuning<DecodeTuningValues{.warps = 2, .stages = 2}>,
                    SplitKind::kFixed, Dims<128, 96>>;
using D192x128 = Own<32, 64, TwoGroupsOfTwo, SplitKind::kNone, Dims<192, 128>>;
using D64x256 = Own<16, 64, FourGroupsOfOne, SplitKind::kFill, Dims<64, 256>>;
using Fp32D96 = Own<32, 32, OneGroupOfTwo, SplitKind::kFixed, SplitDims<96>>;
using Fp32D64x40 = Own<16, 64, FourGroupsOfOne, SplitKind::kFill, SplitDims<64, 40>>;
using Tf32D64 = Own<32, 64,
                    DecodeTuning<DecodeTuningValues{
                        .warps = 4, .key_groups = 2, .stages = 2, .products = Products::k1xTf32}>,
                    SplitKind::kFill, ModerateDims<64>>;

const bool kRegistered = [] {
  using enum Policy;
  constexpr auto kCaches = policies<kCachedCausal, kPagedWindow>;
  // Every policy is demanded of the default tiles, in suite_decode_fp16.cu.
  const Suite suite("gpu.decode", policies<>);
  suite.forward<__half>("one16x16", One16x16{}, in_full(policies<kNone> + kCaches));
  suite.forward<__nv_bfloat16>("groups16x256", Groups16x256{},
                               in_full(policies<kCausal, kWindow> + kCaches));
  suite.forward<__half>("rows128x128", Rows128x128{},
                        in_full(policies<kCausal, kCausalDropout> + kForwardOnlyPolicies));
  suite.forward<__half>("both32x64", Both32x64{},
                        in_full(policies<kDocument, kPrefix> + kForwardOnlyPolicies));
  suite.forward<__nv_bfloat16>("both64x128", Both64x128{}, in_full(policies<kWindow> + kCaches));
  suite.forward<__half>("two_blocks16x64", TwoBlocks16x64{},
                        in_full(policies<kNone, kDropout> + kCaches));
  suite.forward<__nv_bfloat16>("one_q64x64", OneQ64x64{},
                               in_full(policies<kCausal, kSink> + kCaches));
  suite.forward<__half>("one_q32x64", OneQ32x64{},
                        in_full(policies<kNone, kPackedCausal> + kForwardOnlyPolicies));
  suite.forward<__half>("d40", D40{}, in_full(policies<kCausal, kPackedCausal>));
  suite.forward<__half>("d72", D72{}, in_full(policies<kNone>));
  suite.forward<__nv_bfloat16>("d80", D80{}, in_full(policies<kNone>));
  suite.forward<__nv_bfloat16>("d96x128", D96x128{}, in_full(policies<kCausal, kSink> + kCaches));
  suite.forward<__half>("d128x96", D128x96{}, in_full(policies<kNone> + kCaches));
  suite.forward<__nv_bfloat16>("d192x128", D192x128{}, in_full(policies<kNone, kCausal>));
  suite.forward<__half>("d64x256", D64x256{}, in_full(policies<kNone>));
  suite.forward<float>("d96", Fp32D96{}, in_full(policies<kNone, kPackedCausal>));
  suite.forward<float>("d64x40", Fp32D64x40{}, in_full(policies<kCausal> + kCaches));
  suite.forward<float>("tf32_d64", Tf32D64{}, in_full(policies<kNone, kCachedCausal>));
  return true;
}();

}  // namespace suite_decode_tiles
