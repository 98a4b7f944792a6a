// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/args.h>
#include <attile/core/element.h>
#include <attile/core/tensor.h>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "../../examples/support.cuh"
#include "support/catch.h"
#include "support/policies.h"
#include "support/random.h"

namespace attile_test {

/// Sequences of Policy::kPagedWindow on a device, whose pages have ids from any number on.
template <attile::Element T>
struct PagedProblem {
  using Args = ForwardArgsOf<T, Policy::kPagedWindow>;
  static constexpr int kBatch = 3, kHeads = 4, kKvHeads = 2, kRows = 5, kDim = 64;
  static constexpr int kPage = 16, kPages = 24, kEntries = 8;
  static constexpr std::int64_t kPageStride = std::int64_t{kPage} * 2 * 8 * 128;

  example::DeviceArray<T> q = normal(1, kBatch* kHeads* kRows* kDim);
  example::DeviceArray<T> k = normal(2, kPages*kPageStride), v = normal(3, kPages*kPageStride);
  example::DeviceArray<T> o{std::vector<T>(kBatch * kHeads * kRows * kDim)};
  example::DeviceArray<float> sinks{std::vector<float>(kHeads, 0.25f)};
  example::DeviceArray<int> table{std::vector<int>(kBatch * kEntries)};
  example::DeviceArray<int> seqused_k{std::vector<int>(kBatch)};

  /// Gives each sequence a length and pages in an order of that seed.
  void set(const std::vector<int>& lengths, std::uint64_t seed, int first_page = 0) const {
    const Random random(seed);
    std::vector<int> pages(kPages);
    for (int i = 0; i < kPages; ++i) pages[i] = first_page + i;
    for (int i = kPages - 1; i > 0; --i) {
      std::swap(pages[i], pages[static_cast<int>(random.uniform(i) * (i + 1))]);
    }
    pages.resize(kBatch * kEntries);
    table.upload(pages);
    seqused_k.upload(lengths);
  }

  /// The arguments where the pages' ids begin at first_page: what lies before is not there.
  Args args(int first_page = 0) const {
    const auto pages_of = [&](const T* memory) {
      const std::uint64_t before = std::uint64_t(first_page) * kPageStride * sizeof(T);
      const auto begin = reinterpret_cast<std::uintptr_t>(memory) - before;
      return attile::Tensor<const T>{reinterpret_cast<const T*>(begin), kPageStride, kDim,
                                     kKvHeads * kDim};
    };
    Args a{};
    a.q = attile::bshd<const T>(q.get(), {.rows = kRows, .heads = kHeads, .dim = kDim});
    a.k = pages_of(k.get());
    a.v = pages_of(v.get());
    a.o = attile::bshd(o.get(), {.rows = kRows, .heads = kHeads, .dim = kDim});
    a.batch = kBatch, a.q_heads = kHeads, a.kv_heads = kKvHeads;
    a.q_len = kRows, a.kv_len = kEntries * kPage, a.head_dim = kDim;
    a.mask = {70, 0};
    a.sink.sinks = sinks.get();
    a.sequences.page_table = table.get(), a.sequences.pages_per_sequence = kEntries;
    a.sequences.page_size = kPage, a.sequences.pages = first_page + kPages;
    a.sequences.seqused_k = seqused_k.get();
    return a;
  }

  /// O, as bits are compared; then it is forgotten.
  std::vector<float> take_output() const {
    std::vector<float> output;
    for (const T& x : o.download()) output.push_back(attile::to_float(x));
    o.upload(std::vector<T>(o.size(), attile::from_float<T>(-99.0f)));
    return output;
  }

 private:
  static example::DeviceArray<T> normal(std::uint64_t seed, std::int64_t count) {
    const Random random(seed);
    std::vector<T> numbers;
    for (std::int64_t i = 0; i < count; ++i) {
      numbers.push_back(attile::from_float<T>(random.normal(i % 100000)));
    }
    return example::DeviceArray<T>(numbers);
  }
};

/// Pages give the same result whatever their ids are: those whose offsets take more than 32 bits,
/// too (flashinfer #3136, vLLM #50427). The tensors' addresses are not mapped then, which kernels
/// of the family sm90 ask for. `forward(args)` is a cudaError_t.
template <attile::Element T, class Forward>
void check_far_pages(const Forward& forward) {
  const PagedProblem<T> p;
  std::vector<float> near;
  for (const int first_page : {0, 65520, 1000000}) {
    p.set({128, 37, 90}, 7, first_page);
    REQUIRE(forward(p.args(first_page)) == cudaSuccess);
    const std::vector<float> output = p.take_output();
    if (first_page == 0) near = output;
    CHECK(output == near);
  }
}

}  // namespace attile_test
