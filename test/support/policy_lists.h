// SPDX-License-Identifier: MIT
#pragma once

// Set to 1 where there is a GPU: everything is built, not only what shows the most.
#ifndef ATTILE_TEST_FULL
#define ATTILE_TEST_FULL 0
#endif

/// X(name in test names, Policy) for every combination of policies.
#define ATTILE_EACH_POLICY(X) ATTILE_MASK_POLICIES(X) ATTILE_MODIFIER_POLICIES(X)

#define ATTILE_MASK_POLICIES(X)       \
  X(none, kNone)                      \
  X(causal, kCausal)                  \
  X(causal_top_left, kCausalTopLeft)  \
  X(window, kWindow)                  \
  X(prefix, kPrefix)                  \
  X(document, kDocument)              \
  X(causal_document, kCausalDocument) \
  X(window_prefix, kWindowPrefix)

#define ATTILE_MODIFIER_POLICIES(X) \
  X(alibi, kAlibi)                  \
  X(softcap, kSoftcap)              \
  X(bias, kBias)                    \
  X(softcap_alibi, kSoftcapAlibi)   \
  X(dropout, kDropout)              \
  X(causal_dropout, kCausalDropout) \
  X(user, kUser)                    \
  X(everything, kEverything)

/// Those that learn: forward they are as the others, so that few executors run that.
#define ATTILE_LEARNED_POLICIES(X) \
  X(learned, kLearned)             \
  X(learned_dropout, kLearnedDropout)

/// Those that a second and third element type run: T shows in loads and stores alone.
#define ATTILE_FEW_POLICIES(X)      \
  X(none, kNone)                    \
  X(causal, kCausal)                \
  X(causal_dropout, kCausalDropout) \
  X(everything, kEverything)

/// Those that the simulated machine runs. How scores are masked and modified the other executors
/// look at; there it is how threads share the work that a policy gives them.
#define ATTILE_FEW_SIMULATED_POLICIES(X) \
  ATTILE_FEW_POLICIES(X)                 \
  X(window, kWindow)                     \
  X(prefix, kPrefix)                     \
  X(document, kDocument)                 \
  X(bias, kBias)                         \
  X(user, kUser)

#if ATTILE_TEST_FULL
#define ATTILE_OTHER_TYPE_POLICIES ATTILE_EACH_POLICY
#define ATTILE_SIMULATED_POLICIES ATTILE_EACH_POLICY
#else
#define ATTILE_OTHER_TYPE_POLICIES ATTILE_FEW_POLICIES
#define ATTILE_SIMULATED_POLICIES ATTILE_FEW_SIMULATED_POLICIES
#endif
