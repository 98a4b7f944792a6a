// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/device.cuh>
#include <attile/arch/launch.cuh>
#include <attile/core/append.h>
#include <attile/core/status.h>
#include <attile/kernel/append/append_kernel.cuh>
#include <attile/kernel/append/append_params.cuh>

namespace attile {

/// Says why `append` would refuse these arguments on the current device.
template <class E, class S, class R>
Check check_append(const AppendArgs<E, S, R>& args) {
  if (const Check ok = check_arguments(args); !ok) return ok;
  using Args = AppendArgs<E, S, R>;
  return arch::check_launch(append_kernel<Args>, 0, AppendParams<Args>(args).items.tiles);
}

/// Writes the keys and values of the newest rows into a cache, and rotates these keys and, where
/// wanted, the queries of the same rows: a step of generation calls it before `decode` or
/// `forward`, with the same sequences.
/// Shapes   see AppendArgs.
/// Scope    host; asynchronous on `stream`, never allocates or waits, can be captured: lengths,
///          tables and indices are read on the device.
/// Errors   what `check_append(args)` says, before anything is launched; else the launch's error.
///          What device memory says is found out there: `dropped` counts rows without a row in the
///          cache.
template <class E, class S, class R>
[[nodiscard]] cudaError_t append(const AppendArgs<E, S, R>& args, cudaStream_t stream = nullptr) {
  if (const Check ok = check_arguments(args); !ok) return ok.error;
  using Args = AppendArgs<E, S, R>;
  const AppendParams<Args> params(args);
  const Check ready = arch::check_launch(append_kernel<Args>, 0, params.items.tiles);
  if (!ready) return ready.error;
  if (params.items.tiles == 0) return cudaSuccess;
  return arch::launch_dependent(append_kernel<Args>, row_item_blocks(params.items.tiles),
                                kRowItemThreads, 0, stream, params);
}

}  // namespace attile
