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

/// The largest dynamic shared memory of a block on any device: 227 KB (compute capability 9.0 and
/// 10.0; 163 KB on 8.0, 99 KB on 8.6, 8.9 and 12.0).
inline constexpr std::size_t kMaxSharedBytes = 232448;

/// Returns the block's dynamic shared memory, aligned to 1024 bytes as panels of 128-byte rows must
/// be.
ATTILE_DEVICE unsigned char* dynamic_shared() {
  extern __shared__ __align__(1024) unsigned char attile_dynamic_shared[];
  return attile_dynamic_shared;
}

namespace detail {

/// The dynamic shared memory that a kernel may use without permission. Units: bytes.
inline constexpr std::size_t kAlwaysAllowed = 48 << 10;

/// Asks the runtime to allow a kernel that much dynamic shared memory.
template <class... Params>
cudaError_t ask_for_shared(void (*kernel)(Params...), std::size_t bytes) {
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(bytes));
}

/// Allows a kernel that much dynamic shared memory, unless `known` says that it is allowed already.
/// `known` is the entry of the kernel on the current device, or null.
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

/// Allows `kernel` that much dynamic shared memory on the current device. The runtime is not asked
/// again for what it has allowed. Errors: those of the runtime.
template <class... Params>
[[nodiscard]] cudaError_t allow_shared(void (*kernel)(Params...), std::size_t bytes) {
  if (bytes <= detail::kAlwaysAllowed) return cudaSuccess;
  KernelInfo info{};
  return detail::allow_shared(kernel, bytes, detail::answers_of(kernel, info));
}

/// Returns a launch configuration without attributes.
inline cudaLaunchConfig_t launch_config(unsigned blocks, unsigned threads, std::size_t shared_bytes,
                                        cudaStream_t stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  return config;
}

/// Returns the launch attribute for clusters of `blocks` blocks.
inline cudaLaunchAttribute cluster_dimension(unsigned blocks) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = blocks;
  attribute.val.clusterDim.y = 1;
  attribute.val.clusterDim.z = 1;
  return attribute;
}

namespace detail {

/// Launches a kernel. A device that was reset after the kernel was allowed its shared memory has
/// lost that permission; the runtime is then asked again.
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

/// Returns whether the driver can capture programmatic dependent launches in a graph: CUDA 12.3 or
/// later.
inline bool driver_captures_dependents() {
  static const bool captures = [] {
    int version = 0;
    return cudaDriverGetVersion(&version) == cudaSuccess && version >= 12030;
  }();
  return captures;
}

/// Launches a kernel in clusters; every launch of the library goes through here or through
/// `launch_dependent`. Returns the error of the launch itself.
/// Units    blocks: each `cluster` neighbours in the grid run at the same time and access each
///          other's shared memory (cluster.cuh). `cluster` divides `blocks`.
/// Errors   cudaErrorInvalidConfiguration where it does not; those of the runtime, as for any
///          cluster of more than 1 before compute capability 9.0.
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

/// Sets memory to 0 on the stream.
[[nodiscard]] inline cudaError_t clear(void* memory, std::size_t bytes, cudaStream_t stream) {
  return cudaMemsetAsync(memory, 0, bytes, stream);
}

/// Launches a kernel without clusters. Returns the error of the launch itself.
template <class... Params>
[[nodiscard]] cudaError_t launch(void (*kernel)(Params...), unsigned blocks, unsigned threads,
                                 std::size_t shared_bytes, cudaStream_t stream,
                                 const Params&... params) {
  return launch_clusters<Params...>(kernel, 1, blocks, threads, shared_bytes, stream, params...);
}

/// Launches a kernel whose blocks may begin before the previous kernel of the stream has ended
/// (programmatic dependent launch): when all blocks of that one have called `launch_dependents`, or
/// have ended. Returns the error of the launch itself.
/// Barriers at least one block calls `await_dependencies` (grid_dependency.cuh) before it ends, so
///          that a wait for this kernel includes the previous one. A block accesses memory that the
///          previous kernel reads or writes only after its own `await_dependencies`, or after the
///          previous kernel has signalled it by flags, which must be cleared before that kernel
///          lets this one begin.
/// It launches as `launch` does where the code that would run lacks the wait, because it was
/// compiled for an architecture before 9.0, whatever the device; and where the driver is older than
/// CUDA 12.3, which could not capture the launch.
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
