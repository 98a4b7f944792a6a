// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/device.cuh>
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

namespace detail {

/// Dynamic shared memory that any kernel may take.
inline constexpr std::size_t kAlwaysAllowed = 48 << 10;

template <class... Params>
cudaError_t ask_for_shared(void (*kernel)(Params...), std::size_t bytes) {
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(bytes));
}

/// `known`: what is known of the kernel on the current device, or null.
template <class... Params>
cudaError_t allow_shared(void (*kernel)(Params...), std::size_t bytes, KernelAnswers* known) {
  if (bytes <= kAlwaysAllowed) return cudaSuccess;
  if (known != nullptr && known->shared_bytes.load() >= bytes) {
    return cudaSuccess;
  }
  const cudaError_t error = ask_for_shared(kernel, bytes);
  if (error == cudaSuccess && known != nullptr) {
    known->shared_bytes.store(bytes);
  }
  return error;
}

}  // namespace detail

/// Allows `kernel` that much dynamic shared memory on the current device. What has been allowed is
/// not asked for again. Errors: those of the runtime.
template <class... Params>
[[nodiscard]] cudaError_t allow_shared(void (*kernel)(Params...), std::size_t bytes) {
  if (bytes <= detail::kAlwaysAllowed) return cudaSuccess;
  KernelInfo info{};
  return detail::allow_shared(kernel, bytes, detail::answers_of(kernel, info));
}

inline cudaLaunchConfig_t launch_config(unsigned blocks, unsigned threads, std::size_t shared_bytes,
                                        cudaStream_t stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  return config;
}

inline cudaLaunchAttribute cluster_dimension(unsigned blocks) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = blocks;
  attribute.val.clusterDim.y = 1;
  attribute.val.clusterDim.z = 1;
  return attribute;
}

namespace detail {

/// The launch itself. A device that has been reset since a kernel was allowed its shared memory has
/// forgotten that, and is told again.
template <class... Params>
cudaError_t launch(const cudaLaunchConfig_t& config, void (*kernel)(Params...),
                   const Params&... params) {
  const cudaError_t error = cudaLaunchKernelEx(&config, kernel, params...);
  if (error != cudaErrorInvalidValue || config.dynamicSmemBytes <= kAlwaysAllowed) return error;
  static_cast<void>(cudaGetLastError());
  if (const cudaError_t refused = ask_for_shared(kernel, config.dynamicSmemBytes)) return refused;
  return cudaLaunchKernelEx(&config, kernel, params...);
}

}  // namespace detail

/// Whether a `launch_dependent` can be captured in a graph.
inline bool driver_captures_dependents() {
  static const bool captures = [] {
    int version = 0;
    return cudaDriverGetVersion(&version) == cudaSuccess && version >= 12030;
  }();
  return captures;
}

/// The launch of every kernel of the library. Returns the launch's own error.
/// Units    blocks; `cluster` of them, neighbours in the grid, run at the same time and reach each
///          other's shared memory (cluster.cuh). It divides `blocks`.
/// Errors   cudaErrorInvalidConfiguration where it does not; the runtime's, as for any cluster of
///          more than 1 before compute capability 9.0.
template <class... Params>
[[nodiscard]] cudaError_t launch_clusters(void (*kernel)(Params...), unsigned cluster,
                                          unsigned blocks, unsigned threads,
                                          std::size_t shared_bytes, cudaStream_t stream,
                                          const Params&... params) {
  if (cluster == 0 || blocks % cluster != 0) return cudaErrorInvalidConfiguration;
  if (const cudaError_t error = allow_shared(kernel, shared_bytes)) return error;
  cudaLaunchAttribute dimension = cluster_dimension(cluster);
  cudaLaunchConfig_t config = launch_config(blocks, threads, shared_bytes, stream);
  if (cluster > 1) {
    config.attrs = &dimension;
    config.numAttrs = 1;
  }
  return detail::launch<Params...>(config, kernel, params...);
}

/// The same without clusters.
template <class... Params>
[[nodiscard]] cudaError_t launch(void (*kernel)(Params...), unsigned blocks, unsigned threads,
                                 std::size_t shared_bytes, cudaStream_t stream,
                                 const Params&... params) {
  return launch_clusters<Params...>(kernel, 1, blocks, threads, shared_bytes, stream, params...);
}

/// The same behind a kernel that this thread has just launched on the stream, which may not have
/// ended when blocks of this one begin. One block at least comes to `await_dependencies`
/// (grid_dependency.cuh) before it ends, so that whoever waits for this kernel has waited for that
/// one too. What any block does with what that kernel reads or writes is behind its own
/// `await_dependencies`, or behind what that kernel has told it of by flags, which then must not
/// let this one begin before they are cleared.
/// As `launch` where the code that would run lacks the wait, because it was compiled for an
/// architecture before 9.0, whatever the device; and where the driver is older than CUDA 12.3,
/// which could not capture it.
template <class... Params>
[[nodiscard]] cudaError_t launch_dependent(void (*kernel)(Params...), unsigned blocks,
                                           unsigned threads, std::size_t shared_bytes,
                                           cudaStream_t stream, const Params&... params) {
  KernelInfo code{};
  detail::KernelAnswers* const known = detail::answers_of(kernel, code);
  if (const cudaError_t error = detail::allow_shared(kernel, shared_bytes, known)) return error;
  cudaLaunchAttribute serialization{};
  serialization.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  serialization.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = launch_config(blocks, threads, shared_bytes, stream);
  config.attrs = &serialization;
  config.numAttrs = driver_captures_dependents() && !code.lacks(900) ? 1 : 0;
  return detail::launch<Params...>(config, kernel, params...);
}

}  // namespace attile::arch
