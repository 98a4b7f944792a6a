// SPDX-License-Identifier: MIT
// The sm90 backward kernels: their default tiles, and tiles that a caller may choose.
#include "kernel/suite_executor.cuh"

namespace suite_sm90_backward {

using namespace attile_test;
using attile::DqMode;
using attile::sm90::BackwardTuning;
using attile::sm90::BackwardTuningValues;

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
using OneGroup = Own<64, 64, Dims<64>, BackwardTuning<BackwardTuningValues{.stages = 3}>>;
using ThreeGroups = Own<64, 192, Dims<32>>;
using D72 = Own<128, 128, Dims<72>, BackwardTuning<>>;
using D64x32 = Own<128, 128, Dims<64, 32>>;
using attile::sm90::TileSet;
using Elements64 = GpuExecutor<Dims<64>, Sm90DefaultTiles<TileSet::kElements>>;
using Elements96 = GpuExecutor<Dims<96>, Sm90DefaultTiles<TileSet::kElements>>;
using Elements128 = GpuExecutor<Dims<128>, Sm90DefaultTiles<TileSet::kElements>>;
using Elements192 = GpuExecutor<Dims<192, 128>, Sm90DefaultTiles<TileSet::kElements>>;
using Elements256 = GpuExecutor<Dims<256>, Sm90DefaultTiles<TileSet::kElements>>;
using ElementsInOrder128 =
    GpuExecutor<Dims<128>, Sm90DefaultTiles<TileSet::kElements>, DqMode::kInOrder>;
using Columns64 = GpuExecutor<Dims<64>, Sm90DefaultTiles<TileSet::kColumns>>;
using Diagonals64 = GpuExecutor<Dims<64>, Sm90DefaultTiles<TileSet::kDiagonals>>;
using Diagonals128 = GpuExecutor<Dims<128>, Sm90DefaultTiles<TileSet::kDiagonals>>;
using ColumnsInOrder64 =
    GpuExecutor<Dims<64>, Sm90DefaultTiles<TileSet::kColumns>, DqMode::kInOrder>;
using D192x64 = Own<64, 64, Dims<192, 64>>;
using D64x160 = Own<64, 64, Dims<64, 160>>;

const bool kRegistered = [] {
  using enum Policy;
  const Suite suite("gpu.sm90", in_full(kAllPolicies + kBlockPolicies));
  suite.backward<__half>("d64", D64{}, in_full(kAllPolicies, policies<kCausal>));
  suite.backward<__nv_bfloat16>("d128", D128{},
                                in_full(kUnlearnedPolicies + kSequencePolicies + kSinkPolicies +
                                            policies<kLearned, kLearnedBias>,
                                        policies<kEverything>));
  suite.backward<__half>("elements64", Elements64{},
                         policies<kSoftcapBias, kPackedBias> + in_full(policies<kHalfBias>));
  suite.backward<__nv_bfloat16>(
      "elements128", Elements128{},
      policies<kPackedBias> + in_full(policies<kHalfBias, kSoftcapBias, kHalfBiasDropout>));
  suite.backward<__half>("elements_in_order128", ElementsInOrder128{},
                         in_full(policies<kHalfBias, kPackedBias>));
  suite.backward<__half>("elements96", Elements96{}, in_full(policies<kHalfBias>));
  suite.backward<__half>("columns64", Columns64{},
                         policies<kPackedBias> + in_full(policies<kBias>, policies<kHalfBias>));
  suite.backward<__half>("diagonals64", Diagonals64{},
                         policies<kPackedBias> + in_full(policies<kHalfBias, kSoftcapBias>));
  suite.backward<__nv_bfloat16>("diagonals128", Diagonals128{},
                                policies<kPackedBias> + in_full(policies<kHalfBias>));
  suite.backward<__nv_bfloat16>("columns_in_order64", ColumnsInOrder64{},
                                in_full(policies<kHalfBias>));
  suite.backward<__nv_bfloat16>("elements192", Elements192{}, in_full(policies<kHalfBias>));
  suite.backward<__half>("elements256", Elements256{}, in_full(policies<kHalfBias, kPackedBias>));
  suite.backward<__nv_bfloat16>("diagonals128", Diagonals128{},
                                in_full(policies<kHalfBiasDropout>));
  suite.backward<__half>("d64", D64{}, in_full(kBlockPolicies));
  suite.backward<__nv_bfloat16>("d128", D128{}, in_full(kBlockPolicies));
  suite.backward<__half>("d256", D256{}, in_full(kBlockPolicies));
  suite.backward<__half>("in_order64", InOrder64{}, in_full(kBlockPolicies));
  suite.backward<__half>("in_order128", InOrder128{}, in_full(kBlockPolicies));
  suite.backward<__nv_bfloat16>("in_order256", InOrder256{}, in_full(kBlockPolicies));
  suite.backward<__half>("d96", D96{}, in_full(policies<kNone>));
  suite.backward<__nv_bfloat16>("d96", D96{}, in_full(policies<kCausal>));
  suite.backward<__half>("d192", D192{}, in_full(policies<kNone>));
  suite.backward<__half>("d192x128", D192x128{}, in_full(policies<kNone, kOwnLengths>));
  suite.backward<__nv_bfloat16>("d192x128", D192x128{}, in_full(policies<kEverything>));
  suite.backward<__nv_bfloat16>("in_order192x128", InOrder192x128{}, in_full(policies<kCausal>));
  suite.backward<__half>(
      "d256", D256{},
      in_full(kSequencePolicies + policies<kNone, kEverything, kSink> + kLearnedPolicies));
  suite.backward<__half>("in_order256", InOrder256{}, in_full(policies<kLearned, kLearnedBias>));
  suite.backward<__half>("d192", D192{}, in_full(policies<kLearned, kLearnedBias>));
  suite.backward<__nv_bfloat16>("d256", D256{}, in_full(policies<kCausal>));
  suite.backward<__half>("in_order96", InOrder96{}, in_full(policies<kCausal>));
  suite.backward<__nv_bfloat16>("in_order192", InOrder192{}, in_full(policies<kDocument>));
  suite.backward<__half>("in_order256", InOrder256{},
                         in_full(kSequencePolicies + policies<kCausal, kEverything>));
  suite.backward<__nv_bfloat16>("d192x64", D192x64{}, in_full(policies<kCausal>));
  suite.backward<__half>("d64x160", D64x160{}, in_full(policies<kNone>));
  suite.backward<__half>("in_order64", InOrder64{},
                         in_full(policies<kNone, kLearned, kLearnedBias>));
  suite.backward<__half>("in_order128", InOrder128{},
                         in_full(kSequencePolicies + kSinkPolicies + policies<kCausal, kDocument>));
  suite.backward<__nv_bfloat16>("in_order64", InOrder64{}, in_full(policies<kEverything>));
  suite.backward<__half>("one_group", OneGroup{}, in_full(policies<kCausal>));
  suite.backward<__half>("three_groups", ThreeGroups{}, in_full(policies<kNone>));
  suite.backward<__nv_bfloat16>("d72", D72{}, in_full(policies<kNone>));
  suite.backward<__half>("d64x32", D64x32{}, in_full(policies<kCausal>));
  return true;
}();

}  // namespace suite_sm90_backward
