// SPDX-License-Identifier: MIT
#pragma once

#include <attile/append.cuh>
#include <attile/host/append.h>

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

/// Holds the bits of every case against those of the CPU.
template <class Append>
void check_bits_of_cpu(const Append& append) {
  for (const AppendCase& c : append_cases()) {
    INFO(c.name);
    AppendProblem<__half, attile::Paged, attile::Rotary<>> problem(c), on_cpu(c);
    REQUIRE(attile::host::append(on_cpu.args([](auto* x) { return x; })));
    REQUIRE(append(problem) == std::string());
    CHECK(problem.has_results_of(on_cpu));
  }
}

}  // namespace attile_test
