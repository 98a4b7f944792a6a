// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/args.h>
#include <attile/core/status.h>
#include <attile/core/workspace.h>
#include <attile/kernel/backward/dq_mode.h>

#include <driver_types.h>

#include <cstddef>
#include <type_traits>

// These overloads of forward, backward, check and workspace_size take what callers get wrong, and
// nothing else. Each has one static_assert that says what is wanted, where the compiler would list
// all overloads.

namespace attile {

namespace detail {

template <class>
inline constexpr bool kIsArguments = false;
template <Direction kWay, class E, class P>
inline constexpr bool kIsArguments<Arguments<kWay, E, P>> = true;

template <class Args>
concept AnyArguments = kIsArguments<Args>;

/// Is satisfied by the arguments of a pass that are not those of the traits.
template <class Args, class Traits>
concept OtherArguments = AnyArguments<Args> && !std::is_same_v<Args, typename Traits::Args>;

template <class...>
inline constexpr bool kNever = false;

/// Says in what the arguments of a call differ from those of its traits.
template <class Traits, class Args>
constexpr void refuse_other_arguments() {
  using Own = typename Traits::Args;
  constexpr bool kDirections = Own::kDirection == Args::kDirection;
  constexpr bool kElements = std::is_same_v<typename Own::Elements, typename Args::Elements>;
  static_assert(kDirections,
                "attile: ForwardTraits take ForwardArgs, and BackwardTraits BackwardArgs: these "
                "traits and arguments are of different passes");
  static_assert(!kDirections || kElements,
                "attile: traits and arguments have different element types: give ForwardTraits<Br, "
                "Bc, D, T, ...> and ForwardArgs<T, ...> the same T, or Elements");
  static_assert(!kDirections || !kElements,
                "attile: traits and arguments have different policies: give ForwardTraits<Br, Bc, "
                "D, T, ...> and ForwardArgs<T, ...> the same ones, in any order");
}

}  // namespace detail

// Arguments of other types than those of the traits.
template <class Traits, detail::OtherArguments<Traits> Args>
[[nodiscard]] cudaError_t forward(const Args&, cudaStream_t = nullptr) {
  detail::refuse_other_arguments<Traits, Args>();
  return cudaErrorInvalidValue;
}
template <class Traits, detail::OtherArguments<Traits> Args>
[[nodiscard]] cudaError_t forward(void*, WorkspaceBytes, const Args&, cudaStream_t = nullptr) {
  detail::refuse_other_arguments<Traits, Args>();
  return cudaErrorInvalidValue;
}
template <class Traits, detail::OtherArguments<Traits> Args>
[[nodiscard]] cudaError_t backward(void*, WorkspaceBytes, const Args&, cudaStream_t = nullptr) {
  detail::refuse_other_arguments<Traits, Args>();
  return cudaErrorInvalidValue;
}
template <class Traits, detail::OtherArguments<Traits> Args>
Check check(const Args&) {
  detail::refuse_other_arguments<Traits, Args>();
  return {};
}
template <class Traits, detail::OtherArguments<Traits> Args>
WorkspaceSize workspace_size(const Args&) {
  detail::refuse_other_arguments<Traits, Args>();
  return {};
}

// Arguments of the other pass.
template <int D, int Dv = D, BackwardPass Args>
[[nodiscard]] cudaError_t forward(const Args&, cudaStream_t = nullptr) {
  static_assert(detail::kNever<Args>, "attile: forward<D> takes ForwardArgs, not BackwardArgs");
  return cudaErrorInvalidValue;
}
template <int D, int Dv = D, DqMode = DqMode::kAccumulate, ForwardPass Args>
[[nodiscard]] cudaError_t backward(void*, WorkspaceBytes, const Args&, cudaStream_t = nullptr) {
  static_assert(detail::kNever<Args>, "attile: backward<D> takes BackwardArgs, not ForwardArgs");
  return cudaErrorInvalidValue;
}

// Calls without D.
template <detail::AnyArguments Args, class... Others>
[[nodiscard]] cudaError_t forward(const Args&, const Others&...) {
  static_assert(detail::kNever<Args>,
                "attile: forward<D>(args, stream) wants D, the largest head_dim that its kernel "
                "takes: forward<64> or forward<128>; attile::dispatch::forward chooses it");
  return cudaErrorInvalidValue;
}
template <detail::AnyArguments Args>
[[nodiscard]] cudaError_t backward(void*, WorkspaceBytes, const Args&, cudaStream_t = nullptr) {
  static_assert(detail::kNever<Args>,
                "attile: backward<D>(workspace, workspace_bytes, args, stream) wants D, the "
                "largest head_dim that its kernels take: backward<64> or backward<128>; "
                "attile::dispatch::backward chooses it");
  return cudaErrorInvalidValue;
}

// Backward without scratch memory, or with the arguments before it.
namespace detail {

template <class Args>
cudaError_t refuse_without_workspace() {
  static_assert(kNever<Args>,
                "attile: backward<D>(workspace, workspace_bytes, args, stream) wants scratch "
                "memory before the arguments; a null workspace asks how many bytes");
  return cudaErrorInvalidValue;
}

}  // namespace detail

template <int D, int Dv = D, DqMode = DqMode::kAccumulate, detail::AnyArguments Args,
          class... Others>
[[nodiscard]] cudaError_t backward(const Args&, const Others&...) {
  return detail::refuse_without_workspace<Args>();
}
template <class Traits, detail::AnyArguments Args, class... Others>
[[nodiscard]] cudaError_t backward(const Args&, const Others&...) {
  return detail::refuse_without_workspace<Args>();
}

// A mode in the place of Dv.
template <int D, DqMode kMode, class... Given>
[[nodiscard]] cudaError_t backward(const Given&...) {
  static_assert(detail::kNever<Given...>,
                "attile: backward<D, Dv, mode> has Dv before the mode: backward<64, 64, "
                "attile::DqMode::kInOrder>");
  return cudaErrorInvalidValue;
}
template <int D, DqMode kMode, class... Given>
WorkspaceSize workspace_size(const Given&...) {
  static_assert(detail::kNever<Given...>,
                "attile: workspace_size<D, Dv, mode> has Dv before the mode: workspace_size<64, "
                "64, attile::DqMode::kInOrder>");
  return {};
}

}  // namespace attile
