// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>

namespace attile {

/// Lays out the 16-byte units of a (Rows, Cols) tile of elements of kElementBytes in shared memory.
/// The tile is cut into panels of up to 128 bytes of columns, a panel's rows follow each other, and
/// the units of a row are permuted by the row's number, so that the 8 rows of a matrix that one
/// instruction reads, at the same columns, lie in all 32 banks. But for fp32 these are the
/// 128-, 64- and 32-byte swizzles of TMA and wgmma. For fp32, so do the 8 columns, from a multiple
/// of 8 on, of rows 0 to 3 and of 4 to 7 (of 0, 2, 4, 6 and of 1, 3, 5, 7 too where a panel has 32
/// columns), which lanes read word by word where a matrix is to be transposed. Of 8-bit elements a
/// tile has whole panels of 32 columns.
/// Units    rows; units of 16 bytes (kUnitElements elements), of which a panel is at most
///          kMostUnits wide; bytes.
template <int Rows, int Cols, int kElementBytes = 2, int kMostUnits = 8>
struct PanelLayout {
  static_assert(Rows % 8 == 0 && Cols % 16 == 0,
                "attile::PanelLayout: a tile has a multiple of 8 rows and of 16 columns");
  static_assert(kElementBytes == 1 || kElementBytes == 2 || kElementBytes == 4,
                "attile::PanelLayout: elements have 1, 2 or 4 bytes");
  static_assert(kElementBytes != 1 || Cols % 32 == 0,
                "attile::PanelLayout: a tile of 8-bit elements has a multiple of 32 columns");

  static constexpr int kUnitElements = 16 / kElementBytes;
  static constexpr int kUnits = Cols / kUnitElements;
  static constexpr int kPanelUnits = kUnits % 8 == 0 && kMostUnits == 8   ? 8
                                     : kUnits % 4 == 0 && kMostUnits >= 4 ? 4
                                                                          : 2;
  static constexpr int kPanelColumns = kPanelUnits * kUnitElements;
  static constexpr int kRowBytes = kPanelUnits * 16;
  static constexpr int kPanelBytes = Rows * kRowBytes;
  static constexpr int kBytes = kUnits / kPanelUnits * kPanelBytes;

  /// Returns the number that a row's unit numbers, within a panel, are xored with; it repeats every
  /// 8 rows. It is linear: for two rows with no bit in common, their values, xored, are that of
  /// their sum.
  ATTILE_HOST_DEVICE static constexpr unsigned swizzle(unsigned row) {
    if constexpr (kElementBytes != 4) {
      return row / (8 / kPanelUnits) % kPanelUnits;
    } else {
      const unsigned r0 = row % 2, r1 = row / 2 % 2, r2 = row / 4 % 2;
      return kPanelUnits == 8 ? r1 * 4 + (r0 ^ r2) * 2 + r2 : r1 * 2 + r2;
    }
  }
  /// Returns a unit's offset. Unsigned: signed divisions by powers of two take 3 instructions more.
  ATTILE_HOST_DEVICE static constexpr unsigned offset(unsigned row, unsigned unit) {
    return unit / kPanelUnits * kPanelBytes + row * kRowBytes +
           (unit % kPanelUnits ^ swizzle(row)) * 16;
  }
};

}  // namespace attile
