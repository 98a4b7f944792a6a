// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/arch/opaque.h>
#include <attile/arch/thread.cuh>
#include <attile/core/array.h>
#include <attile/core/config.h>

#include <cstddef>

namespace attile::tile {

/// Exchanges values among the warps of a row: the kWarpsN of a block's kWarps warps that hold the
/// same rows of an MmaTile and different columns. Each thread has one value for each of kRows rows.
///   const auto row_warps = carver.take<tile::RowWarps<kWarps, 2, Scores::kRegRows>>();
///   softmax.step<8>(s_frag, o_frag, scale_log2, row_warps);
/// Scope    all functions: all threads of the warps of a row.
/// Barriers each set of such warps has a named barrier of the block, numbered from 1 on.
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
  /// The shared memory that the block needs for the exchange. Units: bytes.
  static constexpr std::size_t kBytes = kOneWarp ? 0 : kBlockThreads * kRows * sizeof(float);
  /// The shared memory for combine_rows alone. Units: bytes.
  static constexpr std::size_t kRowBytes = kBytes / 4;

  /// Uses `shared`: kBytes for all warps of the block, aligned to 4 bytes.
  ATTILE_DEVICE explicit RowWarps(unsigned char* shared)
      : room_(reinterpret_cast<float*>(shared)) {}

  /// Waits for the warps of the row, and orders their memory accesses before the call before those
  /// after it.
  ATTILE_DEVICE void barrier() const {
    if constexpr (kOneWarp) {
      arch::warp_barrier();
    } else {
      arch::barrier(id(), kThreads);
    }
  }

  /// Waits as `barrier` does, and returns whether x holds for any thread of these warps.
  ATTILE_DEVICE bool any(bool x) const {
    if constexpr (kOneWarp) {
      return arch::any_lane(x);
    } else {
      return arch::barrier_any(id(), kThreads, x);
    }
  }

  /// Replaces x[r] by op over the x[r] that this lane has in each of the warps, in their order.
  /// Barriers one of these warps before the next call, which overwrites what others still read.
  template <class Op>
  ATTILE_DEVICE void combine(Array<float, kRows>& x, const Op& op) const {
    if constexpr (kOneWarp) return;
    const int thread = arch::thread_index();
    ATTILE_UNROLL
    for (int r = 0; r < kRows; ++r) room_[r * kBlockThreads + thread] = x[r];
    barrier();  // the values below could be read before the other warps have written them
    const float* const of_row = room_ + thread / kThreads * kThreads + thread % arch::kWarpSize;
    ATTILE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      x[r] = of_row[r * kBlockThreads];
      ATTILE_UNROLL
      for (int w = 1; w < kWarpsN; ++w) {
        x[r] = op(x[r], of_row[r * kBlockThreads + w * arch::kWarpSize]);
      }
    }
  }

  /// Does the same with values that the four lanes of a row share.
  template <class Op>
  ATTILE_DEVICE void combine_rows(Array<float, kRows>& x, const Op& op) const {
    const int thread = arch::thread_index(), lane = thread % arch::kWarpSize;
    constexpr int kLanes = arch::kWarpSize / 4, kWarpFloats = kRows * kLanes;
    float* const mine = room_ + thread / arch::kWarpSize * kWarpFloats + lane / 4;
    ATTILE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      if (lane % 4 == 0) mine[r * kLanes] = x[r];
    }
    barrier();  // the values below could be read before the other warps have written them
    const float* const of_row = room_ + thread / kThreads * kWarpsN * kWarpFloats + lane / 4;
    ATTILE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      x[r] = of_row[r * kLanes];
      ATTILE_UNROLL
      for (int w = 1; w < kWarpsN; ++w) x[r] = op(x[r], of_row[w * kWarpFloats + r * kLanes]);
    }
  }

 private:
  ATTILE_DEVICE static int id() { return 1 + arch::opaque(arch::thread_index()) / kThreads; }

  float* room_;
};

}  // namespace attile::tile
