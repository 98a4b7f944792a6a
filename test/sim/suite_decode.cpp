// SPDX-License-Identifier: MIT
#include <attile/kernel/sm80/decode.cuh>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernel/decode_executor.cuh"
#include "sim/any_cache.h"
#include "sim/one_head.h"
#include "sim/suite.h"
#include "support/decode_bits.h"
#include "support/earlier_keys_on_device.h"
#include "support/fp8_cases.h"
#include "support/fp8_executor.h"
#include "support/paged_problem.h"
#include "support/prepared.h"

namespace {

using namespace attile_test;
using attile::sm80::DecodeTuning;
using attile::sm80::DecodeTuningValues;

using OneGroupOfFour = DecodeTuning<DecodeTuningValues{.warps = 4, .key_groups = 1, .stages = 2}>;

template <int Br, int Bc, class Tuning, SplitKind kSplits, class Dim = Dims<64>>
using Decode = DecodeExecutor<Dim, DecodeTiles<Br, Bc, Tuning>, kSplits>;

// A warp in each of two key groups; two warps in each, which share rows or keys; a warpgroup; one
// block of one warp with one stage; states merged in the memory of Q, by one group and by two.
using Groups = Decode<16, 32, DecodeTuning<DecodeTuningValues{.warps = 2}>, SplitKind::kFill>;
using Rows = Decode<32, 64, TwoGroupsOfTwo, SplitKind::kNone>;
using RowsFill = Decode<64, 64, OneGroupOfFour, SplitKind::kFill>;
using Warpgroup = Decode<64, 64, OneGroupOfFour, SplitKind::kFixed, Dims<80, 40>>;
using Fixed = Decode<32, 32, OneGroupOfTwo, SplitKind::kFixed>;
using One =
    Decode<16, 16, DecodeTuning<DecodeTuningValues{.warps = 1, .stages = 1}>, SplitKind::kNone>;
template <int KeyGroups, int Stages, int QStages = 1, bool kPairs = false>
using OneQ = DecodeTuning<DecodeTuningValues{.warps = 4,
                                             .key_groups = KeyGroups,
                                             .stages = Stages,
                                             .blocks_per_sm = 2,
                                             .q_stages = QStages,
                                             .pairs = kPairs}>;
using OneQFill = Decode<64, 64, OneQ<1, 2>, SplitKind::kFill>;
using OneQFixed = Decode<32, 64, OneQ<2, 3>, SplitKind::kFixed>;
using PairsFill = Decode<32, 128, OneQ<2, 2, 1, true>, SplitKind::kFill>;
using PairsFixed = Decode<32, 64, OneQ<2, 2, 2, true>, SplitKind::kFixed, Dims<64, 96>>;
using Wide = Decode<32, 64, TwoGroupsOfTwo, SplitKind::kFill, Dims<256, 256, 64>>;
// How much the tests look at that compare bits of many batches.
constexpr int kBatches = kTestLarge ? 8 : 3;
const std::vector<int> kPageSizes =
    kTestLarge ? std::vector<int>{16, 1, 7, 64} : std::vector<int>{16, 7};

using E4m3 = __nv_fp8_e4m3;
using E5m2 = __nv_fp8_e5m2;
using Fp32 = Decode<32, 32, OneGroupOfTwo, SplitKind::kFill, SplitDims<64>>;
using Fp32D64x40 = Decode<32, 32, OneGroupOfTwo, SplitKind::kFill, SplitDims<64, 40>>;

template <Policy kPolicy>
using FillCalls = DecodeByTraits<typename KernelsOf<RowsFill, __half, kPolicy>::Forward>;

/// The window, without limits, and the slopes of a policy of the suite.
template <class Args>
void set_policies(Args& args) {
  static const example::DeviceArray<float> sinks(std::vector<float>(8, 0.5f));
  if constexpr (requires { args.mask.left; }) args.mask.left = -1, args.mask.right = 0;
  if constexpr (requires { args.sink.sinks; }) args.sink.sinks = sinks.get();
}

/// Whether the default tiles of every eighth head dimension fit the shared memory they are for.
template <class T, int kSharedKb, std::size_t... kEighths>
constexpr bool defaults_fit(std::index_sequence<kEighths...>) {
  return (
      (attile::sm80::DefaultDecodeTraits<attile::ForwardArgs<T>, 8 * kEighths + 8, 8 * kEighths + 8,
                                         kSharedKb>::kSharedBytes <= kSharedKb * 1024) &&
      ...);
}
template <class T>
constexpr bool defaults_fit() {
  constexpr std::make_index_sequence<32> kEighths;
  return defaults_fit<T, 99>(kEighths) && defaults_fit<T, 163>(kEighths) &&
         defaults_fit<T, 227>(kEighths);
}
static_assert(defaults_fit<__half>() && defaults_fit<float>());

/// Offsets that fall give more rows than there are, and more parts than scratch memory has room
/// for: nothing is accessed out of bounds.
void run_falling_offsets(bool fills) {
  using Traits = KernelsOf<Fixed, __half, Policy::kPackedCausal>::Forward;
  constexpr int kRows = 32, kHeads = 4, kBatch = 9;
  const int kKeys = fills ? 2 * Traits::kBc : 64;
  std::vector<int> cu_q, cu_k;
  for (int b = 0; b <= kBatch; ++b) {
    cu_q.push_back(b % 2 * kRows);
    cu_k.push_back(b % 2 * kKeys);
  }
  const example::DeviceArray<int> offsets_q(cu_q), offsets_k(cu_k);
  const auto q = filled<__half>(std::size_t{kRows} * kHeads * 64, 1.0f);
  const auto kv = filled<__half>(std::size_t{kKeys} * 64, 1.0f);
  const auto o = filled<__half>(std::size_t{kRows} * kHeads * 64, 1.0f);
  const Traits::Args args{
      .q = attile::bshd<const __half>(q.get(), {.rows = kRows, .heads = kHeads, .dim = 64}),
      .k = attile::bshd<const __half>(kv.get(), {.rows = kKeys, .heads = 1, .dim = 64}),
      .v = attile::bshd<const __half>(kv.get(), {.rows = kKeys, .heads = 1, .dim = 64}),
      .o = attile::bshd(o.get(), {.rows = kRows, .heads = kHeads, .dim = 64}),
      .batch = kBatch,
      .q_heads = kHeads,
      .kv_heads = 1,
      .q_len = kRows,
      .kv_len = kKeys,
      .sequences = {offsets_q.get(), offsets_k.get(), kRows, kKeys},
      .splits = fills ? attile::Splits::fill() : attile::Splits::fixed(Traits::kBc),
  };
  const attile::WorkspaceSize size = attile::workspace_size<Traits>(args);
  REQUIRE(bool(size));
  const DecodeWorkspace workspace(size.bytes);
  workspace.reset();
  static_cast<void>(attile::forward<Traits>(workspace.get(), workspace.bytes(), args));
  for (const sim::Report& report : sim::take_reports()) {
    // Two sequences have the same rows, and both write them.
    if (report.kind == "race" || report.kind == "uninitialised") continue;
    CHECK(report.kind + ": " + report.text == "");
  }
}

ATTILE_KERNEL void copy_table(Table::value_type* from, Table::value_type* to, int count) {
  for (int i = attile::arch::thread_index(); i < count; i += 32) to[i] = from[i];
}

/// A table that the kernel before writes is not read ahead of the wait for that kernel.
void check_table_of_the_kernel_before() {
  using Traits = KernelsOf<RowsFill, __half, Policy::kRowIntervals>::Forward;
  static_assert(Traits::kWarmsUp && Traits::Params::kMayReadEarly);
  constexpr int kRows = 20, kKeys = 130, kDim = Traits::kD;
  const Table on_host = host_table(IntervalRows(1, kRows, kKeys, 40).source);
  const example::DeviceArray<Table::value_type> source(on_host), table(on_host.size());
  const auto q = filled<__half>(std::size_t{kRows} * kDim, 1.0f);
  const auto kv = filled<__half>(std::size_t{kKeys} * kDim, 1.0f);
  const auto o = filled<__half>(std::size_t{kRows} * kDim, 1.0f);
  const Traits::Args args{
      .q = attile::bshd<const __half>(q.get(), {.rows = kRows, .heads = 1, .dim = kDim}),
      .k = attile::bshd<const __half>(kv.get(), {.rows = kKeys, .heads = 1, .dim = kDim}),
      .v = attile::bshd<const __half>(kv.get(), {.rows = kKeys, .heads = 1, .dim = kDim}),
      .o = attile::bshd(o.get(), {.rows = kRows, .heads = 1, .dim = kDim}),
      .batch = 1,
      .q_heads = 1,
      .kv_heads = 1,
      .q_len = kRows,
      .kv_len = kKeys,
      .mask = {table.get()},
      .splits = attile::Splits::fill(),
  };
  const DecodeWorkspace workspace(attile::workspace_size<Traits>(args).bytes);
  workspace.reset();
  REQUIRE(attile::arch::launch(copy_table, 1, 32, 0, nullptr, source.get(), table.get(),
                               static_cast<int>(on_host.size())) == cudaSuccess);
  REQUIRE(attile::forward<Traits>(workspace.get(), workspace.bytes(), args) == cudaSuccess);
  CHECK(machine_reports() == "");
}

/// With fixed splits a sequence has the bits that it has alone, also where the mask reads by the
/// sequence how many keys it sees.
void check_bits_beside_padding() {
  using Traits = KernelsOf<Fixed, __half, Policy::kKeyPadding>::Forward;
  constexpr int kKeys = 256;
  const auto bits = [&](const std::vector<int>& lengths) {
    const int batch = static_cast<int>(lengths.size());
    const example::DeviceArray<int> on_device(lengths);
    // The last sequence has the same numbers, whatever is ahead of it.
    const auto numbers = [&](int rows, std::uint64_t seed) {
      const Random random(seed);
      std::vector<__half> x(std::size_t(batch) * rows * 64);
      for (std::size_t i = 0; i < x.size(); ++i) {
        x[x.size() - 1 - i] = attile::from_float<__half>(random.normal(i));
      }
      return example::DeviceArray<__half>(x);
    };
    const auto q = numbers(1, 1), k = numbers(kKeys, 2), v = numbers(kKeys, 3), o = numbers(1, 4);
    const Traits::Args args{
        .q = attile::bshd<const __half>(q.get(), {.rows = 1, .heads = 1, .dim = 64}),
        .k = attile::bshd<const __half>(k.get(), {.rows = kKeys, .heads = 1, .dim = 64}),
        .v = attile::bshd<const __half>(v.get(), {.rows = kKeys, .heads = 1, .dim = 64}),
        .o = attile::bshd(o.get(), {.rows = 1, .heads = 1, .dim = 64}),
        .batch = batch,
        .q_heads = 1,
        .kv_heads = 1,
        .q_len = 1,
        .kv_len = kKeys,
        .mask = {.lengths = on_device.get()},
        .splits = attile::Splits::fixed(Traits::kBc),
    };
    const DecodeWorkspace workspace(attile::workspace_size<Traits>(args).bytes);
    workspace.reset();
    REQUIRE(attile::forward<Traits>(workspace.get(), workspace.bytes(), args) == cudaSuccess);
    std::vector<float> last;
    const std::vector<__half> all = o.download();
    for (int d = 0; d < 64; ++d) last.push_back(attile::to_float(all[all.size() - 64 + d]));
    return last;
  };
  CHECK(bits({32, kKeys}) == bits({kKeys}));
  CHECK(machine_reports() == "");
}

const bool kRegistered = [] {
  using enum Policy;
  constexpr auto kPolicies =
      in_large(kSimulatedPolicies + kSequencePolicies + kSinkPolicies + kForwardOnlyPolicies,
               policies<kNone, kEverything, kRowIntervals, kPackedCausal, kPaddedEverything,
                        kCachedCausal, kPagedWindow, kEarlierEverything>);
  const Suite suite("sim.decode", kPolicies);
  suite.forward<__half>("rows_fill", simulated<RowsFill>(), kPolicies);
  suite.forward<__half>("rows", simulated<Rows>(),
                        policies<kCausal> + in_large(policies<kPackedCausal>));
  suite.forward<__nv_bfloat16>(
      "groups", simulated<Groups>(),
      policies<kOwnLengths> + in_large(policies<kCausal, kEarlierEverything>));
  suite.forward<__half>("fixed", simulated<Fixed>(),
                        policies<kWindow, kKeyPadding, kSinkEverything, kPagedWindow> +
                            in_large(policies<kPackedCausal, kEarlierPaged>));
  suite.forward<__half>("one", simulated<One>(), policies<kNone>);
  suite.forward<__nv_bfloat16>("one_q_fill", simulated<OneQFill>(),
                               policies<kPackedCausal, kEarlierPaged> +
                                   in_large(policies<kCausal, kOwnLengths, kPagedWindow>));
  suite.forward<__half>(
      "one_q_fixed", simulated<OneQFixed>(),
      policies<kWindow, kSinkEverything> + in_large(policies<kPackedCausal, kEarlierEverything>));
  suite.forward<__nv_bfloat16>("warpgroup", simulated<Warpgroup>(),
                               policies<kCausal> + in_large(policies<kPagedWindow>));
  suite.forward<__half>("d256", simulated<Wide>(kWideCost), policies<kCausal>);
  suite.forward<__half>(
      "fp8.rows_fill", simulated<Fp8Cache<RowsFill, E4m3, E5m2>>(),
      policies<kPagedPackedEverything, kCachedPackedAlibi> + in_large(policies<kEarlierPaged>));
  suite.forward<__nv_bfloat16>("fp8.groups", simulated<Fp8Cache<Groups, E4m3, E4m3>>(),
                               policies<kPagedWindow> + in_large(policies<kCausal>));
  suite.forward<__nv_bfloat16>("fp8.one_q_fill", simulated<Fp8Cache<OneQFill, E4m3, E4m3>>(),
                               policies<kCausal> + in_large(policies<kPagedPackedEverything>));
  suite.forward<__nv_bfloat16>(
      "fp8.pairs_fill", simulated<Fp8Cache<PairsFill, E4m3, E4m3>>(),
      policies<kPagedPackedEverything, kEarlierPaged> + in_large(policies<kCausal, kOwnLengths>));
  suite.forward<__half>(
      "fp8.pairs_fixed", simulated<Fp8Cache<PairsFixed, E5m2, E4m3>>(),
      policies<kPackedCausal> + in_large(policies<kPagedWindow, kSinkEverything>));
  suite.forward<__half>("fp8.fixed", simulated<Fp8Cache<Fixed, E5m2, E4m3>>(),
                        policies<kCachedCausal> + in_large(policies<kSinkEverything>));
  suite.forward<__nv_bfloat16>("fp8.d256", simulated<Fp8Cache<Wide, E5m2, E4m3>>(kWideCost),
                               in_large(policies<kCausal>));
  suite.test("softcap", "forward", "fp8_scales", [] {
    check_fp8_scales<attile::Elements<__half, E4m3, E5m2>>(RowsFill{}, 64, 64);
    check_fp8_scales<attile::Elements<__nv_bfloat16, E5m2, E4m3>>(Fixed{}, 40, 24);
    check_fp8_query_range<E4m3, E5m2>(RowsFill{});
    check_fp8_large_scores<E4m3, E5m2>(RowsFill{});
    CHECK(machine_reports() == "");
  });
  using Fp8Args =
      attile::ForwardArgs<attile::Elements<__half, E4m3, E5m2>, CombinationOf<kPagedWindow>>;
  using Fp8Traits = DecodeTiles<32, 64, TwoGroupsOfTwo>::Forward<Fp8Args, Dims<64>>;
  using Fp8Calls = DecodeByTraits<Fp8Traits>;
  suite.test("paged_window", "forward", "fp8_any_cache", run_any_cache<Fp8Traits>);
  suite.test("paged_window", "forward", "fp8_bits_follow_from_the_sequence", [] {
    const auto set_fp8 = [](auto& args) { set_policies(args); };
    check_fixed_bits<Fp8Calls>(kBatches - 1, 20, 300, 4, 2, kPageSizes, set_fp8);
    CHECK(machine_reports() == "");
  });
  using OfPages = KernelsOf<Fixed, __half, kPagedWindow>::Forward;
  suite.test("paged_window", "forward", "any_cache", run_any_cache<OfPages>);
  suite.test("paged_window", "forward", "far_pages", [] {
    check_far_pages<__half>([](const auto& args) { return attile::forward<OfPages>(args); });
    CHECK(machine_reports() == "");
  });
  suite.forward<float>("fp32", simulated<Fp32>(), policies<kEarlier>);
  suite.forward<float>("fp32.registers", simulated_case<Fp32>("earlier_dim_64_40"),
                       policies<kEarlier>);
  suite.forward<float>("fp32.d64x40", simulated<Fp32D64x40>(), in_large(policies<kCausal>));
  // More sequences than a warp has lanes; and rows beyond the first 16 of fixed parts of pairs.
  suite.forward<__half>("many_sequences", simulated_case<RowsFill>("packed_causal_38_sequences"),
                        policies<kPackedCausal>);
  suite.forward<__half>("fp8.rows_of_pairs",
                        simulated_case<Fp8Cache<PairsFixed, E5m2, E4m3>>("packed_causal_heads_8_1"),
                        policies<kPackedCausal>);

  suite.test("earlier_paged", "forward", "parts_are_the_whole", [] {
    const auto run = on_device(
        split_to_fill([]<class Args>(void* workspace, std::size_t& bytes, const Args& args) {
          using Traits = attile::sm80::DecodeTraits<32, 64, 32, typename Args::Elements,
                                                    typename Args::Policies, 32, TwoGroupsOfTwo>;
          return attile::forward<Traits>(workspace, bytes, args);
        }));
#if ATTILE_TEST_LARGE
    check_parts_of_sequences<__half, attile::Uniform, attile::Cached, attile::Paged>(run);
#endif
    check_parts<KeysInParts<__half, attile::Packed, attile::PartDropout>>(
        {3, 2, 1, 9, 32, {32, 48, 301}}, run);
    CHECK(machine_reports() == "");
  });
  suite.test("packed_causal", "forward", "falling_offsets", [] { run_falling_offsets(false); });
  suite.test("packed_causal", "forward", "falling_offsets_fill", [] { run_falling_offsets(true); });
  suite.test("key_padding", "forward", "bits_beside_padding", check_bits_beside_padding);
  suite.test("row_intervals", "forward", "table_of_the_kernel_before",
             check_table_of_the_kernel_before);

  using Cached = FillCalls<kCachedCausal>;
  using Paged = FillCalls<kPagedWindow>;
  const auto set = [](auto& args) { set_policies(args); };
  suite.test("cached_causal", "forward", "bits_follow_from_the_sequence", [=] {
    check_fixed_bits<Cached>(kBatches, 20, 300, 4, 2, {0}, set);
    CHECK(machine_reports() == "");
  });
  suite.test("paged_window", "forward", "bits_follow_from_the_sequence", [=] {
    check_fixed_bits<Paged>(kBatches, 20, 300, 4, 2, kPageSizes, set);
    CHECK(machine_reports() == "");
  });
  suite.test("paged_window", "forward", "a_row_beside_prompts", [=] {
    check_bits_beside_prompts<Paged>(300, 4, 2, {16, 7}, set);
    CHECK(machine_reports() == "");
  });
  suite.test("cached_causal", "forward", "bits_in_chunks", [=] {
    check_bits_in_chunks<Cached>(230, 4, 2, 0, set);
    CHECK(machine_reports() == "");
  });
  // Rows beside each other have the diagonal in different places of a lane's keys.
  suite.test("cached_causal", "forward", "bits_in_chunks_with_alibi", [] {
    using Args = attile::ForwardArgs<__half, attile::Causal, attile::Alibi, attile::Cached>;
    using Alibi = DecodeByTraits<DecodeTiles<32, 64, TwoGroupsOfTwo>::Forward<Args, Dims<64>>>;
    static const example::DeviceArray<float> slopes(std::vector<float>(12, 0.3535534f));
    for (int keys = 4 * Alibi::kBc; keys < 4 * Alibi::kBc + (kTestLarge ? 3 : 1); ++keys) {
      check_bits_in_chunks<Alibi>(keys, 12, 4, 0,
                                  [](auto& args) { args.score_mod.slopes = slopes.get(); });
    }
    CHECK(machine_reports() == "");
  });
  // A window hides the first keys of some rows of a call: they have parts ahead that see nothing.
  suite.test("paged_window", "forward", "bits_in_chunks_of_a_window", [] {
    using Fp32Fixed = Decode<32, 32, OneGroupOfTwo, SplitKind::kFixed>;
    using Window = DecodeByTraits<KernelsOf<Fp32Fixed, float, kPagedWindow>::Forward>;
    constexpr int kKvHeads = kTestLarge ? 2 : 1;
    check_bits_in_chunks<Window>(1100, 4 * kKvHeads, kKvHeads, 16, [](auto& args) {
      set_policies(args);
      args.mask.left = 700;
    });
    CHECK(machine_reports() == "");
  });
  suite.test("cached_causal", "forward", "scratch_memory_stays_ready", [=] {
    check_workspace_stays_ready<Cached>(kTestLarge ? 24 : 10, 900, 0, set);
    CHECK(machine_reports() == "");
  });
  suite.test("paged_window", "forward", "a_sink_counts_once", [] {
    check_sink_counts_once<Paged>(16);
    CHECK(machine_reports() == "");
  });
  suite.test("paged_window", "forward", "refusals", [=] {
    check_decode_refusals<Paged>(16, set);
    CHECK(machine_reports() == "");
  });
  return true;
}();

}  // namespace
