// SPDX-License-Identifier: MIT
#include "support/policy_lists.h"
#include "support/yardstick.h"

namespace attile_test {

#define ATTILE_FORWARD(name, policy) ATTILE_INSTANTIATE_FORWARD(__half, Policy::policy)
#define ATTILE_BACKWARD(name, policy) ATTILE_INSTANTIATE_BACKWARD(__half, Policy::policy)
ATTILE_EACH_POLICY(ATTILE_FORWARD)
ATTILE_EACH_GRADIENT_POLICY(ATTILE_BACKWARD)
#undef ATTILE_FORWARD
#undef ATTILE_BACKWARD

}  // namespace attile_test
