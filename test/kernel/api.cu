// SPDX-License-Identifier: MIT
// What the entry points promise besides the numbers: nothing but kernel launches reaches the
// stream, refused arguments launch nothing, workspaces, large grids, large offsets, long sequences,
// and the same bits at every run.
#include <attile/attile.cuh>
#include <attile/dispatch.cuh>
#include <attile/reference.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "support/captured.h"
#include "support/catch.h"
#include "support/device.h"
#include "support/random.h"

namespace kernel_api {

using attile_test::Captured;
using attile_test::Device;
using attile_test::Random;

#define REQUIRE_CUDA(call) REQUIRE((call) == cudaSuccess)

template <class T>
std::vector<T> normal(std::size_t size, std::uint64_t seed) {
  const Random random(seed);
  std::vector<T> values(size);
  for (std::size_t i = 0; i < size; ++i) values[i] = attile::from_float<T>(random.normal(i));
  return values;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

/// A dense (batch, head, row, dim) problem on the device, with everything a backward pass needs.
template <class T, class M = attile::NoMask, class P = attile::NoDropout>
struct Problem {
  using Forward = attile::ForwardArgs<T, M, attile::NoScoreMod, P>;
  using Backward = attile::BackwardArgs<T, M, attile::NoScoreMod, P>;

  int batch, heads, len, dim;
  std::size_t size = static_cast<std::size_t>(batch) * heads * len * dim;
  Device<T> q{normal<T>(size, 1)}, k{normal<T>(size, 2)}, v{normal<T>(size, 3)};
  Device<T> dout{normal<T>(size, 4)}, o{size}, dq{size}, dk{size}, dv{size};
  Device<float> lse{static_cast<std::size_t>(batch) * heads * len};

  attile::Tensor<const T> in(const Device<T>& x) const {
    return attile::bhsd<const T>(x.get(), {.rows = len, .heads = heads, .dim = dim});
  }
  attile::Tensor<T> out(const Device<T>& x) const {
    return attile::bhsd(x.get(), {.rows = len, .heads = heads, .dim = dim});
  }
  Forward forward() const {
    Forward a;
    a.q = in(q), a.k = in(k), a.v = in(v), a.o = out(o), a.lse = lse.get();
    a.batch = batch, a.q_heads = a.kv_heads = heads, a.q_len = a.kv_len = len;
    return a;
  }
  Backward backward() const {
    Backward a;
    a.q = in(q), a.k = in(k), a.v = in(v), a.o = in(o), a.lse = lse.get(), a.dout = in(dout);
    a.dq = out(dq), a.dk = out(dk), a.dv = out(dv);
    a.batch = batch, a.q_heads = a.kv_heads = heads, a.q_len = a.kv_len = len;
    return a;
  }
};

std::size_t free_bytes() {
  std::size_t available = 0, total = 0;
  REQUIRE_CUDA(cudaMemGetInfo(&available, &total));
  return available;
}

TEST_CASE("a captured forward pass is one kernel and replays to the same bits") {
  const Problem<__half, attile::Causal> problem{2, 3, 150, 64};
  const Captured captured([&](auto s) { return attile::forward<64>(problem.forward(), s); });
  REQUIRE(captured.error == cudaSuccess);
  CHECK(captured.kernels == 1);
  CHECK(captured.others == 0);
  captured.replay(3);
  const auto replayed = problem.o.download();
  REQUIRE_CUDA(attile::forward<64>(problem.forward()));
  CHECK(same_bits(replayed, problem.o.download()));
}

/// Whether both are sums of the same terms in some order, rounded to T.
template <class T>
bool same_sums(const std::vector<T>& a, const std::vector<T>& b) {
  float largest = 0.0f, difference = 0.0f;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const float x = attile::to_float(a[i]), y = attile::to_float(b[i]);
    if (std::isnan(x) || std::isnan(y)) return false;
    largest = std::max(largest, std::abs(x));
    difference = std::max(difference, std::abs(x - y));
  }
  // One unit of the largest values of fp16: its mantissa has 10 bits.
  return a.size() == b.size() && difference <= 0x1p-10f * largest;
}

/// Calls with one workspace behind each other, too.
template <class T, attile::DqMode kMode>
void replays_backward() {
  const Problem<T, attile::Causal> problem{2, 3, 150, 64};
  REQUIRE_CUDA(attile::forward<64>(problem.forward()));
  std::size_t bytes = 0;
  REQUIRE_CUDA((attile::backward<64, 64, kMode>(nullptr, bytes, problem.backward())));
  const Device<unsigned char> workspace(bytes);
  const Captured captured([&](auto s) {
    return attile::backward<64, 64, kMode>(workspace.get(), bytes, problem.backward(), s);
  });
  REQUIRE(captured.error == cudaSuccess);
  CHECK(captured.kernels == 3);
  CHECK(captured.others == 0);
  captured.replay(20);
  const auto dq = problem.dq.download(), dk = problem.dk.download(), dv = problem.dv.download();
  REQUIRE_CUDA((attile::backward<64, 64, kMode>(workspace.get(), bytes, problem.backward())));
  const bool same_dq = kMode == attile::DqMode::kAccumulate ? same_sums(dq, problem.dq.download())
                                                            : same_bits(dq, problem.dq.download());
  CHECK(same_dq);
  CHECK(same_bits(dk, problem.dk.download()));
  CHECK(same_bits(dv, problem.dv.download()));
}

TEST_CASE("a captured backward pass is three kernels and replays to the same results") {
  replays_backward<float, attile::DqMode::kTwoPass>();
  replays_backward<float, attile::DqMode::kInOrder>();
  replays_backward<__half, attile::DqMode::kInOrder>();
  replays_backward<__half, attile::DqMode::kAccumulate>();
}

TEST_CASE("dispatch checks what it would run") {
  using attile::DqMode;
  using Ds = attile::dispatch::Dims<32, 64>;
  const Problem<float> problem{2, 1, 40, 32};
  const Device<float> bias(std::vector<float>(40 * 40, 0.5f)), gradient(40 * 40);
  const auto plain = problem.backward();
  attile::BackwardArgs<float, attile::NoMask, attile::LearnedBias<float>> args;
  args.q = plain.q, args.k = plain.k, args.v = plain.v, args.o = plain.o, args.dout = plain.dout;
  args.lse = plain.lse, args.dq = plain.dq, args.dk = plain.dk, args.dv = plain.dv;
  args.batch = 2, args.q_heads = args.kv_heads = 1, args.q_len = args.kv_len = 40;
  args.score_mod = {.bias = {.bias = bias.get(), .row_stride = 40},
                    .gradient = {.data = gradient.get(), .row_stride = 40}};
  CHECK(attile::dispatch::check<Ds>(args).why == std::string("head_dim is not given"));
  args.head_dim = 32;
  std::size_t bytes = 0;
  CHECK(attile::dispatch::check<Ds>(args));
  CHECK(attile::dispatch::backward<Ds>(nullptr, bytes, args) == cudaSuccess);
  // Both batches add to one gradient: in no fixed order.
  const attile::Check in_order = attile::dispatch::check<Ds, DqMode::kInOrder>(args);
  CHECK_FALSE(in_order);
  CHECK(std::string(in_order.why) == attile::check<32, 32, DqMode::kInOrder>(args).why);
  CHECK(attile::dispatch::backward<Ds, DqMode::kInOrder>(nullptr, bytes, args) == in_order.error);
  args.head_dim = 65;
  const attile::Check too_large = attile::dispatch::check<Ds>(args);
  CHECK(too_large.why == std::string("head_dim or head_dim_v is larger than every kernel here"));
  CHECK(attile::dispatch::backward<Ds>(nullptr, bytes, args) == too_large.error);

  auto forward = problem.forward();
  forward.head_dim = 32;
  CHECK(attile::dispatch::check<Ds>(forward));
  REQUIRE_CUDA(attile::dispatch::forward<Ds>(forward));
  const auto dispatched = problem.o.download();
  REQUIRE_CUDA(attile::forward<32>(forward));
  CHECK(same_bits(dispatched, problem.o.download()));
}

TEST_CASE("a replayed graph draws dropout afresh from seed and offset in device memory") {
  Problem<float, attile::NoMask, attile::PhiloxDropout> problem{1, 2, 100, 32};
  const Device<std::uint64_t> seed(std::vector<std::uint64_t>{42, 7});
  auto args = problem.forward();
  args.dropout = {
      .probability = 0.3f, .seed_pointer = seed.get(), .offset_pointer = seed.get() + 1};
  const Captured captured([&](auto s) { return attile::forward<32>(args, s); });
  REQUIRE(captured.error == cudaSuccess);
  captured.replay(1);
  const auto first = problem.o.download();
  captured.replay(1);
  CHECK(same_bits(first, problem.o.download()));
  const std::uint64_t next = 8;
  REQUIRE_CUDA(cudaMemcpy(seed.get() + 1, &next, sizeof next, cudaMemcpyHostToDevice));
  captured.replay(1);
  const auto second = problem.o.download();
  CHECK_FALSE(same_bits(first, second));
  args.dropout = {.probability = 0.3f, .seed = 42, .offset = 8};
  REQUIRE_CUDA(attile::forward<32>(args));
  CHECK(same_bits(second, problem.o.download()));
}

TEST_CASE("the one call runs the kernel that it names, and a tuning forces the family") {
  using attile::Causal;
  using attile::NoDropout;
  using attile::NoScoreMod;
  using Args = attile::ForwardArgs<__half, Causal>;
  const Problem<__half, Causal> problem{2, 3, 150, 64};
  const auto run = [&](auto kernel) {
    using Traits = typename decltype(kernel)::type;
    REQUIRE_CUDA(attile::forward<Traits>(problem.forward()));
    return problem.o.download();
  };
  const auto named = attile::with_forward_kernel<64>(problem.forward(), run);
  REQUIRE_CUDA(attile::forward<64>(problem.forward()));
  CHECK(same_bits(named, problem.o.download()));

  const auto family = [](auto kernel) { return std::string(decltype(kernel)::type::kFamily); };
  const int architecture = attile::arch::device_architecture();
  const bool warpgroups =
      architecture == 900 &&
      !attile::arch::is_empty(attile::forward_kernel<attile::sm90::DefaultForwardTraits<Args, 64>>);
  if (architecture >= 800) {
    const std::string expected = warpgroups ? "sm90" : "sm80";
    CHECK(attile::with_forward_kernel<64>(problem.forward(), family) == expected);
    CHECK(attile::with_backward_kernel<64>(problem.backward(), family) == expected);
    auto odd = problem.forward();
    ++odd.o.data;  // an address that tensor copies cannot take
    CHECK(attile::with_forward_kernel<64>(odd, family) == "sm80");
    CHECK(attile::with_forward_kernel<64>(attile::ForwardArgs<float>{}, family) == "sm80");
    CHECK(attile::with_backward_kernel<64>(attile::BackwardArgs<float>{}, family) == "sm80");
  }

  using Portable = attile::ForwardTraits<
      64, 64, 64, __half, Causal, NoScoreMod, NoDropout, 64,
      attile::portable::Tuning<attile::portable::TuningValues{.threads = 128}>>;
  static_assert(std::string_view(Portable::kFamily) == "portable");
  const auto portable = run(std::type_identity<Portable>{});
  REQUIRE(portable.size() == named.size());
  for (std::size_t i = 0; i < named.size(); ++i) {
    // Two roundings of P and of O to fp16, of values below 4.
    CHECK(std::abs(attile::to_float(portable[i]) - attile::to_float(named[i])) < 4 * 0x1p-9f);
  }
}

TEST_CASE("kernel_name says which kernel the one call runs") {
  using attile::Causal;
  const Problem<__half, Causal> problem{2, 3, 150, 64};
  const auto name = [](auto kernel) {
    return std::string(attile::kernel_name<typename decltype(kernel)::type>());
  };
  const auto forward = attile::with_forward_kernel<64>(problem.forward(), name);
  const auto backward = attile::with_backward_kernel<64>(problem.backward(), name);
  CHECK(attile::kernel_name<64>(problem.forward()) == forward);
  CHECK(attile::kernel_name<64>(problem.backward()) == backward);
  const std::string none = "no kernel: check says why";
  CHECK(attile::kernel_name<64>(attile::ForwardArgs<float>{}) == none);
  CHECK(attile::kernel_name<64>(attile::BackwardArgs<float>{}) == none);
  CHECK(attile::decode_kernel_name<64>(attile::ForwardArgs<float>{}) == none);
  using Portable = attile::ForwardTraits<
      64, 32, 60, float, Causal, attile::NoScoreMod, attile::NoDropout, 40,
      attile::portable::Tuning<attile::portable::TuningValues{.threads = 128}>>;
  static_assert(std::string_view(attile::kernel_name<Portable>()) ==
                "portable forward, Br 64, Bc 32, D 60, Dv 40");
  CHECK(backward.find(" backward, Br ") != std::string::npos);
}

TEST_CASE("workspace_size is what a call without workspace answers, or the sentence of check") {
  const Problem<__half, attile::Causal> problem{2, 3, 150, 64};
  std::size_t bytes = 7;
  REQUIRE_CUDA(attile::backward<64>(nullptr, bytes, problem.backward()));
  const attile::WorkspaceSize backward = attile::workspace_size<64>(problem.backward());
  CHECK(bool(backward));
  CHECK(backward.bytes == bytes);
  auto bad = problem.backward();
  bad.lse = nullptr;
  CHECK(std::string(attile::workspace_size<64>(bad).check.why) == attile::check<64>(bad).why);
  CHECK_FALSE(attile::workspace_size<64>(bad));
  REQUIRE_CUDA(attile::forward<64>(nullptr, bytes, problem.forward()));
  CHECK(bytes == attile::workspace_size<64>(problem.forward()).bytes);
  CHECK(bytes > 0);
}

TEST_CASE("forward takes a workspace by two calls, and gives the same bits") {
  const Problem<__half, attile::Causal> problem{2, 3, 150, 64};
  REQUIRE_CUDA(attile::forward<64>(problem.forward()));
  const auto without = problem.o.download();
  REQUIRE_CUDA(cudaMemset(problem.o.get(), 0xFF, problem.o.bytes()));
  std::size_t bytes = 0;
  REQUIRE_CUDA(attile::forward<64>(nullptr, bytes, problem.forward()));
  const Device<unsigned char> workspace(bytes);
  CHECK(attile::forward<64>(workspace.get() + 1, bytes, problem.forward()) ==
        cudaErrorInvalidValue);
  CHECK(attile::forward<64>(workspace.get(), bytes - 1, problem.forward()) ==
        cudaErrorInvalidValue);
  REQUIRE_CUDA(attile::forward<64>(workspace.get(), bytes, problem.forward()));
  CHECK(same_bits(without, problem.o.download()));
}

TEST_CASE("max_blocks leaves the bits, and is refused where a tile is a block") {
  const Problem<__half, attile::Causal> problem{2, 3, 700, 64};
  auto args = problem.forward();
  REQUIRE_CUDA(attile::forward<64>(args));
  const auto all = problem.o.download();
  const bool persistent = attile::with_forward_kernel<64>(
      args, [](auto kernel) { return decltype(kernel)::type::kPersistent; });
  for (const int blocks : {1, 2, 5, 1000000}) {
    args.max_blocks = blocks;
    if (!persistent) {
      CHECK(std::string(attile::check<64>(args).why).find("max_blocks") == 0);
      CHECK(attile::forward<64>(args) == cudaErrorInvalidValue);
      continue;
    }
    REQUIRE_CUDA(cudaMemset(problem.o.get(), 0xFF, problem.o.bytes()));
    REQUIRE_CUDA(attile::forward<64>(args));
    CHECK(same_bits(all, problem.o.download()));
    using Traits = attile::sm90::DefaultForwardTraits<decltype(args), 64>;
    CHECK(attile::forward_blocks<Traits>(args) <= static_cast<unsigned>(blocks));
  }
}

TEST_CASE("head_dim 192 alone is enough for kernels of D 192 and Dv 128") {
  using T = __half;
  constexpr int kLen = 70, kHeads = 2;
  const Device<T> in(3 * kLen * kHeads * 192), out(2 * kLen * kHeads * 128);
  REQUIRE_CUDA(cudaMemset(in.get(), 0x11, in.bytes()));
  const auto run = [&](int head_dim_v, T* to) {
    attile::ForwardArgs<T> args{
        .q = attile::bshd<const T>(in.get(), {.rows = kLen, .heads = kHeads, .dim = 192}),
        .k = attile::bshd<const T>(in.get() + 7, {.rows = kLen, .heads = kHeads, .dim = 192}),
        .v = attile::bshd<const T>(in.get() + 9, {.rows = kLen, .heads = kHeads, .dim = 128}),
        .o = attile::bshd(to, {.rows = kLen, .heads = kHeads, .dim = 128}),
        .batch = 1,
        .q_heads = kHeads,
        .kv_heads = kHeads,
        .q_len = kLen,
        .kv_len = kLen,
        .head_dim = 192,
        .head_dim_v = head_dim_v};
    return attile::forward<192, 128>(args);
  };
  REQUIRE_CUDA(run(0, out.get()));
  REQUIRE_CUDA(run(128, out.get() + kLen * kHeads * 128));
  const auto both = out.download();
  const std::size_t half = both.size() / 2;
  CHECK(same_bits(std::vector(both.begin(), both.begin() + half),
                  std::vector(both.begin() + half, both.end())));
}

TEST_CASE("the one call takes the largest tiles that the device has room for") {
  using Args = attile::ForwardArgs<__nv_bfloat16>;
  int limit = 0;
  REQUIRE_CUDA(cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
  const auto fits = [&](auto kernel) {
    return decltype(kernel)::type::kSharedBytes <= static_cast<std::size_t>(limit);
  };
  CHECK(attile::with_forward_kernel<64>(Args{}, fits));
  CHECK(attile::with_forward_kernel<128>(Args{}, fits));
  CHECK(attile::with_forward_kernel<256>(Args{}, fits));
  const auto is_table_of_227 = [](auto kernel) {
    return std::is_same_v<typename decltype(kernel)::type,
                          attile::sm80::DefaultForwardTraits<Args, 128, 128, 227>>;
  };
  // Where this file has code for the device itself.
  if (attile::arch::compiled_for([](int a) { return a == 900; }) && limit == 227 * 1024) {
    CHECK(attile::with_forward_kernel<128>(Args{}, is_table_of_227));
  }
}

TEST_CASE("the one call has larger tiles of keys for many rows under a causal mask") {
  using Args = attile::ForwardArgs<__nv_bfloat16, attile::Causal>;
  using Any = attile::sm90::DefaultForwardTraits<Args, 128>;
  using Many = attile::sm90::DefaultForwardTraits<Args, 128, 128, attile::sm90::TileSet::kLong>;
  static_assert(Any::kBc < Many::kBc);
  Args args;
  args.batch = args.q_heads = args.kv_heads = 1;
  args.q_len = args.kv_len = 0;
  if (!attile::sm90::runs<Any>(args)) {
    SKIP_CASE("no device of compute capability 9.0, or no code for it");
  }
  const auto has = [&](auto wanted, int q_len) {
    auto* const anywhere = reinterpret_cast<__nv_bfloat16*>(1 << 20);
    args.q_len = args.kv_len = q_len;
    args.q = args.k = args.v =
        attile::bhsd<const __nv_bfloat16>(anywhere, {.rows = q_len, .heads = 1, .dim = 128});
    args.o = attile::bhsd(anywhere + q_len * 128, {.rows = q_len, .heads = 1, .dim = 128});
    return attile::with_forward_kernel<128>(
        args, [&](auto kernel) { return std::is_same_v<decltype(kernel), decltype(wanted)>; });
  };
  for (const int q_len : {64, 1024, attile::sm90::long_sequence<attile::Causal>(128) - 1}) {
    CHECK(has(std::type_identity<Any>{}, q_len));
  }
  CHECK(has(std::type_identity<Many>{}, attile::sm90::long_sequence<attile::Causal>(128)));
}

TEST_CASE("refused arguments launch nothing and write nothing") {
  const Problem<float> problem{1, 4, 40, 32};
  const auto untouched = problem.o.download();
  auto heads = problem.forward();
  heads.kv_heads = 3;
  auto null = problem.forward();
  null.k.data = nullptr;
  auto scale = problem.forward();
  scale.scale = 0.0f;
  auto dim = problem.forward();
  dim.head_dim = 33;
  for (const auto& args : {heads, null, scale, dim}) {
    const attile::Check said = attile::check<32>(args);
    CHECK_FALSE(said);
    CHECK(std::strlen(said.why) > 0);
    const Captured captured([&](auto s) { return attile::forward<32>(args, s); });
    CHECK(captured.error == cudaErrorInvalidValue);
    CHECK(captured.kernels + captured.others == 0);
  }
  auto backward = problem.backward();
  backward.dv.row_stride = 1;
  std::size_t bytes = 0;
  const Captured captured(
      [&](auto s) { return attile::backward<32>(nullptr, bytes, backward, s); });
  CHECK(captured.error == cudaErrorInvalidValue);
  CHECK(bytes == 0);
  CHECK(same_bits(untouched, problem.o.download()));
}

TEST_CASE("an empty problem succeeds without a kernel, and empty keys are written as zeros") {
  const Problem<float> problem{1, 2, 10, 16};
  auto args = problem.forward();
  args.batch = 0;
  const Captured no_batch([&](auto s) { return attile::forward<16>(args, s); });
  CHECK(no_batch.error == cudaSuccess);
  CHECK(no_batch.kernels + no_batch.others == 0);
  args = problem.forward();
  args.kv_len = 0;
  args.k.data = args.v.data = nullptr;
  REQUIRE_CUDA(attile::forward<16>(args));
  for (const float x : problem.o.download()) CHECK(x == 0.0f);
  for (const float x : problem.lse.download()) CHECK(x == -attile::kInf);
}

TEST_CASE("the workspace of a backward pass is used to its last byte and no further") {
  const Problem<float> problem{1, 3, 77, 40};
  REQUIRE_CUDA(attile::forward<40>(problem.forward()));
  std::size_t bytes = 0;
  REQUIRE_CUDA(attile::backward<40>(nullptr, bytes, problem.backward()));
  constexpr std::size_t kGuard = 256;
  const Device<unsigned char> workspace(bytes + kGuard);
  auto dispatched = problem.backward();
  dispatched.head_dim = 40;
  const auto refused = [&](void* at, std::size_t size) {
    const attile::Check said = attile::check<40>(problem.backward(), at, size);
    CHECK(said.error == cudaErrorInvalidValue);
    CHECK(std::string(said.why) ==
          attile::dispatch::check<attile::dispatch::Dims<40>>(dispatched, at, size).why);
    const std::size_t constant = size;
    CHECK(attile::backward<40>(at, constant, problem.backward()) == said.error);
    return std::string(said.why);
  };
  CHECK(refused(workspace.get(), bytes - 1) ==
        "workspace_bytes is less than the call needs: a null workspace asks how many");
  CHECK(refused(workspace.get() + 4, bytes) == "workspace is not aligned to 16 bytes");
  CHECK(refused(nullptr, bytes) ==
        "workspace is null: such a call only sets workspace_bytes, which then must be a variable");
  for (const float x : problem.dq.download()) CHECK(std::isnan(x));
  auto negative = problem.backward();
  negative.q_len = -1;
  CHECK(std::string(attile::check<40>(negative, nullptr, 0).why) == "q_len is negative");
  CHECK(attile::check<40>(problem.backward(), workspace.get(), bytes));
  const std::size_t constant = bytes;
  REQUIRE_CUDA(attile::backward<40>(workspace.get(), constant, problem.backward()));
  const auto after = workspace.download();
  for (std::size_t i = bytes; i < after.size(); ++i) CHECK(after[i] == 0xFF);
  for (const float x : problem.dq.download()) CHECK(std::isfinite(x));
}

TEST_CASE("more heads and batches than a grid's second dimension holds", "[large]") {
  const Problem<float, attile::Causal> problem{71280, 2, 3, 8};
  REQUIRE_CUDA(attile::forward<8>(problem.forward()));
  std::size_t bytes = 0;
  REQUIRE_CUDA(attile::backward<8>(nullptr, bytes, problem.backward()));
  const Device<unsigned char> workspace(bytes);
  REQUIRE_CUDA(attile::backward<8>(workspace.get(), bytes, problem.backward()));
  auto args = problem.backward();
  const auto q = problem.q.download(), k = problem.k.download(), v = problem.v.download(),
             dout = problem.dout.download();
  args.q.data = q.data(), args.k.data = k.data(), args.v.data = v.data();
  args.dout.data = dout.data();
  args.head_dim = 8;
  const auto expected = attile::reference::backward(args);
  const auto compare = [](const std::vector<float>& got, const std::vector<double>& want) {
    double worst = 0.0;
    for (std::size_t i = 0; i < want.size(); ++i) {
      const double error = std::abs(got[i] - want[i]);
      if (!(error <= worst) && !std::isnan(worst)) worst = error;
    }
    return worst;
  };
  // Sums of at most 3 terms of magnitude below 100 in fp32.
  CHECK(compare(problem.dq.download(), expected.dq) < 5e-5);
  CHECK(compare(problem.dk.download(), expected.dk) < 5e-5);
  CHECK(compare(problem.dv.download(), expected.dv) < 5e-5);
}

TEST_CASE("offsets beyond 2^31 elements give the bits of a dense copy", "[large]") {
  // Token 225304 with a row stride of 9728 lies 2191757312 elements into the tensor.
  constexpr int kLen = 225312, kDim = 64, kRows = 64;
  constexpr std::int64_t kStride = 9728;
  constexpr std::size_t kElements = static_cast<std::size_t>(kLen) * kStride;
  if (free_bytes() < 5 * kElements * sizeof(__half)) SKIP_CASE("not enough device memory");
  const auto dense = normal<__half>(static_cast<std::size_t>(kLen) * kDim, 5);
  const Device<__half> dense_kv(dense), spread_kv(kElements), spread_dk(kElements),
      spread_dv(kElements), dk(dense.size()), dv(dense.size());
  const auto copy_rows = [&](__half* to, std::size_t to_stride, const __half* from,
                             std::size_t from_stride) {
    REQUIRE_CUDA(cudaMemcpy2D(to, to_stride * sizeof(__half), from, from_stride * sizeof(__half),
                              kDim * sizeof(__half), kLen, cudaMemcpyDeviceToDevice));
  };
  copy_rows(spread_kv.get(), kStride, dense_kv.get(), kDim);

  const Problem<__half> problem{1, 1, kRows, kDim};
  auto forward = problem.forward();
  forward.kv_len = kLen;
  using Portable = attile::portable::DefaultForwardTraits<decltype(forward), kDim>;
  for (const bool portable : {false, true}) {
    const auto run = [&] {
      return portable ? attile::forward<Portable>(forward) : attile::forward<kDim>(forward);
    };
    forward.k = forward.v = {dense_kv.get(), 0, 0, kDim};
    REQUIRE_CUDA(run());
    const auto expected = problem.o.download();
    forward.k = forward.v = {spread_kv.get(), 0, 0, kStride};
    REQUIRE_CUDA(run());
    CHECK(same_bits(expected, problem.o.download()));
  }

  constexpr auto kMode = attile::DqMode::kTwoPass;
  auto backward = problem.backward();
  backward.kv_len = kLen;
  backward.k = backward.v = forward.k;
  backward.dk = {spread_dk.get(), 0, 0, kStride};
  backward.dv = {spread_dv.get(), 0, 0, kStride};
  std::size_t bytes = 0;
  REQUIRE_CUDA((attile::backward<kDim, kDim, kMode>(nullptr, bytes, backward)));
  const Device<unsigned char> workspace(bytes);
  REQUIRE_CUDA((attile::backward<kDim, kDim, kMode>(workspace.get(), bytes, backward)));
  const Device<__half> gathered_dk(dense.size()), gathered_dv(dense.size());
  copy_rows(gathered_dk.get(), kDim, spread_dk.get(), kStride);
  copy_rows(gathered_dv.get(), kDim, spread_dv.get(), kStride);
  const auto spread_dq = problem.dq.download();
  backward.k = backward.v = {dense_kv.get(), 0, 0, kDim};
  backward.dk = {dk.get(), 0, 0, kDim};
  backward.dv = {dv.get(), 0, 0, kDim};
  REQUIRE_CUDA((attile::backward<kDim, kDim, kMode>(workspace.get(), bytes, backward)));
  CHECK(same_bits(spread_dq, problem.dq.download()));
  CHECK(same_bits(dk.download(), gathered_dk.download()));
  CHECK(same_bits(dv.download(), gathered_dv.download()));
}

TEST_CASE("memory is linear in the length: 131072 tokens, forward and backward", "[large]") {
  constexpr int kLen = 131072, kDim = 64;
  const Problem<float> problem{1, 1, kLen, kDim};
  REQUIRE_CUDA(attile::forward<kDim>(problem.forward()));
  std::size_t bytes = 0, half_bytes = 0;
  auto half = problem.backward();
  half.q_len = half.kv_len = kLen / 2;
  REQUIRE_CUDA(attile::backward<kDim>(nullptr, half_bytes, half));
  REQUIRE_CUDA(attile::backward<kDim>(nullptr, bytes, problem.backward()));
  CHECK(bytes == 2 * half_bytes);
  const Device<unsigned char> workspace(bytes);
  REQUIRE_CUDA(attile::backward<kDim>(workspace.get(), bytes, problem.backward()));
  for (const float x : problem.dk.download()) REQUIRE(std::isfinite(x));

  // Rows of an unmasked problem do not depend on each other: hold the last four against fp64.
  constexpr int kRows = 4;
  constexpr std::size_t kFirst = static_cast<std::size_t>(kLen - kRows) * kDim;
  const auto q = problem.q.download(), k = problem.k.download(), v = problem.v.download(),
             dout = problem.dout.download();
  auto args = problem.backward();
  args.q.data = q.data() + kFirst, args.k.data = k.data(), args.v.data = v.data();
  args.dout.data = dout.data() + kFirst;
  args.q_len = kRows;
  args.head_dim = kDim;
  const auto expected = attile::reference::backward(args);
  attile::ForwardArgs<float> forward = problem.forward();
  forward.q = args.q, forward.k = args.k, forward.v = args.v;
  forward.q_len = kRows, forward.head_dim = kDim;
  const auto expected_o = attile::reference::forward(forward).o;
  const auto o = problem.o.download(), dq = problem.dq.download();
  // |O| is near 0.02 and |dQ| near 0.002 here: fp32 sums of 131072 terms.
  for (std::size_t i = 0; i < expected_o.size(); ++i) {
    CHECK(std::abs(o[kFirst + i] - expected_o[i]) < 2e-7);
    CHECK(std::abs(dq[kFirst + i] - expected.dq[i]) < 2e-7);
  }
}

/// A thousand K/V blocks of each head, of which a part is resident at a time: those that wait must
/// not keep out those that they wait for.
template <class M>
void in_order_ends() {
  constexpr int kDim = 16, kLen = 16384;
  const Problem<float, M> problem{1, 4, kLen, kDim};
  using Args = attile::BackwardArgs<float, M>;
  const auto gradients = [&](auto traits) {
    using Traits = decltype(traits);
    std::size_t bytes = 0;
    REQUIRE_CUDA(attile::backward<Traits>(nullptr, bytes, problem.backward()));
    const Device<unsigned char> workspace(bytes);
    REQUIRE_CUDA(attile::backward<Traits>(workspace.get(), bytes, problem.backward()));
    return problem.dq.download();
  };
  REQUIRE_CUDA(attile::forward<kDim>(problem.forward()));
  const auto in_order = gradients(
      attile::BackwardTraits<16, 16, kDim, float, M, attile::NoScoreMod, attile::NoDropout, kDim,
                             attile::DqMode::kInOrder, attile::portable::Tuning<>>{});
  const auto two_pass =
      gradients(attile::DefaultBackwardTraits<Args, kDim, kDim, attile::DqMode::kTwoPass>{});
  double largest = 0, difference = 0;
  for (std::size_t i = 0; i < in_order.size(); ++i) {
    largest = std::max<double>(largest, std::abs(two_pass[i]));
    difference = std::max<double>(difference, std::abs(in_order[i] - two_pass[i]));
  }
  CHECK(largest > 0);
  CHECK(difference < 2e-5 * largest);  // two orders of fp32 sums of 16384 terms
}

TEST_CASE("in order, with more blocks than the device holds", "[large]") {
  in_order_ends<attile::NoMask>();
  in_order_ends<attile::Causal>();
}

bool has_sm90() {
  using Args = attile::ForwardArgs<__nv_bfloat16, attile::Causal>;
  return attile::sm90::runs<attile::sm90::DefaultForwardTraits<Args, 64>>({.batch = 0});
}

/// More heads than are in flight at a time, and more blocks than the device holds.
template <int D>
void in_order_is_what_is_accumulated() {
  constexpr int kHeads = 17;
  const Problem<__nv_bfloat16, attile::Causal> problem{1, kHeads, 4096, D};
  const auto args = problem.backward();
  const auto gradients = [&]<attile::DqMode kMode>() {
    using Traits = attile::sm90::DefaultBackwardTraits<std::decay_t<decltype(args)>, D, D, kMode>;
    const int q_tiles = attile::ceil_div(args.q_len, Traits::kBr);
    const int kv_tiles = attile::ceil_div(args.kv_len, Traits::kBc);
    REQUIRE(attile::heads_in_flight<Traits>(kHeads, 1, q_tiles, kv_tiles) < kHeads);
    std::size_t bytes = 0;
    REQUIRE_CUDA(attile::backward<Traits>(nullptr, bytes, args));
    const Device<unsigned char> workspace(bytes);
    REQUIRE_CUDA(attile::backward<Traits>(workspace.get(), bytes, args));
    return std::array{problem.dq.download(), problem.dk.download(), problem.dv.download()};
  };
  using Forward = typename decltype(problem)::Forward;
  REQUIRE_CUDA(
      (attile::forward<attile::sm90::DefaultForwardTraits<Forward, D>>(problem.forward())));
  const auto in_order = gradients.template operator()<attile::DqMode::kInOrder>();
  const auto accumulated = gradients.template operator()<attile::DqMode::kAccumulate>();
  for (int g = 0; g < 3; ++g) {
    double worst = 0;  // fp32 sums of the same terms in another order, as bf16
    for (std::size_t i = 0; i < in_order[g].size(); ++i) {
      const double x = attile::to_float(in_order[g][i]), y = attile::to_float(accumulated[g][i]);
      REQUIRE(std::isfinite(x));
      worst = std::max(worst, std::abs(x - y) / (std::max(std::abs(x), std::abs(y)) + 1e-3));
    }
    CHECK(worst <= 1.0 / 64);
  }
}

TEST_CASE("in order, with heads in rounds", "[large]") {
  if (!has_sm90()) SKIP_CASE("no device of compute capability 9.0, or no code for it");
  in_order_is_what_is_accumulated<64>();
  in_order_is_what_is_accumulated<256>();
}

template <attile::DqMode kMode>
void same_bits_at_every_run() {
  const Problem<__nv_bfloat16, attile::Causal> problem{2, 5, 513, 96};
  std::size_t bytes = 0;
  REQUIRE_CUDA((attile::backward<96, 96, kMode>(nullptr, bytes, problem.backward())));
  const Device<unsigned char> workspace(bytes);
  std::vector<__nv_bfloat16> first[4];
  for (int run = 0; run < 100; ++run) {
    REQUIRE_CUDA(attile::forward<96>(problem.forward()));
    REQUIRE_CUDA((attile::backward<96, 96, kMode>(workspace.get(), bytes, problem.backward())));
    const std::vector<__nv_bfloat16> now[4] = {problem.o.download(), problem.dq.download(),
                                               problem.dk.download(), problem.dv.download()};
    for (int i = 0; i < 4; ++i) {
      if (run == 0) first[i] = now[i];
      REQUIRE(same_bits(first[i], now[i]));
    }
  }
}

TEST_CASE("the same bits at every run", "[large]") {
  same_bits_at_every_run<attile::DqMode::kTwoPass>();
  same_bits_at_every_run<attile::DqMode::kInOrder>();
}

}  // namespace kernel_api
