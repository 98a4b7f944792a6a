// SPDX-License-Identifier: MIT
// Keys in pages: pages far away, and captured graphs that replay with other lengths and other
// pages.
#include <attile/attile.cuh>

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "support/captured.h"
#include "support/catch.h"
#include "support/device.h"
#include "support/paged_problem.h"

namespace kernel_cache {

using Problem = attile_test::PagedProblem<__half>;

TEST_CASE("cache.offsets of pages have 64 bits") {
  using Traits = attile::sm80::DefaultForwardTraits<Problem::Args, Problem::kDim>;
  attile_test::check_far_pages<__half>(
      [](const Problem::Args& args) { return attile::forward<Traits>(args); });
}

/// The same of the one call, in a cache of 4 GB for K and one for V.
TEST_CASE("cache.the last pages of a large cache", "[large]") {
  constexpr int kFirst = 65530;
  constexpr std::int64_t kBefore = kFirst * Problem::kPageStride;
  constexpr std::int64_t kElements = Problem::kPages * Problem::kPageStride;
  const Problem p;
  p.set({128, 37, 90}, 7);
  REQUIRE(attile::forward<Problem::kDim>(p.args()) == cudaSuccess);
  const std::vector<float> want = p.take_output();
  const attile_test::Device<__half> k(kBefore + kElements), v(kBefore + kElements);
  const auto copy = [](__half* to, const __half* from) {
    return cudaMemcpy(to, from, kElements * sizeof(__half), cudaMemcpyDeviceToDevice);
  };
  REQUIRE(copy(k.get() + kBefore, p.k.get()) == cudaSuccess);
  REQUIRE(copy(v.get() + kBefore, p.v.get()) == cudaSuccess);
  p.set({128, 37, 90}, 7, kFirst);
  Problem::Args args = p.args(kFirst);
  args.k.data = k.get();
  args.v.data = v.get();
  REQUIRE(attile::forward<Problem::kDim>(args) == cudaSuccess);
  CHECK(p.take_output() == want);
}

TEST_CASE("cache.a captured graph replays with other lengths and pages") {
  const Problem p;
  const Problem::Args args = p.args();
  p.set({128, 1, 90}, 1);
  const attile_test::Captured captured(
      [&](cudaStream_t stream) { return attile::forward<Problem::kDim>(args, stream); });
  const std::vector<std::vector<int>> replayed{{7, 128, 0}, {0, 0, 0}, {128, 128, 128}, {5, 6, 7}};
  std::uint64_t seed = 2;
  std::vector<float> last;
  for (const std::vector<int>& lengths : replayed) {
    p.set(lengths, seed++);
    static_cast<void>(p.take_output());
    REQUIRE(attile::forward<Problem::kDim>(args) == cudaSuccess);
    const std::vector<float> want = p.take_output();
    captured.replay();
    CHECK(p.take_output() == want);
    CHECK(want != last);
    last = want;
  }
}

}  // namespace kernel_cache
