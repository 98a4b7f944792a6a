// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>

namespace attile {

/// Where the 16-byte units of a (Rows, Cols) tile of 16-bit elements lie in shared memory: in
/// panels of up to 64 columns, a panel's rows one after another, and the units of a row permuted by
/// the row's number, so that the 8 rows of a matrix that one instruction reads, at the same
/// columns, lie in all 32 banks. These are the 128-, 64- and 32-byte swizzles of TMA and wgmma.
/// Units    rows; units of 16 bytes (8 elements); bytes.
template <int Rows, int Cols>
struct PanelLayout {
  static_assert(Rows % 8 == 0 && Cols % 16 == 0,
                "attile::PanelLayout: a tile has a multiple of 8 rows and of 16 columns");

  static constexpr int kUnits = Cols / 8;
  static constexpr int kPanelUnits = kUnits % 8 == 0 ? 8 : kUnits % 4 == 0 ? 4 : 2;
  static constexpr int kRowBytes = kPanelUnits * 16;
  static constexpr int kPanelBytes = Rows * kRowBytes;
  static constexpr int kBytes = kUnits / kPanelUnits * kPanelBytes;

  /// What a row's unit numbers, within a panel, are xored with; it repeats every 8 rows.
  ATTILE_HOST_DEVICE static constexpr unsigned swizzle(unsigned row) {
    return row / (8 / kPanelUnits) % kPanelUnits;
  }
  /// Unsigned numbers: a signed division by a power of two takes three instructions more.
  ATTILE_HOST_DEVICE static constexpr unsigned offset(unsigned row, unsigned unit) {
    return unit / kPanelUnits * kPanelBytes + row * kRowBytes +
           (unit % kPanelUnits ^ swizzle(row)) * 16;
  }
};

}  // namespace attile
