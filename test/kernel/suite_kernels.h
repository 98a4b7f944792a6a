// SPDX-License-Identifier: MIT
#pragma once

#include "support/suite_cases.h"

// The one list of the kernels that the suite builds: X(name of the policies, Policy) for each group
// of element type and head dimensions. Every one costs compile time for each architecture, so
// without ATTILE_TEST_FULL, which is set where there is a GPU to run them on, they are about 40.

// fp32, head dimensions up to 64: every combination of policies.
#define ATTILE_FP32_D64_MASKS(X) ATTILE_MASK_POLICIES(X)
#define ATTILE_FP32_D64_MODIFIERS(X) ATTILE_MODIFIER_POLICIES(X)
// The same backward, which take three times as long.
#if ATTILE_TEST_FULL
#define ATTILE_FP32_BACKWARD_D64_MASKS(X) ATTILE_MASK_POLICIES(X)
#define ATTILE_FP32_BACKWARD_D64_MODIFIERS(X) \
  ATTILE_MODIFIER_POLICIES(X)                 \
  ATTILE_LEARNED_POLICIES(X)
#else
#define ATTILE_FP32_BACKWARD_D64_MASKS(X) X(none, kNone) X(causal, kCausal)
#define ATTILE_FP32_BACKWARD_D64_MODIFIERS(X) X(everything, kEverything)
#endif

// fp32, head dimensions above 64; 16-bit types; and the kernels that the one calls choose, which
// are those of sm80 and sm90 where the device has their instructions. The others are portable.
#if ATTILE_TEST_FULL
#define ATTILE_FP32_LARGE(X) X(none, kNone) X(causal, kCausal)
#define ATTILE_FP32_CALL_D64(X) ATTILE_EACH_POLICY(X)
#define ATTILE_FP32_CALL_LARGE(X) \
  X(none, kNone) X(causal, kCausal) X(dropout, kDropout) X(everything, kEverything)
#define ATTILE_FP16_D64(X) ATTILE_EACH_POLICY(X)
#define ATTILE_BF16_D64(X) ATTILE_EACH_POLICY(X)
#define ATTILE_FP16_LARGE(X) X(none, kNone) X(causal, kCausal)
#define ATTILE_BF16_LARGE(X) X(none, kNone) X(causal, kCausal)
#define ATTILE_FP16_CALL_D64(X) ATTILE_EACH_POLICY(X)
#define ATTILE_BF16_CALL_D64(X) ATTILE_EACH_POLICY(X)
#define ATTILE_FP16_CALL_D128(X) ATTILE_EACH_POLICY(X)
#define ATTILE_BF16_CALL_D128(X) ATTILE_EACH_POLICY(X)
#define ATTILE_FP16_CALL_D256(X) ATTILE_EACH_POLICY(X)
// Above 128 columns what is learned is the family sm80's.
#define ATTILE_BF16_CALL_D256(X) ATTILE_EACH_POLICY(X) ATTILE_LEARNED_POLICIES(X)
#define ATTILE_FP16_IN_ORDER(X) X(none, kNone) X(causal, kCausal) X(everything, kEverything)
#else
#define ATTILE_FP32_LARGE(X) X(causal, kCausal)
#define ATTILE_FP32_CALL_D64(X) X(causal, kCausal)
#define ATTILE_FP32_CALL_LARGE(X)
#define ATTILE_FP16_IN_ORDER(X)
#define ATTILE_FP16_D64(X) X(causal, kCausal)
#define ATTILE_BF16_D64(X) X(everything, kEverything)
#define ATTILE_FP16_LARGE(X)
#define ATTILE_BF16_LARGE(X)
#define ATTILE_FP16_CALL_D64(X) X(causal, kCausal)
#define ATTILE_BF16_CALL_D64(X) X(everything, kEverything)
#define ATTILE_FP16_CALL_D128(X)
#define ATTILE_BF16_CALL_D128(X) X(none, kNone)
#define ATTILE_FP16_CALL_D256(X)
#define ATTILE_BF16_CALL_D256(X)
#endif

namespace attile_test {

#define ATTILE_ONE(name, policy) +1
/// Combinations of policies and element types in the lists above; each is a forward and at most a
/// backward kernel.
inline constexpr int kSuiteCombinations = 0 ATTILE_FP32_D64_MASKS(ATTILE_ONE)
    ATTILE_FP32_D64_MODIFIERS(ATTILE_ONE) ATTILE_FP32_LARGE(ATTILE_ONE) ATTILE_FP16_D64(ATTILE_ONE)
        ATTILE_BF16_D64(ATTILE_ONE) ATTILE_FP16_LARGE(ATTILE_ONE) ATTILE_BF16_LARGE(ATTILE_ONE);
/// The same of the kernels that the one calls choose.
inline constexpr int kSuiteCalls = 0 ATTILE_FP32_CALL_D64(ATTILE_ONE)
    ATTILE_FP32_CALL_LARGE(ATTILE_ONE) ATTILE_FP32_CALL_LARGE(ATTILE_ONE)
        ATTILE_FP16_CALL_D64(ATTILE_ONE) ATTILE_BF16_CALL_D64(ATTILE_ONE)
            ATTILE_FP16_CALL_D128(ATTILE_ONE) ATTILE_BF16_CALL_D128(ATTILE_ONE)
                ATTILE_FP16_CALL_D256(ATTILE_ONE) ATTILE_BF16_CALL_D256(ATTILE_ONE);
#undef ATTILE_ONE

/// Kernels of suite_tiles.cu, suite_sm80_tiles.cu, suite_sm90.cu and suite_sm90_backward.cu
/// besides.
inline constexpr int kSuiteTileKernels = ATTILE_TEST_FULL ? 30 : 2;
inline constexpr int kSuiteSm80TileKernels = ATTILE_TEST_FULL ? 72 : 2;
inline constexpr int kSuiteSm90Kernels = ATTILE_TEST_FULL ? 75 : 3;
inline constexpr int kSuiteSm90BackwardKernels = ATTILE_TEST_FULL ? 59 : 2;

static_assert(ATTILE_TEST_FULL || 2 * (kSuiteCombinations + kSuiteCalls) + kSuiteTileKernels +
                                          kSuiteSm80TileKernels + kSuiteSm90Kernels +
                                          kSuiteSm90BackwardKernels <=
                                      55,
              "the suite builds about 40 kernels where there is no GPU");

}  // namespace attile_test
