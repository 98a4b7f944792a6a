// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/args.h>
#include <attile/kernel/portable/backward_traits.cuh>
#include <attile/kernel/portable/forward_traits.cuh>

namespace attile {

namespace detail {

/// Tiles of one kernel. Units: rows of Q, rows of K and V, threads, blocks.
struct Tiles {
  int br, bc, threads, blocks_per_sm;
  bool prefetch = false;
};

// What each row reached is in docs/tuning.md, "Portable tiles".

/// Tiles of the portable forward kernel by the larger of D and Dv, and by the shared memory that a
/// block may take. Units: KB of 1024 bytes.
constexpr Tiles portable_forward_tiles(int dim, int shared_kb) {
  const bool large = shared_kb >= 227;
  if (dim <= 64) return {128, 64, 128, 2};
  if (dim <= 128) return large ? Tiles{128, 64, 256, 1, true} : Tiles{64, 64, 128, 2};
  return large ? Tiles{64, 64, 256, 1} : Tiles{32, 32, 128, 1};
}

/// Tiles of the portable backward kernels, likewise.
constexpr Tiles portable_backward_tiles(int dim, int shared_kb) {
  const bool large = shared_kb >= 227;
  if (dim <= 64) return large ? Tiles{64, 64, 128, 2} : Tiles{32, 64, 64, 2};
  if (dim <= 128) return large ? Tiles{64, 96, 256, 1} : Tiles{32, 48, 128, 2};
  return {16, 24, 128, 1};
}

template <class Args, int D, int Dv, int kSharedKb>
struct DefaultForward {
  static constexpr Tiles kTiles = portable_forward_tiles(D > Dv ? D : Dv, kSharedKb);
  using type = portable::ForwardTraits<
      kTiles.br, kTiles.bc, D, typename Args::ElementType, typename Args::MaskType,
      typename Args::ScoreModType, typename Args::DropoutType, Dv,
      portable::Tuning<kTiles.threads, kTiles.blocks_per_sm, kTiles.prefetch>>;
};

template <class Args, int D, int Dv, DqMode kMode, int kSharedKb>
struct DefaultBackward {
  static constexpr Tiles kTiles = portable_backward_tiles(D > Dv ? D : Dv, kSharedKb);
  using type = portable::BackwardTraits<kTiles.br, kTiles.bc, D, typename Args::ElementType,
                                        typename Args::MaskType, typename Args::ScoreModType,
                                        typename Args::DropoutType, Dv, kMode,
                                        portable::Tuning<kTiles.threads, kTiles.blocks_per_sm>>;
};

}  // namespace detail

/// Shared memory of a block that every device since compute capability 8.0 allows. Units: KB.
inline constexpr int kCommonSharedKb = 99;

/// The kernel that the one-call `forward` runs for these arguments. kSharedKb: 99 fits every device
/// since compute capability 8.0; with 227 the tiles may be larger, for 9.0 and 10.0.
template <class Args, int D, int Dv = D, int kSharedKb = kCommonSharedKb>
using DefaultForwardTraits = typename detail::DefaultForward<Args, D, Dv, kSharedKb>::type;

/// The kernels that the one-call `backward` runs for these arguments.
template <class Args, int D, int Dv = D, DqMode kMode = DqMode::kAccumulate,
          int kSharedKb = kCommonSharedKb>
using DefaultBackwardTraits = typename detail::DefaultBackward<Args, D, Dv, kMode, kSharedKb>::type;

}  // namespace attile
