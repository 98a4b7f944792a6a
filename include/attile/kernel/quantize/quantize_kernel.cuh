// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/atomic.cuh>
#include <attile/arch/attributes.h>
#include <attile/arch/launch.cuh>
#include <attile/arch/math.h>
#include <attile/arch/memory.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/element.h>
#include <attile/core/fp8.h>
#include <attile/core/math.h>
#include <attile/core/quantize.h>
#include <attile/core/vec.h>
#include <attile/kernel/quantize/quantize_params.cuh>

#include <cstdint>
#include <type_traits>

// The kernels of `quantize`. Scales are set to 0, become the maxima of what they scale, then the
// scales themselves, and then all is divided by them: four kernels, since every block of one needs
// all of the one before. A maximum does not depend on its order, and so no bit does.

namespace attile {

/// Calls f(at_from, at_to, count) for the elements of a tile that a thread moves, count of them at
/// a time: N, or where they are no vectors 1.
template <int N, class Rows, class F>
ATTILE_DEVICE void for_each_vector(const Rows& rows, int row0, bool vectors, const F& f) {
  const int count = min(kQuantizeRows, rows.rows - row0);
  const auto go = [&](auto n) {
    const int units = rows.cols / n.value;
    for (int i = arch::thread_index(); i < count * units; i += kQuantizeThreads) {
      const std::int64_t row = row0 + i / units;
      const int col = i % units * n.value;
      f(rows.from + row * rows.from_stride + col, rows.to + row * rows.to_stride + col, n);
    }
  };
  if (vectors) {
    go(std::integral_constant<int, N>{});
  } else {
    go(std::integral_constant<int, 1>{});
  }
}

/// Sets the scales to 0, or with kFinish makes scales of maxima.
/// Scope    a thread for each scale, and more.
template <class Args, bool kFinish>
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(kQuantizeThreads, 1)
    quantize_scales_kernel(const ATTILE_GRID_CONSTANT QuantizeParams<Args> p) {
  const std::int64_t number =
      std::int64_t{arch::block_index()} * kQuantizeThreads + arch::thread_index();
  with_scales(p, number, [](float& scale, float largest_number) {
    scale = kFinish ? fitting_scale(scale, arch::divide(scale, largest_number)) : 0.0f;
  });
}

/// Makes the scales, which are 0 before, the maxima of what they scale.
/// Scope    kQuantizeThreads threads a block, one block for each tile.
template <class Args>
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(kQuantizeThreads, 1)
    quantize_maxima_kernel(const ATTILE_GRID_CONSTANT QuantizeParams<Args> p) {
  with_tile(p, arch::block_index(), [&](const auto& rows, float* scale, int row0, bool vectors) {
    float largest = 0.0f;
    for_each_vector<QuantizeParams<Args>::kVector>(
        rows, row0, vectors, [&](const auto* from, const auto*, auto n) {
          const auto some = arch::load<n.value>(from);
          ATTILE_UNROLL
          for (int i = 0; i < n.value; ++i) {
            largest = arch::fmax(largest, finite_magnitude(to_float(some[i])));
          }
        });
    ATTILE_UNROLL
    for (int mask = arch::kWarpSize / 2; mask > 0; mask /= 2) {
      largest = arch::fmax(largest, arch::shuffle_xor(largest, mask));
    }
    if (arch::thread_index() % arch::kWarpSize == 0) arch::atomic_max(scale, largest);
  });
}

/// Writes everything over its scale, rounded.
/// Scope    as above.
template <class Args>
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(kQuantizeThreads, 1)
    quantize_kernel(const ATTILE_GRID_CONSTANT QuantizeParams<Args> p) {
  with_tile(p, arch::block_index(), [&](const auto& rows, float* scale, int row0, bool vectors) {
    const float divisor = *scale;
    for_each_vector<QuantizeParams<Args>::kVector>(
        rows, row0, vectors, [&]<class F>(const auto* from, F* to, auto n) {
          const auto some = arch::load<n.value>(from);
          Vec<F, n.value> rounded;
          ATTILE_UNROLL
          for (int i = 0; i < n.value; ++i) {
            rounded[i] = from_float<F>(arch::divide(to_float(some[i]), divisor));
          }
          arch::store(to, rounded);
        });
  });
}

}  // namespace attile
