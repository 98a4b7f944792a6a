// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace attile {

/// Returns whether two pieces of a strided array share memory. Interleaved pieces that share none
/// count as overlapping; the stride of an axis of size 1 is ignored.
/// Units    sizes: pieces along each axis; strides: elements, of any sign; piece: elements that lie
///          side by side in each.
template <std::size_t N>
constexpr bool strides_overlap(std::array<std::int64_t, N> sizes,
                               std::array<std::int64_t, N> strides, std::int64_t piece) {
  for (auto& s : strides) s = s < 0 ? -s : s;
  for (std::size_t pass = 0; pass + 1 < N; ++pass) {
    for (std::size_t i = 0; i + 1 < N; ++i) {
      if (strides[i] <= strides[i + 1]) continue;
      std::swap(strides[i], strides[i + 1]);
      std::swap(sizes[i], sizes[i + 1]);
    }
  }
  std::int64_t reach = piece;
  for (std::size_t i = 0; i < N; ++i) {
    if (sizes[i] <= 1) continue;
    if (strides[i] < reach) return true;
    reach += strides[i] * (sizes[i] - 1);
  }
  return false;
}

}  // namespace attile
