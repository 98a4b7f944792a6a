// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/args.h>

#include <type_traits>

namespace attile {

/// A forward kernel's parameter (forward_kernel.cuh).
template <class Traits>
struct ForwardParams;

/// The parameter of the kernels of a backward pass (backward_params.cuh).
template <class Traits>
struct BackwardParams;

/// Where a part of a tile begins. Units: rows, columns.
struct TileOrigin {
  int row = 0, col = 0;
};

/// What the traits of every kernel say, whatever the family: its direction, its tiles of Br rows of
/// Q and Bc of K and V, the head dimensions it takes, its types and policies.
template <Direction kWay, int Br, int Bc, int D, Element T, Mask M, ScoreMod S, Dropout P, int Dv>
struct KernelTraits {
  using ElementType = T;
  using MaskType = M;
  using ScoreModType = S;
  using DropoutType = P;
  using Args = std::conditional_t<kWay == Direction::kForward, ForwardArgs<T, M, S, P>,
                                  BackwardArgs<T, M, S, P>>;

  /// Whether a block computes several tiles, as many blocks as run at the same time.
  static constexpr bool kPersistent = false;
  /// Blocks that share what they bring from device memory.
  static constexpr int kCluster = 1;
  /// Whether few uneven blocks of a backward pass begin longest first (`slices_abreast`).
  static constexpr bool kHeadsAbreast = true;
  /// With how many query heads over a kv head half of the kv heads of an ordered backward pass
  /// ascend (`column_of`), and with more; 0 where they never do.
  static constexpr int kAlternatesFrom = 0;
  /// Whether warps that do nothing else keep a block's turns, in as few registers as that takes.
  static constexpr bool kKeepsTurns = false;
  /// Whether the sum of dQ begins as zeros that the pass over K/V blocks writes itself.
  static constexpr bool kClearsInPass = false;
  /// Whether it tells when it has added a column's part, so that dQ of the first heads is written
  /// beside the last columns.
  static constexpr bool kTellsAdded = false;
  static constexpr Direction kDirection = kWay;
  static constexpr int kBr = Br;
  static constexpr int kBc = Bc;
  static constexpr int kD = D;
  static constexpr int kDv = Dv;
};

}  // namespace attile
