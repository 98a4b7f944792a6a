// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstdlib>
#include <string>

#include "support/catch.h"
#include "support/suite.h"

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

#if ATTILE_TEST_FULL
#define ATTILE_OTHER_TYPE_POLICIES ATTILE_EACH_POLICY
#else
#define ATTILE_OTHER_TYPE_POLICIES ATTILE_FEW_POLICIES
#endif

namespace attile_test {

enum class Direction { kForward, kBackward };

/// Whether the executor runs the case in this direction with these policies.
template <Direction kDirection, Policy kPolicy, class Executor>
bool belongs(const Executor& executor, const Case& c) {
  return c.policy == kPolicy && (kDirection == Direction::kForward || c.backward) &&
         executor.takes(c);
}

/// Runs the case and says what is wrong with it.
template <Direction kDirection, attile::Element T, Policy kPolicy, class Executor>
std::string case_faults(Executor& executor, const Case& c) {
  if constexpr (kDirection == Direction::kBackward) {
    return backward_faults<T, kPolicy>(executor, c);
  } else {
    return forward_faults<T, kPolicy>(executor, c);
  }
}

/// Runs every case with these policies that the executor takes, each in a section of its name.
template <Direction kDirection, attile::Element T, Policy kPolicy, class Executor>
void run_suite(Executor executor) {
  // A sample of the cases, for tools under which all of them would take hours.
  const char* const sample = std::getenv("ATTILE_SUITE_EVERY");
  const int every = sample != nullptr ? std::max(1, std::atoi(sample)) : 1;
  int taken = 0;
  for (const Case& c : kCases) {
    if (!belongs<kDirection, kPolicy>(executor, c)) continue;
    if (taken++ % every != 0) continue;
    DYNAMIC_SECTION(c.name) {
      const std::string faults = case_faults<kDirection, T, kPolicy>(executor, c);
      INFO(faults);
      CHECK(faults.empty());
    }
  }
  REQUIRE(taken > 0);
}

}  // namespace attile_test
