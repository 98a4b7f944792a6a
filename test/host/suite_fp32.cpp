// SPDX-License-Identifier: MIT
#include "support/cpu_executor.h"
#include "support/suite_cases.h"

namespace {

using namespace attile_test;

/// Tiles and threads that are not the default: more edges, another division of the work.
constexpr SampledCpuExecutor kSmallTiles{{{.threads = 3, .tile_rows = 20, .tile_cols = 16}}};

const bool kRegistered = [] {
  const Suite suite("cpu.host", kAllPolicies + kBlockPolicies + kForwardOnlyPolicies);
  suite.both<float>("default", CpuExecutor{}, kAllPolicies + kBlockPolicies);
  suite.both<float>("small_tiles", kSmallTiles, kFewPolicies + in_large(kLearnedPolicies));
  suite.forward<float>("default", CpuExecutor{}, kForwardOnlyPolicies);
  suite.forward<float>("small_tiles", kSmallTiles, in_large(kForwardOnlyPolicies));
  return true;
}();

}  // namespace
