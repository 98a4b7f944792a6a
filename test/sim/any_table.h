// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/mask.h>
#include <attile/core/prepare.h>
#include <attile/core/prepared_mask.h>

#include <cstdint>
#include <string>

#include "sim/one_head.h"
#include "sim/suite.h"
#include "support/catch.h"
#include "support/prepared.h"

// Kernels with masks whose tables contradict themselves: every answer is inside the lengths, but
// rows and columns do not agree, nor do a run and its parts. Nothing is accessed out of bounds,
// which the machine sees, and every kernel ends.

namespace attile_test {

template <class Mask>
Mask mask_with(const void* table) {
  return {table};
}
template <class Mask>
  requires requires { Mask{}.second.table; }
Mask mask_with(const void* table) { return {{}, {table}}; }

/// Runs a pass over tables that hold anything, and over one of ids out of order.
template <class Traits>
void run_any_table() {
  constexpr int kRows = 190, kKeys = 230;
  const OneHead<Traits> head(kRows, kKeys, /*lse_of_rows=*/3.0f);
  const auto run = [&](const Table& entries) {
    const example::DeviceArray<Table::value_type> table(entries);
    const auto mask = mask_with<typename Traits::MaskType>(table.get());
    if constexpr (Traits::kDirection == attile::Direction::kForward) {
      head.run_forward(mask);
    } else {
      head.run_backward(mask);
    }
    CHECK(machine_reports() == "");
  };
  // Enough for either mask.
  const auto count = static_cast<std::size_t>(attile::RowIntervals::Places::size({kRows, kKeys}));
  constexpr std::uint64_t kSeeds = kTestFull ? 3 : 1;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) run(any_entries(count + kKeys, seed, kKeys));
  Table unsorted = host_table(DocumentRows(1, kRows, kKeys, false, /*sorted=*/false).source);
  unsorted.resize(count + kKeys);
  run(unsorted);
}

}  // namespace attile_test
