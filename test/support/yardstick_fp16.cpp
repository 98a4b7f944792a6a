// SPDX-License-Identifier: MIT
#include "support/policy_lists.h"
#include "support/yardstick.h"

namespace attile_test {

#define ATTILE_YARDSTICK(name, policy) ATTILE_INSTANTIATE_YARDSTICK(__half, Policy::policy)
ATTILE_EACH_POLICY(ATTILE_YARDSTICK)
#undef ATTILE_YARDSTICK

}  // namespace attile_test
