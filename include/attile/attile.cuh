// SPDX-License-Identifier: MIT
#pragma once

// Exact attention, forward and backward: the one header that most users need.
#include <attile/backward.cuh>
#include <attile/forward.cuh>
