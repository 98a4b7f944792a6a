// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/status.h>

#include <driver_types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

namespace attile {

namespace detail {

/// Says whether an argument is a variable of another arithmetic type than std::size_t, a pointer,
/// or a value of a type that is no integer.
template <class Other, class Plain = std::remove_cvref_t<Other>>
inline constexpr bool kIsNoSize =
    (std::is_arithmetic_v<Plain> && !std::is_same_v<Plain, std::size_t> &&
     std::is_lvalue_reference_v<Other>) ||
    std::is_floating_point_v<Plain> || std::is_same_v<Plain, bool> || std::is_pointer_v<Plain>;

}  // namespace detail

/// Refers to the caller's std::size_t with the size of the scratch memory: a variable can be set to
/// the size that is needed, while a constant or a temporary serves the second call alone.
class WorkspaceBytes {
 public:
  WorkspaceBytes(std::size_t& variable) : bytes_(&variable), variable_(&variable) {}
  WorkspaceBytes(const std::size_t& constant) : bytes_(&constant) {}
  /// Refuses a variable of another type, which could not be set, a pointer, and what is no size.
  template <class Other>
    requires(detail::kIsNoSize<Other>)
  WorkspaceBytes(Other&&) : bytes_(nullptr) {
    static_assert(!detail::kIsNoSize<Other>,
                  "attile: workspace_bytes is a variable of type std::size_t, which a call with a "
                  "null workspace sets, or a std::size_t");
  }

  std::size_t value() const { return *bytes_; }
  /// Returns the variable that can be set; null for a constant.
  std::size_t* variable() const { return variable_; }

 private:
  const std::size_t* bytes_;
  std::size_t* variable_ = nullptr;
};

/// Holds the bytes of scratch memory that a call needs, or why there is no such call.
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

/// Answers a call without workspace: sets the variable, if it is one.
inline cudaError_t answer_size(WorkspaceBytes workspace_bytes, const WorkspaceSize& size) {
  if (!size) return size.check.error;
  if (workspace_bytes.variable() == nullptr) return check_workspace(nullptr, 0, 0).error;
  *workspace_bytes.variable() = size.bytes;
  return cudaSuccess;
}

/// Applies the two-call habit to an entry point whose arguments have been checked. Returns what a
/// call answers that has no workspace, or one that `check_workspace` refuses; none if the workspace
/// will do.
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
