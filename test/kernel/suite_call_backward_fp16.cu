// SPDX-License-Identifier: MIT
// The one call, backward: the sm80 kernels with their default tiles.
#include "kernel/suite_executor.cuh"
#include "kernel/suite_kernels.h"

namespace {

using namespace attile_test;

#define ATTILE_SUITE(name, policy)                                                \
  TEST_CASE("suite.gpu.fp16.call.backward.d64." #name) {                          \
    run_suite<Direction::kBackward, __half, Policy::policy>(OneCall<Dims<64>>{}); \
  }
ATTILE_FP16_CALL_D64(ATTILE_SUITE)
#undef ATTILE_SUITE

// The smaller ones too, padded inside.
#define ATTILE_SUITE(name, policy)                                                 \
  TEST_CASE("suite.gpu.fp16.call.backward.d128." #name) {                          \
    run_suite<Direction::kBackward, __half, Policy::policy>(OneCall<Dims<128>>{}); \
  }
ATTILE_FP16_CALL_D128(ATTILE_SUITE)
#undef ATTILE_SUITE

#define ATTILE_SUITE(name, policy)                                                 \
  TEST_CASE("suite.gpu.fp16.call.backward.d256." #name) {                          \
    run_suite<Direction::kBackward, __half, Policy::policy>(OneCall<Dims<256>>{}); \
  }
ATTILE_FP16_CALL_D256(ATTILE_SUITE)
#undef ATTILE_SUITE

// dQ added up in order: the same bits at every run.
#define ATTILE_SUITE(name, policy)                                          \
  TEST_CASE("suite.gpu.fp16.in_order.backward.d64." #name) {                \
    run_suite<Direction::kBackward, __half, Policy::policy>(                \
        GpuExecutor<Dims<64>, Sm80Tiles<227>, attile::DqMode::kInOrder>{}); \
  }
ATTILE_FP16_IN_ORDER(ATTILE_SUITE)
#undef ATTILE_SUITE

#define ATTILE_SUITE(name, policy)                                           \
  TEST_CASE("suite.gpu.fp16.in_order.backward.d256." #name) {                \
    run_suite<Direction::kBackward, __half, Policy::policy>(                 \
        GpuExecutor<Dims<256>, Sm80Tiles<227>, attile::DqMode::kInOrder>{}); \
  }
ATTILE_FP16_IN_ORDER(ATTILE_SUITE)
#undef ATTILE_SUITE

}  // namespace
