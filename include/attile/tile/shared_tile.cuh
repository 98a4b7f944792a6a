// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/memory.cuh>
#include <attile/core/config.h>
#include <attile/core/math.h>
#include <attile/core/vec.h>

#include <cstddef>

namespace attile::tile {

/// Which elements of a shared tile are neighbours.
enum class Order {
  kRowMajor,     ///< those of a row
  kColumnMajor,  ///< those of a column: what an outer product reads of its left operand
};

/// What stands between two lines of a shared tile.
enum class Padding {
  kOdd,   ///< a line takes an odd number of 16-byte units, so that lanes that read 16 bytes each
          ///< from neighbouring lines, or write 4 bytes each across lines, meet in no bank
  kNone,  ///< the next 16-byte unit is the next line: enough where lanes stay within a line
};

/// A (Rows, Cols) tile of floats in shared memory, line by line: a line is a row or, column-major,
/// a column.
template <int Rows, int Cols, Order kTileOrder = Order::kRowMajor, Padding kPadding = Padding::kOdd>
struct SharedTile {
  static constexpr int kRows = Rows;
  static constexpr int kCols = Cols;
  static constexpr Order kOrder = kTileOrder;
  static constexpr bool kRowMajor = kOrder == Order::kRowMajor;
  static constexpr int kLineUnits = ceil_div(kRowMajor ? Cols : Rows, 4);
  static constexpr int kStride = (kPadding == Padding::kOdd ? kLineUnits | 1 : kLineUnits) * 4;
  static constexpr std::size_t kBytes = sizeof(float) * (kRowMajor ? Rows : Cols) * kStride;

  float* data;

  ATTILE_DEVICE float& at(int row, int col) const {
    return data[kRowMajor ? row * kStride + col : col * kStride + row];
  }
  /// kRun = 1, 2 or 4 neighbours of a line from (row, col) on, a place in the line that kRun
  /// divides.
  template <int kRun>
  ATTILE_DEVICE Vec<float, kRun> run(int row, int col) const {
    return arch::load<kRun>(&at(row, col));
  }
  template <int kRun>
  ATTILE_DEVICE void set_run(int row, int col, const Vec<float, kRun>& x) const {
    arch::store(&at(row, col), x);
  }
  /// The same memory, seen as the transposed matrix.
  ATTILE_DEVICE auto transposed() const {
    constexpr Order kOther = kRowMajor ? Order::kColumnMajor : Order::kRowMajor;
    return SharedTile<Cols, Rows, kOther, kPadding>{data};
  }
};

/// Cuts shared memory into tiles, one after another.
struct SharedCarver {
  unsigned char* next;

  template <class Tile>
  ATTILE_DEVICE Tile take(std::size_t bytes = Tile::kBytes) {
    Tile tile{reinterpret_cast<float*>(next)};
    next += bytes;
    return tile;
  }
};

}  // namespace attile::tile
