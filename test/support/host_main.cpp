// SPDX-License-Identifier: MIT
#include "main.h"

const char* attile_test::reason_to_skip() { return nullptr; }
