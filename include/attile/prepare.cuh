// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/launch.cuh>
#include <attile/core/prepare.h>
#include <attile/core/workspace.h>
#include <attile/kernel/prepare/prepare_kernel.cuh>

#include <cstdint>

namespace attile {

namespace detail {

/// Launches phase kPhase of a table, and those after it.
template <int kPhase, class Source>
cudaError_t launch_phases(void* table, const Source& source, cudaStream_t stream) {
  if constexpr (kPhase == Source::kPhases) {
    return cudaSuccess;
  } else {
    if (const std::int64_t items = source.template items<kPhase>(); items > 0) {
      const cudaError_t error = arch::launch(prepare_kernel<Source, kPhase>, prepare_blocks(items),
                                             kPrepareThreads, 0, stream, source, table);
      if (error != cudaSuccess) return error;
    }
    return launch_phases<kPhase + 1>(table, source, stream);
  }
}

}  // namespace detail

/// Writes the table of a prepared mask (core/prepared_mask.h): `source` is a SortedIds for a
/// SortedDocument, or a SeenIntervals for RowIntervals. The mask then holds the table. Or it writes
/// the offsets of packed sequences: `source` is a PackedIds for PackedBatches, whose cu_seqlens are
/// the table.
/// Scratch  with a null `table` nothing is launched, and `table_bytes`, a variable, is set to the
///          bytes of the table (`table_size` returns them, too); else device memory of that size,
///          aligned to 16 bytes, which the caller keeps as long as the mask, or the sequences, are
///          used.
/// Scope    host; asynchronous on `stream`, never allocates or waits, can be captured: a graph that
///          is replayed reads the source's arrays again.
/// Errors   what `check(source)` says, before anything is launched; else the launch's error.
template <TableSource Source>
[[nodiscard]] cudaError_t prepare(void* table, WorkspaceBytes table_bytes, const Source& source,
                                  cudaStream_t stream = nullptr) {
  const WorkspaceSize size = table_size(source);
  if (!size) return size.check.error;
  if (const auto answer = detail::answer_workspace(table, table_bytes, size.bytes)) return *answer;
  return detail::launch_phases<0>(table, source, stream);
}

}  // namespace attile
