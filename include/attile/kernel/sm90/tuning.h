// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/args.h>
#include <attile/core/math.h>
#include <attile/kernel/backward/dq_mode.h>

namespace attile::sm90 {

template <int Br, int Bc, int D, class E, class P, int Dv, class TuningType>
struct ForwardTraits;

template <int Br, int Bc, int D, class E, class P, int Dv, DqMode kMode, class TuningType>
struct BackwardTraits;

/// Rows of a tile that a warpgroup has: of Q, and backward of K and V.
inline constexpr int kWarpgroupRows = 64;

/// Of each warpgroup that computes, beside one that brings tiles and has `loader`: what setmaxnreg
/// shares out of a block's registers. Units: registers of a thread.
constexpr int consumer_registers(int groups, int loader) {
  const int at_start = min(65536 / ((groups + 1) * 128) / 8 * 8, 256);
  return min((at_start * (groups + 1) - loader) / groups / 8 * 8, 256);
}

/// What changes the speed and not the result. A type and not a value, as portable::Tuning says.
/// Stages      tiles of K, and of V, in shared memory.
/// Packed      the rows of several query heads of one kv head share a tile, which K and V are read
///             for once: for a q_len that would leave tiles empty.
/// Persistent  as many blocks as run at the same time, each for several tiles of Q: the next ones
///             travel while a tile ends. Else a block for each tile.
template <int Stages = 2, bool Packed = false, bool Persistent = true>
struct Tuning {
  static_assert(Stages >= 2,
                "attile::sm90::Tuning: at least 2 stages, as a warpgroup waits for the next V "
                "before it frees the last one");

  static constexpr int kStages = Stages;
  static constexpr bool kPacked = Packed;
  static constexpr bool kPersistent = Persistent;

  /// The family that attile::ForwardTraits takes by this tuning.
  template <int Br, int Bc, int D, class E, class P, int Dv>
  using Forward = ForwardTraits<Br, Bc, D, E, P, Dv, Tuning>;
};

/// What changes the speed of a backward pass and not the result, but for the order of sums.
/// Stages   tiles of Q, and of dO, in shared memory: a product of the next ones begins before those
///          in hand are done with.
/// PSteps   tiles of P in shared memory, above 128 columns, on their way from the warpgroup that
///          makes them to the one that makes dS of them.
template <int Stages = 2, int PSteps = 1>
struct BackwardTuning {
  static_assert(Stages >= 2, "attile::sm90::BackwardTuning: at least 2 stages");
  static_assert(PSteps >= 1, "attile::sm90::BackwardTuning: at least 1 tile of P");

  static constexpr int kStages = Stages;
  static constexpr int kPSteps = PSteps;

  /// The family that attile::BackwardTraits takes by this tuning.
  template <int Br, int Bc, int D, class E, class P, int Dv, DqMode kMode>
  using Backward = BackwardTraits<Br, Bc, D, E, P, Dv, kMode, BackwardTuning>;
};

}  // namespace attile::sm90
