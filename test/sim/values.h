// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/element.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

namespace sim {

/// What each pattern of a type's 8 or 16 bits means: looked up, since a product reads more elements
/// than a kernel has instructions.
template <class T>
const float* values_of() {
  static const std::vector<float> values = [] {
    std::vector<float> all(std::size_t{1} << 8 * sizeof(T));
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto bits =
          static_cast<std::conditional_t<sizeof(T) == 1, std::uint8_t, std::uint16_t>>(i);
      T x;
      std::memcpy(static_cast<void*>(&x), &bits, sizeof x);
      all[i] = attile::to_float(x);
    }
    return all;
  }();
  return values.data();
}

}  // namespace sim
