// SPDX-License-Identifier: MIT
#include "kernel/flash1_executor.cuh"
#include "sim/suite.h"

namespace {

using namespace attile_test;

using Small = Flash1Executor<64, 0, 16, 24>;

// Of its small tiles there are many.
constexpr double kMost = ATTILE_TEST_FULL ? kLessCost : kLessCost / 2;

const bool kRegistered = [] {
#define ATTILE_REGISTER(name, policy)                                                   \
  register_cases<Direction::kForward, float, Policy::policy>("flash1", Small{}, kMost); \
  register_cases<Direction::kBackward, float, Policy::policy>("flash1", Small{}, kMost);
  ATTILE_SIMULATED_POLICIES(ATTILE_REGISTER)
#undef ATTILE_REGISTER
  return true;
}();

}  // namespace
