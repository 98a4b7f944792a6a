// SPDX-License-Identifier: MIT
// `quantize` on the simulated machine.
#include <attile/quantize.cuh>

#include <string>

#include "sim/machine.h"
#include "support/catch.h"
#include "support/quantize_on_device.h"

namespace {

using namespace attile_test;

/// Of rows of an even number of bytes, since the machine knows of two bytes at a time who wrote
/// them.
TEST_CASE("quantize.against_plain_loops") {
  check_quantize(
      [](auto& problem) {
        std::string text = quantize_on_device(problem);
        for (const sim::Report& report : sim::take_reports()) {
          text += report.kind + ": " + report.text + "\n";
        }
        return text;
      },
      8);
}

}  // namespace
