// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/memory.cuh>
#include <attile/core/config.h>
#include <attile/core/math.h>
#include <attile/core/vec.h>

#include <cstddef>

namespace attile::tile {

/// Says which elements of a shared tile are neighbours in memory.
enum class Order {
  kRowMajor,     ///< the elements of a row
  kColumnMajor,  ///< the elements of a column, which an outer product reads of its left operand
};

/// Says what separates two lines of a shared tile. A line is a row or, column-major, a column.
enum class Padding {
  kOdd,   ///< a line takes an odd number of 16-byte units, so that lanes that read 16 bytes each
          ///< from neighbouring lines, or write 4 bytes each across lines, have no bank conflicts
  kNone,  ///< a line begins at the next 16-byte unit: enough where lanes stay within a line
};

/// Refers to a (Rows, Cols) tile of floats in shared memory, which is stored line by line.
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
  /// Loads kRun = 1, 2 or 4 neighbours of a line from (row, col) on, whose position in the line
  /// kRun divides.
  template <int kRun>
  ATTILE_DEVICE Vec<float, kRun> run(int row, int col) const {
    return arch::load<kRun>(&at(row, col));
  }
  /// Stores such neighbours.
  template <int kRun>
  ATTILE_DEVICE void set_run(int row, int col, const Vec<float, kRun>& x) const {
    arch::store(&at(row, col), x);
  }
  /// Returns the transposed matrix, in the same memory.
  ATTILE_DEVICE auto transposed() const {
    constexpr Order kOther = kRowMajor ? Order::kColumnMajor : Order::kRowMajor;
    return SharedTile<Cols, Rows, kOther, kPadding>{data};
  }
};

/// Cuts shared memory into tiles, one after another.
struct SharedCarver {
  unsigned char* next;

  /// Returns the next tile, and moves on by `bytes`.
  template <class Tile>
  ATTILE_DEVICE Tile take(std::size_t bytes = Tile::kBytes) {
    Tile tile{reinterpret_cast<float*>(next)};
    next += bytes;
    return tile;
  }
};

}  // namespace attile::tile
