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

}  // namespace attile::sm80
