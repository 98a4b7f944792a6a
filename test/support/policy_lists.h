// SPDX-License-Identifier: MIT
#pragma once

#include "support/cases.h"

// Set to 1 where there is a GPU: everything is built, not only what shows the most.
#ifndef ATTILE_TEST_FULL
#define ATTILE_TEST_FULL 0
#endif
// Set to 1 where the build may take an hour: the large sample is built, and not the small one.
#ifndef ATTILE_TEST_LARGE
#define ATTILE_TEST_LARGE ATTILE_TEST_FULL
#endif

/// The one list of all policies: X(name in names of tests, Policy). Those of caches and of earlier
/// keys have no backward pass.
#define ATTILE_EACH_POLICY(X) ATTILE_EACH_GRADIENT_POLICY(X) ATTILE_EACH_FORWARD_ONLY_POLICY(X)
#define ATTILE_EACH_FORWARD_ONLY_POLICY(X)           \
  X(cached_causal, kCachedCausal)                    \
  X(cached_packed_alibi, kCachedPackedAlibi)         \
  X(paged_window, kPagedWindow)                      \
  X(paged_packed_everything, kPagedPackedEverything) \
  X(earlier, kEarlier)                               \
  X(earlier_everything, kEarlierEverything)          \
  X(earlier_paged, kEarlierPaged)
#define ATTILE_EACH_GRADIENT_POLICY(X)               \
  X(none, kNone)                                     \
  X(causal, kCausal)                                 \
  X(causal_top_left, kCausalTopLeft)                 \
  X(window, kWindow)                                 \
  X(prefix, kPrefix)                                 \
  X(document, kDocument)                             \
  X(causal_document, kCausalDocument)                \
  X(window_prefix, kWindowPrefix)                    \
  X(key_padding, kKeyPadding)                        \
  X(causal_key_padding, kCausalKeyPadding)           \
  X(sorted_document, kSortedDocument)                \
  X(causal_sorted_document, kCausalSortedDocument)   \
  X(row_intervals, kRowIntervals)                    \
  X(causal_row_intervals, kCausalRowIntervals)       \
  X(prepared_alibi, kPreparedAlibi)                  \
  X(alibi, kAlibi)                                   \
  X(full_alibi, kFullAlibi)                          \
  X(softcap, kSoftcap)                               \
  X(bias, kBias)                                     \
  X(half_bias, kHalfBias)                            \
  X(softcap_alibi, kSoftcapAlibi)                    \
  X(softcap_bias, kSoftcapBias)                      \
  X(dropout, kDropout)                               \
  X(causal_dropout, kCausalDropout)                  \
  X(half_bias_dropout, kHalfBiasDropout)             \
  X(user, kUser)                                     \
  X(everything, kEverything)                         \
  X(learned, kLearned)                               \
  X(learned_dropout, kLearnedDropout)                \
  X(learned_bias, kLearnedBias)                      \
  X(learned_bias_dropout, kLearnedBiasDropout)       \
  X(block_sparse, kBlockSparse)                      \
  X(block_sparse_everything, kBlockSparseEverything) \
  X(own_lengths, kOwnLengths)                        \
  X(packed_causal, kPackedCausal)                    \
  X(packed_bias, kPackedBias)                        \
  X(padded_everything, kPaddedEverything)            \
  X(packed_batches, kPackedBatches)                  \
  X(sink, kSink)                                     \
  X(sink_everything, kSinkEverything)                \
  X(own_lengths_sink, kOwnLengthsSink)

namespace attile_test {

inline constexpr bool kTestFull = ATTILE_TEST_FULL;
inline constexpr bool kTestLarge = kTestFull || ATTILE_TEST_LARGE;

/// The policy in names of tests. One that ATTILE_EACH_POLICY lacks is an error of -Wswitch.
constexpr const char* name_of(Policy policy) {
  switch (policy) {
#define ATTILE_NAME(name, policy) \
  case Policy::policy:            \
    return #name;
    ATTILE_EACH_POLICY(ATTILE_NAME)
#undef ATTILE_NAME
  }
  return "";
}

/// A list of policies: `policies<kNone, kCausal>` is one, and lists are added with +.
template <Policy... kPolicies>
struct Policies {};
template <Policy... kPolicies>
inline constexpr Policies<kPolicies...> policies{};

template <Policy... kFirst, Policy... kSecond>
constexpr Policies<kFirst..., kSecond...> operator+(Policies<kFirst...>, Policies<kSecond...>) {
  return {};
}

/// `first` if kFirst, else `second`.
template <bool kFirst, class First, class Second>
constexpr auto either(First first, Second second) {
  if constexpr (kFirst) {
    return first;
  } else {
    return second;
  }
}
/// `all` in a build with ATTILE_TEST_FULL, `sample` in any other.
template <class All, class Sample = Policies<>>
constexpr auto in_full(All all, Sample sample = {}) {
  return either<kTestFull>(all, sample);
}
/// `large` in a build with ATTILE_TEST_LARGE or ATTILE_TEST_FULL, `small` in any other.
template <class Large, class Small = Policies<>>
constexpr auto in_large(Large large, Small small = {}) {
  return either<kTestLarge>(large, small);
}

inline constexpr auto kMaskPolicies =
    policies<Policy::kNone, Policy::kCausal, Policy::kCausalTopLeft, Policy::kWindow,
             Policy::kPrefix, Policy::kDocument, Policy::kCausalDocument, Policy::kWindowPrefix,
             Policy::kKeyPadding, Policy::kCausalKeyPadding, Policy::kSortedDocument,
             Policy::kCausalSortedDocument, Policy::kRowIntervals, Policy::kCausalRowIntervals>;
inline constexpr auto kModifierPolicies =
    policies<Policy::kPreparedAlibi, Policy::kAlibi, Policy::kFullAlibi, Policy::kSoftcap,
             Policy::kBias, Policy::kHalfBias, Policy::kSoftcapAlibi, Policy::kSoftcapBias,
             Policy::kDropout, Policy::kCausalDropout, Policy::kHalfBiasDropout, Policy::kUser,
             Policy::kEverything>;
/// Those that learn: forward they are as the others, so that few executors run that.
inline constexpr auto kLearnedPolicies =
    policies<Policy::kLearned, Policy::kLearnedDropout, Policy::kLearnedBias,
             Policy::kLearnedBiasDropout>;
/// Sequences of their own lengths.
inline constexpr auto kSequencePolicies =
    policies<Policy::kOwnLengths, Policy::kPackedCausal, Policy::kPackedBias,
             Policy::kPaddedEverything, Policy::kPackedBatches>;
inline constexpr auto kSinkPolicies =
    policies<Policy::kSink, Policy::kSinkEverything, Policy::kOwnLengthsSink>;
/// Earlier keys.
inline constexpr auto kEarlierPolicies =
    policies<Policy::kEarlier, Policy::kEarlierEverything, Policy::kEarlierPaged>;
/// Those without a backward pass: keys in a cache, and earlier keys.
inline constexpr auto kForwardOnlyPolicies =
    policies<Policy::kCachedCausal, Policy::kCachedPackedAlibi, Policy::kPagedWindow,
             Policy::kPagedPackedEverything> +
    kEarlierPolicies;
inline constexpr auto kUnlearnedPolicies = kMaskPolicies + kModifierPolicies;
/// Block lists, for kernels whose tiles divide blocks of 128 rows and 64 columns, and of 128 each.
inline constexpr auto kBlockPolicies =
    policies<Policy::kBlockSparse, Policy::kBlockSparseEverything>;
/// All but those, and but those without a backward pass, which kernels of any tiles take.
inline constexpr auto kAllPolicies =
    kUnlearnedPolicies + kLearnedPolicies + kSequencePolicies + kSinkPolicies;

/// What kernels of `decode` take: forward, and no block lists.
inline constexpr auto kDecodePolicies =
    kUnlearnedPolicies + kSequencePolicies + kSinkPolicies + kForwardOnlyPolicies;

/// Those that a second and third element type run: T shows in loads and stores alone.
inline constexpr auto kFewPolicies =
    policies<Policy::kNone, Policy::kCausal, Policy::kCausalDropout, Policy::kEverything>;
inline constexpr auto kOtherTypePolicies = in_full(kUnlearnedPolicies, kFewPolicies);

/// Those that the simulated machine runs. How scores are masked and modified the other executors
/// look at; there it is how threads share the work that a policy gives them.
inline constexpr auto kSimulatedPolicies =
    in_full(kUnlearnedPolicies,
            kFewPolicies + policies<Policy::kWindow, Policy::kPrefix, Policy::kDocument,
                                    Policy::kKeyPadding, Policy::kCausalSortedDocument,
                                    Policy::kRowIntervals, Policy::kBias, Policy::kUser>);

}  // namespace attile_test
