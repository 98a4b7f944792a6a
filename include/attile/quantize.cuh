// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/device.cuh>
#include <attile/arch/launch.cuh>
#include <attile/core/math.h>
#include <attile/core/quantize.h>
#include <attile/core/status.h>
#include <attile/kernel/quantize/quantize_kernel.cuh>

#include <cstdint>

namespace attile {

/// Says why `quantize` would refuse these arguments on the current device.
template <class T, class E, class S>
Check check_quantize(const QuantizeArgs<T, E, S>& args) {
  if (const Check ok = check_arguments(args); !ok) return ok;
  using Args = QuantizeArgs<T, E, S>;
  return arch::check_launch(quantize_kernel<Args>, 0, QuantizeParams<Args>(args).tiles());
}

/// Rounds Q, K and V to fp8, and makes the scales of a forward pass with them: from the largest
/// absolute values of the tensor, or of each sequence and kv head. Where a call before has made the
/// scales that are wanted, of other tensors, `append` rounds with them.
/// Shapes   see QuantizeArgs.
/// Scope    host; asynchronous on `stream`, never allocates or waits, can be captured.
/// Errors   what `check_quantize(args)` says, before anything is launched; else the launch's error.
template <class T, class E, class S>
[[nodiscard]] cudaError_t quantize(const QuantizeArgs<T, E, S>& args,
                                   cudaStream_t stream = nullptr) {
  if (const Check ok = check_quantize(args); !ok) return ok.error;
  using Args = QuantizeArgs<T, E, S>;
  if (args.batch == 0) return cudaSuccess;
  const QuantizeParams<Args> params(args);
  const auto tiles = static_cast<unsigned>(params.tiles());
  const auto blocks =
      static_cast<unsigned>(ceil_div<std::int64_t>(params.scales(), kQuantizeThreads));
  const auto launch = [&](auto kernel, unsigned count) {
    if (count == 0) return cudaSuccess;
    return arch::launch(kernel, count, unsigned{kQuantizeThreads}, 0, stream, params);
  };
  if (const auto error = launch(quantize_scales_kernel<Args, false>, blocks)) return error;
  if (const auto error = launch(quantize_maxima_kernel<Args>, tiles)) return error;
  if (const auto error = launch(quantize_scales_kernel<Args, true>, blocks)) return error;
  return launch(quantize_kernel<Args>, tiles);
}

}  // namespace attile
