// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/status.h>

#include <cuda_runtime.h>

#include <climits>
#include <cstddef>
#include <cstdint>

namespace attile::arch {

/// Multiprocessors of the current device; 1 without a device.
inline int multiprocessors() {
  int device = 0, count = 1;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) != cudaSuccess) {
    return 1;
  }
  return count;
}

/// Whether a grid of `blocks` blocks with `shared_bytes` of dynamic shared memory each could be
/// launched on the current device; a sentence that says why not. Launches nothing.
template <class... Params>
Check check_launch(void (*kernel)(Params...), std::size_t shared_bytes, std::int64_t blocks) {
  if (blocks > INT_MAX) return refuse("the problem has more than 2^31 - 1 tiles");
  int device = 0;
  if (const cudaError_t error = cudaGetDevice(&device)) {
    return {error, "there is no usable CUDA device"};
  }
  int limit = 0;
  if (const cudaError_t error =
          cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, device)) {
    return {error, "the CUDA device does not tell its shared memory limit"};
  }
  if (shared_bytes > static_cast<std::size_t>(limit)) {
    return {cudaErrorInvalidConfiguration,
            "the kernel's tiles need more shared memory than a block of this device can have"};
  }
  cudaFuncAttributes attributes{};
  if (const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel)) {
    if (error != cudaErrorInvalidDeviceFunction && error != cudaErrorNoKernelImageForDevice) {
      return {error, "the CUDA runtime cannot load the kernel, or reports an earlier error"};
    }
    static_cast<void>(cudaGetLastError());  // said here; not to be found by the caller's next look
    return {error, "the kernel was not compiled for the architecture of this device"};
  }
  return {};
}

}  // namespace attile::arch
