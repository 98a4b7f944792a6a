// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/arch/math.h>
#include <attile/arch/memory.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/element.h>
#include <attile/core/float_bits.h>
#include <attile/core/math.h>
#include <attile/core/vec.h>
#include <attile/tile/panel_tile.cuh>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace attile::tile {

/// Is a power of two, and its inverse.
struct PowerOfTwo {
  float factor, inverse;
};

/// Returns the power of two that takes a number into [2^14, 2^15), of which fp16 has eleven bits;
/// smaller numbers than 2^-112 are taken as far as 2^126 does.
ATTILE_HOST_DEVICE PowerOfTwo power_to_half(float largest) {
  const auto exponent = max(static_cast<int>(word_of(largest) >> 23), 15);
  return {float_of(static_cast<std::uint32_t>(2 * 127 + 14 - exponent) << 23),
          float_of(static_cast<std::uint32_t>(exponent - 14) << 23)};
}

/// Replaces rows of bf16 in shared memory by fp16, each times the power of two that brings its
/// largest element near fp16's largest, and writes the inverses of these to `inverses`. It is exact
/// for elements above 2^-31 of the row's largest; others are off by at most 2^-39 of that.
/// Shapes   rows is rounded up to a multiple of 16; inverses (Rows), in shared memory.
/// Scope    kThreads threads, whole warps. Barriers one after, before it is read.
template <int kThreads, int Rows, int Cols>
ATTILE_DEVICE void scale_to_half(const PanelTile<Rows, Cols, __nv_bfloat16>& shared, int rows,
                                 float* inverses) {
  constexpr int kLanes = 8;  // of a row
  constexpr int kRun = 8;    // elements that a lane moves at once
  const PanelTile<Rows, Cols, __half> scaled{shared.data};
  const int lane = arch::thread_index() % kLanes;
  ATTILE_UNROLL_BY(1)
  for (int row = arch::thread_index() / kLanes; row < round_up(rows, 16);
       row += kThreads / kLanes) {
    float largest = 0.0f;
    ATTILE_UNROLL_BY(1)
    for (int col = lane * kRun; col < Cols; col += kLanes * kRun) {
      const auto run = shared.template run<kRun>(row, col);
      ATTILE_UNROLL
      for (int e = 0; e < kRun; ++e) {
        const float x = to_float(run[e]);
        largest = arch::fmax(largest, arch::fmax(x, -x));
      }
    }
    ATTILE_UNROLL
    for (int other = 1; other < kLanes; other *= 2) {
      largest = arch::fmax(largest, arch::shuffle_xor(largest, other));
    }
    const PowerOfTwo power = power_to_half(largest);
    ATTILE_UNROLL_BY(1)
    for (int col = lane * kRun; col < Cols; col += kLanes * kRun) {
      const auto run = shared.template run<kRun>(row, col);
      Vec<__half, kRun> halves;
      ATTILE_UNROLL
      for (int e = 0; e < kRun; ++e)
        halves[e] = from_float<__half>(to_float(run[e]) * power.factor);
      arch::store(&scaled.at(row, col), halves);
    }
    if (lane == 0) inverses[row] = power.inverse;
  }
}

}  // namespace attile::tile
