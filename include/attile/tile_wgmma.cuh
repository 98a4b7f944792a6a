// SPDX-License-Identifier: MIT
#pragma once

// The pieces of kernels of your own that multiply by wgmma and copy by TMA, on compute capability
// 9.0 in code for 90a, beside those of tile_mma.cuh: products of a warpgroup, pipelines of tiles,
// tensor maps.
// In code for another architecture these pieces trap. Begin the kernel with
// `if constexpr (!arch::kHasWarpgroups) return;`, so that such code is small, and ask
// `arch::check_launch(kernel, shared_bytes, blocks, 900)` before a launch, which refuses it with a
// sentence.
#include <attile/arch/bulk_tensor.cuh>
#include <attile/arch/mbarrier.cuh>
#include <attile/arch/warpgroup.cuh>
#include <attile/tile/pipeline.cuh>
#include <attile/tile/tensor_map.cuh>
#include <attile/tile/warpgroup.cuh>
#include <attile/tile_mma.cuh>
