// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/architectures.cuh>

#include <type_traits>

namespace attile::detail {

/// Whether a device of which this file has code takes the tiles for kSharedKb.
template <int kSharedKb>
inline constexpr bool kTakesTiles = arch::compiled_for([](int a) {
  return a >= 800 && arch::shared_kb(a) == kSharedKb;
});

/// Chooses among the tiles of a family that needs compute capability 8.0: calls sm80(kb) with the
/// largest of those for the architectures that this file is compiled for that the current device
/// takes, or older(99) where the device would run code for an architecture before 8.0, and returns
/// what that does. `kernel(kb)` is a kernel with those tiles; kb an std::integral_constant, on
/// which all three depend, so that what is not called is not compiled. Units    KB of shared memory
/// of a block.
template <class Kernel, class Older, class Sm80>
auto with_tiles(const Kernel& kernel, const Older& older, const Sm80& sm80) {
  if constexpr (!arch::compiled_for([](int a) { return a >= 800; })) {
    return older(std::integral_constant<int, 99>{});
  } else {
    // Devices with 99 KB run code for 8.0 too.
    constexpr int kLeast = kTakesTiles<99> || kTakesTiles<163> ? 99 : 227;
    const std::integral_constant<int, kLeast> least;
    if constexpr (arch::compiled_for([](int a) { return a < 800; })) {
      if (arch::lacks(kernel(least), 800)) return older(std::integral_constant<int, 99>{});
    }
    const int shared_kb = arch::device_shared_kb();
    if constexpr (kTakesTiles<227> && kLeast < 227) {
      if (shared_kb >= 227) return sm80(std::integral_constant<int, 227>{});
    }
    if constexpr (kTakesTiles<163>) {
      if (shared_kb >= 163) return sm80(std::integral_constant<int, 163>{});
    }
    return sm80(least);
  }
}

}  // namespace attile::detail
