// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/device.cuh>
#include <attile/arch/launch.cuh>
#include <attile/core/args.h>
#include <attile/core/check.h>
#include <attile/core/splits.h>
#include <attile/core/status.h>
#include <attile/core/workspace.h>
#include <attile/families.cuh>
#include <attile/kernel/forward/forward_kernel.cuh>
#include <attile/kernel/problem/kernel_name.h>
#include <attile/refused_calls.h>

#include <cstddef>
#include <optional>

namespace attile {

/// Names the traits of a forward kernel with the caller's tiles: Br query rows by Bc key rows,
/// head_dim up to D (Dv for V). E: an element type, or Elements; the policies in any order, or a
/// bundle of all as the first one. Its arguments are `ForwardTraits<...>::Args`. The tuning's
/// namespace is the family: `sm80::Tuning<>`, `sm90::Tuning<>` (16-bit types), or
/// `portable::Tuning<>`.
template <int Br, int Bc, int D, class E, class First = NoMask, class Second = NoScoreMod,
          class Third = NoDropout, int Dv = D, class Tuning = sm80::Tuning<>>
using ForwardTraits =
    typename Tuning::template Forward<Br, Bc, D, ElementsOf<E>, Policies<First, Second, Third>, Dv>;

// The caller may launch the kernel (after `check`):
//   forward_prepare<K>();
//   forward_kernel<K><<<forward_blocks<K>(args), forward_threads<K>(), forward_shared_bytes<K>(),
//                       stream>>>(forward_params<K>(args));
// It must launch nothing when forward_blocks is 0.

/// Returns the blocks of the grid. Units: blocks along x; 0 when there is nothing to compute.
template <class Traits>
unsigned forward_blocks(const typename Traits::Args& args) {
  return static_cast<unsigned>(forward_block_count<Traits>(args));
}

/// Returns the threads of a block, along x.
template <class Traits>
constexpr unsigned forward_threads() {
  return Traits::kThreads;
}

/// Returns the dynamic shared memory of a block. Units: bytes.
template <class Traits>
constexpr std::size_t forward_shared_bytes() {
  return Traits::kSharedBytes;
}

/// Allows the kernel its shared memory on the current device; one call is enough.
template <class Traits>
[[nodiscard]] cudaError_t forward_prepare() {
  return arch::allow_shared(forward_kernel<Traits>, forward_shared_bytes<Traits>());
}

namespace detail {

/// Returns what the kernel and the device say of arguments that passed `check_arguments`, and makes
/// the kernel's parameter where they take them.
template <class Traits>
Check prepare_forward(const typename Traits::Args& args,
                      std::optional<typename Traits::Params>& params) {
  if (args.max_blocks > 0 && !Traits::kPersistent) {
    return refuse(
        "max_blocks is given, and this kernel has a block for each tile of rows: the persistent "
        "ones are the family sm90's, and those of decode");
  }
  if (args.splits.kind != Splits::Kind::kNone && !Traits::kSplits) {
    return refuse(
        "splits is given, and this kernel gives all keys of a row to one block: those of decode "
        "split them");
  }
  const std::int64_t most = Traits::Params::tile_count(args);
  const Check ready = arch::check_launch(forward_kernel<Traits>, Traits::kSharedBytes, most,
                                         Traits::kLeastArchitecture);
  if (!ready) return ready;
  const auto as_read = without_unread_strides(args);
  params.emplace(as_read);
  return params->complete(as_read);
}

/// Returns the bytes of scratch memory of a call with arguments that passed `check_arguments`, or
/// why the kernel or the device refuses them.
template <class Traits>
WorkspaceSize forward_workspace(const typename Traits::Args& args) {
  std::optional<typename Traits::Params> params;
  const Check ok = prepare_forward<Traits>(args, params);
  return {ok, ok ? Traits::Params::workspace_bytes(args) : 0};
}

/// Says why a kernel that takes these arguments would refuse this scratch memory, null included.
template <class Traits>
Check check_forward_workspace(const typename Traits::Args& args, const void* workspace,
                              std::size_t workspace_bytes) {
  if (workspace == nullptr && args.splits.kind != Splits::Kind::kNone) {
    return refuse(
        "splits need scratch memory: a workspace of as many bytes as the call asks for, which "
        "reset_workspace has made ready");
  }
  return check_workspace(workspace, workspace_bytes, Traits::Params::workspace_bytes(args));
}

/// Runs `forward` for arguments that passed `check_arguments`, without scratch memory or with some.
template <class Traits>
[[nodiscard]] cudaError_t launch_forward(const typename Traits::Args& args, cudaStream_t stream,
                                         void* workspace = nullptr) {
  std::optional<typename Traits::Params> params;
  if (const Check ok = prepare_forward<Traits>(args, params); !ok) return ok.error;
  const unsigned blocks = forward_blocks<Traits>(args);
  if (blocks == 0) return cudaSuccess;
  if (workspace == nullptr && args.splits.kind != Splits::Kind::kNone) {
    return check_forward_workspace<Traits>(args, nullptr, 0).error;
  }
  if (workspace != nullptr) {
    const std::size_t bytes = params->use(workspace);
    const cudaError_t error = bytes > 0 ? arch::clear(workspace, bytes, stream) : cudaSuccess;
    if (error != cudaSuccess) return error;
    if constexpr (requires { params->prepare(args, workspace, stream); }) {
      if (const cudaError_t failed = params->prepare(args, workspace, stream)) return failed;
    }
  }
  if constexpr (Traits::kAwaitsDependencies) {
    return arch::launch_dependent(forward_kernel<Traits>, blocks, forward_threads<Traits>(),
                                  forward_shared_bytes<Traits>(), stream, *params);
  } else {
    return arch::launch(forward_kernel<Traits>, blocks, forward_threads<Traits>(),
                        forward_shared_bytes<Traits>(), stream, *params);
  }
}

}  // namespace detail

/// Returns the bytes of scratch memory of the calls of `forward` that take some, or the sentence of
/// `check`.
template <class Traits>
WorkspaceSize workspace_size(const typename Traits::Args& args) requires(Traits::kDirection ==
                                                                         Direction::kForward) {
  if (const Check ok = check_arguments(args, Traits::kD, Traits::kDv); !ok) return {ok};
  return detail::forward_workspace<Traits>(args);
}

/// Says in one sentence why `forward` would refuse these arguments on the current device.
/// Launches nothing.
template <class Traits>
Check check(const typename Traits::Args& args) requires(Traits::kDirection == Direction::kForward) {
  return workspace_size<Traits>(args).check;
}

/// Says the same of a call that computes with scratch memory: also why it would refuse this
/// workspace, null included.
template <class Traits>
Check check(const typename Traits::Args& args, const void* workspace,
            std::size_t workspace_bytes) requires(Traits::kDirection == Direction::kForward) {
  if (const Check ok = check<Traits>(args); !ok) return ok;
  return detail::check_forward_workspace<Traits>(args, workspace, workspace_bytes);
}

/// Computes O = dropout(softmax(mask(score_mod(scale Q K^T)))) V and, where wanted, LSE, by the
/// kernel that `Traits` names.
/// Shapes   see ForwardArgs. Scope: host; asynchronous on `stream`, never allocates or waits, can
///          be captured.
/// Errors   what `check<Traits>(args)` says, before anything is launched, and splits, which need
///          scratch memory; else the launch's error.
template <class Traits>
[[nodiscard]] cudaError_t forward(const typename Traits::Args& args,
                                  cudaStream_t stream = nullptr) {
  static_assert(Traits::kDirection == Direction::kForward,
                "attile: forward takes ForwardTraits and ForwardArgs, not those of backward");
  if (const Check ok = check_arguments(args, Traits::kD, Traits::kDv); !ok) return ok.error;
  return detail::launch_forward<Traits>(args, stream);
}

/// Calls f(std::type_identity<Traits>{}) for the kernel that the one-call `forward` runs for these
/// arguments on the current device, that of the first family that takes them (families.cuh), and
/// returns what f does.
template <int D, int Dv = D, class Args, class F>
auto with_forward_kernel(const Args& args, const F& f) {
  if (!check_arguments(args, D, Dv)) {
    return detail::FamiliesOfAny::template forward<D, Dv>(args, f);
  }
  return detail::AllFamilies::template forward<D, Dv>(args, f);
}

/// Returns the bytes of scratch memory of the one call, or the sentence of `check`.
template <int D, int Dv = D, ForwardPass Args>
WorkspaceSize workspace_size(const Args& args) {
  if (const Check ok = check_arguments(args, D, Dv); !ok) return {ok};
  return detail::AllFamilies::template forward<D, Dv>(args, [&](auto kernel) {
    return detail::forward_workspace<typename decltype(kernel)::type>(args);
  });
}

/// Says why the one-call `forward` would refuse these arguments.
template <int D, int Dv = D, ForwardPass Args>
Check check(const Args& args) {
  return workspace_size<D, Dv>(args).check;
}

/// Computes a forward pass with the default tiles, in one call: `forward<64>(args, stream)`.
/// head_dim is at most D (Dv).
template <int D, int Dv = D, ForwardPass Args>
[[nodiscard]] cudaError_t forward(const Args& args, cudaStream_t stream = nullptr) {
  if (const Check ok = check_arguments(args, D, Dv); !ok) return ok.error;
  return detail::AllFamilies::template forward<D, Dv>(args, [&](auto kernel) {
    return detail::launch_forward<typename decltype(kernel)::type>(args, stream);
  });
}

/// Run `forward` by the two-call habit of `backward`: for callers that treat both alike, and faster
/// where sequences have lengths of their own, or the mask kUnevenRows, under a causal mask up to
/// 192 columns, and where V in fp8 has more than 128 columns: that is transposed in the scratch
/// memory, which is then as large as V.
/// Scratch  with a null `workspace` nothing is launched, and `workspace_bytes`, a variable, is set
///          to the bytes that the call needs; else device memory of that size, aligned to 16 bytes.
template <class Traits>
[[nodiscard]] cudaError_t forward(void* workspace, WorkspaceBytes workspace_bytes,
                                  const typename Traits::Args& args,
                                  cudaStream_t stream = nullptr) {
  if (workspace == nullptr) {
    return detail::answer_size(workspace_bytes, workspace_size<Traits>(args));
  }
  Check ok = check_arguments(args, Traits::kD, Traits::kDv);
  if (ok) {
    ok = detail::check_forward_workspace<Traits>(args, workspace, workspace_bytes.value());
  }
  return ok ? detail::launch_forward<Traits>(args, stream, workspace) : ok.error;
}
template <int D, int Dv = D, ForwardPass Args>
[[nodiscard]] cudaError_t forward(void* workspace, WorkspaceBytes workspace_bytes, const Args& args,
                                  cudaStream_t stream = nullptr) {
  if (workspace == nullptr) {
    return detail::answer_size(workspace_bytes, workspace_size<D, Dv>(args));
  }
  if (const Check ok = check_arguments(args, D, Dv); !ok) return ok.error;
  return detail::AllFamilies::template forward<D, Dv>(args, [&](auto kernel) {
    using Traits = typename decltype(kernel)::type;
    const Check ok =
        detail::check_forward_workspace<Traits>(args, workspace, workspace_bytes.value());
    return ok ? detail::launch_forward<Traits>(args, stream, workspace) : ok.error;
  });
}

/// Returns the name of the kernel that the one-call `forward` runs for these arguments: "sm90
/// forward, Br 128, Bc 128, D 128, Dv 128"; "no kernel: check says why" without a device or with
/// arguments that no kernel takes.
template <int D, int Dv = D, ForwardPass Args>
const char* kernel_name(const Args& args) {
  if (arch::device_architecture() == 0 || !check_arguments(args, D, Dv)) return detail::kNoKernel;
  return with_forward_kernel<D, Dv>(
      args, [](auto kernel) { return kernel_name<typename decltype(kernel)::type>(); });
}

}  // namespace attile
