// SPDX-License-Identifier: MIT
// The one calls for fp32: the sm80 kernels with their default tiles.
#include "kernel/suite_executor.cuh"
#include "kernel/suite_kernels.h"

namespace {

using namespace attile_test;

#define ATTILE_SUITE_OF(name, policy, dims, ...)                                    \
  TEST_CASE("suite.gpu.fp32.call." dims "." #name) {                                \
    run_suite<Direction::kForward, float, Policy::policy>(OneCall<__VA_ARGS__>{});  \
  }                                                                                 \
  TEST_CASE("suite.gpu.fp32.call.backward." dims "." #name) {                       \
    run_suite<Direction::kBackward, float, Policy::policy>(OneCall<__VA_ARGS__>{}); \
  }

#define ATTILE_SUITE(name, policy) ATTILE_SUITE_OF(name, policy, "d64", SplitDims<64>)
ATTILE_FP32_CALL_D64(ATTILE_SUITE)
#undef ATTILE_SUITE

#define ATTILE_SUITE(name, policy) ATTILE_SUITE_OF(name, policy, "d128", SplitDims<128, 128, 64>)
ATTILE_FP32_CALL_LARGE(ATTILE_SUITE)
#undef ATTILE_SUITE

#define ATTILE_SUITE(name, policy) ATTILE_SUITE_OF(name, policy, "d256", SplitDims<256, 256, 128>)
ATTILE_FP32_CALL_LARGE(ATTILE_SUITE)
#undef ATTILE_SUITE
#undef ATTILE_SUITE_OF

}  // namespace
