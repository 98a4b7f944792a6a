// SPDX-License-Identifier: MIT
#include "support/cpu_executor.h"
#include "support/suite_cases.h"

namespace {

using namespace attile_test;

#define ATTILE_SUITE(name, policy)                                         \
  TEST_CASE("suite.cpu.fp32.forward." #name) {                             \
    run_suite<Direction::kForward, float, Policy::policy>(CpuExecutor{});  \
  }                                                                        \
  TEST_CASE("suite.cpu.fp32.backward." #name) {                            \
    run_suite<Direction::kBackward, float, Policy::policy>(CpuExecutor{}); \
  }
ATTILE_EACH_POLICY(ATTILE_SUITE)
ATTILE_LEARNED_POLICIES(ATTILE_SUITE)
#undef ATTILE_SUITE

/// Tiles and threads that are not the default: more edges, another division of the work.
CpuExecutor small_tiles() { return {{.threads = 3, .tile_rows = 20, .tile_cols = 16}}; }

#define ATTILE_SUITE(name, policy)                                         \
  TEST_CASE("suite.cpu.fp32.forward.small_tiles." #name) {                 \
    run_suite<Direction::kForward, float, Policy::policy>(small_tiles());  \
  }                                                                        \
  TEST_CASE("suite.cpu.fp32.backward.small_tiles." #name) {                \
    run_suite<Direction::kBackward, float, Policy::policy>(small_tiles()); \
  }
ATTILE_FEW_POLICIES(ATTILE_SUITE)
ATTILE_LEARNED_POLICIES(ATTILE_SUITE)
#undef ATTILE_SUITE

}  // namespace
