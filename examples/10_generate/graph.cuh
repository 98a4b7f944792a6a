// SPDX-License-Identifier: MIT
// Work that is launched again and again.
#pragma once

#include <attile/core/config.h>

#include <cuda_runtime.h>

#include <functional>
#include <utility>

#include "../support.cuh"

namespace generate {

#if ATTILE_CUDA_COMPILER

/// Captures what `launch(stream)` launches, once, and replays it: the host's part of a replay is
/// one call, however many kernels there are.
class Graph {
 public:
  static constexpr bool kCaptures = true;

  explicit Graph(const std::function<void(cudaStream_t)>& launch) {
    using example::must;
    cudaStream_t stream;
    cudaGraph_t graph;
    must(cudaStreamCreate(&stream), "cudaStreamCreate");
    must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
    launch(stream);
    must(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    must(cudaGraphInstantiate(&executable_, graph, 0), "cudaGraphInstantiate");
    must(cudaGraphDestroy(graph), "cudaGraphDestroy");
    must(cudaStreamDestroy(stream), "cudaStreamDestroy");
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() { static_cast<void>(cudaGraphExecDestroy(executable_)); }

  /// Is asynchronous, on the null stream.
  void replay() const { example::must(cudaGraphLaunch(executable_, nullptr), "cudaGraphLaunch"); }

 private:
  cudaGraphExec_t executable_ = nullptr;
};

#else

/// Launches the work each time: the simulated machine (docs/testing.md) has no graphs.
class Graph {
 public:
  static constexpr bool kCaptures = false;

  explicit Graph(std::function<void(cudaStream_t)> launch) : launch_(std::move(launch)) {}
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void replay() const { launch_(nullptr); }

 private:
  std::function<void(cudaStream_t)> launch_;
};

#endif

}  // namespace generate
