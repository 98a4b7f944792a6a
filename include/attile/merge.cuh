// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/device.cuh>
#include <attile/arch/launch.cuh>
#include <attile/core/merge.h>
#include <attile/core/status.h>
#include <attile/kernel/merge/merge_kernel.cuh>
#include <attile/kernel/merge/merge_params.cuh>

namespace attile {

/// Says why `merge` would refuse these arguments on the current device.
template <class E, class T, class S, class K>
Check check_merge(const MergeArgs<E, T, S, K>& args) {
  if (const Check ok = check_arguments(args); !ok) return ok;
  using Args = MergeArgs<E, T, S, K>;
  return arch::check_launch(merge_kernel<Args>, 0, MergeParams<Args>(args).items.tiles);
}

/// Merges results of attention over disjoint parts of the keys of the same queries into the result
/// over all of them: a prefix that sequences share and the suffix of each (a cascade), chunks of a
/// context, or parts that devices have computed.
/// Shapes   see MergeArgs.
/// Scope    host; asynchronous on `stream`, never allocates or waits, can be captured: lengths are
///          read on the device.
/// Errors   what `check_merge(args)` says, before anything is launched; else the launch's error.
template <class E, class T, class S, class K>
[[nodiscard]] cudaError_t merge(const MergeArgs<E, T, S, K>& args, cudaStream_t stream = nullptr) {
  if (const Check ok = check_arguments(args); !ok) return ok.error;
  using Args = MergeArgs<E, T, S, K>;
  const MergeParams<Args> params(args);
  const Check ready = arch::check_launch(merge_kernel<Args>, 0, params.items.tiles);
  if (!ready) return ready.error;
  if (params.items.tiles == 0) return cudaSuccess;
  return arch::launch_dependent(merge_kernel<Args>, row_item_blocks(params.items.tiles),
                                kRowItemThreads, 0, stream, params);
}

}  // namespace attile
