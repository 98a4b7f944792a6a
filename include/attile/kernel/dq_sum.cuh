// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/atomic.cuh>
#include <attile/arch/attributes.h>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/vec.h>
#include <attile/kernel/backward_params.cuh>
#include <attile/kernel/kernel_traits.h>
#include <attile/tile/mma_tile.cuh>
#include <attile/tile/panel_tile.cuh>

#include <cstdint>

// The fp32 sum of dQ of kernels with matrix instructions: a tile of it lies as the registers do
// that hold one part of it, so that what a warp adds is contiguous.

namespace attile {

/// Where a thread's value (r, c) of dQ lies in a tile of the sum: what one instruction of a warp
/// adds, the four of a 2 x 2 group or one of each lane's, is contiguous.
template <class Traits>
ATTILE_DEVICE int dq_place(int r, int c) {
  constexpr int kThreads = Traits::kDqThreads;
  const int group = r / 2 * (Traits::DqRegisters::kRegCols / 2) + c / 2;
  const int element = r % 2 * 2 + c % 2;
  const int thread = arch::thread_index();
  return arch::kAddsVectors ? (group * kThreads + thread) * 4 + element
                            : (group * 4 + element) * kThreads + thread;
}

/// sum += dq, or sum = dq, for what this thread holds.
template <class Traits>
ATTILE_DEVICE void add_to_sum(float* sum, const typename Traits::DqRegisters& dq, bool overwrite) {
  using Registers = typename Traits::DqRegisters;
  ATTILE_UNROLL
  for (int r = 0; r < Registers::kRegRows; r += 2) {
    ATTILE_UNROLL
    for (int c = 0; c < Registers::kRegCols; c += 2) {
      const Float4 x{dq.x[r][c], dq.x[r][c + 1], dq.x[r + 1][c], dq.x[r + 1][c + 1]};
      if (arch::kAddsVectors && !overwrite) {
        arch::atomic_add(sum + dq_place<Traits>(r, c), x);
        continue;
      }
      ATTILE_UNROLL
      for (int e = 0; e < 4; ++e) {
        float* const to = sum + dq_place<Traits>(r + e / 2, c + e % 2);
        if (overwrite) {
          *to = x[e];
        } else {
          arch::atomic_add(to, x[e]);
        }
      }
    }
  }
}

/// dQ = scale * (the fp32 sum), in the type of dQ, for one tile of query rows.
/// Scope    all threads of the block. `shared`: Traits::kDqSharedBytes, aligned to 128 bytes.
template <class Traits>
  requires requires { Traits::dq_origin(0); }
ATTILE_DEVICE void store_dq(const BackwardParams<Traits>& p, int batch, int head, int row0,
                            unsigned char* shared) {
  using Registers = typename Traits::DqRegisters;
  const typename Traits::QTile dq_smem{shared};
  const float* const sum = p.dq_sum_of(static_cast<std::int64_t>(batch) * p.q_heads + head, row0);
  for (int part = 0; part < Traits::kDqParts; ++part) {
    const float* const from = sum + part * Traits::kBr * Registers::kCols;
    Registers dq_frag;
    ATTILE_UNROLL
    for (int r = 0; r < Registers::kRegRows; ++r) {
      ATTILE_UNROLL
      for (int c = 0; c < Registers::kRegCols; ++c) {
        dq_frag.x[r][c] = from[dq_place<Traits>(r, c)];
      }
    }
    const TileOrigin at = Traits::dq_origin(arch::thread_index());
    tile::stage(dq_smem, dq_frag, p.scale, at.col + part * Registers::kCols, at.row);
  }
  arch::barrier();  // dQ is written before others read it
  tile::store_tile<Traits::kDqThreads / arch::kWarpSize>(
      p.dq.slice(batch, head, p.extent.q_len, p.head_dim), dq_smem, row0);
}

}  // namespace attile
