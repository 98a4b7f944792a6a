// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/status.h>

#include <driver_types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

namespace attile {

/// The caller's std::size_t with the size of the scratch memory. It refers to it: a variable can be
/// set to the size that is needed, while a constant or a temporary serves the second call alone.
class WorkspaceBytes {
 public:
  WorkspaceBytes(std::size_t& variable) : bytes_(&variable), variable_(&variable) {}
  WorkspaceBytes(const std::size_t& constant) : bytes_(&constant) {}
  /// A variable of another type could not be set.
  template <class Other>
    requires(std::is_arithmetic_v<Other>)
  WorkspaceBytes(Other&) = delete;
  /// And this is no size.
  template <class Other>
    requires(std::is_floating_point_v<Other> || std::is_same_v<Other, bool>)
  WorkspaceBytes(Other&&) = delete;

  std::size_t value() const { return *bytes_; }
  /// What can be set; null: nothing.
  std::size_t* variable() const { return variable_; }

 private:
  const std::size_t* bytes_;
  std::size_t* variable_ = nullptr;
};

/// The bytes of scratch memory that a call needs, or why there is no such call.
struct [[nodiscard]] WorkspaceSize {
  Check check;
  std::size_t bytes = 0;

  constexpr explicit operator bool() const { return bool(check); }
};

/// Says in one sentence why a call that computes, and needs `needed` bytes of scratch memory, would
/// refuse this workspace.
inline Check check_workspace(const void* workspace, std::size_t workspace_bytes,
                             std::size_t needed) {
  if (workspace == nullptr) {
    return refuse(
        "workspace is null: such a call only sets workspace_bytes, which then must be a variable");
  }
  if (reinterpret_cast<std::uintptr_t>(workspace) % 16 != 0) {
    return refuse("workspace is not aligned to 16 bytes");
  }
  if (workspace_bytes < needed) {
    return refuse("workspace_bytes is less than the call needs: a null workspace asks how many");
  }
  return {};
}

namespace detail {

/// What a call without workspace answers: it sets the variable, if it is one.
inline cudaError_t answer_size(WorkspaceBytes workspace_bytes, const WorkspaceSize& size) {
  if (!size) return size.check.error;
  if (workspace_bytes.variable() == nullptr) return check_workspace(nullptr, 0, 0).error;
  *workspace_bytes.variable() = size.bytes;
  return cudaSuccess;
}

/// The two-call habit of an entry point whose arguments have been checked: what a call without a
/// workspace answers, or one whose workspace `check_workspace` refuses; none where it will do.
inline std::optional<cudaError_t> answer_workspace(const void* workspace,
                                                   WorkspaceBytes workspace_bytes,
                                                   std::size_t needed) {
  if (workspace == nullptr) return answer_size(workspace_bytes, {{}, needed});
  const Check ok = check_workspace(workspace, workspace_bytes.value(), needed);
  if (!ok) return ok.error;
  return std::nullopt;
}

}  // namespace detail

}  // namespace attile
