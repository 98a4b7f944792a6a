// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/atomic.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/index.h>
#include <attile/core/modifier_gradient.h>

#include <cstdint>

// These functions write the gradient of a score modifier: see kHasGradient.

namespace attile {

/// Adds to the gradient of a score modifier by atomics.
struct AddAtomically {
  ATTILE_DEVICE void operator()(float* where, float x) const { arch::atomic_add(where, x); }
};

/// Writes the zeros that the gradient of a score modifier begins with: a warp for each line.
/// Scope    all threads of a grid with blocks of kThreads.
template <int kThreads, class S>
ATTILE_DEVICE void clear_gradient(const S& mod, const ScoreShape& shape) {
  constexpr int kWarps = kThreads / arch::kWarpSize;
  const std::int64_t lines = gradient_lines(mod, shape);
  const std::int64_t warps = static_cast<std::int64_t>(arch::block_count()) * kWarps;
  const std::int64_t warp = static_cast<std::int64_t>(arch::block_index()) * kWarps +
                            arch::thread_index() / arch::kWarpSize;
  for (std::int64_t n = warp; n < lines; n += warps) {
    const GradientLine line = mod.gradient_line(n, shape);
    for (int i = arch::thread_index() % arch::kWarpSize; i < line.count; i += arch::kWarpSize) {
      line.first[i * line.stride] = 0.0f;
    }
  }
}

}  // namespace attile
