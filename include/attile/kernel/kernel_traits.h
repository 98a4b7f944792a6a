// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/args.h>

#include <type_traits>

namespace attile {

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

  static constexpr Direction kDirection = kWay;
  static constexpr int kBr = Br;
  static constexpr int kBc = Bc;
  static constexpr int kD = D;
  static constexpr int kDv = Dv;
};

}  // namespace attile
