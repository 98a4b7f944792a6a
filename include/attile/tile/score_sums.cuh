// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/arch/opaque.h>
#include <attile/arch/thread.cuh>
#include <attile/core/array.h>
#include <attile/core/config.h>
#include <attile/core/math.h>
#include <attile/core/vec.h>

namespace attile::tile {

namespace detail {

/// Returns the number of this lane. The compiler computes anew what depends on it, because there
/// are no registers to keep that in.
ATTILE_DEVICE int lane_of_sums() { return arch::opaque(arch::thread_index()) % arch::kWarpSize; }

}  // namespace detail

/// Holds a lane's part of a list of sums that the lanes of a warp split among them: the kCount
/// elements from `first` on, in registers.
template <int kCount>
struct SplitSums {
  static constexpr int kElements = kCount;
  Array<float, kCount> x;
  int first = 0;
  bool mine = true;  ///< false where another lane has the same

  /// Adds the elements of lanes that differ by kMask. Each of the two lanes keeps half of the sums.
  /// Scope    all lanes of a warp.
  template <int kMask>
  ATTILE_DEVICE SplitSums<ceil_div(kCount, 2)> added() const {
    constexpr int kHalf = ceil_div(kCount, 2);
    const bool upper = (detail::lane_of_sums() & kMask) != 0;
    SplitSums<kHalf> sums;
    if constexpr (kCount == 1) {
      sums.x[0] = x[0] + arch::shuffle_xor(x[0], kMask);
      sums.mine = mine && !upper;
      sums.first = first;
    } else {
      ATTILE_UNROLL
      for (int i = 0; i < kHalf; ++i) {
        const float low = x[i];
        const float high = i + kHalf < kCount ? x[i + kHalf < kCount ? i + kHalf : 0] : 0.0f;
        sums.x[i] = (upper ? high : low) + arch::shuffle_xor(upper ? low : high, kMask);
      }
      sums.mine = mine;
      sums.first = first + (upper ? kHalf : 0);
    }
    return sums;
  }
  /// Calls f(element, sum) for the sums that this lane has.
  template <class F>
  ATTILE_DEVICE void for_each(int count, const F& f) const {
    ATTILE_UNROLL
    for (int i = 0; i < kCount; ++i) {
      if (mine && first + i < count) f(first + i, x[i]);
    }
  }
};

/// Adds up values of scores, one for each score that a lane holds, over the lanes of a warp.
/// x[r][c] is that in registers (r, c) of a TransposedRegisters<MmaTile>: lane 4 a + b has rows
/// 8 (r / 2) + 2 b + r % 2 and columns 8 c + a. Each sum is given to one lane, which calls f.
/// Shapes   Rows is even.
/// Scope    all lanes of a warp.
template <int Rows, int Cols>
struct ScoreSums {
  static_assert(Rows % 2 == 0, "attile::tile::ScoreSums: a lane's rows are pairs");

  /// Calls f(r, sum) with the sums of the rows that lanes 4 a + b have in registers r.
  template <class F>
  ATTILE_DEVICE static void by_rows(const Array<float, Rows, Cols>& x, const F& f) {
    SplitSums<Rows> sums;
    ATTILE_UNROLL
    for (int r = 0; r < Rows; ++r) {
      sums.x[r] = x[r][0];
      ATTILE_UNROLL
      for (int c = 1; c < Cols; ++c) sums.x[r] += x[r][c];
    }
    sums.template added<16>().template added<8>().template added<4>().for_each(Rows, f);
  }

  /// Calls f(col, sum) with the sums of all columns, of which sums[c] are this lane's shares.
  template <class F>
  ATTILE_DEVICE static void by_cols(const Array<float, Cols>& sums, const F& f) {
    SplitSums<Cols> shares;
    ATTILE_UNROLL
    for (int c = 0; c < Cols; ++c) shares.x[c] = sums[c];
    const int a = detail::lane_of_sums() / 4;
    shares.template added<2>().template added<1>().for_each(
        Cols, [&](int c, float sum) { f(8 * c + a, sum); });
  }

  /// Calls f(d, sum) with the sums of the scores whose col - row is d. A lane first adds those that
  /// it has itself, which are 8 apart: element j of its list, of even and of odd rows, is
  /// d = 8 (j - kGroups) + a - 2 b - (row is odd).
  template <class F>
  ATTILE_DEVICE static void by_diagonals(const Array<float, Rows, Cols>& x, const F& f) {
    float sums[2][kDiagonals] = {};
    ATTILE_UNROLL
    for (int r = 0; r < Rows; ++r) {
      ATTILE_UNROLL
      for (int c = 0; c < Cols; ++c) sums[r % 2][c - r / 2 + kGroups] += x[r][c];
    }
    const int lane = detail::lane_of_sums();
    move_down(sums[1], 1);
    SplitSums<kDiagonals> shares;
    ATTILE_UNROLL
    for (int j = 0; j < kDiagonals; ++j) shares.x[j] = sums[0][j] + sums[1][j];
    move_down(shares.x, lane % 4 * 2);
    shares.template added<2>().template added<1>().for_each(
        kDiagonals, [&](int j, float sum) { f(8 * (j - kGroups) + lane / 4, sum); });
  }

  /// Whether there is `by_quads`.
  static constexpr bool kHasQuads = Cols == 2 && Rows % 4 == 0;
  /// Calls f(r, odd, col, x) with the values themselves, four neighbouring columns of one row at a
  /// time: x[e] is that of column col + e of the row that this lane has in registers r + odd. r is
  /// a constant, and even, and the row of r + 1 the one behind that of r. In each call the lanes of
  /// a warp have all 16 columns of 8 rows.
  template <class F>
  ATTILE_DEVICE static void by_quads(const Array<float, Rows, Cols>& x,
                                     const F& f) requires(kHasQuads) {
    const int a = detail::lane_of_sums() / 4;
    const bool odd = a % 2 != 0, second = a / 2 % 2 != 0;
    ATTILE_UNROLL
    for (int r = 0; r < Rows; r += 2) {
      // Lanes a and a ^ 1 exchange rows for columns, and then a and a ^ 2 columns for columns.
      float pair[2][2];
      ATTILE_UNROLL
      for (int c = 0; c < 2; ++c) {
        const float taken = arch::shuffle_xor(odd ? x[r][c] : x[r + 1][c], 4);
        pair[c][0] = odd ? taken : x[r][c];
        pair[c][1] = odd ? x[r + 1][c] : taken;
      }
      Float4 quad{};
      ATTILE_UNROLL
      for (int e = 0; e < 2; ++e) {
        const float taken = arch::shuffle_xor(second ? pair[0][e] : pair[1][e], 8);
        quad[e] = second ? taken : pair[0][e];
        quad[e + 2] = second ? pair[1][e] : taken;
      }
      f(r, odd, 8 * second + a / 4 * 4, quad);
    }
  }

 private:
  static constexpr int kGroups = Rows / 2;
  static constexpr int kDiagonals = kGroups + Cols;

  /// Moves element 8 j + a of the list of lanes 4 a + b, for each b, to 8 j + a - distance. What it
  /// moves below 0 is lost: those elements are 0.
  /// Units    0 <= distance < 8, the same for all lanes 4 a + b with the same b.
  ATTILE_DEVICE static void move_down(Array<float, kDiagonals>& list, int distance) {
    const int lane = detail::lane_of_sums();
    const bool wraps = lane / 4 < distance;
    const int from = (lane + 4 * distance) % arch::kWarpSize;
    ATTILE_UNROLL
    for (int j = 0; j < kDiagonals; ++j) {
      const float next = j + 1 < kDiagonals ? list[j + 1 < kDiagonals ? j + 1 : 0] : 0.0f;
      list[j] = arch::shuffle(wraps ? next : list[j], from);
    }
  }
};

}  // namespace attile::tile
