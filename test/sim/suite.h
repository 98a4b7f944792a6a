// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "sim/machine.h"
#include "support/catch.h"
#include "support/suite_cases.h"

// The suite's cases on the simulated machine, with what the machine has to say of them.

namespace attile_test {

/// What the machine has to say, as a fault of the case.
inline std::string machine_reports() {
  std::string text;
  for (const sim::Report& report : sim::take_reports()) {
    text += report.kind + ": " + report.text + "\n";
  }
  return text;
}

/// What a case of a family costs at most, and of a variant of one.
inline constexpr double kMostCost = kTestFull ? 2.5e6 : 0.8e6, kLessCost = kMostCost / 2;
/// The same where heads are wider than 64: such cases are few.
inline constexpr double kWideCost = kTestFull ? kMostCost : 1.2e6;

/// An executor for the suite of the simulated machine: it takes the cases that cost no more, and of
/// these a sample where not everything is built.
template <class Executor>
struct Simulated : Executor {
  static constexpr std::size_t kEvery = kTestFull ? 1 : kTestLarge ? 4 : 8;

  double most_cost = kMostCost;
  std::string_view name = {};  ///< the one case that it takes, whatever that costs

  bool takes(const Case& c) const {
    const bool is_meant = name.empty() ? cost(c) <= most_cost : c.name == name;
    return is_meant && Executor::takes(c);
  }
  std::string take_reports() const { return machine_reports(); }
  double seconds(const Case& c) const { return 1e-6 * cost(c); }
};

template <class Executor>
Simulated<Executor> simulated(double most_cost = kMostCost) {
  return {Executor{}, most_cost};
}

/// Takes one case, which so is run whatever the sample is. Such rows stand behind the others of
/// their table, whose samples they would move.
template <class Executor>
Simulated<Executor> simulated_case(std::string_view name) {
  return {Executor{}, kMostCost, name};
}

}  // namespace attile_test
