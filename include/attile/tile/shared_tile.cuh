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
///   using QTile = tile::SharedTile<64, 128, tile::Order::kColumnMajor, tile::Padding::kNone>;
///   const auto q_smem = carver.take<QTile>();
///   float& x = q_smem.at(row, col);
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

/// Says what a piece takes of shared memory, and makes it there: a SharedTile, a PanelTile, a
/// RowWarps. Pipeline has one of its own.
template <class Piece>
struct InSharedMemory {
  static constexpr std::size_t kBytes = Piece::kBytes;
  static constexpr std::size_t kAlignment = [] {
    if constexpr (requires { Piece::kAlignment; }) return std::size_t{Piece::kAlignment};
    return std::size_t{16};
  }();

  ATTILE_DEVICE static Piece at(unsigned char* memory) {
    if constexpr (requires { Piece{reinterpret_cast<float*>(memory)}; }) {
      return Piece{reinterpret_cast<float*>(memory)};
    } else {
      return Piece{memory};
    }
  }
};

/// Cuts shared memory into pieces, one after another, each aligned as it has to be.
///   tile::SharedCarver carver{arch::dynamic_shared()};
///   const auto q_smem = carver.take<QTile>();
///   const auto k_smem = carver.take<KTile>();
/// Units    memory: aligned to 1024 bytes, as `arch::dynamic_shared` is. A kernel is launched with
///          shared_bytes<QTile, KTile>, the same pieces in the same order.
struct SharedCarver {
  unsigned char* memory;
  std::size_t used = 0;

  /// Returns the next piece, and moves on by `bytes`.
  template <class Piece>
  ATTILE_DEVICE Piece take(std::size_t bytes = InSharedMemory<Piece>::kBytes) {
    used = round_up(used, InSharedMemory<Piece>::kAlignment);
    const auto piece = InSharedMemory<Piece>::at(memory + used);
    used += bytes;
    return piece;
  }
};

/// Is what a kernel needs whose SharedCarver takes these pieces, in this order. Units: bytes.
template <class... Pieces>
inline constexpr std::size_t shared_bytes = [] {
  std::size_t used = 0;
  ((used = round_up(used, InSharedMemory<Pieces>::kAlignment) + InSharedMemory<Pieces>::kBytes),
   ...);
  return used;
}();

}  // namespace attile::tile
