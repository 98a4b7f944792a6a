// SPDX-License-Identifier: MIT
#include <attile/dispatch.cuh>

#include <cuda_runtime.h>

#include <algorithm>
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

void require(attile::Check check) {
  if (!check) throw npy::Error(std::string("The GPU refuses: ") + check.why + ".");
}

/// One problem's tensors in device memory.
template <class T>
struct DeviceTensors {
  DeviceArray<T> q, k, v, dout, o, dq, dk, dv;
  DeviceArray<float> lse, sinks, dsinks;
  DeviceArray<int> cu_seqlens_q, cu_seqlens_k;

  DeviceTensors(const Problem& p, const Tensors<T>& t)
      : q(t.q),
        k(t.k),
        v(t.v),
        dout(t.dout),
        o(t.o.size()),
        dq(t.dq.size()),
        dk(t.dk.size()),
        dv(t.dv.size()),
        lse(t.lse.size()),
        sinks(t.sinks),
        dsinks(t.dsinks.size()),
        cu_seqlens_q(p.cu_seqlens_q),
        cu_seqlens_k(p.cu_seqlens_k) {}

  Pointers<T> pointers() const { return pointers_to<T>(*this, *this); }
};

template <class Sequences, class T>
Times time_forward(const Problem& p, const Pointers<T>& at, const Stopwatch& watch,
                   const Pace& pace) {
  const auto args = forward_args<Sequences>(p, at);
  require(attile::dispatch::check(args));
  return times_of("forward on the GPU", pace, [&] {
    return watch.elapsed_ms([&] { require(attile::dispatch::forward(args), "run the kernels"); });
  });
}

/// Adds the workspace to `bytes`.
template <class Sequences, class T>
Times time_backward(const Problem& p, const Pointers<T>& at, const Stopwatch& watch,
                    const Pace& pace, std::size_t& bytes) {
  const auto args = backward_args<Sequences>(p, at);
  require(attile::dispatch::check(args));
  std::size_t size = 0;
  require(attile::dispatch::backward(nullptr, size, args), "run the kernels");
  const DeviceArray<unsigned char> workspace(size);
  bytes += size;
  return times_of("backward on the GPU", pace, [&] {
    return watch.elapsed_ms([&] {
      require(attile::dispatch::backward(workspace.data(), size, args), "run the kernels");
    });
  });
}

/// The families of the kernels that run, of some D up to 128 or of some above: all of those take
/// the same.
template <int kMostDim, class Sequences, class T>
std::string families(const Problem& p, const Pointers<T>& at) {
  const std::string forward = attile::with_forward_kernel<kMostDim>(
      forward_args<Sequences>(p, at), [](auto kernel) { return decltype(kernel)::type::kFamily; });
  const std::string behind = attile::with_backward_kernel<kMostDim>(
      backward_args<Sequences>(p, at), [](auto kernel) { return decltype(kernel)::type::kFamily; });
  return !p.backward || forward == behind ? forward : forward + " forward, " + behind + " backward";
}

}  // namespace

std::string why_no_gpu() {
  // Without a driver the runtime says that the driver is too old.
  int driver = 0;
  if (cudaDriverGetVersion(&driver) == cudaSuccess && driver == 0) {
    return "no NVIDIA driver is installed";
  }
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) return cudaGetErrorString(error);
  return count > 0 ? "" : "no CUDA device is there";
}

std::string gpu_name() {
  int device = 0;
  cudaDeviceProp properties{};
  require(cudaGetDevice(&device), "be asked for its name");
  require(cudaGetDeviceProperties(&properties, device), "be asked for its name");
  return std::string(properties.name) + ", compute capability " + std::to_string(properties.major) +
         "." + std::to_string(properties.minor);
}

template <class T>
Run run_on_gpu(const Problem& p, Tensors<T>& tensors, const Pace& pace) {
  Run run;
  run.bytes = tensors.bytes();
  const DeviceTensors<T> device(p, tensors);
  const Pointers<T> at = device.pointers();
  const Stopwatch watch;
  // Rows of no sequence are not written.
  require(cudaMemset(at.o, 0, device.o.bytes()), "take the inputs");
  require(cudaMemset(at.lse, 0, device.lse.bytes()), "take the inputs");
  for (const auto* gradient : {&device.dq, &device.dk, &device.dv}) {
    require(cudaMemset(gradient->data(), 0, gradient->bytes()), "take the inputs");
  }
  with_sequences(p, [&]<class Sequences>() {
    run.family = std::max(p.head_dim, p.head_dim_v) <= 128 ? families<128, Sequences>(p, at)
                                                           : families<256, Sequences>(p, at);
    run.forward = time_forward<Sequences>(p, at, watch, pace);
    if (p.backward) run.backward = time_backward<Sequences>(p, at, watch, pace, run.bytes);
  });
  run.three_products = sizeof(T) == 4 && run.family.find("sm80") != std::string::npos;
  device.o.copy_to(tensors.o);
  device.lse.copy_to(tensors.lse);
  if (!p.backward) return run;
  device.dq.copy_to(tensors.dq);
  device.dk.copy_to(tensors.dk);
  device.dv.copy_to(tensors.dv);
  device.dsinks.copy_to(tensors.dsinks);
  return run;
}

template Run run_on_gpu(const Problem&, Tensors<float>&, const Pace&);
template Run run_on_gpu(const Problem&, Tensors<__half>&, const Pace&);
template Run run_on_gpu(const Problem&, Tensors<__nv_bfloat16>&, const Pace&);

}  // namespace attend
