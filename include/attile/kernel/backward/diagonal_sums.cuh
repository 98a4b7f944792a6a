// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/arch/memory.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/array.h>
#include <attile/core/config.h>
#include <attile/core/index.h>
#include <attile/core/math.h>
#include <attile/core/vec.h>
#include <attile/kernel/backward/gradient_values.cuh>
#include <attile/tile/score_sums.cuh>
#include <attile/tile/tile_coord.cuh>

#include <cstddef>

namespace attile {

/// Sums what the scores of a warp with the same col - row contribute, and adds each sum by one
/// atomic, for a modifier each of whose scores adds one value to the element of its diagonal
/// (GradientPer::kDiagonal). It has the interface of GradientSums.
///
/// A step has 32 rows and 8 kRegCols columns. Lane 4 a + b holds rows 8 j + 2 b + e, with e 0 or 1,
/// and columns 8 c + a. It adds up its scores of the same c - j and e: their col - row is
/// 8 (c - j) + a - (2 b + e). A diagonal thus gets up to one sum for each b and e. These go to its
/// eight slots in shared memory, and one lane adds them up. Slot b + 4 (e ^ (d / 4 % 2)) of
/// diagonal d: so all 32 lanes write to different banks.
/// Shapes   a warp has 8 * kRegCols columns of S, in a TransposedRegisters<MmaTile>.
/// Scope    all lanes of a warp.
template <class Registers, class S>
class DiagonalSums {
  static constexpr int kRowsAtOnce = 8, kRegCols = Registers::kRegCols;
  static_assert(Registers::kRegRows % kRowsAtOnce == 0,
                "attile::DiagonalSums: whole steps of rows");
  static constexpr int kSumRows = 4 * kRowsAtOnce, kSumCols = 8 * kRegCols;
  static constexpr int kGroups = kRowsAtOnce / 2;
  static constexpr int kLists = kGroups + kRegCols - 1;  // of c - j
  static constexpr int kDiagonals = kSumRows + kSumCols - 1;
  static constexpr int kFirstList = kSumRows - 1 - 8 * (kGroups - 1);  // d of c - j = 1 - kGroups
  static constexpr int kSlots = 8;

 public:
  /// The shared memory of a warp: the slots of all diagonals.
  static constexpr std::size_t kWarpBytes =
      round_up<std::size_t>(sizeof(float) * kSlots * kDiagonals, 16);

  ATTILE_DEVICE explicit DiagonalSums(unsigned char* warp) : data_(warp) {}
  /// Clears the slots: the first and the last diagonals have some that no lane writes.
  ATTILE_DEVICE void begin() const {
    const int lane = tile::detail::lane_of_sums();
    for (int i = lane; i < kSlots * kDiagonals; i += arch::kWarpSize) slots()[i] = 0.0f;
    arch::warp_barrier();  // zeros are written before sums are
  }
  ATTILE_DEVICE void end(const S&, const tile::TileCoord&) const {}

  template <class>  // Registers, which this class knows; NoGradient takes them here
  class Tile {
   public:
    /// The register rows of which values are kept at a time.
    static constexpr int kRows = kRowsAtOnce;

    ATTILE_DEVICE Tile(const DiagonalSums& sums, const S& mod, const tile::TileCoord& coord)
        : sums_(sums), mod_(mod), coord_(coord) {}
    /// Takes the value of the score in registers (r, c): see GradientValues.
    template <bool kBranches>
    ATTILE_DEVICE void take(int r, int c, float s, float ds, const ScoreIndex& i, bool visible) {
      values_.template take<kBranches>(mod_, r % kRows, c, s, ds, i, coord_.extent, visible);
    }
    /// Adds the values that have been taken, of register rows r0 on.
    ATTILE_DEVICE void add(int r0) const {
      sums_.add(values_.of[0], mod_, coord_, coord_.row0 + Registers::row(r0),
                coord_.col0 + Registers::col(0));
    }
    ATTILE_DEVICE void end() const {}

   private:
    const DiagonalSums& sums_;
    const S& mod_;
    const tile::TileCoord& coord_;
    GradientValues<S, kRowsAtOnce, kRegCols> values_;
  };

 private:
  /// Adds the values of a thread's scores. `row`, `col`: of its first score.
  ATTILE_DEVICE void add(const Array<float, kRowsAtOnce, kRegCols>& x, const S& mod,
                         const tile::TileCoord& coord, int row, int col) const {
    const int lane = tile::detail::lane_of_sums(), a = lane / 4, b = lane % 4;
    ATTILE_UNROLL
    for (int e = 0; e < 2; ++e) {
      Array<float, kLists> sums = {};
      ATTILE_UNROLL
      for (int r = e; r < kRowsAtOnce; r += 2) {
        ATTILE_UNROLL
        for (int c = 0; c < kRegCols; ++c) sums[c - r / 2 + kGroups - 1] += x[r][c];
      }
      const int first = a - 2 * b - e + kFirstList;
      float* const to = slots() + first * kSlots + b + 4 * (e ^ (first >> 2 & 1));
      ATTILE_UNROLL
      for (int i = 0; i < kLists; ++i) to[8 * i * kSlots] = sums[i];
    }
    arch::warp_barrier();  // all sums are written before they are added up
    const int distance0 = (col - a) - (row - 2 * b) - (kSumRows - 1);
    ATTILE_UNROLL
    for (int i = 0; i < kDiagonals; i += arch::kWarpSize) {
      const int d = i + lane;
      if (d >= kDiagonals) break;
      const float* const from = slots() + d * kSlots;
      const int half = d >> 2 & 1;
      const Float4 low = arch::load<4>(from + 4 * half);
      const Float4 high = arch::load<4>(from + 4 * (half ^ 1));
      const float sum =
          ((low[0] + low[1]) + (low[2] + low[3])) + ((high[0] + high[1]) + (high[2] + high[3]));
      const int distance = distance0 + d;  // the diagonal's first score stands for all of it
      add_to_gradient(mod, 0, {coord.batch, coord.head, max(0, -distance), max(0, distance)},
                      coord.extent, sum);
    }
    arch::warp_barrier();  // they have been read before others are written
  }

  ATTILE_DEVICE float* slots() const { return reinterpret_cast<float*>(data_); }

  unsigned char* data_;
};

}  // namespace attile
