// SPDX-License-Identifier: MIT
// `quantize` on a GPU: plain loops.
#include <attile/quantize.cuh>

#include "support/catch.h"
#include "support/quantize_on_device.h"

namespace kernel_quantize {

using namespace attile_test;

TEST_CASE("quantize is loops over rows") {
  check_quantize([](auto& problem) { return quantize_on_device(problem); });
}

}  // namespace kernel_quantize
