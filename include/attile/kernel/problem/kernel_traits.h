// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/args.h>

namespace attile {

/// Holds a forward kernel's parameter (forward_params.cuh).
template <class Traits>
struct ForwardParams;

/// Holds the parameter of the kernels of a backward pass (backward_params.cuh).
template <class Traits>
struct BackwardParams;

/// Says where a part of a tile begins. Units: rows, columns.
struct TileOrigin {
  int row = 0, col = 0;
};

/// Holds the traits of every kernel of any family: its direction, its tiles of Br rows of Q and Bc
/// of K and V, the head dimensions it takes, its types and policies.
/// E: Elements; P: PolicyBundle.
template <Direction kWay, int Br, int Bc, int D, class E, class P, int Dv>
struct KernelTraits {
  static_assert(
      detail::kIsElements<E> && detail::kIsBundle<P>,
      "attile: a family's traits take Elements<T> and Policies<...>, where they took T, a "
      "mask, a score modifier and a dropout (docs/migration.md)");
  static_assert(
      E::kAllEqual || (kWay == Direction::kForward &&
                       (E::kFp8Cache || E::kFp8Queries || E::kOnlyOutputIsFloat)),
      "attile: the kernels take Q, K, V and O of one element type, which is that of their "
      "gradients too; forward also K and V in fp8 with Q of 16 bits, Q and K in fp8 with V in fp8 "
      "or of the 16 bits of O, and O in fp32");
  using Elements = E;
  using ElementType = typename E::Operand;
  using OutputType = typename E::O;
  using Policies = P;
  using MaskType = typename P::MaskType;
  using ScoreModType = typename P::ScoreModType;
  using DropoutType = typename P::DropoutType;
  using SequencesType = typename P::SequencesType;
  using SinkType = typename P::SinkType;
  using Args = Arguments<kWay, E, P>;

  /// Whether a block computes several tiles, and the grid is as many blocks as run at a time.
  static constexpr bool kPersistent = false;
  /// Whether a forward kernel splits keys over blocks (Splits).
  static constexpr bool kSplits = false;
  /// Whether a forward kernel awaits the kernel before it itself, and is launched beside its end.
  static constexpr bool kAwaitsDependencies = false;
  /// Whether the steps of a backward pass get LSE in log2 units (Log2Lse).
  static constexpr bool kLog2Lse = false;
  /// Whether they get LSE and delta as tile::SignedP wants them.
  static constexpr bool kSignsP = false;
  /// Whether a backward pass of few uneven blocks begins with the longest (`heads_in_flight`).
  static constexpr bool kHeadsInFlight = true;
  /// Whether in a backward pass the last kv blocks begin in the order that preprocessing makes, the
  /// longest first (`sort_last_kv_blocks`).
  static constexpr bool kSortsLastKvBlocks = false;
  /// The least number of query heads of a kv head with which half of the kv heads of an ordered
  /// backward pass ascend (`kv_block_of`); 0 where they never do.
  static constexpr int kAlternatesFrom = 0;
  /// The least number with which blocks of packed sequences go through the query heads of one tile
  /// of rows after another (`goes_rows_first`); 0 where they never do.
  static constexpr int kRowsFirstFrom = 0;
  /// Whether warps that do nothing else acquire the dQ semaphores, in as few registers as needed.
  static constexpr bool kDqSemaphoreWarps = false;
  /// Shares of the dQ of a tile that are each added by themselves: with kInOrder each has a
  /// semaphore, and with kSignalsDqReady a kv block has a flag for each.
  static constexpr int kDqShares = 1;
  /// Whether the pass over K/V blocks writes the zeros of the sum of dQ itself.
  static constexpr bool kZeroFillsInPass = false;
  /// Whether it signals when a kv block's part of dQ is added, so that dQ of the first heads is
  /// written while the last kv blocks run.
  static constexpr bool kSignalsDqReady = false;
  static constexpr Direction kDirection = kWay;
  static constexpr int kBr = Br;
  static constexpr int kBc = Bc;
  static constexpr int kD = D;
  static constexpr int kDv = Dv;
};

}  // namespace attile
