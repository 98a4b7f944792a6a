// SPDX-License-Identifier: MIT
#pragma once

namespace attile_test {

// host_main.cpp and gpu_main.cpp each define these two.

/// Why no test of this executable can run on this machine, or nullptr.
const char* reason_to_skip();

/// What the executable returns when every test case was skipped; SKIP_RETURN_CODE of the ctest.
extern const int kSkipReturnCode;

/// Says that the running test case was skipped; see SKIP_CASE in catch.h.
void mark_skipped();

}  // namespace attile_test
