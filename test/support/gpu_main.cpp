// SPDX-License-Identifier: MIT
#include <cuda_runtime_api.h>

#include "main.h"

const int attile_test::kSkipReturnCode = 77;

// Only "there is none" skips: a device that is there and does not work has to fail the tests.
const char* attile_test::reason_to_skip() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  const bool no_driver = error == cudaErrorInsufficientDriver || error == cudaErrorStubLibrary;
  const bool none = error == cudaErrorNoDevice || (error == cudaSuccess && count == 0);
  return no_driver || none ? "no CUDA device" : nullptr;
}
