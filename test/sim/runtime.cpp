// SPDX-License-Identifier: MIT
// The functions of the CUDA run-time library that the tests and the library call. Device memory is
// the machine's; everything is synchronous.
#include <cuda_runtime_api.h>

#include <cstring>

#include "sim/machine.h"

extern "C" {

cudaError_t cudaMalloc(void** address, std::size_t bytes) {
  *address = bytes == 0 ? nullptr : sim::allocate(bytes);
  return cudaSuccess;
}

cudaError_t cudaFree(void* address) {
  return address == nullptr || sim::release_memory(address) ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  std::memcpy(to, from, bytes);
  if (kind == cudaMemcpyHostToDevice) sim::initialise(to, bytes);
  return sim::last_error();
}

cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  std::memset(to, value, bytes);
  sim::initialise(to, bytes);
  return sim::last_error();
}

cudaError_t cudaDeviceSynchronize() { return sim::last_error(); }
cudaError_t cudaGetLastError() { return sim::last_error(); }

const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess ? "no error" : "an error of the simulated machine";
}

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorNotSupported:
      return "cudaErrorNotSupported";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    default:
      return "unrecognized error code";
  }
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
}
