// SPDX-License-Identifier: MIT
#include <attile/block_lists.cuh>
#include <attile/host/block_lists.h>

#include <string>
#include <vector>

#include "kernel/suite_executor.cuh"
#include "sim/any_cache.h"
#include "sim/any_table.h"
#include "sim/find_slot.h"
#include "sim/packed.h"
#include "sim/suite.h"
#include "sim/wrong_lists.h"
#include "support/earlier_keys_on_device.h"
#include "support/fp8_cases.h"
#include "support/fp8_executor.h"
#include "support/paged_problem.h"
#include "support/prepared_on_device.h"
#include "support/problem.h"

namespace {

using namespace attile_test;

using E4m3 = __nv_fp8_e4m3;
using E5m2 = __nv_fp8_e5m2;
using Default = GpuExecutor<Dims<64>>;
using Odd = GpuExecutor<
    Dims<64>,
    Tiles<20, 24, attile::portable::Tuning<attile::portable::TuningValues{.threads = 128}>>>;
using Padded = GpuExecutor<
    Dims<64>,
    Tiles<57, 57, attile::portable::Tuning<attile::portable::TuningValues{.threads = 128}>>>;
using ListedTwoPass = GpuExecutor<Dims<64>, Tiles<16, 32>, attile::DqMode::kTwoPass>;
using TwoPass = GpuExecutor<Dims<64>, Tiles<16, 24>, attile::DqMode::kTwoPass>;

/// Sums in no fixed order are refused where dQ has the same bits always, and nothing is written.
template <class Executor>
void check_that_sums_are_refused() {
  const char* const why =
      "kTwoPass and kInOrder: scores add to an element of score_mod's gradient in no fixed order; "
      "give it an element for each score, or take kAccumulate";
  for (const Case& c : kCases) {
    if (c.policy != Policy::kLearned || !has_sums(c) || c.head_dim > 64) continue;
    Problem<float, Policy::kLearned> p(c);
    const std::vector<float> before = p.learned_buffer().storage();
    CHECK(Executor{}.backward(p.backward_args(), p.regions()).why == std::string(why));
    CHECK(p.learned_buffer().equals(before));
  }
}

/// Kernels of both passes, of all ways to add dQ, with a mask that reads a table.
template <class Mask>
void any_table() {
  using attile::DqMode;
  using attile::NoDropout;
  using attile::NoScoreMod;
  using Small = attile::portable::Tuning<>;
  const auto backward = [&]<DqMode kMode>() {
    run_any_table<
        attile::BackwardTraits<16, 24, 32, float, Mask, NoScoreMod, NoDropout, 32, kMode, Small>>();
  };
  run_any_table<attile::ForwardTraits<16, 24, 32, float, Mask, NoScoreMod, NoDropout, 32, Small>>();
  backward.template operator()<DqMode::kAccumulate>();
  backward.template operator()<DqMode::kTwoPass>();
  backward.template operator()<DqMode::kInOrder>();
}

using Blocks = attile::BlockSparse<attile::Causal, 128, 64>;
constexpr int kListedRows = kTestLarge ? 300 : 200, kListedKeys = kTestLarge ? 250 : 150;
template <attile::DqMode kMode>
using ListedBackward =
    attile::portable::DefaultBackwardTraits<attile::BackwardArgs<float, Blocks>, 32, 32, kMode>;

/// The lists that the device makes are those that the host makes, which test/core looks at.
template <class M, int QBlock, int KvBlock>
void check_prepared_lists(const M& inner, const attile::ScoreShape& shape) {
  attile::BlockSparse<M, QBlock, KvBlock> of_host, of_device;
  std::size_t bytes = 0, host_bytes = 0;
  REQUIRE(attile::prepare_block_lists(nullptr, bytes, inner, shape, of_device) == cudaSuccess);
  REQUIRE(attile::host::prepare_block_lists(nullptr, host_bytes, inner, shape, of_host));
  REQUIRE(bytes == host_bytes);
  std::vector<int> memory(bytes / sizeof(int) + 1, -1);
  const example::DeviceArray<int> device(memory);
  REQUIRE(attile::host::prepare_block_lists(memory.data(), bytes, inner, shape, of_host));
  const cudaError_t error =
      attile::prepare_block_lists(device.get(), bytes, inner, shape, of_device);
  CHECK(machine_reports() == "");
  REQUIRE(error == cudaSuccess);
  CHECK(device.download() == memory);
}

const bool kRegistered = [] {
  using enum Policy;
  const Suite suite(
      "sim.portable",
      in_large(kSimulatedPolicies + policies<kLearned, kLearnedDropout> + kSequencePolicies +
               kSinkPolicies + kBlockPolicies + kEarlierPolicies + in_full(kForwardOnlyPolicies)));
  suite.demand(
      policies<kNone, kCausal, kDocument, kCausalDropout, kEverything, kLearned, kLearnedDropout,
               kOwnLengths, kPackedCausal, kSinkEverything, kBlockSparse, kBlockSparseEverything,
               kCachedPackedAlibi, kPagedWindow, kEarlier, kEarlierPaged>);
  suite.both<float>(
      "d64", simulated<Default>(),
      in_large(kSimulatedPolicies + kSequencePolicies + kSinkPolicies + kBlockPolicies,
               policies<kNone, kEverything, kDocument, kCausalDropout, kOwnLengths, kSinkEverything,
                        kBlockSparse>));
  suite.forward<float>(
      "d64", simulated<Default>(),
      in_full(kForwardOnlyPolicies, policies<kCachedPackedAlibi, kEarlier> +
                                        in_large(policies<kPagedWindow, kEarlierEverything>)));
  suite.forward<__half>("d64", simulated<Default>(kLessCost), policies<kEarlierPaged>);
  suite.backward<float>("d64", simulated<Default>(kLessCost), in_large(policies<kLearned>));
  suite.backward<float>("d64", simulated<Default>(), policies<kLearnedDropout>);
  suite.both<__half>("d64", simulated<Default>(kLessCost), policies<kCausal>);
  suite.forward<__half>("fp8.d64", simulated<Fp8Cache<Default, E4m3, E5m2>>(kLessCost),
                        policies<kPagedWindow> + in_large(policies<kCachedPackedAlibi>));
  suite.forward<__nv_bfloat16>("fp8.20x24", simulated<Fp8Cache<Odd, E5m2, E4m3>>(kLessCost),
                               policies<kCausal>);
  using Queries = Fp8Executor<Default, E4m3, E5m2, E4m3, Fp8Products::kNone>;
  using Columns = Fp8Executor<Odd, E5m2, E4m3, E5m2, Fp8Products::kNone, Fp8Layout::kColumns>;
  using Mix = Fp8Executor<Default, E5m2, E5m2, AsItIs, Fp8Products::kNone>;
  suite.forward<__half>("fp8_queries.d64", simulated<Queries>(kLessCost),
                        policies<kPackedCausal> + in_large(policies<kPagedWindow>));
  suite.forward<__nv_bfloat16>("fp8_columns.20x24", simulated<Columns>(kLessCost),
                               policies<kCausal> + in_large(policies<kPagedWindow>));
  suite.forward<__half>("fp8_mix.d64", simulated<Mix>(kLessCost), policies<kCausal>);
  suite.test("none", "forward", "fp8_cases", [] {
    using All = attile::Elements<E4m3, E4m3, E4m3, __nv_bfloat16>;
    check_fp8_scales<All>(Default{}, 40, 24);
    check_fp8_tail<All>(Odd{}, 32);
    check_fp8_columns<All>(Odd{}, 40, Fp8Products::kNone);
    CHECK(machine_reports() == "");
  });
  suite.test("softcap", "forward", "fp8_scales", [] {
    check_fp8_scales<attile::Elements<__half, E4m3, E5m2>>(Default{}, 40, 24);
    CHECK(machine_reports() == "");
  });
  suite.backward<float>(
      "two_pass", simulated<TwoPass>(kLessCost),
      policies<kCausal, kLearned, kPackedCausal> +
          in_large(policies<kEverything, kCausalSortedDocument, kRowIntervals, kSink>));
  suite.backward<float>("two_pass", simulated<ListedTwoPass>(),
                        policies<kBlockSparseEverything> + in_large(policies<kBlockSparse>));
  suite.backward<float>("two_pass_of_sequences", simulated_case<TwoPass>("packed_causal_40_24"),
                        policies<kPackedCausal>);
  suite.test("block_sparse", "forward", "prepared_lists", [] {
    check_prepared_lists<attile::Causal, 128, 64>({}, {2, 3, {300, 250}});
    check_prepared_lists<Gaps, 64, 128>({2}, {1, 1, {130, 64}});
#if ATTILE_TEST_LARGE
    check_prepared_lists<attile::SlidingWindow, 64, 64>({70, -1}, {1, 2, {200, 520}});
    check_prepared_lists<attile::NoMask, 64, 64>({}, {1, 1, {0, 64}});
#endif
  });
  suite.test("block_sparse", "forward", "wrong_lists", [] {
    using Args = attile::ForwardArgs<float, Blocks>;
    forward_of_wrong_lists<attile::portable::DefaultForwardTraits<Args, 32>>(kListedRows,
                                                                             kListedKeys);
    forward_of_wrong_lists<attile::portable::DefaultForwardTraits<Args, 128, 128, 227>>(130, 140);
  });
  suite.test("block_sparse", "backward", "wrong_lists", [] {
    backward_of_wrong_lists<ListedBackward<attile::DqMode::kAccumulate>>(kListedRows, kListedKeys);
    backward_of_wrong_lists<ListedBackward<attile::DqMode::kInOrder>>(kListedRows, kListedKeys);
    backward_of_wrong_lists<ListedBackward<attile::DqMode::kTwoPass>>(kListedRows, kListedKeys);
  });
  suite.test("learned", "backward", "two_pass.sums_are_refused",
             check_that_sums_are_refused<TwoPass>);
  // Rows that do not fill the threads' places.
  suite.both<float>("20x24", simulated<Odd>(kLessCost), policies<kCausal>);
  // Rows and columns whose last vector reaches into the padding.
  suite.both<float>("57x57", simulated<Padded>(kLessCost), policies<kCausal>);
#if ATTILE_TEST_LARGE
  add_packed_tests<KernelsOf<Default, float, kPackedCausal>::Forward,
                   KernelsOf<TwoPass, float, kPackedCausal>::Backward,
                   KernelsOf<Default, float, kPackedCausal>::Backward>(suite, 2, 1);
#else
  add_packed_tests<KernelsOf<Default, float, kPackedCausal>::Forward,
                   KernelsOf<TwoPass, float, kPackedCausal>::Backward>(suite, 2, 1);
#endif
  suite.test("paged_window", "forward", "far_pages", [] {
    using Traits = KernelsOf<Default, float, kPagedWindow>::Forward;
    check_far_pages<float>([](const auto& args) { return attile::forward<Traits>(args); });
    CHECK(machine_reports() == "");
  });
  suite.test("paged_window", "forward", "any_cache",
             run_any_cache<KernelsOf<Default, float, kPagedWindow>::Forward>);
  suite.test("earlier", "forward", "parts_are_the_whole", [] {
    const auto run = on_device([]<class Args>(const Args& args) {
      return attile::forward<attile::portable::DefaultForwardTraits<Args, 32>>(args);
    });
    check_parts_of_sequences<float, attile::Padded>(run);
#if ATTILE_TEST_LARGE
    check_parts_of_sequences<float, attile::Uniform>(run);
#endif
    CHECK(machine_reports() == "");
  });
  suite.test("packed_causal", "both", "whose_an_item_is", check_search);
  suite.test("any_table", "both", "sorted_document", any_table<attile::SortedDocument>);
  suite.test("any_table", "both", "row_intervals", any_table<attile::RowIntervals>);
  suite.test("prepare", "both", "the_same_bytes_as_on_the_host", check_prepared_tables);
  return true;
}();

}  // namespace
