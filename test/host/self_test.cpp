// SPDX-License-Identifier: MIT
// The suite passes a right executor and fails every wrong one: no tolerance is so wide that a
// defect fits in.
#include <cstddef>
#include <string>

#include "support/catch.h"
#include "support/plain_executor.h"
#include "support/policy_lists.h"
#include "support/suite.h"

namespace {

using namespace attile_test;

struct KnownDefect {
  Defect defect;
  const char* seen_by;  ///< a case that fails
  bool backward;
  bool seen_in_bf16;  ///< 8 bits are enough to see it
};

constexpr KnownDefect kDefects[] = {
    {Defect::kDropsLastKey, "len_65_65", false, true},
    {Defect::kDropsLastRow, "len_65_65", false, true},
    {Defect::kScaleOnePercentOff, "len_65_65", false, false},
    {Defect::kTopLeftAligned, "causal_17_57", false, true},
    {Defect::kOutputNotRescaled, "len_17_17", false, true},
    {Defect::kMaximumStartsAtZero, "causal_heads_14_2_first_tile_hidden", false, true},
    {Defect::kMaximumStartsAtZero, "negative_1_128", false, true},
    {Defect::kMaximumStartsAtZero, "very_negative_dim_128", false, true},
    {Defect::kFiniteNumberForHidden, "causal_5_2", false, true},
    {Defect::kFiniteNumberForHidden, "causal_very_negative", false, true},
    {Defect::kReadsValuePastEnd, "capacity", false, true},
    {Defect::kWritesPastEnd, "len_65_65", false, true},
    {Defect::kWritesPastEnd, "padded", false, true},
    {Defect::kEmptyRowDividesByZero, "causal_5_2", false, true},
    {Defect::kEmptyRowDividesByZero, "kv_len_0", false, true},
    {Defect::kLseInBase2, "len_65_65", false, true},
    {Defect::kKvHeadModulo, "heads_6_2", false, true},
    {Defect::kOtherBitsEachTime, "len_65_65", false, true},
    {Defect::kWritesToInput, "len_65_65", false, true},
    {Defect::kWindowOffByOne, "window_5_0", false, true},
    {Defect::kKeyStridesForValues, "mixed", false, true},
    {Defect::kProbabilitiesInBf16, "len_65_65", false, false},
    {Defect::kKeepsDropoutUnscaled, "dropout_65_129", false, true},
    {Defect::kBatchAbove65535Lost, "batch_65537", false, true},
    {Defect::kZeroOutput, "len_65_65", false, true},
    {Defect::kNoSink, "sink_33_40", false, true},
    {Defect::kNoSink, "sink_kv_len_0", false, true},
    {Defect::kSinkOfKvHead, "sink_33_40", false, true},
    {Defect::kSinkScaled, "sink_scaled_scores", false, true},
    {Defect::kSinkInEachTile, "sink_33_40", false, true},
    {Defect::kSinkNotInMaximum, "sink_large", false, true},
    {Defect::kSinkNotInMaximum, "sink_130_40", false, true},
    {Defect::kSinkNotInLse, "sink_1_200", false, true},
    {Defect::kNoEarlierKeys, "earlier_33_40", false, true},
    {Defect::kNoEarlierKeys, "earlier_kv_len_0", false, true},
    {Defect::kEarlierKeysOfFirstRow, "earlier_33_40", false, true},
    {Defect::kEarlierValueLeftOut, "earlier_33_40", false, true},
    {Defect::kEarlierValueOfNoKeys, "earlier_33_40", false, true},
    {Defect::kNoDelta, "len_65_65", true, true},
    {Defect::kNoDlse, "len_113_113", true, true},
    {Defect::kNoDerivative, "softcap_3", true, true},
    {Defect::kLastHeadOfGroupWins, "heads_6_2", true, true},
    {Defect::kNoDropoutInDp, "dropout_65_129", true, true},
    {Defect::kEmptyRowHasProbability, "causal_5_2", true, true},
    {Defect::kDeltaWithoutKeys, "sink_kv_len_0_nan", true, true},
    {Defect::kDkScaledTwice, "len_65_65", true, true},
    {Defect::kDoutStridesOfO, "mixed", true, true},
    {Defect::kGradientsLeftUnwritten, "q_len_0", true, true},
    {Defect::kZeroDv, "len_65_65", true, true},
    {Defect::kLearnedNotCleared, "learned_65_70", true, true},
    {Defect::kLearnedNotCleared, "learned_q_len_0", true, true},
    {Defect::kLearnedNotCleared, "learned_kv_len_0", true, true},
    {Defect::kLearnedWithDerivative, "learned_65_70", true, true},
    {Defect::kLearnedLastHeadWins, "learned_by_heads", true, true},
    {Defect::kLearnedFromHidden, "learned_130_40", true, true},
    {Defect::kLearnedBetweenElements, "learned_65_70", true, true},
    {Defect::kLearnedBetweenElements, "learned_by_columns", true, true},
    {Defect::kLearnedFromAnotherScore, "learned_65_70", true, true},
    {Defect::kLearnedFromAnotherScore, "learned_by_whole_heads", true, true},
    {Defect::kLearnedWithoutDropout, "learned_dropout_65_70", true, true},
    {Defect::kLearnedWithoutDropout, "learned_dropout_by_heads", true, true},
    {Defect::kSinkGradientAdded, "sink_33_40", true, true},
    {Defect::kSinkGradientAdded, "sink_q_len_0", true, true},
    {Defect::kSinkGradientAdded, "sink_batch_0", true, true},
    {Defect::kSinkGradientWithoutDlse, "sink_kv_len_0", true, true},
    {Defect::kSinkGradientOfLastSequence, "sink_batch_18", true, true},
    {Defect::kSinkGradientOfKvHead, "sink_33_40", true, true},
    {Defect::kSinkGradientOnePercentOff, "sink_33_40", true, true},
    {Defect::kSinkGradientOnePercentOff, "sink_1_200", true, false},
};

constexpr bool is_listed(Defect defect) {
  for (const KnownDefect& known : kDefects) {
    if (known.defect == defect) return true;
  }
  return false;
}

constexpr bool all_listed() {
  for (int i = 1; i < kDefectCount; ++i) {
    if (!is_listed(static_cast<Defect>(i))) return false;
  }
  return true;
}
static_assert(all_listed(), "every defect is in the table");

template <attile::Element T, Policy kPolicy>
std::string faults_of(Defect defect, bool backward, const Case& c) {
  PlainExecutor executor(defect);
  if constexpr (!is_forward_only(kPolicy)) {
    if (backward) return backward_faults<T, kPolicy>(executor, c);
  }
  return forward_faults<T, kPolicy>(executor, c);
}

/// The policies that this test runs: those that some defect needs.
bool is_run(Policy p) {
  return p == Policy::kNone || p == Policy::kCausal || p == Policy::kWindow ||
         p == Policy::kSoftcap || p == Policy::kDropout || p == Policy::kLearned ||
         p == Policy::kLearnedDropout || p == Policy::kSink || p == Policy::kEarlier;
}

template <attile::Element T>
std::string faults(Defect defect, bool backward, const Case& c) {
  if (backward && !c.backward) return {};
  switch (c.policy) {
    case Policy::kNone:
      return faults_of<T, Policy::kNone>(defect, backward, c);
    case Policy::kCausal:
      return faults_of<T, Policy::kCausal>(defect, backward, c);
    case Policy::kWindow:
      return faults_of<T, Policy::kWindow>(defect, backward, c);
    case Policy::kSoftcap:
      return faults_of<T, Policy::kSoftcap>(defect, backward, c);
    case Policy::kDropout:
      return faults_of<T, Policy::kDropout>(defect, backward, c);
    case Policy::kSink:
      return faults_of<T, Policy::kSink>(defect, backward, c);
    case Policy::kEarlier:
      return faults_of<T, Policy::kEarlier>(defect, backward, c);
    case Policy::kLearned:
      // What is learned is fp32 whatever T.
      return faults_of<float, Policy::kLearned>(defect, backward, c);
    case Policy::kLearnedDropout:
      return faults_of<float, Policy::kLearnedDropout>(defect, backward, c);
    default:
      return {};
  }
}

template <attile::Element T>
bool is_seen(const KnownDefect& known) {
  for (const Case& c : kCases) {
    if (std::string(c.name) != known.seen_by) continue;
    return !faults<T>(known.defect, known.backward, c).empty();
  }
  return false;
}

/// Every case, or from `first` on one of 3 or 6 where not everything is built, takes the right
/// results, and none takes zeros for O or dV. (dQ and dK are zero where softmax is all but
/// certain.)
template <attile::Element T>
void check_each_case(std::size_t first) {
  constexpr std::size_t kEvery = kTestFull ? 1 : kTestLarge ? 3 : 6;
  for (std::size_t i = kTestFull ? 0 : first; i < kCases.size(); i += kEvery) {
    const Case& c = kCases[i];
    const std::string text = faults<T>(Defect::kNone, false, c) + faults<T>(Defect::kNone, true, c);
    INFO(c.name << "\n" << text);
    CHECK(text.empty());
    if (!is_run(c.policy) || c.batch == 0 || c.q_len == 0 || c.kv_len == 0) continue;
    if (c.sinks == Sinks::kLarge) continue;  // O is 0, and so are all gradients but the sinks'
    CHECK_FALSE(faults<T>(Defect::kZeroOutput, false, c).empty());
    if (c.backward) CHECK_FALSE(faults<T>(Defect::kZeroDv, true, c).empty());
  }
}

TEST_CASE("suite.self_test.right_results_pass_and_zeros_fail") { check_each_case<float>(1); }

TEST_CASE("suite.self_test.right_results_pass_and_zeros_fail_in_bf16") {
  check_each_case<__nv_bfloat16>(0);
}

TEST_CASE("suite.self_test.every_defect_is_seen") {
  for (const KnownDefect& known : kDefects) {
    INFO("defect " << static_cast<int>(known.defect) << " by " << known.seen_by);
    CHECK(is_seen<float>(known));
  }
}

TEST_CASE("suite.self_test.defects_are_seen_in_bf16") {
  for (const KnownDefect& known : kDefects) {
    INFO("defect " << static_cast<int>(known.defect) << " by " << known.seen_by);
    if (known.seen_in_bf16) CHECK(is_seen<__nv_bfloat16>(known));
  }
}

}  // namespace
