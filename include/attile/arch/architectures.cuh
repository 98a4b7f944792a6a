// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>
#include <attile/core/status.h>

#include <cuda_runtime.h>

// For which devices this file is compiled, and what the current one can do. Architectures are
// numbered as __CUDA_ARCH__ does: 100 * major + 10 * minor of a compute capability.

namespace attile::arch {

/// The architectures that nvcc was told to compile for; none where there is no CUDA compiler. All
/// files of a program that run the same kernels are to be compiled for the same ones.
inline constexpr int kArchitectures[] = {
#if defined(__CUDA_ARCH_LIST__)
    __CUDA_ARCH_LIST__
#elif ATTILE_CUDA_COMPILER
    750, 800, 860, 900  // a compiler that does not say: one of each kind
#else
    0
#endif
};

/// The most shared memory that a block can have. Units: KB of 1024 bytes.
/// Source   CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
constexpr int shared_kb(int architecture) {
  if (architecture == 800 || architecture == 870) return 163;
  return architecture >= 900 && architecture < 1200 ? 227 : 99;
}

/// Whether one of the architectures fulfils a condition.
template <class Condition>
constexpr bool compiled_for(const Condition& condition) {
  for (const int architecture : kArchitectures) {
    if (condition(architecture)) return true;
  }
  return false;
}

/// The shared memory that a block of the current device can have; 0 without a device. Units: KB.
inline int device_shared_kb() {
  int device = 0, bytes = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) !=
          cudaSuccess) {
    return 0;
  }
  return bytes / 1024;
}

/// Whether the code of `kernel` that the current device would run was compiled for an architecture
/// before `least`, so that it lacks what came with it. Not where there is no code at all.
template <class... Params>
bool lacks(void (*kernel)(Params...), int least) {
  cudaFuncAttributes attributes{};
  if (cudaFuncGetAttributes(&attributes, kernel) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());  // for check_launch to find and to say
    return false;
  }
  return attributes.ptxVersion * 10 < least;
}

/// Whether there is nothing in the code of `kernel` that the current device would run: it was not
/// compiled for an architecture with the family's own instructions ("90a", and not "90"). By its
/// registers, so not in code for a debugger (nvcc -G).
template <class... Params>
bool is_empty(void (*kernel)(Params...)) {
  constexpr int kFew = 16;  // registers; the tiles of a kernel take more
  cudaFuncAttributes attributes{};
  if (cudaFuncGetAttributes(&attributes, kernel) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());  // for check_launch to find and to say
    return false;
  }
  return attributes.numRegs <= kFew;
}

/// Compute capability of the current device; 0 without a device.
inline int device_architecture() {
  int device = 0, major = 0, minor = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess ||
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) != cudaSuccess) {
    return 0;
  }
  return 100 * major + 10 * minor;
}

/// `lacks` and `is_empty`, as a sentence.
template <class... Params>
Check check_architecture(void (*kernel)(Params...), int least) {
  const int device = device_architecture();
  if (device == 0) return {};  // for check_launch to find and to say
  if (least >= 900 && (device != 900 || lacks(kernel, least) || is_empty(kernel))) {
    return {cudaErrorNoKernelImageForDevice,
            "the kernel needs a device of compute capability 9.0, and to be compiled for its own "
            "instructions: for sm_90a, not sm_90"};
  }
  if (!lacks(kernel, least)) return {};
  return {cudaErrorNoKernelImageForDevice,
          "the kernel needs compute capability 8.0 or later, of the device and among those that it "
          "was compiled for"};
}

}  // namespace attile::arch
