// SPDX-License-Identifier: MIT
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <vector>

#include "support/catch.h"

namespace attile_test {

/// Device memory, filled with NaNs.
template <class T>
class Device {
 public:
  explicit Device(std::size_t size) : size_(size) {
    REQUIRE(cudaMalloc(&data_, bytes()) == cudaSuccess);
    REQUIRE(cudaMemset(data_, 0xFF, bytes()) == cudaSuccess);
  }
  explicit Device(const std::vector<T>& values) : Device(values.size()) {
    REQUIRE(cudaMemcpy(data_, values.data(), bytes(), cudaMemcpyHostToDevice) == cudaSuccess);
  }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device() { static_cast<void>(cudaFree(data_)); }

  T* get() const { return data_; }
  std::size_t bytes() const { return size_ * sizeof(T); }
  std::vector<T> download() const {
    std::vector<T> values(size_);
    REQUIRE(cudaMemcpy(values.data(), data_, bytes(), cudaMemcpyDeviceToHost) == cudaSuccess);
    return values;
  }

 private:
  T* data_ = nullptr;
  std::size_t size_;
};

}  // namespace attile_test
