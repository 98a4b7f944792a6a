// SPDX-License-Identifier: MIT
#pragma once

namespace attile_test {

/// Why no test of this executable can run on this machine, or nullptr. host_main.cpp and
/// gpu_main.cpp each answer it.
const char* reason_to_skip();

/// Says that the running test case was skipped; see SKIP_CASE in catch.h.
void mark_skipped();

}  // namespace attile_test
