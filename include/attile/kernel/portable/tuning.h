// SPDX-License-Identifier: MIT
#pragma once

namespace attile::portable {

/// What a portable kernel can be tuned by, besides its tiles. A type and not a value: nvcc 13.0
/// writes host code that does not compile for functions that name a class with a value of class
/// type among its template arguments.
/// kThreads      per block; a multiple of 32.
/// kBlocksPerSm  that the compiler leaves registers for.
/// kPrefetch     forward: K and V travel while the products run; takes registers for a tile of K.
template <int kThreadCount = 256, int kResidentBlocks = 1, bool kFetchEarly = false>
struct Tuning {
  static constexpr int kThreads = kThreadCount;
  static constexpr int kBlocksPerSm = kResidentBlocks;
  static constexpr bool kPrefetch = kFetchEarly;
  static_assert(kThreads % 32 == 0 && kThreads >= 32 && kThreads <= 1024,
                "attile::portable::Tuning: threads must be a multiple of 32 up to 1024");
};

}  // namespace attile::portable
