// SPDX-License-Identifier: MIT
#pragma once

// This header has exact attention, forward, backward and for few rows against a cache, what appends
// to a cache, the merge of partial results, the preparation of masks' tables, and what quantises to
// fp8: most users need no other one.
#include <attile/append.cuh>
#include <attile/backward.cuh>
#include <attile/decode.cuh>
#include <attile/forward.cuh>
#include <attile/merge.cuh>
#include <attile/prepare.cuh>
#include <attile/quantize.cuh>
#include <attile/version.h>
