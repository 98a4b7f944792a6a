// SPDX-License-Identifier: MIT
#include "kernel/suite_executor.cuh"
#include "kernel/suite_kernels.h"

namespace {

using namespace attile_test;

#define ATTILE_SUITE(name, policy)                                                          \
  TEST_CASE("suite.gpu.bf16.forward." #name) {                                              \
    run_suite<Direction::kForward, __nv_bfloat16, Policy::policy>(GpuExecutor<Dims<64>>{}); \
  }
ATTILE_BF16_D64(ATTILE_SUITE)
#undef ATTILE_SUITE

#define ATTILE_SUITE(name, policy)                                 \
  TEST_CASE("suite.gpu.bf16.forward.large." #name) {               \
    run_suite<Direction::kForward, __nv_bfloat16, Policy::policy>( \
        GpuExecutor<Dims<256, 256, 64>>{});                        \
  }
ATTILE_BF16_LARGE(ATTILE_SUITE)
#undef ATTILE_SUITE

}  // namespace
