// SPDX-License-Identifier: MIT
#include <attile/kernel/sm80/backward.cuh>
#include <attile/kernel/sm80/forward.cuh>

#include "kernel/suite_executor.cuh"
#include "sim/any_cache.h"
#include "sim/any_table.h"
#include "sim/packed.h"
#include "sim/suite.h"
#include "sim/wrong_lists.h"
#include "support/earlier_keys_on_device.h"
#include "support/fp8_cases.h"
#include "support/fp8_executor.h"
#include "support/paged_problem.h"

namespace {

using namespace attile_test;

/// Kernels of the family sm80.
template <int Br, int Bc, class Tuning, class BackwardTuning>
struct MatrixTiles {
  template <class Args, class Dim>
  using Forward = attile::sm80::ForwardTraits<Br, Bc, Dim::D, typename Args::Elements,
                                              typename Args::Policies, Dim::Dv, Tuning>;
  template <class Args, class Dim, attile::DqMode kMode>
  using Backward =
      attile::sm80::BackwardTraits<Br, Bc, Dim::D, typename Args::Elements, typename Args::Policies,
                                   Dim::Dv, kMode, BackwardTuning>;
};

using E4m3 = __nv_fp8_e4m3;
using E5m2 = __nv_fp8_e5m2;
using attile::sm80::BackwardTuning;
using attile::sm80::BackwardTuningValues;
using attile::sm80::Tuning;
using attile::sm80::TuningValues;
using WideTiles =
    MatrixTiles<128, 64, Tuning<TuningValues{.warps = 4, .blocks_per_sm = 2}>,
                BackwardTuning<BackwardTuningValues{.warps = 4, .warps_n = 1, .dq_warps_n = 1}>>;
using SmallTiles =
    MatrixTiles<32, 32, Tuning<TuningValues{.warps = 2, .blocks_per_sm = 2}>,
                BackwardTuning<BackwardTuningValues{.warps = 2, .warps_n = 1, .dq_warps_n = 1}>>;
using Large = GpuExecutor<Dims<64>, WideTiles>;
using Small = GpuExecutor<Dims<64>, SmallTiles>;
using InOrder = GpuExecutor<Dims<64>, SmallTiles, attile::DqMode::kInOrder>;
// Rows of O lie elsewhere than those of Q.
using Narrow = GpuExecutor<Dims<64, 32>, SmallTiles>;

// Two warps share rows of dQ, and of dK and dV.
using TwoWarpsARow =
    BackwardTuning<BackwardTuningValues{.warps = 4, .warps_n = 2, .dq_warps_n = 2}>;
// Warps that share rows: two lines of two, and one of four.
using Lines =
    GpuExecutor<Dims<64, 40>,
                MatrixTiles<64, 32, Tuning<TuningValues{.warps = 4, .warps_n = 2}>, TwoWarpsARow>>;
using WideLines =
    GpuExecutor<Dims<192, 136, 96>,
                MatrixTiles<64, 64, Tuning<TuningValues{.warps = 4, .warps_n = 2}>, TwoWarpsARow>>;
using Line =
    GpuExecutor<Dims<64>,
                MatrixTiles<32, 64, Tuning<TuningValues{.warps = 4, .warps_n = 4}>, TwoWarpsARow>>;

// Sums that are cut off more often than rounding would do for.
using Deep = GpuExecutor<Dims<128, 128, 96>,
                         MatrixTiles<32, 32, Tuning<TuningValues{.warps = 2}>, TwoWarpsARow>>;

/// Kernels that read a score modifier's data by columns, or copy its elements, and where its values
/// do not let them those that read as its tiles do.
template <int Br, int Bc, attile::sm80::ModifierReads kReads, int Stages = 1>
struct ReadingTiles
    : MatrixTiles<Br, Bc, Tuning<TuningValues{.warps = 4, .blocks_per_sm = 2, .reads = kReads}>,
                  BackwardTuning<BackwardTuningValues{.warps = 4,
                                                      .warps_n = 1,
                                                      .dq_warps_n = Bc / 32,
                                                      .blocks_per_sm = 2,
                                                      .stages = Stages,
                                                      .reads = kReads}>> {
  template <class Args, class Dim>
  using Fallback = attile::sm80::DefaultForwardTraits<Args, Dim::D, Dim::Dv>;
  template <class Args, class Dim, attile::DqMode kMode>
  using BackwardFallback = attile::sm80::DefaultBackwardTraits<Args, Dim::D, Dim::Dv, kMode>;
};
using attile::sm80::ModifierReads;
constexpr double kSeveralTiles = 6e6;
using Columns = GpuExecutor<Dims<64>, ReadingTiles<128, 96, ModifierReads::kColumns>>;
using Columns128 = GpuExecutor<Dims<128>, ReadingTiles<128, 48, ModifierReads::kColumns>>;
using Elements = GpuExecutor<Dims<64>, ReadingTiles<128, 64, ModifierReads::kElements>>;
using Elements128 = GpuExecutor<Dims<128>, ReadingTiles<64, 64, ModifierReads::kElements>>;
using ColumnsBackward = GpuExecutor<Dims<64>, ReadingTiles<32, 128, ModifierReads::kColumns>>;
using ElementsBackward = GpuExecutor<Dims<64>, ReadingTiles<32, 128, ModifierReads::kElements>>;
using ElementsInOrder = GpuExecutor<Dims<64>, ReadingTiles<32, 64, ModifierReads::kElements, 2>,
                                    attile::DqMode::kInOrder>;

/// Kernels of both passes, of all ways to add dQ, with a mask that reads a table.
template <class Mask>
void any_table() {
  using E = attile::Elements<__half>;
  using P = attile::Policies<Mask>;
  using attile::DqMode;
  using attile::sm80::BackwardTraits;
  using Backward = BackwardTuning<BackwardTuningValues{.warps = 2, .warps_n = 1, .dq_warps_n = 1}>;
  run_any_table<attile::sm80::ForwardTraits<
      32, 32, 64, E, P, 64, Tuning<TuningValues{.warps = 2, .blocks_per_sm = 2}>>>();
  run_any_table<BackwardTraits<32, 32, 64, E, P, 64, DqMode::kAccumulate, Backward>>();
  run_any_table<BackwardTraits<32, 32, 64, E, P, 64, DqMode::kInOrder, Backward>>();
}

using Blocks = attile::BlockSparse<attile::Causal, 128, 64>;
template <attile::DqMode kMode>
using ListedBackward =
    attile::sm80::DefaultBackwardTraits<attile::BackwardArgs<__half, Blocks>, 32, 32, kMode>;

const bool kRegistered = [] {
  using enum Policy;
  const Suite suite("sim.sm80",
                    in_large(kSimulatedPolicies + kLearnedPolicies + kSequencePolicies +
                             kSinkPolicies + kBlockPolicies + kEarlierPolicies +
                             policies<kHalfBias, kSoftcapBias> + in_full(kForwardOnlyPolicies)));
  suite.demand(
      policies<kNone, kCausal, kPrefix, kKeyPadding, kCausalSortedDocument, kBias, kHalfBias,
               kCausalDropout, kEverything, kLearnedBiasDropout, kOwnLengths, kPackedCausal,
               kPackedBatches, kSinkEverything, kBlockSparse, kBlockSparseEverything, kPagedWindow,
               kPagedPackedEverything, kEarlierEverything, kEarlierPaged>);
  suite.both<__half>(
      "128x64", simulated<Large>(),
      in_large(kSimulatedPolicies + kSequencePolicies + kBlockPolicies + policies<kSink>,
               policies<kEverything, kPrefix, kKeyPadding, kPackedBatches>));
  suite.forward<__half>("128x64", simulated<Large>(), in_full(kForwardOnlyPolicies));
  suite.forward<__half>(
      "32x32", simulated<Small>(),
      policies<kPagedWindow, kEarlierPaged> + in_large(policies<kPagedPackedEverything>));
  suite.both<__nv_bfloat16>("32x32", simulated<Small>(), policies<kCausal>);
  suite.backward<__half>("32x32", simulated<Small>(),
                         in_large(kLearnedPolicies, policies<kLearnedBiasDropout>));
  suite.backward<__half>("in_order", simulated<InOrder>(),
                         policies<kPackedCausal, kCausalSortedDocument, kBlockSparseEverything> +
                             in_large(policies<kCausal, kOwnLengthsSink, kBlockSparse>));
  suite.backward<__half>("d128", simulated<Deep>(kWideCost), policies<kNone>);
  suite.forward<__half>(
      "columns", simulated<Columns>(kSeveralTiles),
      policies<kLearnedBiasDropout> + in_large(policies<kHalfBias, kBias, kSoftcapBias>));
  suite.forward<__nv_bfloat16>("columns_d128", simulated<Columns128>(kSeveralTiles),
                               in_large(policies<kHalfBias>));
  suite.forward<__half>("elements", simulated<Elements>(kSeveralTiles),
                        in_large(policies<kHalfBias, kSoftcapBias>));
  suite.forward<__nv_bfloat16>("elements_d128", simulated<Elements128>(kSeveralTiles),
                               policies<kHalfBias>);
  suite.backward<__half>("columns", simulated<ColumnsBackward>(kSeveralTiles),
                         policies<kBias> + in_large(policies<kHalfBias>));
  suite.backward<__half>("elements", simulated<ElementsBackward>(kSeveralTiles),
                         in_large(policies<kHalfBias>));
  suite.backward<__nv_bfloat16>("elements_in_order", simulated<ElementsInOrder>(kSeveralTiles),
                                policies<kHalfBias>);
  suite.forward<__half>(
      "lines", simulated<Lines>(),
      policies<kOwnLengths, kBlockSparse, kSinkEverything> + in_large(policies<kCausal, kEarlier>));
  suite.forward<__nv_bfloat16>("lines", simulated<Lines>(), policies<kEarlierEverything>);
  suite.forward<__nv_bfloat16>("32x32", simulated<Small>(), in_large(policies<kEarlierEverything>));
  suite.forward<__half>("lines_d192x136", simulated<WideLines>(kWideCost), policies<kNone>);
  suite.forward<__half>("line", simulated<Line>(), policies<kCausalDropout>);
  suite.forward<__nv_bfloat16>("line", simulated<Line>(), in_large(policies<kCausalDocument>));
  suite.forward<__half>("d64x32", simulated<Narrow>(),
                        policies<kNone> + in_large(policies<kCausal>));
  suite.forward<__half>(
      "fp8.128x64", simulated<Fp8Cache<Large, E4m3, E5m2>>(),
      policies<kPagedPackedEverything> + in_large(policies<kCausal, kBlockSparse>));
  suite.forward<__nv_bfloat16>("fp8.lines", simulated<Fp8Cache<Lines, E5m2, E4m3>>(),
                               policies<kCausal> + in_large(policies<kPagedWindow>));
  constexpr auto kScores = Fp8Products::kScores;
  suite.forward<__half>(
      "fp8_queries.128x64", simulated<Fp8Executor<Large, E4m3, E5m2, E4m3, kScores>>(),
      policies<kCausal> + in_large(policies<kPagedPackedEverything, kBlockSparse, kPackedCausal>));
  suite.forward<__nv_bfloat16>("fp8_queries.lines",
                               simulated<Fp8Executor<Lines, E5m2, E4m3, E5m2, kScores>>(),
                               policies<kPagedWindow> + in_large(policies<kCausal, kEarlierPaged>));
  suite.forward<__half>(
      "fp8_columns.32x32",
      simulated<Fp8Executor<Small, E4m3, E4m3, E5m2, kScores, Fp8Layout::kColumns>>(),
      policies<kCausal> + in_large(policies<kPagedWindow>));
  suite.forward<__nv_bfloat16>("fp8_mix.128x64",
                               simulated<Fp8Executor<Large, E5m2, E5m2, AsItIs, kScores>>(),
                               policies<kCausal> + in_large(policies<kSinkEverything>));
  suite.test("none", "forward", "fp8_cases", [] {
    using All = attile::Elements<E4m3, E4m3, E4m3, __half>;
    check_fp8_scales<All>(Large{}, 64, 40, kScores);
    check_fp8_scales<attile::Elements<E5m2, E4m3, E5m2, __nv_bfloat16>>(Small{}, 40, 64, kScores);
    check_fp8_scales<attile::Elements<E5m2, E5m2, __half, __half>>(Lines{}, 64, 40, kScores);
    check_fp8_sum<All>(Small{}, 4096, 64);
    check_fp8_tail<All>(Small{}, 64);
    check_fp8_extreme_scales<All>(Small{});
    check_fp8_one_column<attile::Elements<E4m3, E4m3, E4m3, float>>(Small{});
    check_fp8_columns<All>(Small{}, 64, kScores);
    check_fp8_columns<attile::Elements<E5m2, E4m3, E4m3, float>>(Small{}, 40, kScores);
    for (const bool outliers : {false, true}) check_fp8_error<All>(Large{}, 64, 200, 64, outliers);
    CHECK(machine_reports() == "");
  });
  suite.test("softcap", "forward", "fp8_scales", [] {
    check_fp8_scales<attile::Elements<__half, E4m3, E5m2>>(Large{}, 64, 64);
    check_fp8_scales<attile::Elements<__nv_bfloat16, E5m2, E4m3>>(Small{}, 40, 24);
    CHECK(machine_reports() == "");
  });
  add_packed_tests<KernelsOf<Large, __half, kPackedCausal>::Forward,
                   KernelsOf<InOrder, __half, kPackedCausal>::Backward,
                   KernelsOf<Large, __half, kPackedCausal>::Backward>(suite, 4, 2);
  suite.test("paged_window", "forward", "far_pages", [] {
    using Traits = KernelsOf<Small, __half, kPagedWindow>::Forward;
    check_far_pages<__half>([](const auto& args) { return attile::forward<Traits>(args); });
    CHECK(machine_reports() == "");
  });
  suite.test("paged_window", "forward", "any_cache",
             run_any_cache<KernelsOf<Small, __half, kPagedWindow>::Forward>);
  suite.test("earlier", "forward", "parts_are_the_whole", [] {
    const auto run = on_device([]<class Args>(const Args& args) {
      return attile::forward<attile::sm80::DefaultForwardTraits<Args, 32>>(args);
    });
#if ATTILE_TEST_LARGE
    check_parts_of_sequences<__half, attile::Padded, attile::Cached>(run);
#endif
    check_parts<KeysInParts<__half, attile::Packed, attile::PartDropout>>(
        {3, 2, 1, 9, 32, {32, 48, 101}}, run);
    CHECK(machine_reports() == "");
  });
  suite.test("any_table", "both", "sorted_document", any_table<attile::SortedDocument>);
  suite.test("any_table", "both", "row_intervals", any_table<attile::RowIntervals>);
  suite.test("block_sparse", "forward", "wrong_lists", [] {
    using Args = attile::ForwardArgs<__half, Blocks>;
    forward_of_wrong_lists<attile::sm80::DefaultForwardTraits<Args, 32>>(300, 250);
  });
  suite.test("block_sparse", "backward", "wrong_lists", [] {
    backward_of_wrong_lists<ListedBackward<attile::DqMode::kAccumulate>>(300, 250);
    backward_of_wrong_lists<ListedBackward<attile::DqMode::kInOrder>>(300, 250);
  });
  return true;
}();

}  // namespace
