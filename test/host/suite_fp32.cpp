// SPDX-License-Identifier: MIT
#include "support/cpu_executor.h"
#include "support/suite_cases.h"

namespace {

using namespace attile_test;

#define ATTILE_SUITE(name, policy)                                               \
  TEST_CASE("suite.cpu.fp32.forward." #name) {                                   \
    run_suite<Direction::kForward, float, Policy::policy>(CpuExecutor{});        \
  }                                                                              \
  TEST_CASE("suite.cpu.fp32.backward." #name) {                                  \
    run_suite<Direction::kBackward, float, Policy::policy>(CpuExecutor{});       \
  }
ATTILE_EACH_POLICY(ATTILE_SUITE)
#undef ATTILE_SUITE

}  // namespace
