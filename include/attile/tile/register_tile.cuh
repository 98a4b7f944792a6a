// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/arch/math.h>
#include <attile/arch/thread.cuh>
#include <attile/arch/unset.h>
#include <attile/core/array.h>
#include <attile/core/config.h>
#include <attile/core/math.h>
#include <attile/tile/warp_sum.cuh>

namespace attile::tile {

/// The number of threads that share a row of a RegisterTile: every second lane of a warp.
inline constexpr int kColLanes = 16;

/// Returns the longest run of 4, 2 or 1 neighbours in which `lanes` threads hold `size` rows or
/// columns without more registers than they must have.
constexpr int run_length(int size, int lanes) {
  for (int run = 4; run > 1; run /= 2) {
    if (ceil_div(size, lanes * run) * run == ceil_div(size, lanes)) return run;
  }
  return 1;
}

/// Holds a (Rows, Cols) tile of floats in the registers of a block, for kernels that multiply with
/// FMAs. This class alone knows which thread holds which element. The block is a grid of RowLanes x
/// 16 threads; a thread holds runs of RowRun rows and ColRun columns, each run RowLanes * RowRun
/// rows (16 * ColRun columns) after the one before. A row stays within one warp: neighbouring lanes
/// hold two rows, because a 16-byte read takes 2 cycles of shared memory where each quad of lanes
/// reads at most 2 addresses, and 4 where it reads 4 (bench/log/tuning-portable.md).
///   constexpr int kRowLanes = kThreads / tile::kColLanes;
///   tile::RegisterTile<64, 128, kRowLanes, 4, 4> o_frag;
///   o_frag.clear();
///   o_frag.for_each([&](int row, int col, float& x) { x *= gain[col]; });
/// Rows and Cols may be any numbers: `for_each`, `row_max` and `exponentiate` ignore the elements
/// of a thread that are beyond them.
template <int Rows, int Cols, int RowLanes, int RowRun, int ColRun>
struct RegisterTile {
  static constexpr int kRows = Rows;
  static constexpr int kCols = Cols;
  static constexpr int kRowRun = RowRun;
  static constexpr int kColRun = ColRun;
  static constexpr int kRowStep = RowLanes * RowRun;
  static constexpr int kColStep = kColLanes * ColRun;
  static constexpr int kLanesOfRow = kColLanes;
  static constexpr int kRegRows = ceil_div(Rows, kRowStep) * RowRun;
  static constexpr int kRegCols = ceil_div(Cols, kColStep) * ColRun;
  static constexpr bool kExactRows = Rows % kRowStep == 0;
  static constexpr bool kExactCols = Cols % kColStep == 0;

  Array<float, kRegRows, kRegCols> x;
  ATTILE_BEGINS_UNSET(RegisterTile, x)

  /// Returns the row of the tile to which x[r] belongs.
  ATTILE_DEVICE static int row(int r) { return row_lane() * RowRun + row_offset(r); }
  /// Returns the column of the tile to which x[.][c] belongs.
  ATTILE_DEVICE static int col(int c) { return col_lane() * ColRun + col_offset(c); }
  /// Returns this thread's number among the kLanesOfRow lanes that share its rows.
  ATTILE_DEVICE static int lane_of_row() { return col_lane(); }
  /// Return row(r) - row(0) and col(c) - col(0), which are the same for every thread.
  ATTILE_DEVICE static constexpr int row_offset(int r) {
    return r / RowRun * kRowStep + r % RowRun;
  }
  ATTILE_DEVICE static constexpr int col_offset(int c) {
    return c / ColRun * kColStep + c % ColRun;
  }
  ATTILE_DEVICE static bool has_row(int r) { return kExactRows || row(r) < Rows; }
  ATTILE_DEVICE static bool has_col(int c) { return kExactCols || col(c) < Cols; }

  /// Return a row or column inside the tile, from which to read an operand for a register that may
  /// be beyond the tile.
  ATTILE_DEVICE static int safe_row(int r) { return has_row(r) ? row(r) : 0; }
  ATTILE_DEVICE static int safe_col(int c) { return has_col(c) ? col(c) : 0; }

  /// Waits until the lanes of a row see the elements of it that they staged in shared memory, which
  /// they could otherwise read too early. Rows do not leave their warp; but registers beyond the
  /// tile read row 0 (see safe_row), which another warp may write, so that with such registers the
  /// whole block waits.
  ATTILE_DEVICE static void sync_rows() {
    if constexpr (kExactRows) {
      arch::warp_barrier();
    } else {
      arch::barrier();
    }
  }

  ATTILE_DEVICE float& at(int r, int c) { return x[r][c]; }

  ATTILE_DEVICE void clear() {
    ATTILE_UNROLL
    for (int r = 0; r < kRegRows; ++r) clear_row(r);
  }
  ATTILE_DEVICE void clear_row(int r) {
    ATTILE_UNROLL
    for (int c = 0; c < kRegCols; ++c) x[r][c] = 0.0f;
  }
  ATTILE_DEVICE void scale(float factor) {
    ATTILE_UNROLL
    for (int r = 0; r < kRegRows; ++r) scale_row(r, factor);
  }
  ATTILE_DEVICE void scale_row(int r, float factor) {
    ATTILE_UNROLL
    for (int c = 0; c < kRegCols; ++c) x[r][c] *= factor;
  }

  /// Calls f(row, col, x) for each element of the tile that this thread holds.
  template <class F>
  ATTILE_DEVICE void for_each(F&& f) {
    ATTILE_UNROLL
    for (int r = 0; r < kRegRows; ++r) {
      ATTILE_UNROLL
      for (int c = 0; c < kRegCols; ++c) {
        if (has_row(r) && has_col(c)) f(row(r), col(c), x[r][c]);
      }
    }
  }

  /// Returns the maximum of a row. Scope: the lanes of a row, together.
  ATTILE_DEVICE float row_max(int r) const {
    float result = -kInf;
    ATTILE_UNROLL
    for (int c = 0; c < kRegCols; ++c) {
      if (has_col(c)) result = arch::fmax(result, x[r][c]);
    }
    ATTILE_UNROLL
    for (int mask = arch::kWarpSize / 2; mask >= kRowsPerWarp; mask /= 2) {
      result = arch::fmax(result, arch::shuffle_xor(result, mask));
    }
    return result;
  }

  /// Sets x = 2^(x * scale_log2 - base), and returns the sum of this lane's elements of the row.
  ATTILE_DEVICE float exponentiate(int r, float scale_log2, float base) {
    float sum = 0.0f;
    ATTILE_UNROLL
    for (int c = 0; c < kRegCols; ++c) {
      x[r][c] = has_col(c) ? arch::exp2(x[r][c] * scale_log2 - base) : 0.0f;
      sum += x[r][c];
    }
    return sum;
  }

  /// Returns the sum of the values of a row's lanes. Scope: the lanes of a row, together.
  ATTILE_DEVICE static float sum_lanes(float sum) { return warp_sum<kRowsPerWarp>(sum); }

 private:
  static constexpr int kRowsPerWarp = arch::kWarpSize / kColLanes;

  ATTILE_DEVICE static int row_lane() {
    const int thread = arch::thread_index();
    return thread / arch::kWarpSize * kRowsPerWarp + thread % kRowsPerWarp;
  }
  ATTILE_DEVICE static int col_lane() {
    return arch::thread_index() % arch::kWarpSize / kRowsPerWarp;
  }
};

}  // namespace attile::tile
