// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/arch/opaque.h>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>

#include <cstddef>

namespace attile::tile {

/// The kWarpsN of a block's kWarps warps that share the rows of MmaTiles, a line of them: what they
/// tell each other about kRows rows that each thread holds.
/// Scope    all functions: all threads of the line.
/// Barriers of the block's, a line has the one with its number, from 1 on.
template <int kWarps, int kWarpsN, int kRows>
class RowWarps {
  static constexpr int kGroupsOfWarps = kWarps / kWarpsN;
  static constexpr int kThreads = kWarpsN * arch::kWarpSize;
  static constexpr int kBlockThreads = kWarps * arch::kWarpSize;
  static_assert(
      kWarpsN == 1 || kGroupsOfWarps < 16,
      "attile::tile::RowWarps: at most 15 groups of warps, each with a barrier of the block's 16");

 public:
  static constexpr bool kOneWarp = kWarpsN == 1;
  /// Of the block's shared memory. Units: bytes.
  static constexpr std::size_t kBytes = kOneWarp ? 0 : kBlockThreads * kRows * sizeof(float);

  /// `shared`: kBytes for all groups, aligned to 4.
  ATTILE_DEVICE explicit RowWarps(unsigned char* shared)
      : room_(reinterpret_cast<float*>(shared)) {}

  /// Orders what they did in memory before what they do after it.
  ATTILE_DEVICE void barrier() const {
    if constexpr (kOneWarp) {
      arch::warp_barrier();
    } else {
      arch::barrier(id(), kThreads);
    }
  }

  /// The same; whether x holds for any thread.
  ATTILE_DEVICE bool any(bool x) const {
    if constexpr (kOneWarp) {
      return arch::any_lane(x);
    } else {
      return arch::barrier_any(id(), kThreads, x);
    }
  }

  /// x[r] <- op over the x[r] of this lane in each of the warps, in their order.
  /// Barriers one of the line before it is called again.
  template <class Op>
  ATTILE_DEVICE void combine(float (&x)[kRows], const Op& op) const {
    if constexpr (kOneWarp) return;
    const int thread = arch::thread_index();
    ATTILE_UNROLL
    for (int r = 0; r < kRows; ++r) room_[r * kBlockThreads + thread] = x[r];
    barrier();
    const float* const of_line = room_ + thread / kThreads * kThreads + thread % arch::kWarpSize;
    ATTILE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      x[r] = of_line[r * kBlockThreads];
      ATTILE_UNROLL
      for (int w = 1; w < kWarpsN; ++w) {
        x[r] = op(x[r], of_line[r * kBlockThreads + w * arch::kWarpSize]);
      }
    }
  }

 private:
  ATTILE_DEVICE static int id() { return 1 + arch::opaque(arch::thread_index()) / kThreads; }

  float* room_;
};

}  // namespace attile::tile
