// SPDX-License-Identifier: MIT
#pragma once

#include <cstring>

// The simulated counterpart of include/attile/arch/unset.h. Bits that are all set are a NaN of each
// type of elements.
#define ATTILE_BEGINS_UNSET(Type, array) \
  Type() { std::memset(array, 0xFF, sizeof array); }
