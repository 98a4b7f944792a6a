// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/arch/math.h>
#include <attile/arch/memory.cuh>
#include <attile/arch/opaque.h>
#include <attile/arch/thread.cuh>
#include <attile/arch/unset.h>
#include <attile/core/array.h>
#include <attile/core/config.h>
#include <attile/core/element.h>
#include <attile/core/fp8.h>
#include <attile/core/math.h>
#include <attile/tile/panel_tile.cuh>

// Results of products by matrix instructions (mma.m16n8k16; for fp32 mma.m16n8k8 in TF32). Each
// warp of a block holds its own part of the result. mma_operands.cuh has what is multiplied.

namespace attile::tile {

/// Holds a (Rows, Cols) tile of floats in the registers of a block of kWarps warps. This class
/// alone knows which thread holds which element. Each kWarpsN successive warps hold the same rows,
/// and all warps have equal parts; in each 16 x 8 piece of a part lane i holds columns 2 (i % 4)
/// and 2 (i % 4) + 1 of rows i / 4 and i / 4 + 8 (PTX ISA, "Matrix Fragments for mma.m16n8k16" and
/// "mma.m16n8k8"). A thread numbers its rows and columns without gaps: x[2 i + h][2 j + e] is row
/// 16 i + 8 h + lane / 4, column 8 j + 2 (lane % 4) + e of its warp.
///   tile::MmaTile<kBr, kBc, kWarps> s_frag;
///   s_frag.clear();
///   tile::multiply<T>(s_frag, q_left, k_right);
///   s_frag.for_each([&](int row, int col, float& s) { s += bias[col0 + col]; });
/// kLaneCols  the neighbouring columns of a lane: 2, or 4 where the right operand gives the first
///          of two pieces the even columns of 16, and the second the odd ones (fp8). x[.][4 j + 2 h
///          + e] is then column 16 j + 4 (lane % 4) + 2 e + h.
template <int Rows, int Cols, int kWarps, int kWarpsN = 1, int kLaneCols = 2>
struct MmaTile {
  static_assert(kLaneCols == 2 || kLaneCols == 4,
                "attile::tile::MmaTile: a lane has 2 or 4 neighbouring columns");
  static_assert(kWarps % kWarpsN == 0 && Rows % (kWarps / kWarpsN * 16) == 0 &&
                    Cols % (kWarpsN * 16) == 0,
                "attile::tile::MmaTile: each warp has a multiple of 16 rows, and of 16 columns");

  static constexpr int kRows = Rows;
  static constexpr int kCols = Cols;
  static constexpr int kLaneColumns = kLaneCols;
  /// The neighbouring columns that follow each other in registers, as for a RegisterTile.
  static constexpr int kColRun = kLaneCols == 2 ? 2 : 1;
  static constexpr int kWarpRows = Rows / (kWarps / kWarpsN);
  static constexpr int kWarpCols = Cols / kWarpsN;
  static constexpr int kLanesOfRow = 4;
  static constexpr int kRegRows = kWarpRows / 8;
  static constexpr int kRegCols = kWarpCols / 4;

  Array<float, kRegRows, kRegCols> x;
  ATTILE_BEGINS_UNSET(MmaTile, x)

  /// Return the first row and the first column of the tile that this thread's warp holds.
  ATTILE_DEVICE static int warp_row() { return warp_row_of(arch::opaque(arch::thread_index())); }
  ATTILE_DEVICE static int warp_col() { return warp_col_of(arch::opaque(arch::thread_index())); }
  /// Returns the row of the tile to which x[r] belongs.
  ATTILE_DEVICE static int row(int r) {
    const int thread = arch::thread_index();
    return warp_row_of(thread) + thread % arch::kWarpSize / 4 + row_offset(r);
  }
  /// Returns the column of the tile to which x[.][c] belongs.
  ATTILE_DEVICE static int col(int c) {
    const int thread = arch::thread_index();
    return warp_col_of(thread) + thread % 4 * kLaneCols + col_offset(c);
  }
  /// Returns this thread's number among the kLanesOfRow lanes that share its rows. Warps with later
  /// columns of the same rows have numbers from kLanesOfRow on.
  ATTILE_DEVICE static int lane_of_row() { return col(0) / kLaneCols; }
  /// Return row(r) - row(0) and col(c) - col(0), which are the same for every thread.
  ATTILE_DEVICE static constexpr int row_offset(int r) { return r * 8; }
  ATTILE_DEVICE static constexpr int col_offset(int c) {
    return c / kLaneCols * (4 * kLaneCols) + reg_col(c) % kLaneCols;
  }
  /// Returns the register column of this lane's column number `number`, counted from its first one
  /// on.
  ATTILE_DEVICE static constexpr int reg_col(int number) {
    return kLaneCols == 2 ? number : number / 4 * 4 + number % 2 * 2 + number / 2 % 2;
  }
  ATTILE_DEVICE static constexpr bool has_row(int) { return true; }
  ATTILE_DEVICE static constexpr bool has_col(int) { return true; }

  ATTILE_DEVICE void clear() {
    ATTILE_UNROLL
    for (int r = 0; r < kRegRows; ++r) clear_row(r);
  }
  ATTILE_DEVICE void clear_row(int r) {
    ATTILE_UNROLL
    for (int c = 0; c < kRegCols; ++c) x[r][c] = 0.0f;
  }
  ATTILE_DEVICE void scale_row(int r, float factor) {
    ATTILE_UNROLL
    for (int c = 0; c < kRegCols; ++c) x[r][c] *= factor;
  }

  /// Calls f(row, col, x) for each element that this thread holds.
  template <class F>
  ATTILE_DEVICE void for_each(F&& f) {
    ATTILE_UNROLL
    for (int r = 0; r < kRegRows; ++r) {
      ATTILE_UNROLL
      for (int c = 0; c < kRegCols; ++c) f(row(r), col(c), x[r][c]);
    }
  }

  /// Returns the maximum of this lane's elements of a row.
  ATTILE_DEVICE float lane_max(int r) const {
    return reduce(r, -kInf,
                  [](float m, float a, float b) { return arch::fmax(m, arch::fmax(a, b)); });
  }
  /// Returns the maximum of those elements and of `floor`, whose sign bit is not set.
  ATTILE_DEVICE float lane_max_above(int r, float floor) const {
    return reduce(r, floor, [](float m, float a, float b) { return arch::fmax_above(m, a, b); });
  }
  /// Returns the maximum of the warp's elements of a row. Scope: the lanes of a row, together.
  ATTILE_DEVICE float row_max(int r) const { return max_lanes(lane_max(r)); }
  /// Returns the maximum of the values of a row's lanes. Scope: the lanes of a row, together.
  ATTILE_DEVICE static float max_lanes(float mine) {
    const float pair = arch::fmax(mine, arch::shuffle_xor(mine, 1));
    return arch::fmax(pair, arch::shuffle_xor(pair, 2));
  }

  /// Sets x = 2^(x * scale_log2 - base), and returns the sum of this lane's elements of the row.
  ATTILE_DEVICE float exponentiate(int r, float scale_log2, float base) {
    float sum[kChains] = {};
    ATTILE_UNROLL
    for (int c = 0; c < kRegCols; ++c) {
      x[r][c] = arch::exp2(arch::fma(x[r][c], scale_log2, -base));
      sum[c % kChains] += x[r][c];
    }
    return sum[0] + sum[1];
  }

  ATTILE_DEVICE float& at(int r, int c) { return x[r][c]; }

  /// Returns whether x holds for any lane. Scope: all lanes of the warp.
  ATTILE_DEVICE static bool any_lane(bool x) { return arch::any_lane(x); }

  /// Returns the sum of the values of a row's lanes. Scope: the lanes of a row, together.
  ATTILE_DEVICE static float sum_lanes(float sum) {
    sum += arch::shuffle_xor(sum, 1);
    return sum + arch::shuffle_xor(sum, 2);
  }

 private:
  static constexpr int kChains = 2;

  /// Returns the reduction by f(m, a, b) of this lane's elements of a row. It uses several
  /// independent chains, because each operation of a chain waits for the one before.
  template <class F>
  ATTILE_DEVICE float reduce(int r, float m, const F& f) const {
    float chain[kChains] = {m, m};
    ATTILE_UNROLL
    for (int c = 0; c < kRegCols; c += 2) {
      float& mine = chain[c / 2 % kChains];
      mine = f(mine, x[r][c], x[r][c + 1]);
    }
    return arch::fmax(chain[0], chain[1]);
  }

  ATTILE_DEVICE static int warp_row_of(unsigned thread) {
    return thread / (arch::kWarpSize * kWarpsN) * kWarpRows;
  }
  ATTILE_DEVICE static int warp_col_of(unsigned thread) {
    return kWarpsN == 1 ? 0 : thread / arch::kWarpSize % kWarpsN * kWarpCols;
  }
};

/// Is the kLaneCols of a result whose right operand has elements of T.
template <class T>
inline constexpr int kLaneColumnsOf = Fp8<T> ? 4 : 2;

/// Presents a register tile as the transposed matrix.
template <class Registers>
struct TransposedRegisters {
  static constexpr int kRegRows = Registers::kRegCols;
  static constexpr int kRegCols = Registers::kRegRows;

  Registers& registers;

  ATTILE_DEVICE static int row(int r) { return Registers::col(r); }
  ATTILE_DEVICE static int col(int c) { return Registers::row(c); }
  ATTILE_DEVICE static constexpr int row_offset(int r) { return Registers::col_offset(r); }
  ATTILE_DEVICE static constexpr int col_offset(int c) { return Registers::row_offset(c); }
  ATTILE_DEVICE static constexpr bool has_row(int r) { return Registers::has_col(r); }
  ATTILE_DEVICE static constexpr bool has_col(int c) { return Registers::has_row(c); }
  ATTILE_DEVICE float& at(int r, int c) const { return registers.x[c][r]; }
};

/// Writes shared(r - row0, col0 + c) = registers(r, c) * factor, rounded to the elements of
/// `shared`, which may have fewer columns: the others are left out.
///   tile::stage(o_smem, o_frag);
/// Scope    each thread for the elements that it holds.
/// Barriers one after, before a lane reads what other lanes wrote.
template <class Tile, int Rows, int Cols, int kWarps, int kWarpsN, int kLaneCols>
ATTILE_DEVICE void stage(const Tile& shared,
                         const MmaTile<Rows, Cols, kWarps, kWarpsN, kLaneCols>& registers,
                         float factor = 1.0f, int col0 = 0, int row0 = 0) {
  using T = typename Tile::Element;
  using Registers = MmaTile<Rows, Cols, kWarps, kWarpsN, kLaneCols>;
  constexpr int kRuns = Tile::Layout::kUnitElements / kLaneCols;  // of a lane's columns in 16 bytes
  const int run = arch::thread_index() % 4;
  const LaneOffsets<Tile> offsets(Registers::row(0) - row0, run / kRuns);
  unsigned char* const lane_data = shared.data + run % kRuns * sizeof(Vec<T, kLaneCols>);
  ATTILE_UNROLL
  for (int c = 0; c < Registers::kRegCols; c += 2) {
    const int first = Registers::reg_col(c), second = Registers::reg_col(c + 1);
    const int col = col0 + Registers::warp_col() + Registers::col_offset(first);
    if (Tile::kCols < Registers::kWarpCols && (col < 0 || col >= Tile::kCols)) continue;
    ATTILE_UNROLL
    for (int r = 0; r < Registers::kRegRows; ++r) {
      const unsigned at = offsets.at(Registers::row_offset(r), col);
      arch::store(reinterpret_cast<T*>(lane_data + at) + c % kLaneCols,
                  from_floats<T>(registers.x[r][first] * factor, registers.x[r][second] * factor));
    }
  }
}

/// Stores target(row0 + r, c) = registers(r, c), within the target's rows and columns, by way of
/// shared memory: so lanes write whole rows, 16 bytes each.
///   tile::store_staged(p.o.slice(batch, head, q_len, kDim), q_smem, o_frag, at.row0);
/// Shapes   shared: as many rows as `registers`, of which each warp uses its own.
/// Scope    all lanes of a warp.
/// Barriers one before, when other warps still read or write these rows of `shared`.
template <class T, class Tile, int Rows, int Cols, int kWarps, int kLaneCols>
ATTILE_DEVICE void store_staged(const Matrix<T>& target, const Tile& shared,
                                const MmaTile<Rows, Cols, kWarps, 1, kLaneCols>& registers,
                                int row0) {
  using Registers = MmaTile<Rows, Cols, kWarps, 1, kLaneCols>;
  arch::warp_barrier();  // the warp has read what its rows of `shared` had before
  stage(shared, registers);
  arch::warp_barrier();  // the warp has written its rows before it reads them
  store_rows<Registers::kWarpRows>(target, shared, Registers::warp_row(), row0);
}

}  // namespace attile::tile
