// SPDX-License-Identifier: MIT
// A device that is reset forgets what kernels were allowed; calls behind that work as before.
#include <attile/attile.cuh>

#include <cstddef>
#include <vector>

#include "support/catch.h"

namespace kernel_after_reset {

constexpr int kLen = 70, kDim = 64;

/// O of one small problem.
std::vector<unsigned short> output() {
  using T = __half;
  constexpr std::size_t kElements = kLen * kDim;
  T* data = nullptr;
  REQUIRE(cudaMalloc(&data, 2 * kElements * sizeof(T)) == cudaSuccess);
  REQUIRE(cudaMemset(data, 0x31, kElements * sizeof(T)) == cudaSuccess);
  REQUIRE(cudaMemset(data + kElements, 0xFF, kElements * sizeof(T)) == cudaSuccess);
  attile::ForwardArgs<T> args{};
  args.q = args.k = args.v = attile::bshd<const T>(data, {.rows = kLen, .heads = 1, .dim = kDim});
  args.o = attile::bshd(data + kElements, {.rows = kLen, .heads = 1, .dim = kDim});
  args.batch = args.q_heads = args.kv_heads = 1;
  args.q_len = args.kv_len = kLen;
  REQUIRE(attile::forward<kDim>(args) == cudaSuccess);
  std::vector<unsigned short> o(kElements);
  REQUIRE(cudaMemcpy(o.data(), args.o.data, kElements * sizeof(T), cudaMemcpyDeviceToHost) ==
          cudaSuccess);
  REQUIRE(cudaFree(data) == cudaSuccess);
  return o;
}

TEST_CASE("a call behind a reset of the device is what it was before") {
  const auto before = output();
  REQUIRE(cudaDeviceReset() == cudaSuccess);
  CHECK(output() == before);
  CHECK(cudaGetLastError() == cudaSuccess);
}

}  // namespace kernel_after_reset
