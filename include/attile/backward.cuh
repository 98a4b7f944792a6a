// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/device.cuh>
#include <attile/arch/launch.cuh>
#include <attile/core/args.h>
#include <attile/core/check.h>
#include <attile/core/math.h>
#include <attile/core/status.h>
#include <attile/core/workspace.h>
#include <attile/families.cuh>
#include <attile/kernel/backward/backward_kernel.cuh>
#include <attile/kernel/backward/sink_gradient.cuh>
#include <attile/kernel/portable/backward.cuh>
#include <attile/kernel/problem/kernel_name.h>
#include <attile/refused_calls.h>
#include <attile/tuning.cuh>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace attile {

/// Names the traits of backward kernels with the caller's tiles: Br query rows by Bc key rows,
/// head_dim up to D (Dv for V). E: an element type, or Elements; the policies in any order, or a
/// bundle of all as the first one. Their arguments are `BackwardTraits<...>::Args`. The tuning's
/// namespace is the family: `sm80::BackwardTuning<>`, the default but for kTwoPass,
/// `sm90::BackwardTuning<>` (16-bit types), or `portable::Tuning<>`.
template <int Br, int Bc, int D, class E, class First = NoMask, class Second = NoScoreMod,
          class Third = NoDropout, int Dv = D, DqMode kMode = DqMode::kAccumulate,
          class Tuning = DefaultBackwardTuning<kMode>>
using BackwardTraits =
    typename Tuning::template Backward<Br, Bc, D, ElementsOf<E>, Policies<First, Second, Third>, Dv,
                                       kMode>;

namespace detail {

/// Holds the number of blocks of each kernel of a backward pass.
struct BackwardBlocks {
  std::int64_t preprocess, kv_blocks, q_tiles, postprocess;
};

template <class Traits>
BackwardBlocks backward_blocks(const typename Traits::Args& args) {
  const std::int64_t row_blocks = q_slot_count<Traits>(args) * args.q_heads;
  const std::int64_t kv_blocks = kv_slot_count<Traits>(args) * args.kv_heads;
  const bool counts = Traits::kDqMode == DqMode::kInOrder && kv_blocks > 0;
  const bool lists =
      (kIsPacked<typename Traits::SequencesType> || Traits::kSortsLastKvBlocks) && kv_blocks > 0;
  // At least one block: it sets the block counter, or lists or sorts kv blocks, and a gradient is
  // zeroed without rows too.
  const bool one = counts || lists || gradient_lines(args.score_mod, score_shape(args)) > 0;
  return {one ? max<std::int64_t>(row_blocks, 1) : row_blocks, kv_blocks,
          Traits::kDqMode == DqMode::kTwoPass ? row_blocks : 0,
          Traits::kDqMode == DqMode::kTwoPass ? 0 : row_blocks};
}

/// Launches all kernels of a pass. The first one begins after all earlier work on the stream, as an
/// earlier call may still use the same workspace; the others may begin while the one before ends.
template <class Traits>
cudaError_t launch_backward(const typename Traits::Args& args,
                            const typename Traits::Params& params, cudaStream_t stream) {
  const BackwardBlocks blocks = backward_blocks<Traits>(args);
  bool first = true;
  const auto launch = [&](auto kernel, std::int64_t count, unsigned threads, std::size_t shared) {
    if (count == 0) return cudaSuccess;
    const auto number = static_cast<unsigned>(count);
    if (!std::exchange(first, false)) {
      return arch::launch_dependent(kernel, number, threads, shared, stream, params);
    }
    return arch::launch(kernel, number, threads, shared, stream, params);
  };
  if (const auto error = launch(backward_preprocess_kernel<Traits>, blocks.preprocess,
                                kPreprocessThreads<Traits>, kPreprocessSharedBytes<Traits>)) {
    return error;
  }
  if (const auto error =
          launch(kv_kernel<Traits>(), blocks.kv_blocks, Traits::kThreads, Traits::kKvSharedBytes)) {
    return error;
  }
  const auto launch_last = [&] {
    if constexpr (Traits::kDqMode == DqMode::kTwoPass) {
      return launch(portable::backward_q_kernel<Traits>, blocks.q_tiles, Traits::kThreads,
                    Traits::kRowsSharedBytes);
    } else {
      return launch(backward_postprocess_kernel<Traits>, blocks.postprocess, Traits::kDqThreads,
                    Traits::kDqSharedBytes);
    }
  };
  if (const auto error = launch_last()) return error;
  if constexpr (Traits::SinkType::kEnabled) {
    float* const dsinks = args.sink.gradient();
    if (dsinks == nullptr) return cudaSuccess;
    int batch = args.batch, tiles = params.q_tiles;
    if constexpr (kIsPacked<typename Traits::SequencesType>) {
      batch = 1, tiles = params.all_q_slots;
    }
    const int parts = tiles * kSinkParts<Traits>;
    return launch_sum_sinks({params.sink_parts, dsinks, batch, args.q_heads, parts}, first, stream);
  }
  return cudaSuccess;
}

/// Returns what the kernels and the device say of arguments that passed `check_arguments`.
template <class Traits>
Check check_backward(const typename Traits::Args& args) {
  if (Traits::kDqMode != DqMode::kAccumulate && !adds_once(args.score_mod, score_shape(args))) {
    return refuse(
        "kTwoPass and kInOrder: scores add to an element of score_mod's gradient in no "
        "fixed order; give it an element for each score, or take kAccumulate");
  }
  const BackwardBlocks blocks = backward_blocks<Traits>(args);
  std::int64_t most =
      max(max(blocks.preprocess, blocks.kv_blocks), max(blocks.q_tiles, blocks.postprocess));
  // Kv blocks are numbered by the bounds, or where sequences are packed as they begin, with more
  // numbers for those that ascend (kv_block_of).
  if constexpr (kIsPacked<typename Traits::SequencesType>) {
    most = max(most, (Traits::kAlternatesFrom > 0 ? 3 : 1) * blocks.kv_blocks);
  } else {
    most = max(most, std::int64_t{args.batch} * args.kv_heads * ceil_div(args.kv_len, Traits::kBc));
  }
  return arch::check_launch(kv_kernel<Traits>(), Traits::kKvSharedBytes, most,
                            Traits::kLeastArchitecture);
}

/// Returns the same, with the tensors; it takes no workspace, which the result does not depend on.
template <class Traits>
Check check_backward_tensors(const typename Traits::Args& args) {
  if (const Check ok = check_backward<Traits>(args); !ok) return ok;
  const auto as_read = without_unread_strides(args);
  return backward_params<Traits>(as_read, nullptr).complete(as_read);
}

/// Runs `backward` with a workspace for arguments that passed `check_arguments`.
template <class Traits>
[[nodiscard]] cudaError_t run_backward(void* workspace, std::size_t workspace_bytes,
                                       const typename Traits::Args& args, cudaStream_t stream) {
  const Check ready = first_refusal(
      check_backward<Traits>(args),
      check_workspace(workspace, workspace_bytes, backward_workspace<Traits>(args).bytes));
  if (!ready) return ready.error;
  const auto as_read = without_unread_strides(args);
  auto params = backward_params<Traits>(as_read, workspace);
  if (const Check ok = params.complete(as_read); !ok) return ok.error;
  return launch_backward<Traits>(args, params, stream);
}

}  // namespace detail

/// Says in one sentence why `backward` would refuse these arguments on the current device.
/// Launches nothing.
template <class Traits>
Check check(const typename Traits::Args& args) requires(Traits::kDirection ==
                                                        Direction::kBackward) {
  if (const Check ok = check_arguments(args, Traits::kD, Traits::kDv); !ok) return ok;
  return detail::check_backward_tensors<Traits>(args);
}

/// Says the same of a call that computes: also why it would refuse this workspace, a null one
/// included, with which `backward` computes nothing.
template <class Traits>
Check check(const typename Traits::Args& args, const void* workspace,
            std::size_t workspace_bytes) requires(Traits::kDirection == Direction::kBackward) {
  if (const Check arguments = check<Traits>(args); !arguments) return arguments;
  return check_workspace(workspace, workspace_bytes, backward_workspace<Traits>(args).bytes);
}

/// Returns the bytes of scratch memory that `backward` needs (see BackwardWorkspace), or the
/// sentence of `check`.
template <class Traits>
WorkspaceSize workspace_size(const typename Traits::Args& args) requires(Traits::kDirection ==
                                                                         Direction::kBackward) {
  if (const Check ok = check<Traits>(args); !ok) return {ok};
  return {{}, backward_workspace<Traits>(args).bytes};
}

/// Computes dQ, dK and dV by the kernels that `Traits` names, and the gradients of policies.
/// Scratch  with a null `workspace` nothing is launched: `workspace_bytes`, a variable, is set to
///          the bytes that the call needs (`workspace_size`). Else `workspace` is device memory of
///          at least that size, aligned to 16 bytes, in use until the work on `stream` is done;
///          `workspace_bytes` may then be a constant.
/// Shapes   see BackwardArgs. Scope: host; asynchronous on `stream`, never allocates or waits, can
///          be captured.
/// Errors   what `check<Traits>(args, workspace, workspace_bytes)` says, or without a workspace
///          `check<Traits>(args)`, before anything is launched; else the first launch's error.
template <class Traits>
[[nodiscard]] cudaError_t backward(void* workspace, WorkspaceBytes workspace_bytes,
                                   const typename Traits::Args& args,
                                   cudaStream_t stream = nullptr) {
  static_assert(Traits::kDirection == Direction::kBackward,
                "attile: backward takes BackwardTraits and BackwardArgs, not those of forward");
  if (workspace == nullptr) {
    return detail::answer_size(workspace_bytes, workspace_size<Traits>(args));
  }
  if (const Check ok = check_arguments(args, Traits::kD, Traits::kDv); !ok) return ok.error;
  return detail::run_backward<Traits>(workspace, workspace_bytes.value(), args, stream);
}

/// Calls f(std::type_identity<Traits>{}) for the kernels that the one-call `backward` runs for
/// these arguments on the current device, and returns what f does; as `with_forward_kernel`.
template <int D, int Dv = D, DqMode kMode = DqMode::kAccumulate, class Args, class F>
auto with_backward_kernel(const Args& args, const F& f) {
  if (!check_arguments(args, D, Dv)) {
    return detail::FamiliesOfAny::template backward<D, Dv, kMode>(args, f);
  }
  return detail::AllFamilies::template backward<D, Dv, kMode>(args, f);
}

/// Returns the bytes of scratch memory of the one call, or the sentence of `check`.
template <int D, int Dv = D, DqMode kMode = DqMode::kAccumulate, BackwardPass Args>
WorkspaceSize workspace_size(const Args& args) {
  if (const Check ok = check_arguments(args, D, Dv); !ok) return {ok};
  return detail::AllFamilies::template backward<D, Dv, kMode>(args, [&](auto kernel) {
    using Traits = typename decltype(kernel)::type;
    return WorkspaceSize{detail::check_backward_tensors<Traits>(args),
                         backward_workspace<Traits>(args).bytes};
  });
}

/// Say why the one-call `backward` would be refused, without and with a workspace.
template <int D, int Dv = D, DqMode kMode = DqMode::kAccumulate, BackwardPass Args>
Check check(const Args& args) {
  return workspace_size<D, Dv, kMode>(args).check;
}
template <int D, int Dv = D, DqMode kMode = DqMode::kAccumulate, BackwardPass Args>
Check check(const Args& args, const void* workspace, std::size_t workspace_bytes) {
  const WorkspaceSize size = workspace_size<D, Dv, kMode>(args);
  return size ? check_workspace(workspace, workspace_bytes, size.bytes) : size.check;
}

/// Computes a backward pass with the default tiles, in one call: `backward<64>(workspace,
/// workspace_bytes, args, stream)`; `backward<64, 64, DqMode::kInOrder>` gives the same bits at
/// every run. Ask for the workspace with the arguments of the call: their addresses and strides
/// decide which kernels run, and so its size.
template <int D, int Dv = D, DqMode kMode = DqMode::kAccumulate, BackwardPass Args>
[[nodiscard]] cudaError_t backward(void* workspace, WorkspaceBytes workspace_bytes,
                                   const Args& args, cudaStream_t stream = nullptr) {
  if (workspace == nullptr) {
    return detail::answer_size(workspace_bytes, workspace_size<D, Dv, kMode>(args));
  }
  if (const Check ok = check_arguments(args, D, Dv); !ok) return ok.error;
  return detail::AllFamilies::template backward<D, Dv, kMode>(args, [&](auto kernel) {
    return detail::run_backward<typename decltype(kernel)::type>(workspace, workspace_bytes.value(),
                                                                 args, stream);
  });
}

/// Returns the name of the kernel that the one-call `backward` runs for these arguments, as for
/// `forward`.
template <int D, int Dv = D, DqMode kMode = DqMode::kAccumulate, BackwardPass Args>
const char* kernel_name(const Args& args) {
  if (arch::device_architecture() == 0 || !check_arguments(args, D, Dv)) return detail::kNoKernel;
  return with_backward_kernel<D, Dv, kMode>(
      args, [](auto kernel) { return kernel_name<typename decltype(kernel)::type>(); });
}

}  // namespace attile
