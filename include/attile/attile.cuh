// SPDX-License-Identifier: MIT
#pragma once

// This header has exact attention, forward and backward, and the preparation of masks' tables: most
// users need no other one.
#include <attile/backward.cuh>
#include <attile/forward.cuh>
#include <attile/prepare.cuh>
