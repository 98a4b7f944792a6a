// SPDX-License-Identifier: MIT
#pragma once

#include <attile/quantize.cuh>

#include <cuda_runtime_api.h>

#include <string>

#include "support/device_memory.h"
#include "support/quantize.h"

namespace attile_test {

/// Runs attile::quantize on copies of a problem's memory in device memory.
template <class Problem>
std::string quantize_on_device(Problem& problem) {
  DeviceMemory memory(problem.regions());
  auto args = problem.args();
  const auto move = [&]<class X>(X*& host) {
    if (host != nullptr) host = static_cast<X*>(memory.device(host));
  };
  move(args.q.data), move(args.k.data), move(args.v.data);
  move(args.q_out.data), move(args.k_out.data), move(args.v_out.data);
  move(args.q_scale.data), move(args.k_scale.data), move(args.v_scale.data);
  move(args.sequences.seqused_q), move(args.sequences.seqused_k);
  if (memory.error() == cudaSuccess) {
    memory.keep(attile::quantize(args));
    memory.keep(cudaDeviceSynchronize());
    memory.copy_back();
  }
  return memory.error() == cudaSuccess ? "" : cudaGetErrorString(memory.error());
}

}  // namespace attile_test
