// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>

#include <cuda_runtime.h>

#include <cstddef>

#include "sim/machine.h"

// The simulated counterpart of include/attile/arch/launch.cuh.

#define ATTILE_KERNEL
#define ATTILE_LAUNCH_BOUNDS(threads, blocks_per_sm)
#define ATTILE_GRID_CONSTANT

namespace attile::arch {

inline constexpr std::size_t kMaxSharedBytes = sim::kMaxSharedBytes;

inline unsigned char* dynamic_shared() { return sim::dynamic_shared(); }

template <class... Params>
[[nodiscard]] cudaError_t allow_shared(void (*)(Params...), std::size_t bytes) {
  return bytes <= kMaxSharedBytes ? cudaSuccess : cudaErrorInvalidValue;
}

[[nodiscard]] inline cudaError_t clear(void* memory, std::size_t bytes, cudaStream_t) {
  return cudaMemset(memory, 0, bytes);
}

template <class... Params>
[[nodiscard]] cudaError_t launch_clusters(void (*kernel)(Params...), unsigned cluster,
                                          unsigned blocks, unsigned threads,
                                          std::size_t shared_bytes, cudaStream_t,
                                          const Params&... params) {
  if (const cudaError_t error = allow_shared(kernel, shared_bytes)) return error;
  return sim::launch({blocks, threads, shared_bytes, cluster}, [&] { kernel(params...); });
}

template <class... Params>
[[nodiscard]] cudaError_t launch(void (*kernel)(Params...), unsigned blocks, unsigned threads,
                                 std::size_t shared_bytes, cudaStream_t stream,
                                 const Params&... params) {
  return launch_clusters<Params...>(kernel, 1, blocks, threads, shared_bytes, stream, params...);
}

/// Runs behind the launch before; what would be wrong beside it is reported.
template <class... Params>
[[nodiscard]] cudaError_t launch_dependent(void (*kernel)(Params...), unsigned blocks,
                                           unsigned threads, std::size_t shared_bytes, cudaStream_t,
                                           const Params&... params) {
  if (const cudaError_t error = allow_shared(kernel, shared_bytes)) return error;
  return sim::launch({blocks, threads, shared_bytes, 1, true}, [&] { kernel(params...); });
}

}  // namespace attile::arch
