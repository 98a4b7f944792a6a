// SPDX-License-Identifier: MIT
#pragma once

#include <attile/host/merge.h>
#include <attile/merge.cuh>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/device.h"
#include "support/device_memory.h"
#include "support/merge.h"
#include "support/random.h"

namespace attile_test {

/// Runs attile::merge on copies of a problem's memory in device memory.
template <class Problem>
std::string merge_on_device(Problem& problem) {
  DeviceMemory memory(problem.regions());
  const auto at = [&]<class X>(X* host) { return static_cast<X*>(memory.device(host)); };
  if (memory.error() == cudaSuccess) {
    memory.keep(attile::merge(problem.args(at)));
    memory.keep(cudaDeviceSynchronize());
    memory.copy_back();
  }
  return memory.error() == cudaSuccess ? "" : cudaGetErrorString(memory.error());
}

/// Merges two parts, and right behind that, in one stream, their result with a third one: what
/// three parts give at once, but for roundings.
inline void check_merge_of_a_merge() {
  constexpr int kRows = 300, kDim = 16, kElements = kRows * kDim;
  const Random random(31);
  std::vector<std::vector<float>> o(3), lse(3);
  double largest = 0;
  for (int part = 0; part < 3; ++part) {
    for (int i = 0; i < kElements; ++i) {
      o[part].push_back(random.normal(part * kElements + i));
      largest = std::max<double>(largest, std::abs(o[part].back()));
    }
    for (int row = 0; row < kRows; ++row) lse[part].push_back(random.normal(part * kRows + row));
  }
  const Device<float> o_a(o[0]), o_b(o[1]), o_c(o[2]), lse_a(lse[0]), lse_b(lse[1]), lse_c(lse[2]);
  const Device<float> o_ab(kElements), lse_ab(kRows), o_twice(kElements), lse_twice(kRows);
  const Device<float> o_once(kElements), lse_once(kRows);
  const auto part = [](const Device<float>& x, const Device<float>& its_lse) {
    return attile::PartTensor<float>{
        .o = attile::bhsd<const float>(x.get(), {.rows = kRows, .heads = 1, .dim = kDim}),
        .lse = attile::bhs<const float>(its_lse.get(), {.rows = kRows, .heads = 1})};
  };
  attile::MergeArgs<float> args{.batch = 1, .q_heads = 1, .q_len = kRows, .head_dim_v = kDim};
  const auto merge = [&](std::vector<attile::PartTensor<float>> parts, const Device<float>& to,
                         const Device<float>& its_lse) {
    std::copy(parts.begin(), parts.end(), args.parts);
    args.part_tensors = static_cast<int>(parts.size());
    args.o = attile::bhsd(to.get(), {.rows = kRows, .heads = 1, .dim = kDim});
    args.lse = its_lse.get();
    REQUIRE(attile::merge(args) == cudaSuccess);
  };
  merge({part(o_a, lse_a), part(o_b, lse_b)}, o_ab, lse_ab);
  merge({part(o_ab, lse_ab), part(o_c, lse_c)}, o_twice, lse_twice);
  merge({part(o_a, lse_a), part(o_b, lse_b), part(o_c, lse_c)}, o_once, lse_once);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  const auto difference = [](const Device<float>& x, const Device<float>& y) {
    const std::vector<float> a = x.download(), b = y.download();
    return attile::reference::max_error({a.begin(), a.end()}, {b.begin(), b.end()});
  };
  CHECK(difference(o_twice, o_once) <= 3 * merge_error(largest));
  CHECK(difference(lse_twice, lse_once) <= 3 * kMergedLseError);
}

}  // namespace attile_test
