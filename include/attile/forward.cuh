// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/device.cuh>
#include <attile/arch/launch.cuh>
#include <attile/core/args.h>
#include <attile/core/check.h>
#include <attile/core/status.h>
#include <attile/kernel/portable/forward.cuh>
#include <attile/kernel/sm80/forward.cuh>
#include <attile/kernel/sm90/forward.cuh>
#include <attile/kernel/with_tiles.cuh>
#include <attile/tuning.cuh>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace attile {

/// The traits of a forward kernel with the caller's tiles: Br query rows by Bc key rows, head_dim
/// up to D (Dv for V). Takes `ForwardTraits<...>::Args`. The tuning's namespace is the family:
/// `sm80::Tuning<>`, `sm90::Tuning<>` (16-bit types), or `portable::Tuning<>`.
template <int Br, int Bc, int D, Element T, Mask M = NoMask, ScoreMod S = NoScoreMod,
          Dropout P = NoDropout, int Dv = D, class Tuning = sm80::Tuning<>>
using ForwardTraits = typename Tuning::template Forward<Br, Bc, D, T, M, S, P, Dv>;

// The caller's own launch (after `check`):
//   forward_prepare<K>();
//   forward_kernel<K><<<forward_blocks<K>(args), forward_threads<K>(), forward_shared_bytes<K>(),
//                       stream>>>(forward_params<K>(args));
// With sm90::Tuning's Cluster above 1, by cudaLaunchKernelEx and that cluster dimension.
// Nothing is to be launched when forward_blocks is 0.

/// Blocks of the grid. Units: blocks along x; 0 when there is nothing to compute.
template <class Traits>
unsigned forward_blocks(const typename Traits::Args& args) {
  return static_cast<unsigned>(forward_block_count<Traits>(args));
}

/// Threads of a block, along x.
template <class Traits>
constexpr unsigned forward_threads() {
  return Traits::kThreads;
}

/// Dynamic shared memory of a block. Units: bytes.
template <class Traits>
constexpr std::size_t forward_shared_bytes() {
  return Traits::kSharedBytes;
}

/// Allows the kernel its shared memory on the current device; once is enough.
template <class Traits>
[[nodiscard]] cudaError_t forward_prepare() {
  return arch::allow_shared(forward_kernel<Traits>, forward_shared_bytes<Traits>());
}

/// Says in one sentence why `forward` would refuse these arguments on the current device.
/// Launches nothing.
template <class Traits>
Check check(const typename Traits::Args& args) requires(Traits::kDirection == Direction::kForward) {
  if (const Check arguments = check_arguments(args, Traits::kD, Traits::kDv); !arguments) {
    return arguments;
  }
  if constexpr (Traits::kLeastArchitecture > 0) {
    const Check architecture =
        arch::check_architecture(forward_kernel<Traits>, Traits::kLeastArchitecture);
    if (!architecture) return architecture;
  }
  const Check grid = arch::check_launch(forward_kernel<Traits>, Traits::kSharedBytes,
                                        Traits::kCluster * Traits::Params::tile_count(args));
  if (!grid) return grid;
  if constexpr (Traits::kLeastArchitecture >= 900) return sm90::check_family<Traits>(args);
  return {};
}

/// O = dropout(softmax(mask(score_mod(scale Q K^T)))) V and, where wanted, LSE, by the kernel that
/// `Traits` names.
/// Shapes   see ForwardArgs. Scope: host; asynchronous on `stream`, never allocates or waits, can
///          be captured.
/// Errors   what `check<Traits>(args)` says, before anything is launched; else the launch's error.
template <class Traits>
[[nodiscard]] cudaError_t forward(const typename Traits::Args& args,
                                  cudaStream_t stream = nullptr) {
  if (const Check ok = check<Traits>(args); !ok) return ok.error;
  const unsigned blocks = forward_blocks<Traits>(args);
  if (blocks == 0) return cudaSuccess;
  return arch::launch_clusters(forward_kernel<Traits>, Traits::kCluster, blocks,
                               forward_threads<Traits>(), forward_shared_bytes<Traits>(), stream,
                               forward_params<Traits>(args));
}

/// Calls f(std::type_identity<Traits>{}) for the kernel that the one-call `forward` runs for these
/// arguments on the current device, and returns what f does: the sm80 kernel, with the largest
/// tiles that the device takes of those for the architectures that this file is compiled for; for
/// 16-bit types on compute capability 9.0, where the file is compiled for 90a and copies can
/// address the inputs, the sm90 kernel; the portable one where the device would run code for an
/// architecture before 8.0.
template <int D, int Dv = D, class Args, class F>
auto with_forward_kernel(const Args& args, const F& f) {
  if constexpr (sizeof(typename Args::ElementType) == 2 &&
                arch::compiled_for([](int a) { return a == 900; })) {
    using Traits = sm90::DefaultForwardTraits<Args, D, Dv>;
    using Packed = sm90::DefaultForwardTraits<Args, D, Dv, sm90::Rows::kPacked>;
    using Many = sm90::DefaultForwardTraits<Args, D, Dv, sm90::Rows::kMany>;
    if (check_arguments(args, D, Dv) && sm90::runs<Traits>(args)) {
      if (sm90::packing_pays<Traits, Packed>(args)) return f(std::type_identity<Packed>{});
      if constexpr (std::is_same_v<typename Args::MaskType, Causal>) {
        if (args.q_len >= sm90::many_rows(max(D, Dv))) return f(std::type_identity<Many>{});
      }
      return f(std::type_identity<Traits>{});
    }
  }
  return detail::with_tiles(
      [](auto kb) { return forward_kernel<sm80::DefaultForwardTraits<Args, D, Dv, kb.value>>; },
      [&](auto kb) {
        return f(std::type_identity<portable::DefaultForwardTraits<Args, D, Dv, kb.value>>{});
      },
      [&](auto kb) {
        return f(std::type_identity<sm80::DefaultForwardTraits<Args, D, Dv, kb.value>>{});
      });
}

/// `check` for the one-call `forward`.
template <int D, int Dv = D, Element T, Mask M, ScoreMod S, Dropout P>
Check check(const ForwardArgs<T, M, S, P>& args) {
  return with_forward_kernel<D, Dv>(
      args, [&](auto kernel) { return check<typename decltype(kernel)::type>(args); });
}

/// The one call: `forward<64>(args, stream)`, with the default tiles. head_dim up to D (Dv).
template <int D, int Dv = D, Element T, Mask M, ScoreMod S, Dropout P>
[[nodiscard]] cudaError_t forward(const ForwardArgs<T, M, S, P>& args,
                                  cudaStream_t stream = nullptr) {
  return with_forward_kernel<D, Dv>(
      args, [&](auto kernel) { return forward<typename decltype(kernel)::type>(args, stream); });
}

}  // namespace attile
