// SPDX-License-Identifier: MIT
#include <attile/core/panel_layout.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "support/catch.h"

namespace {

using attile::PanelLayout;

/// Calls f(PanelLayout<Rows, 16 n>{}) for every n up to 16.
template <int Rows, class F>
void each_width(const F& f) {
  [&]<int... I>(std::integer_sequence<int, I...>) {
    (f(PanelLayout<Rows, 16 * (I + 1)>{}, 16 * (I + 1)), ...);
  }
  (std::make_integer_sequence<int, 16>{});
}

TEST_CASE("panel_layout.every_unit_has_its_own_place") {
  const auto check = [](auto layout, int rows, int cols) {
    using Layout = decltype(layout);
    CAPTURE(rows, cols);
    CHECK(Layout::kBytes == rows * cols * 2);
    std::vector<int> taken(Layout::kBytes / 16, 0);
    for (int row = 0; row < rows; ++row) {
      for (int unit = 0; unit < cols / 8; ++unit) {
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
      for (int unit = 0; unit < cols / 8; ++unit) {
        unsigned groups = 0;  // of 4 banks, which 16 bytes fill
        for (int row = row0; row < row0 + 8; ++row) {
          groups |= 1u << Layout::offset(row, unit) / 16 % 8;
        }
        CHECK(groups == 0xFFu);
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
