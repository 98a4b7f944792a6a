// SPDX-License-Identifier: MIT
#pragma once

#include <string>

namespace attile_test {

// host_main.cpp and gpu_main.cpp each define these two.

/// Why no test of this executable can run on this machine, or nullptr.
const char* reason_to_skip();

/// What the executable returns when every test case was skipped; SKIP_RETURN_CODE of the ctest.
extern const int kSkipReturnCode;

/// Says that the running test case was skipped; see SKIP_CASE in catch.h.
void mark_skipped();

/// Says that one more test belongs to this entry of ctest, SUITE.POLICY.DIRECTION: its name begins
/// with the entry and a slash. `seconds`: how long it takes, roughly. `--list-entries` prints the
/// entries of the executable.
void add_to_entry(const std::string& suite, const std::string& policy, const std::string& direction,
                  double seconds);

/// Says that the suite has to have a test of the policy, in either direction: where it has none,
/// SUITE.POLICY.missing is an entry with one that fails.
void demand_policy(const std::string& suite, const std::string& policy);

}  // namespace attile_test
