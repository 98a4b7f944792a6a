// SPDX-License-Identifier: MIT
// The one call, backward: the sm80 kernels with their default tiles.
#include "kernel/suite_executor.cuh"
#include "kernel/suite_kernels.h"

namespace {

using namespace attile_test;

#define ATTILE_SUITE(name, policy)                                                       \
  TEST_CASE("suite.gpu.bf16.call.backward.d64." #name) {                                 \
    run_suite<Direction::kBackward, __nv_bfloat16, Policy::policy>(OneCall<Dims<64>>{}); \
  }
ATTILE_BF16_CALL_D64(ATTILE_SUITE)
#undef ATTILE_SUITE

// The smaller ones too, padded inside.
#define ATTILE_SUITE(name, policy)                                                        \
  TEST_CASE("suite.gpu.bf16.call.backward.d128." #name) {                                 \
    run_suite<Direction::kBackward, __nv_bfloat16, Policy::policy>(OneCall<Dims<128>>{}); \
  }
ATTILE_BF16_CALL_D128(ATTILE_SUITE)
#undef ATTILE_SUITE

#define ATTILE_SUITE(name, policy)                                                        \
  TEST_CASE("suite.gpu.bf16.call.backward.d256." #name) {                                 \
    run_suite<Direction::kBackward, __nv_bfloat16, Policy::policy>(OneCall<Dims<256>>{}); \
  }
ATTILE_BF16_CALL_D256(ATTILE_SUITE)
#undef ATTILE_SUITE

}  // namespace
