// SPDX-License-Identifier: MIT
// What the example programs share: device arrays, random numbers, and errors that end the program.
#pragma once

#include <attile/core/element.h>

#include <cuda_runtime.h>

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <utility>
#include <vector>

namespace example {

/// What ctest takes for "skipped".
inline constexpr int kSkipped = 77;

/// Ends the program with what went wrong.
inline void must(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

/// Ends the program, as skipped, where there is no GPU.
inline void need_gpu() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess && count > 0) return;
  std::printf("skipped: no CUDA device\n");
  std::exit(kSkipped);
}

/// An array in device memory.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t size) : size_(size) {
    must(cudaMalloc(&data_, size * sizeof(T)), "cudaMalloc");
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    upload(values);
  }
  DeviceArray(DeviceArray&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { static_cast<void>(cudaFree(data_)); }

  T* get() const { return data_; }
  operator T*() const { return data_; }  // as kernels take it
  std::size_t size() const { return size_; }
  /// Takes as many values as there are elements.
  void upload(const std::vector<T>& values) const {
    must(cudaMemcpy(data_, values.data(), size_ * sizeof(T), cudaMemcpyHostToDevice), "upload");
  }
  std::vector<T> download() const {
    std::vector<T> values(size_);
    must(cudaMemcpy(values.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost), "download");
    return values;
  }

 private:
  T* data_ = nullptr;
  std::size_t size_;
};

/// Standard normal numbers.
template <class T>
std::vector<T> normal(std::size_t size, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> distribution;
  std::vector<T> values(size);
  for (T& value : values) value = attile::from_float<T>(distribution(generator));
  return values;
}

/// Returns from + by * along, for finite differences and steps along a gradient.
inline std::vector<float> moved(const std::vector<float>& from, const std::vector<float>& along,
                                double by) {
  std::vector<float> result(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) {
    result[i] = static_cast<float>(from[i] + by * along[i]);
  }
  return result;
}

/// The largest difference in absolute value; NaN where either has one.
template <class A, class B>
double max_difference(const std::vector<A>& a, const std::vector<B>& b) {
  double worst = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(difference <= worst) && !std::isnan(worst)) worst = difference;
  }
  return worst;
}

/// Prints a comparison; true when the difference is within the bound (a NaN is not).
inline bool report(const char* what, double difference, double bound) {
  std::printf("%-6s max error %.2e (bound %.2e)\n", what, difference, bound);
  return difference <= bound;
}

}  // namespace example
