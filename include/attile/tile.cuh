// SPDX-License-Identifier: MIT
#pragma once

// The pieces of kernels of your own that multiply by FMAs, on every device: tiles of floats in
// shared memory and registers, loads, stores and products; and what the pieces for tensor cores
// have in common with them: work tiles, the online softmax, masks, score modifiers, dropout.
// docs/pieces.md has a table of all of them, and docs/tutorial.md builds a kernel.
#include <attile/arch/atomic.cuh>
#include <attile/arch/attributes.h>
#include <attile/arch/device.cuh>
#include <attile/arch/launch.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/policies.h>
#include <attile/core/schedule.h>
#include <attile/core/work_tile.h>
#include <attile/tile/copy.cuh>
#include <attile/tile/dropout.cuh>
#include <attile/tile/matmul.cuh>
#include <attile/tile/matrix.cuh>
#include <attile/tile/merge_lse.h>
#include <attile/tile/modifier_words.cuh>
#include <attile/tile/online_softmax.h>
#include <attile/tile/register_tile.cuh>
#include <attile/tile/row_sinks.cuh>
#include <attile/tile/scores.cuh>
#include <attile/tile/shared_tile.cuh>
#include <attile/tile/signed_dropout.cuh>
#include <attile/tile/tile_coord.cuh>
