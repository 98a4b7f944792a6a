// SPDX-License-Identifier: MIT
// FlashAttention-1: its state, and what it alone refuses.
#include <cmath>
#include <string>

#include "kernel/flash1_executor.cuh"

namespace kernel_flash1 {

using namespace attile_test;

using Small = Flash1Executor<64, 0, 32, 48>;

constexpr int kLen = 70, kHeads = 2, kDim = 8;
using Args = attile::ForwardArgs<float, attile::Causal, attile::NoScoreMod, attile::PhiloxDropout>;
using Gradients =
    attile::BackwardArgs<float, attile::Causal, attile::NoScoreMod, attile::PhiloxDropout>;

/// A problem whose tensors all lie in `memory`, one after another.
template <class A>
A problem(float* memory) {
  constexpr int kSize = kLen * kHeads * kDim;
  int next = 0;
  const auto tensor = [&] {
    return attile::bshd(memory + kSize * next++, {.rows = kLen, .heads = kHeads, .dim = kDim});
  };
  A a{};
  a.q = tensor();
  a.k = tensor();
  a.v = tensor();
  a.o = tensor();
  if constexpr (!A::kIsForward) {
    a.dout = tensor();
    a.dq = tensor();
    a.dk = tensor();
    a.dv = tensor();
  }
  a.batch = 1;
  a.q_heads = a.kv_heads = kHeads;
  a.q_len = a.kv_len = kLen;
  a.head_dim = kDim;
  return a;
}

std::string why(const attile::Check& check) { return check ? "" : check.why; }

TEST_CASE("flash1.the_state_is_that_of_the_softmax_and_of_the_random_numbers") {
  std::vector<float> host(4 * kLen * kHeads * kDim);
  for (std::size_t i = 0; i < host.size(); ++i) host[i] = std::sin(0.7f * static_cast<float>(i));
  std::vector<float> lse(kHeads * kLen), l(kHeads * kLen), m(kHeads * kLen);
  std::vector<std::uint64_t> rng(2);
  const std::uint64_t drawn[2] = {0x123456789ABCDEF0, 77};
  std::vector<Region> regions{{host.data(), host.size() * sizeof(float)},
                              {lse.data(), lse.size() * sizeof(float)},
                              {l.data(), l.size() * sizeof(float)},
                              {m.data(), m.size() * sizeof(float)},
                              {rng.data(), sizeof(drawn)}};
  DeviceMemory memory(regions);
  const auto on_device = [&](auto* p) { return static_cast<decltype(p)>(memory.device(p)); };
  const flash1::State state{on_device(l.data()), on_device(m.data()), on_device(rng.data())};
  Args args = problem<Args>(on_device(host.data()));
  args.lse = on_device(lse.data());
  args.dropout = {.probability = 0.25f, .seed = drawn[0], .offset = drawn[1]};
  REQUIRE(Small::run_forward(args, state) == cudaSuccess);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  memory.copy_back();
  REQUIRE(memory.error() == cudaSuccess);
  CHECK(rng[0] == drawn[0]);
  CHECK(rng[1] == drawn[1]);
  const float scale = 1.0f / std::sqrt(static_cast<float>(kDim));
  for (int h = 0; h < kHeads; ++h) {
    for (int i = 0; i < kLen; ++i) {
      double largest = -1e300;
      const auto at = [&](int tensor, int row, int d) {
        return double{host[((tensor * kLen + row) * kHeads + h) * kDim + d]};
      };
      std::vector<double> scores;
      for (int j = 0; j <= i; ++j) {
        double s = 0;
        for (int d = 0; d < kDim; ++d) s += at(0, i, d) * at(1, j, d);
        scores.push_back(s * scale);
        largest = std::max(largest, scores.back());
      }
      double sum = 0;
      for (const double s : scores) sum += std::exp(s - largest);
      const int row = h * kLen + i;
      CHECK(std::abs(m[row] - largest) <= 1e-5);
      CHECK(std::abs(l[row] / sum - 1) <= 1e-5);
      CHECK(std::abs(lse[row] - (m[row] + std::log(l[row]))) <= 1e-6);
    }
  }
}

TEST_CASE("flash1.check_says_what_is_wrong_with_the_state") {
  using ForwardKernel = flash1::DefaultForwardTraits<Args, kDim>;
  using BackwardKernel = flash1::DefaultBackwardTraits<Gradients, kDim>;
  // Nothing is launched, so nothing is read.
  float* const memory = reinterpret_cast<float*>(0x10000);
  const auto args = problem<Args>(memory);
  const auto gradients = problem<Gradients>(memory);
  float* const l = memory + 1000000;
  float* const m = memory + 2000000;
  auto* const rng = reinterpret_cast<std::uint64_t*>(memory + 3000000);
  const auto odd = [](auto* p) {
    return reinterpret_cast<decltype(p)>(reinterpret_cast<std::uintptr_t>(p) + 2);
  };
  struct Bad {
    flash1::State state;
    const char* why;
  };
  const Bad bad[] = {{{nullptr, m, rng}, "l of the state is null"},
                     {{l, nullptr, rng}, "m of the state is null"},
                     {{odd(l), m, rng}, "l of the state is not aligned to 4 bytes"},
                     {{l, odd(m), rng}, "m of the state is not aligned to 4 bytes"},
                     {{l, m, odd(rng)}, "rng of the state is not aligned to 8 bytes"},
                     {{l, l, rng}, "l and m of the state share their memory"}};
  const char* const alias = "l, m or rng of the state is the memory of a tensor or of lse";
  float* const lse = memory + 4000000;
  auto with_lse = args;
  with_lse.lse = lse;
  CHECK(why(flash1::check<ForwardKernel>(with_lse, {l, m, rng})).empty());
  for (float* const used : {args.o.data, const_cast<float*>(args.q.data), lse}) {
    CHECK(why(flash1::check<ForwardKernel>(with_lse, {used, m, rng})) == alias);
    CHECK(why(flash1::check<ForwardKernel>(with_lse, {l, used, rng})) == alias);
  }
  for (float* const used : {gradients.dq.data, gradients.dk.data, gradients.dv.data}) {
    CHECK(why(flash1::check<BackwardKernel>(gradients, {used, m, rng})) == alias);
  }
  for (const Bad& b : bad) {
    CHECK(why(flash1::check<ForwardKernel>(args, b.state)) == b.why);
    CHECK(why(flash1::check<BackwardKernel>(gradients, b.state)) == b.why);
    std::size_t bytes = 7;
    CHECK(flash1::forward<ForwardKernel>(nullptr, bytes, args, b.state) == cudaErrorInvalidValue);
    CHECK(flash1::backward<BackwardKernel>(nullptr, bytes, gradients, b.state) ==
          cudaErrorInvalidValue);
    CHECK(bytes == 7);
  }
  const std::size_t enough = std::size_t{1} << 40;
  unsigned char* const workspace = reinterpret_cast<unsigned char*>(l);  // of 16 bytes, not used
  const std::string misaligned = "workspace is not aligned to 16 bytes";
  const std::string too_small =
      "workspace_bytes is less than the call needs: a null workspace asks how many";
  const flash1::State good{l, m, nullptr};
  CHECK(why(flash1::check<ForwardKernel>(args, good, workspace, enough)).empty());
  CHECK(why(flash1::check<ForwardKernel>(args, good, workspace + 4, enough)) == misaligned);
  CHECK(why(flash1::check<ForwardKernel>(args, good, workspace, 15)) == too_small);
  CHECK(why(flash1::check<BackwardKernel>(gradients, good, workspace, enough)).empty());
  CHECK(why(flash1::check<BackwardKernel>(gradients, good, workspace + 4, enough)) == misaligned);
  CHECK(why(flash1::check<BackwardKernel>(gradients, good, workspace, 15)) == too_small);
  CHECK(flash1::forward<ForwardKernel>(workspace, std::size_t{15}, args, good) ==
        cudaErrorInvalidValue);
  CHECK(flash1::backward<BackwardKernel>(nullptr, enough, gradients, good) ==
        cudaErrorInvalidValue);
  CHECK(why(flash1::check<ForwardKernel>(args, {l, m, nullptr})).empty());
  CHECK(why(flash1::check<BackwardKernel>(gradients, {l, m, nullptr})).empty());
}

}  // namespace kernel_flash1
