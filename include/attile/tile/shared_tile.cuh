// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>
#include <attile/core/math.h>
#include <attile/core/vec.h>

#include <cstddef>

namespace attile::tile {

/// A (Rows, Cols) tile of floats in shared memory, row by row. A row takes an odd number of 16-byte
/// units, so that lanes that read 16 bytes each from neighbouring rows meet in no bank.
template <int Rows, int Cols>
struct SharedTile {
  static constexpr int kRows = Rows;
  static constexpr int kCols = Cols;
  static constexpr int kStride = (ceil_div(Cols, 4) | 1) * 4;
  static constexpr std::size_t kBytes = sizeof(float) * kRows * kStride;

  float* data;

  ATTILE_DEVICE float& at(int row, int col) const { return data[row * kStride + col]; }
  /// Four neighbours; col is a multiple of 4.
  ATTILE_DEVICE Float4& at4(int row, int col) const {
    return *reinterpret_cast<Float4*>(data + row * kStride + col);
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
