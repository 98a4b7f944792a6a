// SPDX-License-Identifier: MIT
#include "kernel/flash1_executor.cuh"
#include "sim/suite.h"

namespace {

using namespace attile_test;

using Small = Flash1Executor<64, 0, 16, 24>;

const bool kRegistered = [] {
#define ATTILE_REGISTER(name, policy)                                                       \
  register_cases<Direction::kForward, float, Policy::policy>("flash1", Small{}, kLessCost); \
  register_cases<Direction::kBackward, float, Policy::policy>("flash1", Small{}, kLessCost);
  ATTILE_SIMULATED_POLICIES(ATTILE_REGISTER)
#undef ATTILE_REGISTER
  return true;
}();

}  // namespace
