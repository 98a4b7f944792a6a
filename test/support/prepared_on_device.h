// SPDX-License-Identifier: MIT
#pragma once

#include <attile/prepare.cuh>

#include <cstddef>
#include <cstring>
#include <vector>

#include "../../examples/support.cuh"
#include "support/catch.h"
#include "support/masks.h"
#include "support/prepared.h"

namespace attile_test {

template <class T>
const T* upload(const std::vector<T>& values, const example::DeviceArray<T>& array) {
  return values.empty() ? nullptr : array.get();
}

/// The table that `prepare` makes of a source in device memory; what lies behind it stays.
template <class Source>
void check_prepared_table(const Source& on_host, const Source& on_device) {
  const Table expected = host_table(on_host);
  std::size_t bytes = 0;
  REQUIRE(attile::prepare(nullptr, bytes, on_device) == cudaSuccess);
  CHECK(bytes == table_bytes(on_host));
  constexpr int kUntouched = 0x5A5A5A5A;
  Table filled(expected.size() + 4);
  for (auto& entry : filled) entry = {kUntouched, kUntouched, kUntouched, kUntouched};
  const example::DeviceArray<Table::value_type> table(filled);
  REQUIRE(attile::prepare(table.get(), bytes, on_device) == cudaSuccess);
  const Table made = table.download();
  const std::size_t written = static_cast<std::size_t>(on_host.table_bytes());
  CHECK(std::memcmp(made.data(), expected.data(), written) == 0);
  const auto* const from = reinterpret_cast<const unsigned char*>(made.data());
  int touched = 0;
  for (std::size_t i = written; i < made.size() * sizeof(made[0]); ++i) touched += from[i] != 0x5A;
  CHECK(touched == 0);
}

/// Tables are the same bytes, made on the device and on the host.
inline void check_prepared_tables() {
  for (const attile::Extent e : extents()) {
    INFO("q_len " << e.q_len << ", kv_len " << e.kv_len);
    constexpr int kBatch = 3;
    for (const bool sorted : {true, false}) {
      const DocumentRows rows(kBatch, e.q_len, e.kv_len, true, sorted);
      const example::DeviceArray<int> q_ids(rows.q_ids), kv_ids(rows.kv_ids);
      attile::SortedIds there = rows.source;
      there.q_ids = upload(rows.q_ids, q_ids), there.kv_ids = upload(rows.kv_ids, kv_ids);
      check_prepared_table(rows.source, there);
      for (const int sequences : {0, 4, 3000}) {
        const attile::PackedIds packed{rows.q_ids.data(), kBatch, e.q_len, sequences};
        check_prepared_table(packed, {there.q_ids, kBatch, e.q_len, sequences});
      }
    }
    for (const bool one : {true, false}) {
      const IntervalRows rows(kBatch, e.q_len, e.kv_len, 20, one);
      const example::DeviceArray<attile::Interval> first(rows.first), second(rows.second);
      attile::SeenIntervals there = rows.source;
      there.first = upload(rows.first, first);
      there.second = one ? nullptr : upload(rows.second, second);
      check_prepared_table(rows.source, there);
    }
  }
}

}  // namespace attile_test
