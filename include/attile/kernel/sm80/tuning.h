// SPDX-License-Identifier: MIT
#pragma once

namespace attile::sm80 {

/// What changes the speed and not the result. A type and not a value, as portable::Tuning says.
/// WarpCount       of a block; forward: each has Br / WarpCount rows of Q, a multiple of 16. More
///                 rows of a warp are fewer reads of K and V from shared memory, and more
///                 registers.
/// ResidentBlocks  on a multiprocessor, that the compiler leaves registers for.
template <int WarpCount = 4, int ResidentBlocks = 2>
struct Tuning {
  static_assert(WarpCount >= 1 && WarpCount <= 32, "attile::sm80::Tuning: 1 to 32 warps");
  static_assert(ResidentBlocks >= 1, "attile::sm80::Tuning: at least 1 block");

  static constexpr int kWarps = WarpCount;
  static constexpr int kBlocksPerSm = ResidentBlocks;
};

/// The same for the backward pass.
/// Warps    of a block, in lines of Across; each has Bc / (Warps / Across) rows of dK and dV, a
///          multiple of 16, and 1 / Across of their columns.
/// DqAcross of those warps that share the rows of a tile of dQ: each has Br / (Warps / DqAcross)
///          rows, a multiple of 16.
/// Stages   tiles of Q and dO in shared memory: with 2 the next ones travel during a whole step.
template <int Warps = 8, int Across = 1, int DqAcross = 2, int ResidentBlocks = 1, int Stages = 2>
struct BackwardTuning {
  static constexpr int kWarps = Warps;
  static constexpr int kAcross = Across;
  static constexpr int kDqAcross = DqAcross;
  static constexpr int kBlocksPerSm = ResidentBlocks;
  static constexpr int kStages = Stages;
};

}  // namespace attile::sm80
