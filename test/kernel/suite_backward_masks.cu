// SPDX-License-Identifier: MIT
#include "kernel/suite_executor.cuh"
#include "kernel/suite_kernels.h"

namespace {

using namespace attile_test;

#define ATTILE_SUITE(name, policy)                                                   \
  TEST_CASE("suite.gpu.fp32.backward." #name) {                                      \
    run_suite<Direction::kBackward, float, Policy::policy>(GpuExecutor<Dims<64>>{}); \
  }
ATTILE_FP32_BACKWARD_D64_MASKS(ATTILE_SUITE)
#undef ATTILE_SUITE

#define ATTILE_SUITE(name, policy)                                                             \
  TEST_CASE("suite.gpu.fp32.backward.large." #name) {                                          \
    run_suite<Direction::kBackward, float, Policy::policy>(GpuExecutor<Dims<256, 256, 64>>{}); \
  }
ATTILE_FP32_LARGE(ATTILE_SUITE)
#undef ATTILE_SUITE

}  // namespace
