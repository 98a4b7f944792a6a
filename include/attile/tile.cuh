// SPDX-License-Identifier: MIT
#pragma once

// This header has the block-level pieces of the portable kernels, for kernels of your own: tiles in
// shared memory and registers, loads and stores, products, the online softmax, masks and dropout.
// Those for tensor cores and TMA have headers of their own: multiply.cuh, warpgroup.cuh,
// pipeline.cuh.
#include <attile/arch/atomic.cuh>
#include <attile/arch/launch.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/schedule.h>
#include <attile/tile/copy.cuh>
#include <attile/tile/dropout.cuh>
#include <attile/tile/matmul.cuh>
#include <attile/tile/matrix.cuh>
#include <attile/tile/online_softmax.h>
#include <attile/tile/register_tile.cuh>
#include <attile/tile/scores.cuh>
#include <attile/tile/shared_tile.cuh>
