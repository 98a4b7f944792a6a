// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/args.h>

#include <cstddef>

namespace attile {

namespace detail {

/// Holds a text that is put together at compile time.
struct StaticText {
  char text[96] = {};
  std::size_t length = 0;

  constexpr void add(const char* more) {
    while (*more != '\0') text[length++] = *more++;
  }
  /// Appends a number, which must be at least 0.
  constexpr void add(int number) {
    if (number >= 10) add(number / 10);
    text[length++] = static_cast<char>('0' + number % 10);
  }
};

template <class Traits>
inline constexpr StaticText kKernelName = [] {
  StaticText name;
  name.add(Traits::kFamily);
  name.add(Traits::kDirection == Direction::kForward ? " forward, Br " : " backward, Br ");
  name.add(Traits::kBr);
  name.add(", Bc ");
  name.add(Traits::kBc);
  name.add(", D ");
  name.add(Traits::kD);
  name.add(", Dv ");
  name.add(Traits::kDv);
  return name;
}();

/// Stands for the name where no kernel runs: without a device, or with arguments that are refused.
inline constexpr const char* kNoKernel = "no kernel: check says why";

}  // namespace detail

/// Returns the family, the direction and the tiles of a kernel: "sm90 forward, Br 128, Bc 128, D
/// 128, Dv 128".
template <class Traits>
constexpr const char* kernel_name() {
  return detail::kKernelName<Traits>.text;
}

}  // namespace attile
