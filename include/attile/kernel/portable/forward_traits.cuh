// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/launch.cuh>
#include <attile/core/math.h>
#include <attile/kernel/portable/tuning.h>
#include <attile/kernel/problem/kernel_traits.h>
#include <attile/tile/register_tile.cuh>
#include <attile/tile/shared_tile.cuh>

namespace attile::portable {

/// Holds every constant of one portable forward kernel.
/// Br, Bc  rows of Q and of K, V in a tile: any numbers >= 1.
/// D, Dv   the largest head_dim and head_dim_v it takes, up to 256; smaller ones are padded inside.
/// E, P    Elements and PolicyBundle, as for KernelTraits.
template <int Br, int Bc, int D, class E, class P, int Dv, class TuningType = Tuning<>>
struct ForwardTraits : KernelTraits<Direction::kForward, Br, Bc, D, E, P, Dv> {
  static_assert(Br >= 1 && Bc >= 1,
                "attile::portable::ForwardTraits: Br and Bc must be at least 1");
  static_assert(D >= 1 && D <= 256, "attile::portable::ForwardTraits: D must be 1 to 256");
  static_assert(Dv >= 1 && Dv <= 256, "attile::portable::ForwardTraits: Dv must be 1 to 256");

  using Params = ForwardParams<ForwardTraits>;
  static constexpr const char* kFamily = "portable";
  static constexpr int kLeastArchitecture = 0;
  static constexpr int kThreads = TuningType::kThreads;
  static constexpr int kBlocksPerSm = TuningType::kBlocksPerSm;
  static constexpr bool kPrefetch = TuningType::kPrefetch;
  /// Rows of the grid of threads that holds a tile in registers (tile::RegisterTile).
  static constexpr int kRowLanes = kThreads / tile::kColLanes;

  // The left operands Q and P are column-major, the right ones K^T and V row-major: both products
  // are sums of outer products. K is padded because every load transposes it, unless a large D
  // leaves no room for that; in the other tiles lanes stay within a line.
  static constexpr tile::Order kDown = tile::Order::kColumnMajor;
  static constexpr tile::Order kAlong = tile::Order::kRowMajor;
  static constexpr tile::Padding kPadK = D > 128 ? tile::Padding::kNone : tile::Padding::kOdd;
  using QTile = tile::SharedTile<Br, round_up(D, 4), kDown, tile::Padding::kNone>;
  using KTile = tile::SharedTile<Bc, round_up(D, 4), kDown, kPadK>;
  using VTile = tile::SharedTile<Bc, round_up(Dv, 4), kAlong, tile::Padding::kNone>;
  using PTile = tile::SharedTile<Br, Bc, kDown>;
  /// Neighbouring rows, and columns, of S that a thread has.
  static constexpr int kRowRun = tile::run_length(Br, kRowLanes);
  static constexpr int kColRun = tile::run_length(Bc, tile::kColLanes);
  using ScoreRegisters = tile::RegisterTile<Br, Bc, kRowLanes, kRowRun, kColRun>;
  using OutputRegisters = tile::RegisterTile<Br, VTile::kCols, kRowLanes, kRowRun, 4>;

  /// P overwrites K, which is not needed any more by then.
  static constexpr std::size_t kKpBytes = max(KTile::kBytes, PTile::kBytes);
  static constexpr std::size_t kSharedBytes = QTile::kBytes + kKpBytes + VTile::kBytes;
  static_assert(
      kSharedBytes <= arch::kMaxSharedBytes,
      "attile::portable::ForwardTraits: the tiles of Q, K (or P) and V take more than the 232448 "
      "bytes of shared memory that a block can have; choose a smaller Br or Bc");
};

}  // namespace attile::portable
