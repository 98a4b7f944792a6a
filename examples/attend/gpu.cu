// SPDX-License-Identifier: MIT
#include <attile/dispatch.cuh>

#include <cuda_runtime.h>

#include <cstddef>
#include <string>
#include <vector>

#include "run.h"

namespace attend {
namespace {

void require(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  throw npy::Error(std::string("The GPU cannot ") + what + ": " + cudaGetErrorString(error) + ".");
}

/// Device memory: a copy of host values, or uninitialised.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t n) : size_(n) {
    if (n > 0) require(cudaMalloc(&data_, bytes()), "hold the tensors");
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    require(cudaMemcpy(data_, values.data(), bytes(), cudaMemcpyHostToDevice), "take the inputs");
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  void copy_to(std::vector<T>& values) const {
    require(cudaMemcpy(values.data(), data_, bytes(), cudaMemcpyDeviceToHost), "run the kernels");
  }
  T* data() const { return data_; }
  std::size_t bytes() const { return size_ * sizeof(T); }

 private:
  T* data_ = nullptr;
  std::size_t size_;
};

/// Times work on the default stream.
class Stopwatch {
 public:
  Stopwatch() {
    require(cudaEventCreate(&start_), "measure time");
    require(cudaEventCreate(&stop_), "measure time");
  }
  ~Stopwatch() {
    cudaEventDestroy(start_);
    cudaEventDestroy(stop_);
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  template <class Work>
  double elapsed_ms(const Work& work) const {
    float ms = 0;
    require(cudaEventRecord(start_), "measure time");
    work();
    require(cudaEventRecord(stop_), "measure time");
    require(cudaEventSynchronize(stop_), "run the kernels");
    require(cudaEventElapsedTime(&ms, start_, stop_), "measure time");
    return ms;
  }

 private:
  cudaEvent_t start_ = nullptr;
  cudaEvent_t stop_ = nullptr;
};

std::string device_name() {
  int device = 0;
  cudaDeviceProp properties{};
  require(cudaGetDevice(&device), "be asked for its name");
  require(cudaGetDeviceProperties(&properties, device), "be asked for its name");
  return std::string(properties.name) + ", compute capability " +
         std::to_string(properties.major) + "." + std::to_string(properties.minor);
}
