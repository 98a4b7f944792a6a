// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/args.h>
#include <attile/kernel/portable/tuning.h>

namespace attile::sm80 {

template <int Br, int Bc, int D, Element T, Mask M, ScoreMod S, Dropout P, int Dv, class TuningType>
struct ForwardTraits;
template <int Br, int Bc, int D, Element T, Mask M, ScoreMod S, Dropout P, int Dv,
          portable::DqMode kMode, class TuningType>
struct BackwardTraits;

/// What changes the speed and not the result. A type and not a value, as portable::Tuning says.
/// WarpCount       of a block; forward: each has Br / WarpCount rows of Q, a multiple of 16. More
///                 rows of a warp are fewer reads of K and V from shared memory, and more
///                 registers. 0: by the tile, 32 rows for each warp where D and Dv leave the
///                 registers for it, else 16.
/// ResidentBlocks  on a multiprocessor, that the compiler leaves registers for. 0: as many as can
///                 have all registers that a thread can use.
template <int WarpCount = 0, int ResidentBlocks = 0>
struct Tuning {
  static_assert(WarpCount >= 0 && WarpCount <= 32, "attile::sm80::Tuning: up to 32 warps");
  static_assert(ResidentBlocks >= 0, "attile::sm80::Tuning: a negative number of blocks");

  static constexpr int kWarps = WarpCount;
  static constexpr int kBlocksPerSm = ResidentBlocks;

  /// The family that attile::ForwardTraits and attile::BackwardTraits take by this tuning.
  template <int Br, int Bc, int D, Element T, Mask M, ScoreMod S, Dropout P, int Dv>
  using Forward = ForwardTraits<Br, Bc, D, T, M, S, P, Dv, Tuning>;
  template <int Br, int Bc, int D, Element T, Mask M, ScoreMod S, Dropout P, int Dv,
            portable::DqMode kMode>
  using Backward = BackwardTraits<Br, Bc, D, T, M, S, P, Dv, kMode, Tuning>;
};

/// The warps of a block with Br rows of Q, as Tuning says.
constexpr int warps_of(int tuned, int br, int dim) {
  if (tuned > 0) return tuned;
  return br % 32 == 0 && dim <= 128 ? br / 32 : br / 16;
}

/// The resident blocks of that many warps, as Tuning says: 255 registers a thread at most, and 64 K
/// registers on a multiprocessor.
constexpr int blocks_of(int tuned, int warps) {
  if (tuned > 0) return tuned;
  return warps < 8 ? 8 / warps : 1;
}

}  // namespace attile::sm80
