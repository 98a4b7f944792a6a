// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>

#include <cstdint>

namespace attile::arch {

/// Describes an operand of 16-bit or 8-bit elements in shared memory. Its panels have contiguous
/// rows of `row_bytes` bytes, with the swizzle that TMA has for boxes of such rows, and begin at an
/// address that is a multiple of 8 rows. Panels are `panel_bytes` apart, for an operand of 16-bit
/// elements whose rows are the depth. A piece from other rows or columns on has an address that
/// much further.
/// Units    row_bytes: 128, 64 or 32.
/// Source   PTX ISA, "Matrix Descriptor Format" of wgmma.
struct WgmmaOperand {
  std::uint32_t low, high;  ///< halves of the descriptor; an offset changes `low` alone

  ATTILE_DEVICE WgmmaOperand(std::uint32_t shared, int row_bytes, int panel_bytes) {
    const std::uint32_t swizzle = row_bytes == 128 ? 1 : row_bytes == 64 ? 2 : 3;
    low = (shared & 0x3FFFFu) / 16 | static_cast<std::uint32_t>(panel_bytes / 16) << 16;
    high = static_cast<std::uint32_t>(row_bytes * 8 / 16) | swizzle << 30;
  }
  /// Returns the descriptor of the operand `bytes` further on, a multiple of 16.
  ATTILE_DEVICE std::uint64_t at(int bytes) const {
    return std::uint64_t{high} << 32 | (low + static_cast<std::uint32_t>(bytes / 16));
  }
};

}  // namespace attile::arch
