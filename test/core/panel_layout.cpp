// SPDX-License-Identifier: MIT
#include <attile/core/panel_layout.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "support/catch.h"

namespace {

using attile::PanelLayout;

/// Calls f(PanelLayout<Rows, 16 n, bytes>{}) for every n up to 16 and both sizes of elements.
template <int Rows, class F>
void each_width(const F& f) {
  [&]<int... I>(std::integer_sequence<int, I...>) {
    (f(PanelLayout<Rows, 16 * (I + 1)>{}, 16 * (I + 1)), ...);
    (f(PanelLayout<Rows, 16 * (I + 1), 4>{}, 16 * (I + 1)), ...);
  }
  (std::make_integer_sequence<int, 16>{});
}

/// Whether 8 neighbouring columns of fp32, from a multiple of 8 on, of 4 rows lie in all 32 banks.
template <class Layout>
bool meets_no_bank_twice(const int (&rows)[4], int col0) {
  std::uint32_t banks = 0;
  for (const int row : rows) {
    for (int col = col0; col < col0 + 8; ++col) {
      banks |= 1u << (Layout::offset(row, col / 4) / 4 + col % 4) % 32;
    }
  }
  return banks == 0xFFFFFFFFu;
}

TEST_CASE("panel_layout.every_unit_has_its_own_place") {
  const auto check = [](auto layout, int rows, int cols) {
    using Layout = decltype(layout);
    CAPTURE(rows, cols);
    CHECK(Layout::kBytes == rows * Layout::kUnits * 16);
    CHECK(Layout::kUnits * Layout::kUnitElements == cols);
    std::vector<int> taken(Layout::kBytes / 16, 0);
    for (int row = 0; row < rows; ++row) {
      for (int unit = 0; unit < Layout::kUnits; ++unit) {
        const unsigned offset = Layout::offset(row, unit);
        REQUIRE(offset % 16 == 0);
        REQUIRE(offset + 16 <= static_cast<unsigned>(Layout::kBytes));
        ++taken[offset / 16];
      }
    }
    for (const int times : taken) CHECK(times == 1);
  };
  each_width<8>([&](auto layout, int cols) { check(layout, 8, cols); });
  each_width<48>([&](auto layout, int cols) { check(layout, 48, cols); });
}

TEST_CASE("panel_layout.the_rows_of_a_matrix_lie_in_all_banks") {
  each_width<64>([](auto layout, int cols) {
    using Layout = decltype(layout);
    CAPTURE(cols);
    for (int row0 = 0; row0 < 64; row0 += 8) {
      for (int unit = 0; unit < Layout::kUnits; ++unit) {
        unsigned groups = 0;  // of 4 banks, which 16 bytes fill
        for (int row = row0; row < row0 + 8; ++row) {
          groups |= 1u << Layout::offset(row, unit) / 16 % 8;
        }
        CHECK(groups == 0xFFu);
      }
    }
  });
}

TEST_CASE("panel_layout.fp32_rows_of_a_transposed_matrix_lie_in_all_banks") {
  each_width<16>([](auto layout, int cols) {
    using Layout = decltype(layout);
    if constexpr (Layout::kUnitElements == 4) {
      CAPTURE(cols);
      for (int row0 = 0; row0 < 16; row0 += 8) {
        for (int col0 = 0; col0 < cols; col0 += 8) {
          for (const int half : {0, 4}) {
            const int first = row0 + half;
            CHECK(meets_no_bank_twice<Layout>({first, first + 1, first + 2, first + 3}, col0));
          }
          if (Layout::kPanelUnits < 8) continue;
          for (const int odd : {0, 1}) {
            const int first = row0 + odd;
            CHECK(meets_no_bank_twice<Layout>({first, first + 2, first + 4, first + 6}, col0));
          }
        }
      }
    }
  });
}

TEST_CASE("panel_layout.swizzles_are_linear") {
  each_width<8>([](auto layout, int cols) {
    using Layout = decltype(layout);
    CAPTURE(cols);
    for (unsigned row = 0; row < 64; ++row) {
      for (unsigned step = 1; step < 64; step *= 2) {
        if ((row & step) != 0) continue;
        CHECK(Layout::swizzle(row + step) == (Layout::swizzle(row) ^ Layout::swizzle(step)));
      }
    }
  });
}

TEST_CASE("panel_layout.panels_of_64_columns_are_the_128_byte_swizzle") {
  // 16-byte unit u of row r at u ^ r % 8, rows of 128 bytes.
  using Layout = PanelLayout<32, 128>;
  for (unsigned row = 0; row < 32; ++row) {
    for (unsigned unit = 0; unit < 16; ++unit) {
      CHECK(Layout::offset(row, unit) == unit / 8 * 4096 + row * 128 + (unit % 8 ^ row % 8) * 16);
    }
  }
}

}  // namespace
