// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/launch.cuh>
#include <attile/core/math.h>
#include <attile/kernel/backward/dq_mode.h>
#include <attile/kernel/portable/tuning.h>
#include <attile/kernel/problem/kernel_traits.h>
#include <attile/tile/register_tile.cuh>
#include <attile/tile/shared_tile.cuh>

namespace attile::portable {

/// Holds every constant of one portable backward pass.
/// Br, Bc  rows of Q and of K, V in a tile: any numbers >= 1.
/// D, Dv   the largest head_dim and head_dim_v it takes, up to 256; smaller ones are padded inside.
/// E, P    Elements and PolicyBundle, as for KernelTraits.
template <int Br, int Bc, int D, class E, class P, int Dv, DqMode kMode = DqMode::kAccumulate,
          class TuningType = Tuning<>>
struct BackwardTraits : KernelTraits<Direction::kBackward, Br, Bc, D, E, P, Dv> {
  static_assert(Br >= 1 && Bc >= 1,
                "attile::portable::BackwardTraits: Br and Bc must be at least 1");
  static_assert(D >= 1 && D <= 256, "attile::portable::BackwardTraits: D must be 1 to 256");
  static_assert(Dv >= 1 && Dv <= 256, "attile::portable::BackwardTraits: Dv must be 1 to 256");

  using Params = BackwardParams<BackwardTraits>;
  static constexpr const char* kFamily = "portable";
  static constexpr int kLeastArchitecture = 0;
  static constexpr DqMode kDqMode = kMode;
  static constexpr int kThreads = TuningType::kThreads;
  static constexpr int kDqThreads = kThreads;  ///< threads of the kernel that writes dQ
  static constexpr int kBlocksPerSm = TuningType::kBlocksPerSm;
  /// Rows of the grid of threads that holds a tile in registers (tile::RegisterTile).
  static constexpr int kRowLanes = kThreads / tile::kColLanes;

  using QTile = tile::SharedTile<Br, round_up(D, 4)>;
  using DoTile = tile::SharedTile<Br, round_up(Dv, 4)>;
  using KTile = tile::SharedTile<Bc, round_up(D, 4)>;
  using VTile = tile::SharedTile<Bc, round_up(Dv, 4)>;
  using PTile = tile::SharedTile<Br, Bc>;
  using ScoreRegisters = tile::RegisterTile<Br, Bc, kRowLanes, 1, 1>;
  using DqRegisters = tile::RegisterTile<Br, KTile::kCols, kRowLanes, 1, 4>;
  /// Neighbouring rows of dK and dV that a thread has.
  static constexpr int kKeyRun = tile::run_length(Bc, kRowLanes);
  using DkRegisters = tile::RegisterTile<Bc, KTile::kCols, kRowLanes, kKeyRun, 4>;
  using DvRegisters = tile::RegisterTile<Bc, VTile::kCols, kRowLanes, kKeyRun, 4>;

  static constexpr std::size_t kOperandBytes =
      QTile::kBytes + DoTile::kBytes + KTile::kBytes + VTile::kBytes;
  /// The pass over K/V blocks holds P and dS, the pass over Q blocks dS alone.
  static constexpr std::size_t kKvSharedBytes = kOperandBytes + 2 * PTile::kBytes;
  static constexpr std::size_t kRowsSharedBytes = kOperandBytes + PTile::kBytes;
  /// Shared memory of the kernel that writes dQ.
  static constexpr std::size_t kDqSharedBytes = 0;
  /// Columns of a row of the fp32 sum of dQ.
  static constexpr int kDqCols = DqRegisters::kCols;
  static_assert(
      kKvSharedBytes <= arch::kMaxSharedBytes,
      "attile::portable::BackwardTraits: the tiles of Q, dO, K, V, P and dS take more than the "
      "232448 bytes of shared memory that a block can have; choose a smaller Br or Bc");
};

}  // namespace attile::portable
