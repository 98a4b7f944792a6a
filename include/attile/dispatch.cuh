// SPDX-License-Identifier: MIT
#pragma once

// These functions lead from a run-time head_dim and element type to a kernel. The header is opt-in,
// because it compiles a kernel for each entry of the list: name the head dimensions that you need,
// e.g. Dims<64, 128>.
#include <attile/backward.cuh>
#include <attile/core/status.h>
#include <attile/core/workspace.h>
#include <attile/forward.cuh>

#include <cstddef>
#include <type_traits>

namespace attile::dispatch {

/// Lists the D of the kernels to build, in rising order. A problem runs on the first that holds its
/// head_dim and head_dim_v.
template <int... Ds>
struct Dims {};

/// Lists the D of the kernels that are built where the caller lists none.
using AllDims = Dims<32, 64, 128, 256>;

/// Names a run-time element type.
enum class ElementKind { kFp32, kFp16, kBf16 };

/// Returns f(T{}) for the element type that `kind` names.
template <class F>
auto with_element(ElementKind kind, F&& f) {
  if (kind == ElementKind::kFp16) return f(__half{});
  if (kind == ElementKind::kBf16) return f(__nv_bfloat16{});
  return f(float{});
}

namespace detail {

/// Returns f(std::integral_constant<int, D>) for the first D that holds `dim`, else `none`.
template <int First, int... Rest, class Result, class F>
Result with_dim(Dims<First, Rest...>, int dim, Result none, F&& f) {
  if (dim <= First) return f(std::integral_constant<int, First>{});
  if constexpr (sizeof...(Rest) > 0) {
    return with_dim(Dims<Rest...>{}, dim, none, f);
  } else {
    return none;
  }
}

template <class Args>
constexpr int larger_dim(const Args& args) {
  return args.head_dim > args.head_dim_v ? args.head_dim : args.head_dim_v;
}

/// Returns what f(std::integral_constant<int, D>) says of the D that the arguments lead to.
template <class Ds, class Args, class F>
Check check_dims(const Args& args, F&& f) {
  if (args.head_dim == 0) return refuse("head_dim is not given");
  return with_dim(Ds{}, larger_dim(args),
                  refuse("head_dim or head_dim_v is larger than every kernel here"), f);
}

}  // namespace detail

/// Runs `check` for the kernel that args.head_dim and args.head_dim_v lead to; head_dim must be
/// given. kMode: as in `backward`, for arguments of a backward pass.
template <class Ds = AllDims, DqMode kMode = DqMode::kAccumulate, class Args>
Check check(const Args& args) {
  return detail::check_dims<Ds>(args, [&](auto D) {
    if constexpr (!Args::kIsForward) {
      return attile::check<D.value, D.value, kMode>(args);
    } else {
      return attile::check<D.value>(args);
    }
  });
}

/// Says the same of a call of `backward` that computes: also why it would refuse this workspace,
/// null included.
template <class Ds = AllDims, DqMode kMode = DqMode::kAccumulate, BackwardPass Args>
Check check(const Args& args, const void* workspace, std::size_t workspace_bytes) {
  return detail::check_dims<Ds>(args, [&](auto D) {
    return attile::check<D.value, D.value, kMode>(args, workspace, workspace_bytes);
  });
}

/// Runs `forward` by the kernel that args.head_dim and args.head_dim_v lead to.
/// Errors   what `check` says, else the launch's.
template <class Ds = AllDims, ForwardPass Args>
[[nodiscard]] cudaError_t forward(const Args& args, cudaStream_t stream = nullptr) {
  if (args.head_dim == 0) return cudaErrorInvalidValue;
  return detail::with_dim(Ds{}, detail::larger_dim(args), cudaErrorInvalidValue,
                          [&](auto D) { return attile::forward<D.value>(args, stream); });
}

/// Runs `backward` by the kernels that args.head_dim and args.head_dim_v lead to.
/// Errors   what `check` says, else the launch's.
template <class Ds = AllDims, DqMode kMode = DqMode::kAccumulate, BackwardPass Args>
[[nodiscard]] cudaError_t backward(void* workspace, WorkspaceBytes workspace_bytes,
                                   const Args& args, cudaStream_t stream = nullptr) {
  if (args.head_dim == 0) return cudaErrorInvalidValue;
  return detail::with_dim(Ds{}, detail::larger_dim(args), cudaErrorInvalidValue, [&](auto D) {
    return attile::backward<D.value, D.value, kMode>(workspace, workspace_bytes, args, stream);
  });
}

}  // namespace attile::dispatch
