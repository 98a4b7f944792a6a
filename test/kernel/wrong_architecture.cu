// SPDX-License-Identifier: MIT
// This file is built for compute capability 7.5 alone, without PTX: on any other device its kernels
// do not exist, and that has to be said, not tried.
#include <attile/attile.cuh>

#include <string>

#include "support/catch.h"

TEMPLATE_TEST_CASE("a kernel that was not built for the device is refused with a sentence", "",
                   float, __half) {
  using T = TestType;
  int device = 0, major = 0;
  REQUIRE(cudaGetDevice(&device) == cudaSuccess);
  REQUIRE(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess);
  if (major == 7) SKIP_CASE("the device has compute capability 7");
  T* data = nullptr;
  REQUIRE(cudaMalloc(&data, 4096 * sizeof(T)) == cudaSuccess);
  attile::ForwardArgs<T> args;
  args.q = args.k = args.v = attile::bhsd<const T>(data, {.rows = 16, .heads = 1, .dim = 16});
  args.o = attile::bhsd(data + 2048, {.rows = 16, .heads = 1, .dim = 16});
  args.batch = args.q_heads = args.kv_heads = 1;
  args.q_len = args.kv_len = 16;
  const attile::Check said = attile::check<16>(args);
  CHECK_FALSE(said);
  CHECK(std::string(said.why) == "the kernel was not compiled for the architecture of this device");
  CHECK(attile::forward<16>(args) == said.error);
  CHECK(cudaFree(data) == cudaSuccess);
}
