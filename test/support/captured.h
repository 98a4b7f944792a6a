// SPDX-License-Identifier: MIT
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <vector>

#include "support/catch.h"

namespace attile_test {

/// What a call puts on a stream, seen by capturing it: any allocation or synchronisation by the
/// call would break the capture, and everything asynchronous shows as a node.
class Captured {
 public:
  cudaError_t error;  ///< what the call has returned
  std::size_t kernels = 0, others = 0;

  /// `call`: from the stream to its error.
  template <class Call>
  explicit Captured(const Call& call) {
    const Stream stream;
    REQUIRE(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeGlobal) == cudaSuccess);
    error = call(stream.get());
    REQUIRE(cudaStreamEndCapture(stream.get(), &graph_) == cudaSuccess);
    count_nodes();
    if (kernels + others > 0) REQUIRE(cudaGraphInstantiate(&executable_, graph_, 0) == cudaSuccess);
  }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;
  ~Captured() {
    if (executable_ != nullptr) static_cast<void>(cudaGraphExecDestroy(executable_));
    static_cast<void>(cudaGraphDestroy(graph_));
  }

  /// Runs it again, so many times, and waits for the end.
  void replay(int times = 1) const {
    REQUIRE(error == cudaSuccess);
    for (int i = 0; i < times; ++i) REQUIRE(cudaGraphLaunch(executable_, nullptr) == cudaSuccess);
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  }

 private:
  /// Ends a capture, too, that a failed check has left: a global one would refuse the calls of all
  /// tests behind it.
  class Stream {
   public:
    Stream() { REQUIRE(cudaStreamCreate(&stream_) == cudaSuccess); }
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
    ~Stream() {
      cudaStreamCaptureStatus status{};
      static_cast<void>(cudaStreamIsCapturing(stream_, &status));
      if (status != cudaStreamCaptureStatusNone) {
        cudaGraph_t graph = nullptr;
        static_cast<void>(cudaStreamEndCapture(stream_, &graph));
        if (graph != nullptr) static_cast<void>(cudaGraphDestroy(graph));
      }
      static_cast<void>(cudaStreamDestroy(stream_));
    }
    cudaStream_t get() const { return stream_; }

   private:
    cudaStream_t stream_ = nullptr;
  };

  void count_nodes() {
    std::size_t count = 0;
    REQUIRE(cudaGraphGetNodes(graph_, nullptr, &count) == cudaSuccess);
    std::vector<cudaGraphNode_t> nodes(count);
    if (count > 0) REQUIRE(cudaGraphGetNodes(graph_, nodes.data(), &count) == cudaSuccess);
    for (const cudaGraphNode_t node : nodes) {
      cudaGraphNodeType type{};
      REQUIRE(cudaGraphNodeGetType(node, &type) == cudaSuccess);
      ++(type == cudaGraphNodeTypeKernel ? kernels : others);
    }
  }

  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace attile_test
