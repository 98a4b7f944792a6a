// SPDX-License-Identifier: MIT
#pragma once

#include <driver_types.h>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace attile::detail {

/// The two-call habit of every entry point with scratch memory: the answer to a call without any,
/// which sets `workspace_bytes`, or with too little or misaligned memory; none where it will do.
inline std::optional<cudaError_t> answer_workspace(const void* workspace,
                                                   std::size_t& workspace_bytes,
                                                   std::size_t needed) {
  if (workspace == nullptr) {
    workspace_bytes = needed;
    return cudaSuccess;
  }
  const bool aligned = reinterpret_cast<std::uintptr_t>(workspace) % 16 == 0;
  if (workspace_bytes < needed || !aligned) return cudaErrorInvalidValue;
  return std::nullopt;
}

}  // namespace attile::detail
