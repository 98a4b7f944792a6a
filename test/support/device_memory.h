// SPDX-License-Identifier: MIT
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/tensors.h"

namespace attile_test {

/// A copy of host regions in device memory, each in an allocation of its own, so that a read past
/// one is seen by compute-sanitizer.
class DeviceMemory {
 public:
  explicit DeviceMemory(const std::vector<Region>& regions) {
    for (const Region& host : regions) {
      if (host.bytes == 0) continue;
      void* device = nullptr;
      keep(cudaMalloc(&device, host.bytes));
      if (device == nullptr) continue;
      keep(cudaMemcpy(device, host.data, host.bytes, cudaMemcpyHostToDevice));
      pairs_.push_back({host, static_cast<unsigned char*>(device)});
    }
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory() {
    for (const Pair& p : pairs_) static_cast<void>(cudaFree(p.device));
  }

  /// The place on the device of a host pointer; null for one that lies in no region. The end of a
  /// region belongs to it where no other one begins there.
  void* device(const void* host) const {
    const auto at = reinterpret_cast<std::uintptr_t>(host);
    unsigned char* behind = nullptr;
    for (const Pair& p : pairs_) {
      const auto begin = reinterpret_cast<std::uintptr_t>(p.host.data);
      if (at < begin || at > begin + p.host.bytes) continue;
      unsigned char* const place = p.device + (at - begin);
      if (at < begin + p.host.bytes) return place;
      behind = place;
    }
    return behind;
  }

  void copy_back() {
    for (const Pair& p : pairs_) {
      keep(cudaMemcpy(p.host.data, p.device, p.host.bytes, cudaMemcpyDeviceToHost));
    }
  }

  /// The first error of any of this.
  cudaError_t error() const { return error_; }
  void keep(cudaError_t error) {
    if (error_ == cudaSuccess) error_ = error;
  }

 private:
  struct Pair {
    Region host;
    unsigned char* device;
  };

  std::vector<Pair> pairs_;
  cudaError_t error_ = cudaSuccess;
};

}  // namespace attile_test
