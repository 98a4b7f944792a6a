// SPDX-License-Identifier: MIT
#pragma once

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

}  // namespace attile
