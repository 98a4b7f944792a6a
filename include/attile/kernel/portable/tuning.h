// SPDX-License-Identifier: MIT
#pragma once

#include <attile/kernel/backward/dq_mode.h>

namespace attile::portable {

template <int Br, int Bc, int D, class E, class P, int Dv, class TuningType>
struct ForwardTraits;
template <int Br, int Bc, int D, class E, class P, int Dv, DqMode kMode, class TuningType>
struct BackwardTraits;

/// Holds what changes a portable kernel's speed and not its result, beside its tiles.
///   portable::Tuning<portable::TuningValues{.threads = 128}>
struct TuningValues {
  /// Threads of a block; a multiple of 32.
  int threads = 256;
  /// Blocks of a multiprocessor that the compiler leaves registers for.
  int blocks_per_sm = 1;
  /// Forward: whether K and V are in flight while the products run, which takes registers for a
  /// tile of K.
  bool prefetch = false;
};

/// Is the type that TuningValues become: see Tuning, which names it.
template <int Threads, int BlocksPerSm, bool Prefetch>
struct TuningOf {
  static_assert(Threads % 32 == 0 && Threads >= 32 && Threads <= 1024,
                "attile::portable::Tuning: threads must be a multiple of 32 up to 1024");
  static_assert(BlocksPerSm >= 1, "attile::portable::Tuning: blocks_per_sm is at least 1");

  static constexpr int kThreads = Threads;
  static constexpr int kBlocksPerSm = BlocksPerSm;
  static constexpr bool kPrefetch = Prefetch;

  /// The traits that attile::ForwardTraits and attile::BackwardTraits take with this tuning.
  template <int Br, int Bc, int D, class E, class P, int Dv>
  using Forward = ForwardTraits<Br, Bc, D, E, P, Dv, TuningOf>;
  template <int Br, int Bc, int D, class E, class P, int Dv, DqMode kMode>
  using Backward = BackwardTraits<Br, Bc, D, E, P, Dv, kMode, TuningOf>;
};

/// Names the tuning of a portable kernel. It is a type, made of the members of a value: nvcc 13.0
/// writes host code that does not compile for functions that name a class with a value of class
/// type among its template arguments. (An alias may have such a value, and takes it apart.)
template <TuningValues kValues = TuningValues{}>
using Tuning = TuningOf<kValues.threads, kValues.blocks_per_sm, kValues.prefetch>;

}  // namespace attile::portable
