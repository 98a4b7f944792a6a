// SPDX-License-Identifier: MIT
#pragma once

#include <attile/kernel/backward/dq_mode.h>

namespace attile::portable {

template <int Br, int Bc, int D, class E, class P, int Dv, class TuningType>
struct ForwardTraits;
template <int Br, int Bc, int D, class E, class P, int Dv, DqMode kMode, class TuningType>
struct BackwardTraits;

/// Holds what a portable kernel can be tuned by, besides its tiles. It is a type and not a value:
/// nvcc 13.0 writes host code that does not compile for functions that name a class with a value of
/// class type among its template arguments. (An alias may have such a value: sm90::Tuning.)
/// kThreads      threads of a block; a multiple of 32.
/// kBlocksPerSm  blocks of a multiprocessor that the compiler leaves registers for.
/// kPrefetch     forward: K and V are in flight while the products run; takes registers for a tile
///               of K.
template <int kThreadCount = 256, int kResidentBlocks = 1, bool kFetchEarly = false>
struct Tuning {
  static constexpr int kThreads = kThreadCount;
  static constexpr int kBlocksPerSm = kResidentBlocks;
  static constexpr bool kPrefetch = kFetchEarly;
  static_assert(kThreads % 32 == 0 && kThreads >= 32 && kThreads <= 1024,
                "attile::portable::Tuning: threads must be a multiple of 32 up to 1024");

  /// The family that attile::ForwardTraits and attile::BackwardTraits take by this tuning.
  template <int Br, int Bc, int D, class E, class P, int Dv>
  using Forward = ForwardTraits<Br, Bc, D, E, P, Dv, Tuning>;
  template <int Br, int Bc, int D, class E, class P, int Dv, DqMode kMode>
  using Backward = BackwardTraits<Br, Bc, D, E, P, Dv, kMode, Tuning>;
};

}  // namespace attile::portable
