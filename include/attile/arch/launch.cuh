// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>

#include <cuda_runtime.h>

#include <cstddef>

#define ATTILE_KERNEL __global__
#define ATTILE_LAUNCH_BOUNDS(threads, blocks_per_sm) __launch_bounds__(threads, blocks_per_sm)
#define ATTILE_GRID_CONSTANT __grid_constant__

namespace attile::arch {

/// The most dynamic shared memory that a block can have on any device: 227 KB (compute capability
/// 9.0 and 10.0; 163 KB on 8.0, 99 KB on 8.6, 8.9 and 12.0).
inline constexpr std::size_t kMaxSharedBytes = 232448;

/// The block's dynamic shared memory, aligned to 1024 bytes, as panels of 128-byte rows have to be.
ATTILE_DEVICE unsigned char* dynamic_shared() {
  extern __shared__ __align__(1024) unsigned char attile_dynamic_shared[];
  return attile_dynamic_shared;
}

/// Allows `kernel` that much dynamic shared memory. Errors: those of the runtime.
template <class... Params>
[[nodiscard]] cudaError_t allow_shared(void (*kernel)(Params...), std::size_t bytes) {
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(bytes));
}

/// The launch of every kernel of the library. Returns the launch's own error.
template <class... Params>
[[nodiscard]] cudaError_t launch(void (*kernel)(Params...), unsigned blocks, unsigned threads,
                                 std::size_t shared_bytes, cudaStream_t stream,
                                 const Params&... params) {
  if (const cudaError_t error = allow_shared(kernel, shared_bytes)) return error;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, params...);
}

}  // namespace attile::arch
