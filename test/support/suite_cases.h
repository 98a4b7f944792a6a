// SPDX-License-Identifier: MIT
#pragma once

#include "support/catch.h"
#include "support/suite.h"

namespace attile_test {

/// Runs the forward pass of every case with these policies that the executor takes, each in a
/// section of its name.
template <attile::Element T, Policy kPolicy, class Executor>
void run_forward_suite(Executor executor) {
  int taken = 0;
  for (const Case& c : kCases) {
    if (c.policy != kPolicy || !executor.takes(c)) continue;
    ++taken;
    DYNAMIC_SECTION(c.name) {
      const std::string faults = forward_faults<T, kPolicy>(executor, c);
      INFO(faults);
      CHECK(faults.empty());
    }
  }
  REQUIRE(taken > 0);
}

/// The same of the backward pass.
template <attile::Element T, Policy kPolicy, class Executor>
void run_backward_suite(Executor executor) {
  int taken = 0;
  for (const Case& c : kCases) {
    if (c.policy != kPolicy || !c.backward || !executor.takes(c)) continue;
    ++taken;
    DYNAMIC_SECTION(c.name) {
      const std::string faults = backward_faults<T, kPolicy>(executor, c);
      INFO(faults);
      CHECK(faults.empty());
    }
  }
  REQUIRE(taken > 0);
}

}  // namespace attile_test
