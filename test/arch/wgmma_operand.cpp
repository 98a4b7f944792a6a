// SPDX-License-Identifier: MIT
#include <attile/arch/wgmma_operand.h>

#include <cstdint>

#include "support/catch.h"

namespace {

using attile::arch::WgmmaOperand;

/// Bits [first, first + count) of a descriptor.
std::uint64_t field(std::uint64_t descriptor, int first, int count) {
  return descriptor >> first & ((std::uint64_t{1} << count) - 1);
}

TEST_CASE("wgmma_operand.fields") {
  const struct {
    int row_bytes;
    std::uint64_t swizzle;
  } kinds[] = {{128, 1}, {64, 2}, {32, 3}};
  for (const auto& kind : kinds) {
    for (const std::uint32_t shared : {0u, 1024u, 232448u - 1024u}) {
      const std::uint64_t x = WgmmaOperand(shared, kind.row_bytes, 64 * kind.row_bytes).at(0);
      CHECK(field(x, 0, 14) == shared / 16);
      CHECK(field(x, 16, 14) == 64u * kind.row_bytes / 16);  // to the next panel
      CHECK(field(x, 32, 14) == 8u * kind.row_bytes / 16);   // to the next 8 rows
      CHECK(field(x, 49, 3) == 0);
      CHECK(field(x, 62, 2) == kind.swizzle);
      CHECK((x & ~0xC0003FFF3FFF3FFFu) == 0);
    }
  }
}

TEST_CASE("wgmma_operand.pieces_further_on") {
  const WgmmaOperand operand(4096, 128, 8192);
  CHECK(operand.at(8192 + 32) == WgmmaOperand(4096 + 8192 + 32, 128, 8192).at(0));
}

}  // namespace
