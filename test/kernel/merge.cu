// SPDX-License-Identifier: MIT
// `merge` on a GPU, and in a graph whose replay finds other parts.
#include <attile/merge.cuh>

#include <cuda_runtime_api.h>

#include <vector>

#include "support/captured.h"
#include "support/catch.h"
#include "support/device.h"
#include "support/merge.h"
#include "support/merge_on_device.h"

namespace kernel_merge {

using namespace attile_test;

TEST_CASE("merge is weighted sums") {
  check_all_merges([](auto& problem) { return merge_on_device(problem); });
}

TEST_CASE("merged parts are the whole") {
  check_parts_of_a_whole([](auto& problem) { return merge_on_device(problem); }, 1 << 17);
}

TEST_CASE("a merge is merged") { check_merge_of_a_merge(); }

TEST_CASE("merge refuses before a launch; a replayed graph merges anew") {
  constexpr int kDim = 8;
  const Device<float> a(std::vector<float>(kDim, 1.0f)), b(std::vector<float>(kDim, 3.0f));
  const Device<float> lse_a(std::vector<float>{2.0f}), lse_b(std::vector<float>{2.0f});
  const Device<float> o(kDim);
  attile::MergeArgs<float> args{
      .parts = {{.o = {a.get()}, .lse = {lse_a.get()}}, {.o = {b.get()}, .lse = {lse_b.get()}}},
      .part_tensors = 2,
      .o = {o.get()},
      .batch = 1,
      .q_heads = 1,
      .q_len = 1,
      .head_dim_v = kDim};
  CHECK(attile::check_merge(args));
  args.part_tensors = 3;
  CHECK(attile::merge(args) == cudaErrorInvalidValue);
  args.part_tensors = 2;

  const Captured captured([&](cudaStream_t stream) { return attile::merge(args, stream); });
  const auto replay = [&] {
    captured.replay();
    return o.download();
  };
  CHECK(replay() == std::vector<float>(kDim, 2.0f));
  const float none = -attile::kInf;
  REQUIRE(cudaMemcpy(lse_b.get(), &none, sizeof none, cudaMemcpyHostToDevice) == cudaSuccess);
  CHECK(replay() == std::vector<float>(kDim, 1.0f));
}

}  // namespace kernel_merge
