// SPDX-License-Identifier: MIT
// The sm90 kernels: their default tiles, and tiles and tunings that a caller may choose.
#include "kernel/suite_executor.cuh"

namespace suite_sm90_forward {

using namespace attile_test;
using attile::sm90::TileSet;
using attile::sm90::Tuning;
using attile::sm90::TuningValues;

using Dims64 = Dims<64>;

template <int Br, int Bc, class Dim = Dims64, class T = Tuning<>>
using Own = GpuExecutor<Dim, Sm90Tiles<Br, Bc, T>>;

using D64 = GpuExecutor<Dims<64>, Sm90DefaultTiles<>>;
using D96 = GpuExecutor<Dims<96>, Sm90DefaultTiles<>>;
using D128 = GpuExecutor<Dims<128>, Sm90DefaultTiles<>>;
using D192x128 = GpuExecutor<Dims<192, 128>, Sm90DefaultTiles<>>;
using D192 = GpuExecutor<Dims<192, 192, 96>, Sm90DefaultTiles<>>;
using D256 = GpuExecutor<Dims<256>, Sm90DefaultTiles<>>;
using Packed64 = GpuExecutor<Dims<64>, Sm90DefaultTiles<TileSet::kPackedHeads>>;
using Packed128 = GpuExecutor<Dims<128>, Sm90DefaultTiles<TileSet::kPackedHeads>>;
using Elements64 = GpuExecutor<Dims<64>, Sm90DefaultTiles<TileSet::kElements>>;
using Elements96 = GpuExecutor<Dims<96>, Sm90DefaultTiles<TileSet::kElements>>;
using Elements128 = GpuExecutor<Dims<128>, Sm90DefaultTiles<TileSet::kElements>>;
using LongElements64 = GpuExecutor<Dims<64>, Sm90DefaultTiles<TileSet::kLongElements>>;
using LongColumns64 = GpuExecutor<Dims<64>, Sm90DefaultTiles<TileSet::kLongColumns>>;
using Columns64 = GpuExecutor<Dims<64>, Sm90DefaultTiles<TileSet::kColumns>>;
using Columns128 = GpuExecutor<Dims<128>, Sm90DefaultTiles<TileSet::kColumns>>;
using Diagonals64 = GpuExecutor<Dims<64>, Sm90DefaultTiles<TileSet::kDiagonals>>;
using Diagonals128 = GpuExecutor<Dims<128>, Sm90DefaultTiles<TileSet::kDiagonals>>;
using Elements192 = GpuExecutor<Dims<192, 192, 96>, Sm90DefaultTiles<TileSet::kElements>>;
using Elements256 = GpuExecutor<Dims<256>, Sm90DefaultTiles<TileSet::kElements>>;
using Many64 = GpuExecutor<Dims<64>, Sm90DefaultTiles<TileSet::kLong>>;
using Many96 = GpuExecutor<Dims<96>, Sm90DefaultTiles<TileSet::kLong>>;
using Many128 = GpuExecutor<Dims<128>, Sm90DefaultTiles<TileSet::kLong>>;
using Many192 = GpuExecutor<Dims<192, 192, 96>, Sm90DefaultTiles<TileSet::kLong>>;
// Panels of 64, 32 and 16 columns; Q's and O's apart.
using Own64x64D40 = Own<64, 64, Dims<40>>;
using Own128x48D72 = Own<128, 48, Dims<72>>;
using Own128x96D80 = Own<128, 96, Dims<80>>;
using Own192x64D64x32 = Own<192, 64, Dims<64, 32>>;
using Own128x64D64x256 = Own<128, 64, Dims<64, 256>>;
// Wide tiles, and stages.
using NotPersistent = Own<64, 128, Dims64, Tuning<TuningValues{.persistent = false}>>;
using ThreeGroups = Own<192, 80, Dims<128>, Tuning<>>;
using FourStages = Own<128, 32, Dims64, Tuning<TuningValues{.stages = 4}>>;
using Widest = Own<128, 208, Dims64, Tuning<>>;

const bool kRegistered = [] {
  using enum Policy;
  const Suite suite("gpu.sm90", in_full(kAllPolicies + kBlockPolicies + kEarlierPolicies));
  suite.forward<__half>(
      "d64", D64{},
      in_full(kUnlearnedPolicies + kSequencePolicies + kSinkPolicies, policies<kCausal>));
  suite.forward<__nv_bfloat16>(
      "d128", D128{},
      in_full(kUnlearnedPolicies + kSequencePolicies + kSinkPolicies, policies<kEverything>));
  suite.forward<__half>("d256", D256{},
                        in_full(kUnlearnedPolicies + kSequencePolicies + policies<kSink>));
  suite.forward<__half>("d64", D64{}, in_full(policies<kCachedCausal, kCachedPackedAlibi>));
  suite.forward<__nv_bfloat16>("d128", D128{},
                               in_full(policies<kCachedCausal, kCachedPackedAlibi>));
  suite.forward<__half>("d256", D256{}, in_full(policies<kCachedCausal, kCachedPackedAlibi>));
  suite.forward<__half>("d64", D64{}, in_full(kEarlierPolicies));
  suite.forward<__nv_bfloat16>("d128", D128{}, in_full(kEarlierPolicies, policies<kEarlier>));
  suite.forward<__half>("d256", D256{}, in_full(kEarlierPolicies));
  suite.forward<__half>("d64", D64{}, in_full(kBlockPolicies));
  suite.forward<__nv_bfloat16>("d128", D128{}, in_full(kBlockPolicies));
  suite.forward<__half>("d256", D256{}, in_full(kBlockPolicies));
  suite.forward<__nv_bfloat16>("packed128", Packed128{}, policies<kCausal>);
  suite.forward<__half>("packed64", Packed64{},
                        in_full(policies<kNone, kEverything, kSink, kEarlier>));
  suite.forward<__nv_bfloat16>("packed64", Packed64{}, in_full(policies<kCausal, kWindow>));
  suite.forward<__half>("elements64", Elements64{}, policies<kHalfBias, kSoftcapBias, kPackedBias>);
  suite.forward<__half>(
      "columns64", Columns64{},
      policies<kPackedBias> +
          in_full(policies<kBias, kLearnedBiasDropout, kSoftcapBias>, policies<kHalfBias>));
  suite.forward<__half>("diagonals64", Diagonals64{},
                        policies<kPackedBias> + in_full(policies<kHalfBias, kSoftcapBias>));
  suite.forward<__nv_bfloat16>("diagonals128", Diagonals128{},
                               in_full(policies<kPackedBias, kHalfBias, kSoftcapBias>));
  suite.forward<__half>("long_elements64", LongElements64{}, in_full(policies<kHalfBias>));
  suite.forward<__half>("long_columns64", LongColumns64{}, in_full(policies<kBias>));
  suite.forward<__nv_bfloat16>("columns128", Columns128{},
                               policies<kPackedBias> + in_full(policies<kBias, kHalfBias>));
  suite.forward<__nv_bfloat16>("elements96", Elements96{},
                               in_full(policies<kHalfBias, kPackedBias>));
  suite.forward<__half>(
      "elements128", Elements128{},
      policies<kPackedBias> + in_full(policies<kHalfBias, kSoftcapBias, kHalfBiasDropout>));
  suite.forward<__half>("elements192", Elements192{}, in_full(policies<kHalfBias>));
  suite.forward<__nv_bfloat16>("elements256", Elements256{},
                               in_full(policies<kHalfBias, kPackedBias>));
  suite.forward<__nv_bfloat16>("diagonals128", Diagonals128{}, in_full(policies<kHalfBiasDropout>));
  suite.forward<__half>("many64", Many64{}, in_full(policies<kCausal>));
  suite.forward<__nv_bfloat16>("many96", Many96{}, in_full(policies<kCausal>));
  suite.forward<__half>("many128", Many128{}, in_full(policies<kCausal>));
  suite.forward<__nv_bfloat16>("many192", Many192{}, in_full(policies<kCausal>));
  suite.forward<__half>("d96", D96{}, in_full(policies<kNone>));
  suite.forward<__nv_bfloat16>("d96", D96{}, in_full(policies<kCausal>));
  suite.forward<__half>("d192x128", D192x128{}, in_full(policies<kNone>));
  suite.forward<__nv_bfloat16>("d192x128", D192x128{}, in_full(policies<kCausal>));
  suite.forward<__half>("d192", D192{}, in_full(policies<kCausal>));
  suite.forward<__nv_bfloat16>("d192", D192{}, in_full(policies<kNone>));
  suite.forward<__half>("64x64_d40", Own64x64D40{}, in_full(policies<kCausal>));
  suite.forward<__half>("128x48_d72", Own128x48D72{}, in_full(policies<kNone>));
  suite.forward<__nv_bfloat16>("128x96_d80", Own128x96D80{}, in_full(policies<kNone>));
  suite.forward<__half>("192x64_d64x32", Own192x64D64x32{}, in_full(policies<kCausal>));
  suite.forward<__half>("128x64_d64x256", Own128x64D64x256{}, in_full(policies<kNone>));
  suite.forward<__half>("not_persistent", NotPersistent{}, in_full(policies<kWindow>));
  suite.forward<__half>("three_groups", ThreeGroups{}, in_full(policies<kNone, kCausal>));
  suite.forward<__nv_bfloat16>("four_stages", FourStages{}, in_full(policies<kPrefix>));
  suite.forward<__half>("widest", Widest{}, in_full(policies<kNone>));
  return true;
}();

}  // namespace suite_sm90_forward
