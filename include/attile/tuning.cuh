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
};

/// Default tiles of the portable forward kernel by the larger of D and Dv.
constexpr Tiles portable_forward_tiles(int dim) {
  if (dim <= 64) return {128, 64, 256, 1};
  if (dim <= 128) return {64, 64, 128, 1};
  return {32, 32, 128, 1};
}

/// Default tiles of the portable backward kernels by the larger of D and Dv.
constexpr Tiles portable_backward_tiles(int dim) {
  if (dim <= 64) return {64, 64, 256, 1};
  if (dim <= 128) return {32, 32, 128, 1};
  return {16, 16, 128, 1};
}

template <class Args, int D, int Dv>
struct DefaultForward {
  static constexpr Tiles kTiles = portable_forward_tiles(D > Dv ? D : Dv);
  using type = portable::ForwardTraits<kTiles.br, kTiles.bc, D, typename Args::ElementType,
                                       typename Args::MaskType, typename Args::ScoreModType,
                                       typename Args::DropoutType, Dv,
                                       portable::Tuning<kTiles.threads, kTiles.blocks_per_sm>>;
};

template <class Args, int D, int Dv, portable::DqMode kMode>
struct DefaultBackward {
  static constexpr Tiles kTiles = portable_backward_tiles(D > Dv ? D : Dv);
  using type = portable::BackwardTraits<kTiles.br, kTiles.bc, D, typename Args::ElementType,
                                        typename Args::MaskType, typename Args::ScoreModType,
                                        typename Args::DropoutType, Dv, kMode,
                                        portable::Tuning<kTiles.threads, kTiles.blocks_per_sm>>;
};

}  // namespace detail

/// The kernel that the one-call `forward` runs for these arguments.
template <class Args, int D, int Dv = D>
using DefaultForwardTraits = typename detail::DefaultForward<Args, D, Dv>::type;

/// The kernels that the one-call `backward` runs for these arguments.
template <class Args, int D, int Dv = D,
          portable::DqMode kMode = portable::DqMode::kAccumulate>
using DefaultBackwardTraits = typename detail::DefaultBackward<Args, D, Dv, kMode>::type;

}  // namespace attile
