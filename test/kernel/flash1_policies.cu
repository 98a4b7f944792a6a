// SPDX-License-Identifier: MIT
// FlashAttention-1 with every combination of policies, in small tiles.
#include "kernel/flash1_executor.cuh"

namespace {

using namespace attile_test;
using Small = Flash1Executor<64, 0, 32, 48>;

#define ATTILE_SMALL(name, policy) ATTILE_FLASH1_SUITE(name, float, policy, Small)
#if ATTILE_TEST_FULL
ATTILE_EACH_POLICY(ATTILE_SMALL)
ATTILE_LEARNED_POLICIES(ATTILE_SMALL)
#else
ATTILE_SMALL(everything, kEverything)
#endif
#undef ATTILE_SMALL

}  // namespace
