// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/atomic.cuh>
#include <attile/arch/attributes.h>
#include <attile/arch/memory.cuh>
#include <attile/arch/opaque.h>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/vec.h>
#include <attile/core/work_tile.h>
#include <attile/kernel/backward/backward_params.cuh>
#include <attile/kernel/problem/kernel_traits.h>
#include <attile/tile/mma_tile.cuh>
#include <attile/tile/panel_tile.cuh>

// Kernels with matrix instructions keep a tile of the fp32 sum of dQ in the layout of the registers
// that hold one part of it, so that what a warp adds is contiguous.

namespace attile {

/// Returns the offset of a thread's value (r, c) of dQ in a tile of the sum, counted from
/// `dq_accum_begin`. What one instruction of a warp adds, four values of 2 x 2 or one of each lane,
/// is contiguous, and so is what Traits::kDqContiguousThreads threads add.
template <class Traits>
ATTILE_DEVICE constexpr int dq_accum_offset(int r, int c) {
  const int group = r / 2 * (Traits::DqRegisters::kRegCols / 2) + c / 2;
  const int element = r % 2 * 2 + c % 2;
  return arch::kAddsVectors ? group * Traits::kDqContiguousThreads * 4 + element
                            : (group * 4 + element) * Traits::kDqContiguousThreads;
}

/// Returns the offset of this thread's first value in a tile of the sum.
template <class Traits>
ATTILE_DEVICE int dq_accum_begin() {
  using Registers = typename Traits::DqRegisters;
  const int thread = arch::opaque(arch::thread_index());
  const int unit = arch::kAddsVectors ? 4 : 1;
  if constexpr (Traits::kDqContiguousThreads == Traits::kDqThreads) return thread * unit;
  return thread / Traits::kDqContiguousThreads *
             (Traits::kDqContiguousThreads * Registers::kRegRows * Registers::kRegCols) +
         thread % Traits::kDqContiguousThreads * unit;
}

/// Calls f(r, c, values) for each 2 x 2 of the values that this thread holds.
template <class Traits, class F>
ATTILE_DEVICE void for_each_of_dq(const typename Traits::DqRegisters& dq, F&& f) {
  using Registers = typename Traits::DqRegisters;
  ATTILE_UNROLL
  for (int r = 0; r < Registers::kRegRows; r += 2) {
    ATTILE_UNROLL
    for (int c = 0; c < Registers::kRegCols; c += 2) {
      f(r, c, Float4{dq.x[r][c], dq.x[r][c + 1], dq.x[r + 1][c], dq.x[r + 1][c + 1]});
    }
  }
}

/// Adds the values that this thread holds: sum += dq, or with `overwrite` sum = dq.
template <class Traits>
ATTILE_DEVICE void add_to_dq_accum(float* sum, const typename Traits::DqRegisters& dq,
                                   bool overwrite) {
  float* const mine = sum + dq_accum_begin<Traits>();
  for_each_of_dq<Traits>(dq, [&](int r, int c, const Float4& x) {
    if (arch::kAddsVectors && !overwrite)
      return arch::atomic_add(mine + dq_accum_offset<Traits>(r, c), x);
    ATTILE_UNROLL
    for (int e = 0; e < 4; ++e) {
      float* const to = mine + dq_accum_offset<Traits>(r + e / 2, c + e % 2);
      if (overwrite) {
        *to = x[e];
      } else {
        arch::atomic_add(to, x[e]);
      }
    }
  });
}

/// Stores dQ = scale * (the fp32 sum), in the type of dQ, for one tile of query rows.
/// Scope    all threads of the block. `shared`: Traits::kDqSharedBytes, aligned to 128 bytes.
template <class Traits>
  requires requires { Traits::dq_origin(0); }
ATTILE_DEVICE void store_dq(const BackwardParams<Traits>& p, const WorkTile& at,
                            unsigned char* shared) {
  using Registers = typename Traits::DqRegisters;
  const typename Traits::QTile dq_smem{shared};
  const float* const sum = p.dq_accum_of(at) + dq_accum_begin<Traits>();
  for (int part = 0; part < Traits::kDqParts; ++part) {
    const float* const from = sum + part * Traits::kBr * Registers::kCols;
    Registers dq_frag;
    ATTILE_UNROLL
    for (int r = 0; r < Registers::kRegRows; r += 2) {
      ATTILE_UNROLL
      for (int c = 0; c < Registers::kRegCols; c += 2) {
        Float4 x;
        if constexpr (arch::kAddsVectors) {
          x = arch::load<4>(from + dq_accum_offset<Traits>(r, c));
        } else {
          ATTILE_UNROLL
          for (int e = 0; e < 4; ++e) x[e] = from[dq_accum_offset<Traits>(r + e / 2, c + e % 2)];
        }
        ATTILE_UNROLL
        for (int e = 0; e < 4; ++e) dq_frag.x[r + e / 2][c + e % 2] = x[e];
      }
    }
    const TileOrigin origin = Traits::dq_origin(arch::thread_index());
    tile::stage(dq_smem, dq_frag, p.scale, origin.col + part * Registers::kCols, origin.row);
  }
  arch::barrier();  // dQ is written before others read it
  tile::store_tile<Traits::kDqThreads / arch::kWarpSize>(p.rows_of_head(p.dq, at, p.head_dim),
                                                         dq_smem, at.row0);
}

}  // namespace attile
