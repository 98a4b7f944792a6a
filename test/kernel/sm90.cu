// SPDX-License-Identifier: MIT
// What is the sm90 family's own: what it refuses, and that bits do not depend on which block
// computes what after what.
#include <attile/attile.cuh>

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/catch.h"
#include "support/random.h"

namespace kernel_sm90 {

using Args = attile::ForwardArgs<__half, attile::Causal>;
using Kernel = attile::sm90::DefaultForwardTraits<Args, 64>;
using PackedHeads =
    attile::sm90::DefaultForwardTraits<Args, 64, 64, attile::sm90::TileSet::kPackedHeads>;
using BackwardKernel =
    attile::sm90::DefaultBackwardTraits<attile::BackwardArgs<__half, attile::Causal>, 64>;
constexpr int kLen = 300, kKeys = 400, kDim = 64;

/// Q, K, V and O of some batches on the device, each batch the same; O is NaN at first.
struct Memory {
  int batch, heads, kv_heads;
  __half* data = nullptr;

  std::size_t rows() const { return static_cast<std::size_t>(heads) * kLen * kDim; }
  std::size_t columns() const { return static_cast<std::size_t>(kv_heads) * kKeys * kDim; }

  Memory(int b, int h, int kv_h) : batch(b), heads(h), kv_heads(kv_h) {
    const attile_test::Random random(1);
    std::vector<__half> values;
    std::uint64_t number = 0;  // the same for every `batch`
    for (const std::size_t size : {rows(), columns(), columns()}) {
      std::vector<__half> one;
      for (std::size_t i = 0; i < size; ++i) {
        one.push_back(attile::from_float<__half>(random.normal(number++)));
      }
      for (int i = 0; i < batch; ++i) values.insert(values.end(), one.begin(), one.end());
    }
    const std::size_t bytes = values.size() * sizeof(__half);
    REQUIRE(cudaMalloc(&data, bytes + batch * rows() * sizeof(__half)) == cudaSuccess);
    REQUIRE(cudaMemcpy(data, values.data(), bytes, cudaMemcpyHostToDevice) == cudaSuccess);
    REQUIRE(cudaMemset(data + values.size(), 0xFF, batch * rows() * sizeof(__half)) == cudaSuccess);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { static_cast<void>(cudaFree(data)); }

  Args args() const {
    Args a;
    a.q = attile::bhsd<const __half>(data, {.rows = kLen, .heads = heads, .dim = kDim});
    a.k = attile::bhsd<const __half>(data + batch * rows(),
                                     {.rows = kKeys, .heads = kv_heads, .dim = kDim});
    a.v = attile::bhsd<const __half>(data + batch * (rows() + columns()),
                                     {.rows = kKeys, .heads = kv_heads, .dim = kDim});
    a.o = attile::bhsd(data + batch * (rows() + 2 * columns()),
                       {.rows = kLen, .heads = heads, .dim = kDim});
    a.batch = batch, a.q_heads = heads, a.kv_heads = kv_heads, a.q_len = kLen, a.kv_len = kKeys;
    return a;
  }
  std::vector<unsigned short> output() const {
    std::vector<unsigned short> bits(batch * rows());
    REQUIRE(cudaMemcpy(bits.data(), args().o.data, bits.size() * sizeof(__half),
                       cudaMemcpyDeviceToHost) == cudaSuccess);
    return bits;
  }
};

bool device_runs_them() {
  return attile::arch::device_architecture() == 900 &&
         !attile::arch::is_empty(attile::forward_kernel<Kernel>);
}

std::string refusal(const attile::Check& check) { return check ? "" : check.why; }

TEST_CASE("sm90 kernels refuse what copies cannot address, and write nothing") {
  if (!device_runs_them()) SKIP_CASE("no device of compute capability 9.0, or no code for it");
  const Memory memory(1, 2, 1);
  const auto before = memory.output();
  const auto refuses = [&](const Args& args) {
    CHECK(refusal(attile::check<Kernel>(args)).find("multiples of 16 bytes") != std::string::npos);
    CHECK(!attile::sm90::runs<Kernel>(args));
    CHECK(attile::forward<Kernel>(args) == cudaErrorInvalidValue);
    CHECK(bool(attile::check<kDim>(args)));  // the one call takes another kernel
  };
  Args args = memory.args();
  CHECK(bool(attile::check<Kernel>(args)));
  CHECK(attile::sm90::runs<Kernel>(args));
  args.q.data += 1;
  refuses(args);
  args = memory.args();
  args.k.row_stride = kDim - 4;
  refuses(args);
  args = memory.args();
  args.v.row_stride = 0;
  refuses(args);
  args = memory.args();
  args.head_dim_v = 51;  // rows of O that a copy would write behind
  refuses(args);
  args.head_dim_v = 56;
  CHECK(bool(attile::check<Kernel>(args)));
  CHECK(memory.output() == before);
  CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("gradients that copies cannot address are another kernel's") {
  if (!device_runs_them()) SKIP_CASE("no device of compute capability 9.0, or no code for it");
  // Values do not matter: Q is O and dO, too, and LSE is 0.
  const Memory memory(1, 2, 1);
  const Args forward = memory.args();
  using BackwardArgs = attile::BackwardArgs<__half, attile::Causal>;
  BackwardArgs args;
  args.q = forward.q, args.k = forward.k, args.v = forward.v;
  args.o = args.dout = forward.q;
  args.batch = 1, args.q_heads = 2, args.kv_heads = 1, args.q_len = kLen, args.kv_len = kKeys;
  __half* gradients = nullptr;
  constexpr std::size_t kRoom = 2 * 2 * kKeys * kDim;  // of each
  REQUIRE(cudaMalloc(&gradients, (3 * kRoom + 1) * sizeof(__half) + 2 * kLen * sizeof(float)) ==
          cudaSuccess);
  args.lse = reinterpret_cast<float*>(gradients);
  REQUIRE(cudaMemset(gradients, 0, 2 * kLen * sizeof(float)) == cudaSuccess);
  __half* const outputs = gradients + 2 * kLen * 2;
  args.dq = attile::bhsd(outputs, {.rows = kLen, .heads = 2, .dim = kDim});
  args.dk = attile::bhsd(outputs + kRoom, {.rows = kKeys, .heads = 1, .dim = kDim});
  args.dv = attile::bhsd(outputs + 2 * kRoom, {.rows = kKeys, .heads = 1, .dim = kDim});
  const auto family = [](auto kernel) { return std::string(decltype(kernel)::type::kFamily); };
  const auto named = [&](const BackwardArgs& a) {
    return attile::with_backward_kernel<kDim>(a, family);
  };
  const auto runs = [&](const BackwardArgs& a) {
    std::size_t bytes = 0;
    REQUIRE(attile::backward<kDim>(nullptr, bytes, a) == cudaSuccess);
    void* workspace = nullptr;
    REQUIRE(cudaMalloc(&workspace, bytes) == cudaSuccess);
    const cudaError_t error = attile::backward<kDim>(workspace, bytes, a);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(cudaFree(workspace) == cudaSuccess);
    return error == cudaSuccess;
  };
  CHECK(bool(attile::check<BackwardKernel>(args)));
  CHECK(named(args) == "sm90");
  CHECK(runs(args));
  const auto refuses = [&](const BackwardArgs& a) {
    CHECK(refusal(attile::check<BackwardKernel>(a)).find("multiples of 16 bytes") !=
          std::string::npos);
    CHECK(named(a) == "sm80");
    CHECK(runs(a));
  };
  BackwardArgs odd = args;
  odd.dk.data += 1;
  refuses(odd);
  odd = args;
  odd.dv.row_stride = kDim + 4;
  refuses(odd);
  CHECK(cudaFree(gradients) == cudaSuccess);
}

TEST_CASE("a device or code without 90a is told so") {
  if (device_runs_them()) SKIP_CASE("the device runs the sm90 kernels");
  const Memory memory(1, 2, 1);
  CHECK(refusal(attile::check<Kernel>(memory.args())).find("sm_90a") != std::string::npos);
  CHECK(attile::forward<Kernel>(memory.args()) == cudaErrorNoKernelImageForDevice);
  attile::BackwardArgs<__half, attile::Causal> backward;
  backward.batch = 1, backward.q_heads = backward.kv_heads = 1;
  backward.q_len = backward.kv_len = 0;
  CHECK(refusal(attile::check<BackwardKernel>(backward)).find("sm_90a") != std::string::npos);
}

TEST_CASE("a head has the same bits, whatever its block computed before, and at every run") {
  if (!device_runs_them()) SKIP_CASE("no device of compute capability 9.0, or no code for it");
  const auto check = [](auto kernel, int heads, int kv_heads) {
    using Traits = typename decltype(kernel)::type;
    const Memory one(1, heads, kv_heads);
    REQUIRE(attile::forward<Traits>(one.args()) == cudaSuccess);
    const auto expected = one.output();
    constexpr int kBatches = 60;  // each block several tiles
    const Memory many(kBatches, heads, kv_heads);
    REQUIRE(attile::forward<Traits>(many.args()) == cudaSuccess);
    const auto got = many.output();
    int different = 0;
    for (int b = 0; b < kBatches; ++b) {
      different += std::memcmp(got.data() + b * one.rows(), expected.data(),
                               expected.size() * sizeof(expected[0])) != 0;
    }
    CHECK(different == 0);
    different = 0;
    for (int run = 0; run < 1000; ++run) {
      REQUIRE(attile::forward<Traits>(one.args()) == cudaSuccess);
      if (run % 50 == 49) different += one.output() != expected;
    }
    CHECK(different == 0);
  };
  check(std::type_identity<Kernel>{}, 6, 2);
  check(std::type_identity<PackedHeads>{}, 6, 2);
  check(std::type_identity<PackedHeads>{}, 8, 1);
}

TEST_CASE("packing pays where tiles would be empty") {
  using Kernel128 = attile::sm90::DefaultForwardTraits<Args, 128>;
  using Packed128 =
      attile::sm90::DefaultForwardTraits<Args, 128, 128, attile::sm90::TileSet::kPackedHeads>;
  static_assert(Kernel128::kBr != Packed128::kBr);
  Args args;
  args.kv_heads = 1;
  const auto pays = [&](int heads, int q_len, int kv_len = 1024) {
    args.q_heads = heads, args.q_len = q_len, args.kv_len = kv_len;
    const bool pays_64 = attile::sm90::packing_pays<Kernel, PackedHeads>(args);
    const bool pays_128 = attile::sm90::packing_pays<Kernel128, Packed128>(args);
    return std::pair(pays_64, pays_128);
  };
  CHECK(pays(8, 1) == std::pair(true, true));
  CHECK(pays(8, 50) == std::pair(true, true));
  CHECK(pays(8, 64) == std::pair(true, true));     // eight tiles of one group, or four
  CHECK(pays(8, 384) == std::pair(false, false));  // all whole tiles
  CHECK(pays(8, 4096) == std::pair(false, false));
  // With few keys the ends of tiles weigh most: two teams of 64 columns hide them.
  CHECK(pays(8, 1, 64) == std::pair(true, true));
  CHECK(pays(8, 160, 160).first == false);
  CHECK(pays(8, 96, 96).first == false);
  CHECK(pays(1, 1) == std::pair(false, false));
  CHECK(pays(1, 64) == std::pair(false, false));
}

}  // namespace kernel_sm90
