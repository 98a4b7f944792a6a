// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>

#include <cstdint>

namespace attile::arch {

/// An operand of 16-bit elements in shared memory, in panels whose rows take `row_bytes` bytes and
/// lie behind each other: with the swizzle of TMA's boxes of such rows, from an address on that is
/// a multiple of 8 rows. `panel_bytes` from one panel to the next, for an operand whose rows are
/// the depth. Pieces from other rows or columns on: the address that much further. Units row_bytes:
/// 128, 64 or 32. Source   PTX ISA, "Matrix Descriptor Format" of wgmma.
struct WgmmaOperand {
  std::uint32_t low, high;  ///< of the descriptor: an offset changes one half alone

  ATTILE_DEVICE WgmmaOperand(std::uint32_t shared, int row_bytes, int panel_bytes) {
    const std::uint32_t swizzle = row_bytes == 128 ? 1 : row_bytes == 64 ? 2 : 3;
    low = (shared & 0x3FFFFu) / 16 | static_cast<std::uint32_t>(panel_bytes / 16) << 16;
    high = static_cast<std::uint32_t>(row_bytes * 8 / 16) | swizzle << 30;
  }
  /// The same, `bytes` further on: a multiple of 16.
  ATTILE_DEVICE std::uint64_t at(int bytes) const {
    return std::uint64_t{high} << 32 | (low + bytes / 16);
  }
};

}  // namespace attile::arch
