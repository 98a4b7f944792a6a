// SPDX-License-Identifier: MIT
#pragma once

// This header has exact attention, forward and backward: most users need no other one.
#include <attile/backward.cuh>
#include <attile/forward.cuh>
