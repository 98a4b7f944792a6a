// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/arch/math.h>
#include <attile/arch/matrix.cuh>
#include <attile/arch/memory.cuh>
#include <attile/arch/opaque.h>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/element.h>
#include <attile/core/math.h>
#include <attile/tile/panel_tile.cuh>

#include <cstdint>

// Tiles and operands of products by matrix instructions (mma.m16n8k16; for fp32 mma.m16n8k8 in
// TF32). Each warp of a block holds its own part of the result, and reads the parts of the operands
// that it needs.

namespace attile::tile {

/// Holds a (Rows, Cols) tile of floats in the registers of a block of kWarps warps. This class
/// alone knows which thread holds which element. Each kWarpsN successive warps hold the same rows,
/// and all warps have equal parts; in each 16 x 8 piece of a part lane i holds columns 2 (i % 4)
/// and 2 (i % 4) + 1 of rows i / 4 and i / 4 + 8 (PTX ISA, "Matrix Fragments for mma.m16n8k16" and
/// "mma.m16n8k8"). A thread numbers its rows and columns without gaps: x[2 i + h][2 j + e] is row
/// 16 i + 8 h + lane / 4, column 8 j + 2 (lane % 4) + e of its warp.
template <int Rows, int Cols, int kWarps, int kWarpsN = 1>
struct MmaTile {
  static_assert(kWarps % kWarpsN == 0 && Rows % (kWarps / kWarpsN * 16) == 0 &&
                    Cols % (kWarpsN * 16) == 0,
                "attile::tile::MmaTile: each warp has a multiple of 16 rows, and of 16 columns");

  static constexpr int kRows = Rows;
  static constexpr int kCols = Cols;
  static constexpr int kWarpRows = Rows / (kWarps / kWarpsN);
  static constexpr int kWarpCols = Cols / kWarpsN;
  static constexpr int kRowLanes = 4;
  static constexpr int kRegRows = kWarpRows / 8;
  static constexpr int kRegCols = kWarpCols / 4;

  float x[kRegRows][kRegCols];

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
    return warp_col_of(thread) + thread % 4 * 2 + col_offset(c);
  }
  /// Returns this thread's number among the kRowLanes lanes that share its rows. Warps with later
  /// columns of the same rows have numbers from kRowLanes on.
  ATTILE_DEVICE static int lane_of_row() { return col(0) / 2; }
  /// Return row(r) - row(0) and col(c) - col(0), which are the same for every thread.
  ATTILE_DEVICE static constexpr int row_offset(int r) { return r * 8; }
  ATTILE_DEVICE static constexpr int col_offset(int c) { return c / 2 * 8 + c % 2; }
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
  ATTILE_DEVICE float row_max(int r) const {
    const float mine = lane_max(r);
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
/// Scope    each thread for the elements that it holds.
/// Barriers one after, before a lane reads what other lanes wrote.
template <class Tile, int Rows, int Cols, int kWarps, int kWarpsN>
ATTILE_DEVICE void stage(const Tile& shared, const MmaTile<Rows, Cols, kWarps, kWarpsN>& registers,
                         float factor = 1.0f, int col0 = 0, int row0 = 0) {
  using T = typename Tile::Element;
  using Registers = MmaTile<Rows, Cols, kWarps, kWarpsN>;
  constexpr int kPairs = Tile::Layout::kUnitElements / 2;  // of columns in 16 bytes
  const int pair = arch::thread_index() % 4;
  const LaneOffsets<Tile> offsets(Registers::row(0) - row0, pair / kPairs);
  unsigned char* const lane_data = shared.data + pair % kPairs * sizeof(Vec<T, 2>);
  ATTILE_UNROLL
  for (int c = 0; c < Registers::kRegCols; c += 2) {
    const int col = col0 + Registers::warp_col() + Registers::col_offset(c);
    if (Tile::kCols < Registers::kWarpCols && (col < 0 || col >= Tile::kCols)) continue;
    ATTILE_UNROLL
    for (int r = 0; r < Registers::kRegRows; ++r) {
      const unsigned at = offsets.at(Registers::row_offset(r), col);
      arch::store(reinterpret_cast<T*>(lane_data + at),
                  from_floats<T>(registers.x[r][c] * factor, registers.x[r][c + 1] * factor));
    }
  }
}

// The operands of `multiply` follow. A step of the depth is 32 bytes, which is kStepDepth elements.
// A left operand gives each warp 16 x kStepDepth pieces of its own rows; a right operand gives
// every warp kStepDepth x 16 pieces of all columns, as two halves of 8 columns. Lane i holds, of
// rows i / 4 (words 0, 2) and i / 4 + 8 (words 1, 3) of the left operand, and of column i / 4 of
// the right one, the 4-byte words of the depth i % 4 (words 0, 1 left, 0, 2 right) and i % 4 + 4.
//
// fp32: a kPaired left operand has the depth of each step in the order 0, 2, 4, 6, 1, 3, 5, 7, in
// which the result of a product is an operand without any exchange; `facing` returns a right
// operand in the same order.

/// The elements of the depth that one matrix instruction takes.
template <class T>
inline constexpr int kStepDepth = 32 / sizeof(T);

namespace detail {

ATTILE_DEVICE unsigned lane() {
  return static_cast<unsigned>(arch::thread_index()) % arch::kWarpSize;
}

}  // namespace detail

/// Reads a left operand from shared memory, (rows, depth).
template <class Tile>
class SharedLeft {
 public:
  static constexpr int kDepth = Tile::kCols;
  static constexpr bool kPaired = false;
  static constexpr bool kInRegisters = false;

  ATTILE_DEVICE SharedLeft(const Tile& tile, int first)
      : reader_(tile, first + detail::lane() % 16, detail::lane() / 16) {}

  /// Loads the piece of 16 rows from the warp's row 16 i on and of step k of the depth.
  ATTILE_DEVICE void piece(std::uint32_t (&a)[4], int i, int k) const {
    arch::load_matrices(a, reader_.address(i * 16, k * kStepDepth<typename Tile::Element>));
  }

 private:
  PieceReader<Tile> reader_;
};

/// Reads a left operand from shared memory, stored as its transpose (depth, rows).
template <class Tile>
class SharedLeftTransposed {
 public:
  static constexpr int kDepth = Tile::kRows;

  ATTILE_DEVICE SharedLeftTransposed(const Tile& tile, int first)
      : reader_(tile, detail::lane() % 8 + detail::lane() / 16 * 8, detail::lane() / 8 % 2),
        first_(first) {}

  ATTILE_DEVICE void piece(std::uint32_t (&a)[4], int i, int k) const {
    arch::load_matrices_transposed(a, reader_.address(k * 16, first_ + i * 16));
  }

 private:
  PieceReader<Tile> reader_;
  int first_;
};

template <class Tile>
  requires(sizeof(typename Tile::Element) == 4)
class SharedLeftTransposed<Tile> {
 public:
  static constexpr int kDepth = Tile::kRows;
  static constexpr bool kPaired = false;
  static constexpr bool kInRegisters = false;

  ATTILE_DEVICE SharedLeftTransposed(const Tile& tile, int first) : reader_(tile), first_(first) {}

  ATTILE_DEVICE void piece(std::uint32_t (&a)[4], int i, int k) const {
    std::uint32_t words[4];
    reader_.piece(words, k * 8, first_ + i * 16);
    a[0] = words[0];
    a[1] = words[2];
    a[2] = words[1];
    a[3] = words[3];
  }

 private:
  WordReader<Tile, kPaired> reader_;
  int first_;
};

/// Holds a left operand in registers: the result of a product, rounded to T. A lane's elements of
/// two neighbouring 16 x 8 pieces of a result are its elements of one 16 x 16 piece of an operand;
/// with fp32 those of one piece are its elements of a 16 x 8 piece in the paired order.
template <class T, class Registers>
class RegisterLeft {
  static_assert(Registers::kWarpCols == Registers::kCols,
                "attile::tile::RegisterLeft: a warp has all columns of its rows");

 public:
  static constexpr int kDepth = Registers::kCols;
  static constexpr bool kPaired = true;
  static constexpr bool kInRegisters = true;

  RegisterLeft() = default;
  ATTILE_DEVICE explicit RegisterLeft(const Registers& p) {
    ATTILE_UNROLL
    for (int r = 0; r < Registers::kRegRows; ++r) {
      ATTILE_UNROLL
      for (int c = 0; c < Registers::kRegCols; c += 2) {
        if constexpr (sizeof(T) == 4) {
          words_[r / 2][c / 2][r % 2] = word_of(p.x[r][c]);
          words_[r / 2][c / 2][2 + r % 2] = word_of(p.x[r][c + 1]);
        } else {
          words_[r / 2][c / 4][c / 2 % 2 * 2 + r % 2] =
              word_of(from_floats<T>(p.x[r][c], p.x[r][c + 1]));
        }
      }
    }
  }

  ATTILE_DEVICE void piece(std::uint32_t (&a)[4], int i, int k) const {
    ATTILE_UNROLL
    for (int w = 0; w < 4; ++w) a[w] = words_[i][k][w];
  }
  /// Returns the piece by reference, without a copy.
  ATTILE_DEVICE const std::uint32_t (&piece(int i, int k) const)[4] { return words_[i][k]; }

 private:
  std::uint32_t words_[Registers::kRegRows / 2][kDepth / kStepDepth<T>][4];
};

/// Holds a left operand of 16 rows for each warp that was read once from a tile in shared memory,
/// (rows, depth). Only 16-bit elements.
template <class Tile>
class LoadedLeft {
 public:
  static constexpr int kDepth = Tile::kCols;

  ATTILE_DEVICE LoadedLeft(const Tile& tile, int first) {
    const SharedLeft<Tile> from(tile, first);
    ATTILE_UNROLL
    for (int k = 0; k < kDepth / 16; ++k) from.piece(words_[k], 0, k);
  }
  ATTILE_DEVICE const std::uint32_t (&piece(int, int k) const)[4] { return words_[k]; }

 private:
  std::uint32_t words_[kDepth / 16][4];
};

/// Reads a right operand from shared memory, (depth, columns).
template <class Tile>
class SharedRight {
 public:
  ATTILE_DEVICE explicit SharedRight(const Tile& tile, int first = 0)
      : reader_(tile, detail::lane() % 16, detail::lane() / 16), first_(first) {}

  /// Loads the piece of step k of the depth and of the columns from 16 j on: b[0] and b[1] hold the
  /// left 8 columns, b[2] and b[3] the right 8.
  ATTILE_DEVICE void piece(std::uint32_t (&b)[4], int k, int j) const {
    arch::load_matrices_transposed(b, reader_.address(k * 16, first_ + j * 16));
  }

 private:
  PieceReader<Tile> reader_;
  int first_;
};

template <class Tile>
  requires(sizeof(typename Tile::Element) == 4)
class SharedRight<Tile> {
 public:
  ATTILE_DEVICE explicit SharedRight(const Tile& tile, int first = 0)
      : tile_(tile), first_(first) {}

  /// Reads the operand in the order of the depth that a left operand, kPaired or not, has.
  template <bool kPaired>
  class Facing {
   public:
    ATTILE_DEVICE explicit Facing(const SharedRight& b) : reader_(b.tile_), first_(b.first_) {}
    ATTILE_DEVICE void piece(std::uint32_t (&b)[4], int k, int j) const {
      reader_.piece(b, k * 8, first_ + j * 16);
    }

   private:
    WordReader<Tile, kPaired> reader_;
    int first_;
  };

 private:
  Tile tile_;
  int first_;
};

/// Reads a right operand from shared memory, stored as its transpose (columns, depth).
template <class Tile>
class SharedRightTransposed {
 public:
  ATTILE_DEVICE explicit SharedRightTransposed(const Tile& tile, int first = 0)
      : reader_(tile, first + detail::lane() % 8 + detail::lane() / 16 * 8,
                detail::lane() / 8 % 2) {}

  ATTILE_DEVICE void piece(std::uint32_t (&b)[4], int k, int j) const {
    arch::load_matrices(b, reader_.address(j * 16, k * kStepDepth<typename Tile::Element>));
  }

 private:
  PieceReader<Tile> reader_;
};

}  // namespace attile::tile
