// SPDX-License-Identifier: MIT
// `append` on the simulated machine.
#include "support/append.h"

#include <string>

#include "sim/machine.h"
#include "support/append_on_device.h"
#include "support/catch.h"

namespace {

using namespace attile_test;

/// Runs a case, and returns what the machine has to say of it.
const auto kOnMachine = [](auto& problem) {
  std::string text = append_on_device(problem);
  for (const sim::Report& report : sim::take_reports()) {
    text += report.kind + ": " + report.text + "\n";
  }
  return text;
};

TEST_CASE("append.against_plain_loops") { check_all_appends(kOnMachine); }

}  // namespace
