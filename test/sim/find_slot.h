// SPDX-License-Identifier: MIT
#pragma once

#include <attile/attile.cuh>
#include <attile/kernel/problem/find_slot.cuh>

#include <algorithm>
#include <climits>
#include <cstdint>
#include <vector>

#include "../../examples/support.cuh"
#include "sim/suite.h"
#include "support/catch.h"
#include "support/random.h"

// How a warp finds whose an item is (find_by_warp), with offsets that rise and with any others: a
// sequence is found for all of its items or for none, no item is found for two, and
// is_found_by_warp agrees, since kernels that wait for one another rely on it.

namespace attile_test {

inline constexpr int kSearchTile = 64;
using SearchSlots = attile::TileSlots<attile::Axis::kRows, kSearchTile, attile::Packed>;

/// Writes whose each item is, as four numbers, and then whether each sequence is found.
/// Scope    one warp for each item, or for each sequence where there are more.
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(32, 1)
    search_slots(attile::Packed sequences, int batch, int bound, int items, int per_slot,
                 int* found) {
  const SearchSlots slots(sequences, batch, bound);
  const int number = attile::arch::block_index();
  const bool writes = attile::arch::thread_index() == 0;
  if (number < items) {
    const auto share = attile::find_by_warp(slots, number, per_slot);
    const int numbers[]{share.sequence, share.slots, share.item, share.is_sequence};
    for (int i = 0; i < 4; ++i) {
      if (writes) found[4 * number + i] = numbers[i];
    }
  }
  if (number < batch) {
    const bool is_found = attile::is_found_by_warp(slots, number);
    if (writes) found[4 * items + number] = is_found;
  }
}

/// Offsets of `batch` sequences: mostly short ones, and some of up to 5000 rows, which makes a warp
/// sort them. With `kind` above 0 some of them are not in order.
inline std::vector<int> search_offsets(int batch, int kind, const Random& random) {
  std::vector<int> offsets{0};
  for (int b = 0; b < batch; ++b) {
    const bool is_long = random.uniform(3 * b) < 0.1;
    offsets.push_back(offsets.back() +
                      static_cast<int>(random.uniform(3 * b + 1) * (is_long ? 5000 : 150)));
  }
  for (int i = 0; kind > 0 && i < 1 + batch / 20; ++i) {
    const auto any = [&](int j) {
      return static_cast<std::size_t>(random.uniform(1000 + 10 * i + j) * (batch + 1));
    };
    constexpr int kAny[]{-1, INT_MIN, INT_MAX, 1 << 24};
    if (kind == 1) std::swap(offsets[any(0)], offsets[any(1)]);
    if (kind == 2) offsets[any(2)] = kAny[i % 4];
  }
  if (kind == 3) std::reverse(offsets.begin(), offsets.end());
  return offsets;
}

inline void check_search() {
  for (const int batch : {1, 2, 31, 32, 33, 70, 1100}) {
    for (int kind = 0; kind < 4; ++kind) {
      const Random random(static_cast<std::uint64_t>(10 * batch + kind));
      const std::vector<int> offsets = search_offsets(batch, kind, random);
      const int total = std::max(kind == 0 ? offsets.back() : 100 * batch, 1);
      const int per_slot = 1 + kind % 3;
      const example::DeviceArray<int> device_offsets(offsets);
      const attile::Packed packed{device_offsets.get(), device_offsets.get(), total, total};
      const attile::Packed on_host{offsets.data(), offsets.data(), total, total};
      const SearchSlots slots(on_host, batch, total);
      const int items = static_cast<int>(slots.count()) * per_slot;
      const example::DeviceArray<int> found(std::vector<int>(4 * items + batch, -1));
      REQUIRE(attile::arch::launch(search_slots, std::max(items, batch), 32, 0, nullptr, packed,
                                   batch, total, items, per_slot, found.get()) == cudaSuccess);
      const std::vector<int> result = found.download();
      std::vector<std::vector<int>> items_of(batch);
      for (int i = 0; i < items; ++i) {
        if (result[4 * i + 3] == 0) continue;
        const int sequence = result[4 * i];
        REQUIRE((0 <= sequence && sequence < batch));
        CHECK(result[4 * i + 1] == slots.slots(sequence));
        items_of[sequence].push_back(result[4 * i + 2]);
      }
      INFO(batch << " sequences, offsets of kind " << kind);
      for (int b = 0; b < batch; ++b) {
        const bool is_found = result[4 * items + b] != 0;
        if (kind == 0) CHECK(is_found);
        std::vector<int> all(is_found ? slots.slots(b) * per_slot : 0);
        for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
        CHECK(items_of[b] == all);
      }
    }
  }
  CHECK(machine_reports() == "");
}

}  // namespace attile_test
