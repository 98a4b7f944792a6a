// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/args.h>
#include <attile/core/check.h>
#include <attile/core/status.h>
#include <attile/core/tensor.h>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/device_memory.h"
#include "support/policies.h"
#include "support/tensors.h"

namespace attile_test {

/// Runs `launch(args on the device) -> cudaError_t` and brings everything back, also what it should
/// not have written.
template <class Args, class Launch>
attile::Check run_on_device(Args args, const std::vector<Region>& regions, const Launch& launch) {
  DeviceMemory memory(regions);
  if (memory.error() == cudaSuccess) {
    const auto move = [&](const void* host) { return memory.device(host); };
    Relocate<decltype(move)>{move}(args);
    memory.keep(launch(args));
    memory.keep(cudaDeviceSynchronize());
    memory.copy_back();
  }
  if (memory.error() == cudaSuccess) return {};
  return {memory.error(), cudaGetErrorString(memory.error())};
}

/// Scratch memory filled with NaN, with a guard behind it.
class GuardedWorkspace {
 public:
  explicit GuardedWorkspace(std::size_t bytes) : bytes_(bytes) {
    if (cudaMalloc(&data_, bytes + kGuard) != cudaSuccess) return;
    static_cast<void>(cudaMemset(data_, 0xFF, bytes + kGuard));
  }
  GuardedWorkspace(const GuardedWorkspace&) = delete;
  GuardedWorkspace& operator=(const GuardedWorkspace&) = delete;
  ~GuardedWorkspace() { static_cast<void>(cudaFree(data_)); }

  void* get() const { return data_; }

  /// An error when something was written behind the workspace.
  cudaError_t check() const {
    unsigned char guard[kGuard];
    const unsigned char* end = static_cast<unsigned char*>(data_) + bytes_;
    if (const auto error = cudaMemcpy(guard, end, kGuard, cudaMemcpyDeviceToHost)) return error;
    for (const unsigned char byte : guard) {
      if (byte != 0xFF) return cudaErrorIllegalAddress;
    }
    return cudaSuccess;
  }

 private:
  static constexpr std::size_t kGuard = 256;

  void* data_ = nullptr;
  std::size_t bytes_;
};

/// The forward pass of the same problem, with another O and without LSE.
template <class E, class P>
attile::Arguments<attile::Direction::kForward, E, P> forward_of(
    const attile::Arguments<attile::Direction::kBackward, E, P>& a, typename E::O* o) {
  const int dim = attile::head_dims(a, 0, 0).v;
  return {
      .q = a.q,
      .k = a.k,
      .v = a.v,
      .o = attile::bhsd(
          o, {.rows = a.sequences.q_shape(a.batch, a.q_len).rows, .heads = a.q_heads, .dim = dim}),
      .batch = a.batch,
      .q_heads = a.q_heads,
      .kv_heads = a.kv_heads,
      .q_len = a.q_len,
      .kv_len = a.kv_len,
      .head_dim = a.head_dim,
      .head_dim_v = a.head_dim_v,
      .scale = a.scale,
      .mask = a.mask,
      .score_mod = a.score_mod,
      .dropout = a.dropout,
      .sequences = a.sequences,
      .sink = a.sink};
}

/// Calls one pass with a workspace of just the size that it asks for.
template <class Call>
[[nodiscard]] cudaError_t with_workspace(const Call& call) {
  std::size_t bytes = 0;
  if (const auto error = call(nullptr, bytes)) return error;
  const GuardedWorkspace workspace(bytes);
  if (const auto error = call(workspace.get(), bytes)) return error;
  return workspace.check();
}

}  // namespace attile_test
