// SPDX-License-Identifier: MIT
#include "support/cpu_executor.h"
#include "support/suite_cases.h"

namespace {

using namespace attile_test;

#define ATTILE_SUITE(name, policy)                                                 \
  TEST_CASE("suite.cpu.bf16.forward." #name) {                                     \
    run_suite<Direction::kForward, __nv_bfloat16, Policy::policy>(CpuExecutor{});  \
  }                                                                                \
  TEST_CASE("suite.cpu.bf16.backward." #name) {                                    \
    run_suite<Direction::kBackward, __nv_bfloat16, Policy::policy>(CpuExecutor{}); \
  }
ATTILE_OTHER_TYPE_POLICIES(ATTILE_SUITE)
#undef ATTILE_SUITE

}  // namespace
