// SPDX-License-Identifier: MIT
// Keys in pages by the one call: pages far away, and captured graphs that replay with other lengths
// and other pages.
#include <attile/attile.cuh>

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "support/catch.h"
#include "support/paged_problem.h"

namespace kernel_cache {

using Problem = attile_test::PagedProblem<__half>;

TEST_CASE("cache.offsets of pages have 64 bits") {
  attile_test::check_far_pages<__half>(
      [](const Problem::Args& args) { return attile::forward<Problem::kDim>(args); });
}

TEST_CASE("cache.a captured graph replays with other lengths and pages") {
  const Problem p;
  const Problem::Args args = p.args();
  p.set({128, 1, 90}, 1);
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  REQUIRE(cudaStreamCreate(&stream) == cudaSuccess);
  REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
  const cudaError_t error = attile::forward<Problem::kDim>(args, stream);
  REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
  REQUIRE(error == cudaSuccess);
  REQUIRE(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
  const std::vector<std::vector<int>> replayed{{7, 128, 0}, {0, 0, 0}, {128, 128, 128}, {5, 6, 7}};
  std::uint64_t seed = 2;
  std::vector<float> last;
  for (const std::vector<int>& lengths : replayed) {
    p.set(lengths, seed++);
    static_cast<void>(p.take_output());
    REQUIRE(attile::forward<Problem::kDim>(args) == cudaSuccess);
    const std::vector<float> want = p.take_output();
    REQUIRE(cudaGraphLaunch(executable, nullptr) == cudaSuccess);
    CHECK(p.take_output() == want);
    CHECK(want != last);
    last = want;
  }
  static_cast<void>(cudaGraphExecDestroy(executable));
  static_cast<void>(cudaGraphDestroy(graph));
  static_cast<void>(cudaStreamDestroy(stream));
}

}  // namespace kernel_cache
