// SPDX-License-Identifier: MIT
#pragma once

// The pieces of kernels of your own that multiply by mma.sync and load by cp.async, on compute
// capability 8.0 and later, beside those of tile.cuh: tiles in shared memory for matrix
// instructions, their asynchronous loads, operands, and results in registers.
// In code for an earlier architecture these pieces trap. Ask `arch::check_launch(kernel,
// shared_bytes, blocks, 800)` before a launch, which refuses such code with a sentence.
#include <attile/arch/async_copy.cuh>
#include <attile/tile.cuh>
#include <attile/tile/mma_operands.cuh>
#include <attile/tile/mma_tile.cuh>
#include <attile/tile/multiply.cuh>
#include <attile/tile/panel_tile.cuh>
#include <attile/tile/row_warps.cuh>
