// SPDX-License-Identifier: MIT
#pragma once

// FlashAttention-1 (arXiv 2205.14135, Algorithms 2 and 4) is here to be studied and compared with:
// the outer loop goes over K and V; O, l and m stay in device memory. It is not part of attile.cuh;
// `forward` and `backward` there are FlashAttention-2.
#include <attile/arch/device.cuh>
#include <attile/arch/launch.cuh>
#include <attile/backward.cuh>
#include <attile/core/check.h>
#include <attile/core/math.h>
#include <attile/core/status.h>
#include <attile/core/tensor.h>
#include <attile/core/workspace.h>
#include <attile/kernel/portable/flash1_forward.cuh>

#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace attile::flash1 {

using State = portable::Flash1State;

/// Names the traits of a forward kernel with the caller's tiles.
template <int Br, int Bc, int D, class E, class First = NoMask, class Second = NoScoreMod,
          class Third = NoDropout, int Dv = D, class Tuning = portable::Tuning<>>
using ForwardTraits = portable::Flash1ForwardTraits<Br, Bc, D, ElementsOf<E>,
                                                    Policies<First, Second, Third>, Dv, Tuning>;

/// Names the traits of backward kernels with the caller's tiles.
template <int Br, int Bc, int D, class E, class First = NoMask, class Second = NoScoreMod,
          class Third = NoDropout, int Dv = D, class Tuning = portable::Tuning<>>
using BackwardTraits =
    portable::BackwardTraits<Br, Bc, D, ElementsOf<E>, Policies<First, Second, Third>, Dv,
                             DqMode::kInOrder, Tuning>;

namespace detail {

/// Return the default tiles. Those of K and V are large, since each costs a pass over Q and O in
/// device memory. They nearly fill 227 KB beside the rows of Q; in the backward pass at D = 64 the
/// sums of dK and dV fill the registers first. They are not tuned for time.
constexpr attile::detail::Tiles forward_tiles(int dim) {
  if (dim <= 64) return {64, 256, 256, 1};
  if (dim <= 128) return {32, 176, 256, 1};
  return {16, 96, 256, 1};
}
constexpr attile::detail::Tiles backward_tiles(int dim) {
  if (dim <= 64) return {16, 256, 256, 1};
  if (dim <= 128) return {16, 176, 256, 1};
  return {16, 80, 256, 1};
}

template <class Args, int D, int Dv>
struct Default {
  static constexpr auto kForward = forward_tiles(D > Dv ? D : Dv);
  static constexpr auto kBackward =
      attile::detail::fitted<typename Args::MaskType>(backward_tiles(D > Dv ? D : Dv));
  using E = typename Args::Elements;
  using P = typename Args::Policies;
  using Forward =
      ForwardTraits<kForward.br, kForward.bc, D, E, P, NoScoreMod, NoDropout, Dv,
                    portable::Tuning<portable::TuningValues{
                        .threads = kForward.threads, .blocks_per_sm = kForward.blocks_per_sm}>>;
  using Backward =
      BackwardTraits<kBackward.br, kBackward.bc, D, E, P, NoScoreMod, NoDropout, Dv,
                     portable::Tuning<portable::TuningValues{
                         .threads = kBackward.threads, .blocks_per_sm = kBackward.blocks_per_sm}>>;
};

/// Returns the arguments for FlashAttention-2's backward kernels, with m as LSE.
template <class Args>
Args with_state(Args args, const State& state) {
  args.lse = state.m;
  return args;
}

/// Checks l, m and rng of the state. `others`: memory that none of the three may be.
template <class DropoutType>
Check check_state(const State& state, bool rows, std::initializer_list<const void*> others) {
  if (rows && state.l == nullptr) return refuse("l of the state is null");
  if (rows && state.m == nullptr) return refuse("m of the state is null");
  using attile::detail::misaligned;
  if (misaligned(state.l)) return refuse("l of the state is not aligned to 4 bytes");
  if (misaligned(state.m)) return refuse("m of the state is not aligned to 4 bytes");
  if (misaligned(state.rng)) return refuse("rng of the state is not aligned to 8 bytes");
  if (rows && state.l == state.m) return refuse("l and m of the state share their memory");
  for (const void* other : others) {
    if (rows && other != nullptr && (other == state.l || other == state.m || other == state.rng)) {
      return refuse("l, m or rng of the state is the memory of a tensor or of lse");
    }
  }
  if (state.rng != nullptr && DropoutType::kEnabled && !portable::kHasSavedState<DropoutType>) {
    return refuse("rng of the state is given, but this dropout has no seed and offset to save");
  }
  return {};
}

template <class Traits>
std::int64_t forward_blocks(const typename Traits::Args& args) {
  if (longest_lengths(args).q_len == 0) return 0;
  return std::int64_t{args.batch} * args.q_heads *
         ceil_div(args.q_len, Traits::kBr * Traits::kSlabTiles);
}

/// Returns the size of the fp32 sums of a 16-bit O. Units: bytes.
template <class Traits>
std::size_t forward_bytes(const typename Traits::Args& args) {
  if (Traits::kSumsInOutput) return 16;
  const int v = head_dims(args, Traits::kD, Traits::kDv).v;
  const RowShape shape = args.sequences.q_shape(args.batch, args.q_len);
  const std::size_t rows = static_cast<std::size_t>(shape.all_rows()) * args.q_heads;
  return max<std::size_t>(sizeof(float) * rows * round_up(v, 4), 16);
}

/// Returns the bytes of scratch memory that a call needs.
template <class Traits>
std::size_t needed_bytes(const typename Traits::Args& args) {
  if constexpr (Traits::kDirection == Direction::kForward) {
    return forward_bytes<Traits>(args);
  } else {
    return backward_workspace<Traits>(args).bytes;
  }
}

}  // namespace detail

/// Name the kernels that the one-call `forward` and `backward` run for these arguments. Their tiles
/// need the 227 KB of shared memory that a block has on compute capability 9.0 and 10.0.
template <class Args, int D, int Dv = D>
using DefaultForwardTraits = typename detail::Default<Args, D, Dv>::Forward;
template <class Args, int D, int Dv = D>
using DefaultBackwardTraits = typename detail::Default<Args, D, Dv>::Backward;

/// Says in one sentence why `forward` would refuse these arguments. Launches nothing.
template <class Traits>
Check check(const typename Traits::Args& args,
            const State& state) requires(Traits::kDirection == Direction::kForward) {
  const Check arguments = check_arguments(args, Traits::kD, Traits::kDv);
  if (!arguments) return arguments;
  const std::int64_t blocks = detail::forward_blocks<Traits>(args);
  const Check ok = detail::check_state<typename Traits::DropoutType>(
      state, blocks > 0, {args.q.data, args.k.data, args.v.data, args.o.data, args.lse});
  if (!ok) return ok;
  return arch::check_launch(portable::flash1_forward_kernel<Traits>, Traits::kSharedBytes, blocks);
}

/// Says the same for `backward`; args.lse is not read.
template <class Traits>
Check check(const typename Traits::Args& args,
            const State& state) requires(Traits::kDirection == Direction::kBackward) {
  const bool rows = args.batch > 0 && longest_lengths(args).q_len > 0;
  const Check ok = detail::check_state<typename Traits::DropoutType>(
      state, rows, {args.dq.data, args.dk.data, args.dv.data});
  if (!ok) return ok;
  return attile::check<Traits>(detail::with_state(args, state));
}

/// Says the same of a call that computes: also why it would refuse this workspace, null included.
template <class Traits>
Check check(const typename Traits::Args& args, const State& state, const void* workspace,
            std::size_t workspace_bytes) {
  if (const Check ok = check<Traits>(args, state); !ok) return ok;
  return check_workspace(workspace, workspace_bytes, detail::needed_bytes<Traits>(args));
}

/// Computes O, l, m and the state of dropout's random numbers; also LSE, where args.lse wants it.
/// Scratch  as in attile::backward; fp32 needs none (16 bytes), 16-bit types 4 * round_up(Dv, 4)
///          bytes for each query row, where O is summed up.
/// Shapes   see ForwardArgs and State. Scope: host; asynchronous on `stream`, never allocates or
///          waits, can be captured.
/// Source   arXiv 2205.14135, Algorithm 2.
/// Errors   what `check<Traits>(args, state, workspace, workspace_bytes)` says, or without a
///          workspace `check<Traits>(args, state)`, before anything is launched; else the launch's.
template <class Traits>
[[nodiscard]] cudaError_t forward(void* workspace, WorkspaceBytes workspace_bytes,
                                  const typename Traits::Args& args, const State& state,
                                  cudaStream_t stream = nullptr) requires(Traits::kDirection ==
                                                                          Direction::kForward) {
  if (const Check ok = check<Traits>(args, state); !ok) return ok.error;
  const std::size_t needed = detail::needed_bytes<Traits>(args);
  if (const auto answer = attile::detail::answer_workspace(workspace, workspace_bytes, needed)) {
    return *answer;
  }
  const std::int64_t blocks = detail::forward_blocks<Traits>(args);
  if (blocks == 0) return cudaSuccess;
  const auto as_read = without_unread_strides(args);
  Tensor<float> sums;
  if constexpr (Traits::kSumsInOutput) {
    sums = as_read.o;
  } else {
    const int v = head_dims(args, Traits::kD, Traits::kDv).v;
    const RowShape shape = args.sequences.q_shape(args.batch, args.q_len);
    sums = bhsd(static_cast<float*>(workspace),
                {.rows = shape.rows, .heads = args.q_heads, .dim = round_up(v, 4)});
  }
  const portable::Flash1Params<Traits> params(as_read, sums, state);
  return arch::launch(portable::flash1_forward_kernel<Traits>, static_cast<unsigned>(blocks),
                      static_cast<unsigned>(Traits::kThreads), Traits::kSharedBytes, stream,
                      params);
}

/// Computes dQ, dK and dV from O, l and m of `forward`. With PhiloxDropout, args.dropout draws from
/// what was saved: `.seed_pointer = state.rng` and `.offset_pointer = state.rng + 1`.
/// D = rowsum(dO * O) is computed once for each row, and not again for each tile of K and V
/// (Algorithm 4, line 19).
/// Scratch  as in attile::backward, and so are Shapes, Scope and Errors.
/// Source   arXiv 2205.14135, Algorithm 4.
template <class Traits>
[[nodiscard]] cudaError_t backward(void* workspace, WorkspaceBytes workspace_bytes,
                                   const typename Traits::Args& args, const State& state,
                                   cudaStream_t stream = nullptr) requires(Traits::kDirection ==
                                                                           Direction::kBackward) {
  if (const Check ok = check<Traits>(args, state); !ok) return ok.error;
  const auto with_m = without_unread_strides(detail::with_state(args, state));
  const std::size_t needed = detail::needed_bytes<Traits>(with_m);
  if (const auto answer = attile::detail::answer_workspace(workspace, workspace_bytes, needed)) {
    return *answer;
  }
  return attile::detail::launch_backward<Traits>(
      with_m, backward_params<Traits>(with_m, workspace, state.l), stream);
}

/// Compute a pass with the default tiles, in one call.
template <int D, int Dv = D, ForwardPass Args>
[[nodiscard]] cudaError_t forward(void* workspace, WorkspaceBytes workspace_bytes, const Args& args,
                                  const State& state, cudaStream_t stream = nullptr) {
  return forward<DefaultForwardTraits<Args, D, Dv>>(workspace, workspace_bytes, args, state,
                                                    stream);
}
template <int D, int Dv = D, BackwardPass Args>
[[nodiscard]] cudaError_t backward(void* workspace, WorkspaceBytes workspace_bytes,
                                   const Args& args, const State& state,
                                   cudaStream_t stream = nullptr) {
  return backward<DefaultBackwardTraits<Args, D, Dv>>(workspace, workspace_bytes, args, state,
                                                      stream);
}

}  // namespace attile::flash1
