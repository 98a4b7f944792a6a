// SPDX-License-Identifier: MIT
// This file is built for compute capability 9.0 without the instructions of 90a: the sm90 kernels
// are empty in it.
#include <attile/attile.cuh>
#include <attile/tile_wgmma.cuh>

#include <string>

#include "support/catch.h"

namespace {

using Forward = attile::ForwardArgs<__half, attile::Causal>;
using Backward = attile::BackwardArgs<__half, attile::Causal>;
constexpr int kHeads = 3, kLen = 100, kDim = 64, kSize = kHeads * kLen * kDim;

/// Zeros on the device: as many tensors as a backward pass has, LSE, and a workspace.
struct Memory {
  static constexpr std::size_t kBytes = 16 << 20;
  static constexpr int kTensors = 8;

  __half* data = nullptr;

  Memory() {
    REQUIRE(cudaMalloc(&data, kBytes) == cudaSuccess);
    REQUIRE(cudaMemset(data, 0, kBytes) == cudaSuccess);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { static_cast<void>(cudaFree(data)); }

  __half* tensor(int i) const { return data + i * kSize; }
  float* lse() const { return reinterpret_cast<float*>(tensor(kTensors)); }
  void* workspace() const { return tensor(kTensors + 1); }

  template <class Args>
  Args args() const {
    Args a;
    a.q = attile::bhsd<const __half>(tensor(0), {.rows = kLen, .heads = kHeads, .dim = kDim});
    a.k = attile::bhsd<const __half>(tensor(1), {.rows = kLen, .heads = kHeads, .dim = kDim});
    a.v = attile::bhsd<const __half>(tensor(2), {.rows = kLen, .heads = kHeads, .dim = kDim});
    a.lse = lse();
    a.batch = 1, a.q_heads = a.kv_heads = kHeads, a.q_len = a.kv_len = kLen;
    return a;
  }
};

/// A kernel of one's own, as docs/pieces.md has them.
ATTILE_KERNEL void own_kernel(float* x) {
  if constexpr (!attile::arch::kHasWarpgroups) return;
  attile::arch::reg_dealloc<24>();
  *x = 1.0f;
}

}  // namespace

TEST_CASE("without warpgroups' instructions a kernel of one's own is refused") {
  if (attile::arch::device_architecture() != 900) SKIP_CASE("no device of compute capability 9.0");
  const attile::Check said = attile::arch::check_launch(own_kernel, 1024, 1, 900);
  CHECK(said.error == cudaErrorNoKernelImageForDevice);
  REQUIRE(said.why != nullptr);
  CHECK(std::string(said.why).find("for sm_90a, not sm_90") != std::string::npos);
}

TEST_CASE("without warpgroups' instructions the one calls run the sm80 kernels") {
  if (attile::arch::device_architecture() != 900) SKIP_CASE("no device of compute capability 9.0");
  const auto family = [](auto kernel) { return std::string(decltype(kernel)::type::kFamily); };
  const Memory memory;
  auto forward = memory.args<Forward>();
  forward.o = attile::bhsd(memory.tensor(3), {.rows = kLen, .heads = kHeads, .dim = kDim});
  CHECK(attile::with_forward_kernel<kDim>(forward, family) == "sm80");
  CHECK(attile::forward<kDim>(forward) == cudaSuccess);
  auto backward = memory.args<Backward>();
  backward.o =
      attile::bhsd<const __half>(memory.tensor(3), {.rows = kLen, .heads = kHeads, .dim = kDim});
  backward.dout =
      attile::bhsd<const __half>(memory.tensor(4), {.rows = kLen, .heads = kHeads, .dim = kDim});
  backward.dq = attile::bhsd(memory.tensor(5), {.rows = kLen, .heads = kHeads, .dim = kDim});
  backward.dk = attile::bhsd(memory.tensor(6), {.rows = kLen, .heads = kHeads, .dim = kDim});
  backward.dv = attile::bhsd(memory.tensor(7), {.rows = kLen, .heads = kHeads, .dim = kDim});
  CHECK(attile::with_backward_kernel<kDim>(backward, family) == "sm80");
  std::size_t bytes = 0;
  REQUIRE(attile::backward<kDim>(nullptr, bytes, backward) == cudaSuccess);
  REQUIRE(bytes < Memory::kBytes / 2);
  CHECK(attile::backward<kDim>(memory.workspace(), bytes, backward) == cudaSuccess);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
}
