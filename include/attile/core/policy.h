// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>

namespace attile {

/// Returns why a policy of any kind cannot be used with the values that it holds: the sentence that
/// its optional `const char* fault() const` returns, null when there is none.
template <class Policy>
constexpr const char* policy_fault(const Policy& policy) {
  if constexpr (requires { policy.fault(); }) {
    return policy.fault();
  } else {
    return nullptr;
  }
}

namespace detail {

/// Holds what two joined policies say, each for itself.
template <class A, class B>
struct Both {
  A first;
  B second;
};
template <class A, class B>
ATTILE_HOST_DEVICE Both<A, B> both(A first, B second) {
  return {first, second};
}

}  // namespace detail

}  // namespace attile
