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

// The portable defaults fit the 99 KB of shared memory that every device since 8.0 allows a block.
// Their rates are of docs/tuning.md, "Portable tiles": fp32, no mask, H200, 2026-11-21.

/// Default tiles of the portable forward kernel by the larger of D and Dv.
constexpr Tiles portable_forward_tiles(int dim) {
  if (dim <= 128) return {64, 64, 128, 2};  // D 64: 33.9 TFLOP/s, D 128: 35.5
  return {32, 32, 128, 1};                  // D 256: 24.4 TFLOP/s
}

/// Default tiles of the portable backward kernels by the larger of D and Dv.
constexpr Tiles portable_backward_tiles(int dim) {
  if (dim <= 64) return {32, 64, 64, 2};    // D 64: 33.2 TFLOP/s
  if (dim <= 128) return {32, 48, 128, 2};  // D 128: 29.9 TFLOP/s
  return {16, 16, 64, 1};                   // D 256: 17.9 TFLOP/s
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
template <class Args, int D, int Dv = D, portable::DqMode kMode = portable::DqMode::kAccumulate>
using DefaultBackwardTraits = typename detail::DefaultBackward<Args, D, Dv, kMode>::type;

}  // namespace attile
