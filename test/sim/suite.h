// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "sim/machine.h"
#include "support/catch.h"
#include "support/suite_cases.h"

// The suite's cases on the simulated machine, each a test of its own.

namespace attile_test {

/// What the machine has to say, as a fault of the case; each case begins with nothing said.
inline std::string machine_reports() {
  std::string text;
  for (const sim::Report& report : sim::take_reports()) {
    text += report.kind + ": " + report.text + "\n";
  }
  return text;
}

/// FLOPs of a case, roughly, and a price for each block: what its time on the machine goes with.
inline double cost(const Case& c) {
  return static_cast<double>(c.batch) * c.q_heads * (1.0 * c.q_len * c.kv_len * c.head_dim + 2e4);
}

/// What a case of a family costs at most, and of a variant of one.
inline constexpr double kMostCost = ATTILE_TEST_FULL ? 2.5e6 : 0.8e6, kLessCost = kMostCost / 2;
/// The same where heads are wider than 64: such cases are few.
inline constexpr double kWideCost = ATTILE_TEST_FULL ? kMostCost : 1.2e6;

/// A test for each case with this policy that the executor takes and that costs no more; one that
/// fails where there is none.
template <Direction kDirection, attile::Element T, Policy kPolicy, class Executor>
void register_cases(const std::string& family, const Executor& executor, double most_cost) {
  const std::string direction = kDirection == Direction::kBackward ? ".backward." : ".forward.";
  bool any = false;
  for (const Case& c : kCases) {
    if (!belongs<kDirection, kPolicy>(executor, c) || cost(c) > most_cost) continue;
    any = true;
    register_test(family + direction + c.name, [executor, &c]() mutable {
      const std::string faults =
          machine_reports() + case_faults<kDirection, T, kPolicy>(executor, c) + machine_reports();
      INFO(faults);
      CHECK(faults.empty());
    });
  }
  if (any) return;
  const std::string name = "no_case_of_policy_" + std::to_string(static_cast<int>(kPolicy));
  register_test(family + direction + name, [] { FAIL("all cases cost more, or are not taken"); });
}

}  // namespace attile_test
