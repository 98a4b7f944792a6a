// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/prepare.h>
#include <attile/core/status.h>
#include <attile/core/workspace.h>

#include <cstddef>
#include <cstdint>

namespace attile::host {

namespace detail {

/// Prepares phase kPhase of a table, and those after it.
template <int kPhase, class Source>
void prepare_phases(void* table, const Source& source) {
  if constexpr (kPhase < Source::kPhases) {
    const std::int64_t items = source.template items<kPhase>();
    for (std::int64_t i = 0; i < items; ++i) source.template prepare_item<kPhase>(table, i);
    prepare_phases<kPhase + 1>(table, source);
  }
}

}  // namespace detail

/// Writes the table of a source in host memory, as attile::prepare does in device memory:
/// the same bytes. `table` has the bytes that `table_size(source)` returns, aligned to 16.
/// Errors   never throws: a bad source and a bad table are each a Check that says so.
template <TableSource Source>
[[nodiscard]] Check prepare(void* table, std::size_t table_bytes, const Source& source) {
  const WorkspaceSize size = table_size(source);
  if (!size) return size.check;
  if (const Check ok = check_workspace(table, table_bytes, size.bytes); !ok) return ok;
  detail::prepare_phases<0>(table, source);
  return {};
}

}  // namespace attile::host
