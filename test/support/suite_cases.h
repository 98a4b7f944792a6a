// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstdlib>
#include <string>

#include "support/catch.h"
#include "support/policy_lists.h"
#include "support/suite.h"

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
