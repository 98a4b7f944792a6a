// SPDX-License-Identifier: MIT
// `merge` on the simulated machine.
#include "support/merge.h"

#include <attile/host/merge.h>
#include <attile/merge.cuh>

#include <string>

#include "sim/machine.h"
#include "support/catch.h"
#include "support/merge_on_device.h"

namespace {

using namespace attile_test;

/// Runs a case, and returns what the machine has to say of it, or that the CPU gives other bits.
const auto kOnMachine = [](auto& problem) {
  auto on_cpu = problem;
  std::string text = attile::host::merge(on_cpu.args([](auto* x) { return x; })).why;
  text += merge_on_device(problem);
  for (const sim::Report& report : sim::take_reports()) {
    text += report.kind + ": " + report.text + "\n";
  }
  if (!problem.has_results_of(on_cpu)) text += "other bits than on the CPU";
  return text;
};

TEST_CASE("merge.against_weighted_sums") { check_all_merges(kOnMachine); }
TEST_CASE("merge.parts_of_a_whole") { check_parts_of_a_whole(kOnMachine, 1 << 11); }
TEST_CASE("merge.of_a_merge") {
  check_merge_of_a_merge();
  CHECK(sim::take_reports().empty());
}

}  // namespace
