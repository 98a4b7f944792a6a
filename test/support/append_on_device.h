// SPDX-License-Identifier: MIT
#pragma once

#include <attile/append.cuh>

#include <cuda_runtime_api.h>

#include <string>

#include "support/append.h"
#include "support/device_memory.h"

namespace attile_test {

/// Runs attile::append on copies of a problem's memory in device memory.
template <class Problem>
std::string append_on_device(Problem& problem) {
  DeviceMemory memory(problem.regions());
  const auto at = [&]<class X>(X* host) { return static_cast<X*>(memory.device(host)); };
  if (memory.error() == cudaSuccess) {
    memory.keep(attile::append(problem.args(at)));
    memory.keep(cudaDeviceSynchronize());
    memory.copy_back();
  }
  return memory.error() == cudaSuccess ? "" : cudaGetErrorString(memory.error());
}

}  // namespace attile_test
