// SPDX-License-Identifier: MIT
// This file is built as PTX of compute capability 7.5 and as code for 8.6 alone: any other device
// runs the former, in which the kernels of later families trap, and so do pieces of own kernels.
#include <attile/attile.cuh>
#include <attile/tile_mma.cuh>

#include <cstdint>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/random.h"

namespace {

using Args = attile::ForwardArgs<__half, attile::Causal>;
using Portable = attile::portable::DefaultForwardTraits<Args, 64>;
using Sm80 = attile::ForwardTraits<64, 64, 64, __half, attile::Causal>;
constexpr int kHeads = 3, kLen = 100, kDim = 64, kSize = kHeads * kLen * kDim;

/// Q, K, V and O on the device.
struct Memory {
  __half* data = nullptr;

  Memory() {
    const attile_test::Random random(1);
    std::vector<__half> values;
    for (int i = 0; i < 4 * kSize; ++i) {
      values.push_back(attile::from_float<__half>(random.normal(i)));
    }
    REQUIRE(cudaMalloc(&data, values.size() * sizeof(__half)) == cudaSuccess);
    REQUIRE(cudaMemcpy(data, values.data(), values.size() * sizeof(__half),
                       cudaMemcpyHostToDevice) == cudaSuccess);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { static_cast<void>(cudaFree(data)); }

  Args args() const {
    Args a;
    a.q = attile::bhsd<const __half>(data, {.rows = kLen, .heads = kHeads, .dim = kDim});
    a.k = attile::bhsd<const __half>(data + kSize, {.rows = kLen, .heads = kHeads, .dim = kDim});
    a.v =
        attile::bhsd<const __half>(data + 2 * kSize, {.rows = kLen, .heads = kHeads, .dim = kDim});
    a.o = attile::bhsd(data + 3 * kSize, {.rows = kLen, .heads = kHeads, .dim = kDim});
    a.batch = 1, a.q_heads = a.kv_heads = kHeads, a.q_len = a.kv_len = kLen;
    return a;
  }
  std::vector<unsigned short> output() const {
    std::vector<unsigned short> bits(kSize);
    REQUIRE(cudaMemcpy(bits.data(), data + 3 * kSize, kSize * sizeof(__half),
                       cudaMemcpyDeviceToHost) == cudaSuccess);
    return bits;
  }
};

/// A kernel of one's own out of a piece that code for 7.5 lacks.
ATTILE_KERNEL void own_kernel(std::uint32_t* words) {
  std::uint32_t matrices[4];
  attile::arch::load_matrices(matrices, 0);
  words[attile::arch::thread_index()] = matrices[0];
}

bool device_has_own_code() {
  cudaFuncAttributes attributes{};
  REQUIRE(cudaFuncGetAttributes(&attributes, attile::forward_kernel<Portable>) == cudaSuccess);
  return attributes.ptxVersion != 75;
}

}  // namespace

TEST_CASE("a kernel whose code is older than its family is refused and not run") {
  if (device_has_own_code()) SKIP_CASE("the device has code of its own here");
  const Memory memory;
  const auto before = memory.output();
  const attile::Check said = attile::check<Sm80>(memory.args());
  CHECK_FALSE(said);
  CHECK(std::string(said.why) ==
        "the kernel needs compute capability 8.0 or later, of the device and among those that it "
        "was compiled for");
  CHECK(attile::forward<Sm80>(memory.args()) == said.error);
  CHECK(memory.output() == before);
  CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("the one call then runs the portable kernel") {
  if (device_has_own_code()) SKIP_CASE("the device has code of its own here");
  const Memory memory;
  const auto family = [](auto kernel) { return std::string(decltype(kernel)::type::kFamily); };
  CHECK(attile::with_forward_kernel<kDim>(memory.args(), family) == "portable");
  CHECK(bool(attile::check<kDim>(memory.args())));
  REQUIRE(attile::forward<kDim>(memory.args()) == cudaSuccess);
  const auto chosen = memory.output();
  REQUIRE(attile::forward<Portable>(memory.args()) == cudaSuccess);
  CHECK(memory.output() == chosen);
}

TEST_CASE(
    "an own kernel whose code lacks a piece is refused with a sentence before it is launched") {
  const attile::Check ok = attile::arch::check_launch(own_kernel, 1024, 1, 800);
  CHECK(static_cast<bool>(ok) == device_has_own_code());
  if (ok) SKIP_CASE("the device runs the code for 8.6");
  CHECK(ok.error == cudaErrorNoKernelImageForDevice);
  CHECK(std::string(ok.why) ==
        "the kernel needs compute capability 8.0 or later, of the device and among those that it "
        "was compiled for");
}
