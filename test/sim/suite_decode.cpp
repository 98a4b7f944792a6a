// SPDX-License-Identifier: MIT
#include <attile/kernel/sm80/decode.cuh>

#include "kernel/decode_executor.cuh"
#include "sim/any_cache.h"
#include "sim/suite.h"
#include "support/decode_bits.h"
#include "support/paged_problem.h"

namespace {

using namespace attile_test;
using attile::sm80::DecodeTuning;

template <int Br, int Bc, class Tuning, SplitKind kSplits, class Dim = Dims<64>>
using Decode = DecodeExecutor<Dim, DecodeTiles<Br, Bc, Tuning>, kSplits>;

// A warp in each of two key groups; two warps in each, which share rows or keys; one block of one
// warp with one stage.
using Groups = Decode<16, 32, DecodeTuning<2, 2, 3>, SplitKind::kFill>;
using Rows = Decode<32, 64, DecodeTuning<4, 2, 2>, SplitKind::kNone>;
using RowsFill = Decode<32, 64, DecodeTuning<4, 2, 2>, SplitKind::kFill>;
using Fixed = Decode<32, 32, DecodeTuning<2, 1, 2>, SplitKind::kFixed>;
using One = Decode<16, 16, DecodeTuning<1, 1, 1>, SplitKind::kNone>;
using Wide = Decode<32, 64, DecodeTuning<4, 2, 2>, SplitKind::kFill, Dims<256, 256, 64>>;
using Fp32 = Decode<32, 32, DecodeTuning<2, 1, 2>, SplitKind::kFill, SplitDims<64, 40>>;

template <Policy kPolicy>
using FillCalls = DecodeByTraits<typename KernelsOf<RowsFill, __half, kPolicy>::Forward>;

/// The window, without limits, and the slopes of a policy of the suite.
template <class Args>
void set_policies(Args& args) {
  static const example::DeviceArray<float> sinks(std::vector<float>(8, 0.5f));
  if constexpr (requires { args.mask.left; }) args.mask.left = -1, args.mask.right = 0;
  if constexpr (requires { args.sink.sinks; }) args.sink.sinks = sinks.get();
}

const bool kRegistered = [] {
  using enum Policy;
  constexpr auto kPolicies =
      kSimulatedPolicies + kSequencePolicies + kSinkPolicies + kCachePolicies;
  const Suite suite("sim.decode", kPolicies);
  suite.forward<__half>("rows_fill", simulated<RowsFill>(), kPolicies);
  suite.forward<__half>("rows", simulated<Rows>(), policies<kCausal, kPackedCausal>);
  suite.forward<__nv_bfloat16>("groups", simulated<Groups>(), policies<kCausal, kOwnLengths>);
  suite.forward<__half>("fixed", simulated<Fixed>(),
                        policies<kWindow, kPackedCausal, kSinkEverything, kPagedWindow>);
  suite.forward<__half>("one", simulated<One>(), policies<kNone>);
  suite.forward<__half>("d256", simulated<Wide>(kWideCost), policies<kCausal>);
  using OfPages = KernelsOf<Fixed, __half, kPagedWindow>::Forward;
  suite.test("paged_window", "forward", "any_cache", run_any_cache<OfPages>);
  suite.test("paged_window", "forward", "far_pages", [] {
    check_far_pages<__half>([](const auto& args) { return attile::forward<OfPages>(args); });
    CHECK(machine_reports() == "");
  });
  suite.forward<float>("fp32", simulated<Fp32>(), policies<kCausal>);

  using Cached = FillCalls<kCachedCausal>;
  using Paged = FillCalls<kPagedWindow>;
  const auto set = [](auto& args) { set_policies(args); };
  suite.test("cached_causal", "forward", "bits_follow_from_the_sequence", [=] {
    check_fixed_bits<Cached>(8, 20, 300, 4, 2, {0}, set);
    CHECK(machine_reports() == "");
  });
  suite.test("paged_window", "forward", "bits_follow_from_the_sequence", [=] {
    check_fixed_bits<Paged>(8, 20, 300, 4, 2, {16, 1, 7, 64}, set);
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
  suite.test("cached_causal", "forward", "scratch_memory_stays_ready", [=] {
    check_workspace_stays_ready<Cached>(24, 900, 0, set);
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
