// SPDX-License-Identifier: MIT
#include "main.h"

const char* attile_test::reason_to_skip() { return nullptr; }

// catch_discover_tests of Catch2 3.7 and newer insists on 4.
const int attile_test::kSkipReturnCode = 4;
