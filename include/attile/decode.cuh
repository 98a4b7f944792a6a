// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/device.cuh>
#include <attile/arch/launch.cuh>
#include <attile/core/args.h>
#include <attile/core/check.h>
#include <attile/core/element.h>
#include <attile/core/policies.h>
#include <attile/core/status.h>
#include <attile/core/workspace.h>
#include <attile/families.cuh>
#include <attile/forward.cuh>

#include <cstddef>

// Forward passes of few rows of queries against many keys: a new row for each sequence of a cache,
// or some (drafts, a chunk of a prompt). Their kernels read K and V once for all query heads that
// share them, and may split the keys of a row over blocks (Splits).

namespace attile {

/// Names the traits of a decode kernel with the caller's tiles: Br packed rows (every query head of
/// a kv head has as many as the sequence) by Bc keys, head_dim up to D (Dv for V). Its arguments
/// are `DecodeTraits<...>::Args`, and its entry points those of `forward`: check<Traits>(args),
/// workspace_size<Traits>(args), forward<Traits>(workspace, bytes, args, stream).
template <int Br, int Bc, int D, class E, class First = NoMask, class Second = NoScoreMod,
          class Third = NoDropout, int Dv = D, class Tuning = sm80::DecodeTuning<>>
using DecodeTraits =
    typename Tuning::template Decode<Br, Bc, D, ElementsOf<E>, Policies<First, Second, Third>, Dv>;

namespace detail {

/// Calls f(std::type_identity<Traits>{}, args) for the kernel that the one call runs, and returns
/// what f does. The portable family gives all keys of a row to one block: of arguments for it the
/// splits are `none`.
template <int D, int Dv, class Args, class F>
auto with_decode_kernel(const Args& args, const F& f) {
  if constexpr (!Dims<D, Dv>::kRight) {
    return PortableFamily::forward<64, 64>(args, [&](auto kernel) { return f(kernel, args); });
  } else if constexpr (Sm80Family::kCompiled) {
    if (Sm80Family::kTakesAll || Sm80Family::takes_decode<D, Dv>(args)) {
      return Sm80Family::decode<D, Dv>(args, [&](auto kernel) { return f(kernel, args); });
    }
  }
  if constexpr (Dims<D, Dv>::kRight && !Sm80Family::kTakesAll) {
    Args unsplit = args;
    unsplit.splits = {};
    return PortableFamily::forward<D, Dv>(unsplit, [&](auto kernel) { return f(kernel, unsplit); });
  }
}

}  // namespace detail

/// Returns the bytes of scratch memory of `decode`, or the sentence of `check_decode`. They depend
/// on the device, the splits, max_blocks, the bounds and the shapes, and not on lengths in device
/// memory.
template <int D, int Dv = D, ForwardPass Args>
WorkspaceSize decode_workspace_size(const Args& args) {
  if (const Check ok = check_arguments(args, D, Dv); !ok) return {ok};
  return detail::with_decode_kernel<D, Dv>(args, [](auto kernel, const Args& its_args) {
    return detail::forward_workspace<typename decltype(kernel)::type>(its_args);
  });
}

/// Says why the one-call `decode` would refuse these arguments on the current device.
template <int D, int Dv = D, ForwardPass Args>
Check check_decode(const Args& args) {
  return decode_workspace_size<D, Dv>(args).check;
}

/// Says the same of a call that computes with scratch memory: also why it would refuse this
/// workspace, null included. It cannot see whether `reset_workspace` has made it ready.
template <int D, int Dv = D, ForwardPass Args>
Check check_decode(const Args& args, const void* workspace, std::size_t workspace_bytes) {
  if (const Check ok = check_arguments(args, D, Dv); !ok) return ok;
  return detail::with_decode_kernel<D, Dv>(args, [&](auto kernel, const Args& its_args) {
    using Traits = typename decltype(kernel)::type;
    return check<Traits>(its_args, workspace, workspace_bytes);
  });
}

/// Computes what `forward` does, by kernels for few rows of queries: the faster choice up to some
/// dozens of rows of a kv head (q_len times its query heads). A row's bits depend on its own
/// sequence alone, but with Splits::fill, by which short batches fill the device.
/// Shapes   see ForwardArgs. Masks of block lists are refused when this is compiled.
/// Scope    host; asynchronous on `stream`, never allocates or waits, can be captured: the grid
///          follows from the arguments, and lengths are read on the device.
/// Scratch  by the two-call habit of `backward`. With splits it has to be ready (see
///          `reset_workspace`), and belongs to one call at a time: two streams want two.
/// Errors   what `check_decode<D>(args, workspace, workspace_bytes)` says, or without a workspace
///          `check_decode<D>(args)`, before anything is launched; else the launch's error.
template <int D, int Dv = D, ForwardPass Args>
[[nodiscard]] cudaError_t decode(void* workspace, WorkspaceBytes workspace_bytes, const Args& args,
                                 cudaStream_t stream = nullptr) {
  if (workspace == nullptr) {
    return detail::answer_size(workspace_bytes, decode_workspace_size<D, Dv>(args));
  }
  if (const Check ok = check_arguments(args, D, Dv); !ok) return ok.error;
  return detail::with_decode_kernel<D, Dv>(args, [&](auto kernel, const Args& its_args) {
    using Traits = typename decltype(kernel)::type;
    const Check ok =
        detail::check_forward_workspace<Traits>(its_args, workspace, workspace_bytes.value());
    return ok ? detail::launch_forward<Traits>(its_args, stream, workspace) : ok.error;
  });
}

/// Does the same without scratch memory: arguments whose splits are not `none` are refused.
template <int D, int Dv = D, ForwardPass Args>
[[nodiscard]] cudaError_t decode(const Args& args, cudaStream_t stream = nullptr) {
  if (const Check ok = check_arguments(args, D, Dv); !ok) return ok.error;
  return detail::with_decode_kernel<D, Dv>(args, [&](auto kernel, const Args& its_args) {
    return detail::launch_forward<typename decltype(kernel)::type>(its_args, stream);
  });
}

/// Makes scratch memory ready for `decode` with splits: once before the first call that takes it,
/// and again where a launch did not end, or something else has written there. Every call of
/// `decode` leaves it ready for the next one, whatever the arguments of both.
/// Scope    host; asynchronous on `stream`, can be captured.
[[nodiscard]] inline cudaError_t reset_workspace(void* workspace, std::size_t bytes,
                                                 cudaStream_t stream = nullptr) {
  if (workspace == nullptr) return bytes == 0 ? cudaSuccess : cudaErrorInvalidValue;
  return arch::clear(workspace, bytes, stream);
}

/// Returns the name of the kernel that `decode` runs for these arguments, as `kernel_name` does.
template <int D, int Dv = D, ForwardPass Args>
const char* decode_kernel_name(const Args& args) {
  if (arch::device_architecture() == 0 || !check_arguments(args, D, Dv)) return detail::kNoKernel;
  return detail::with_decode_kernel<D, Dv>(args, [](auto kernel, const Args&) {
    return kernel_name<typename decltype(kernel)::type>();
  });
}

}  // namespace attile
