// SPDX-License-Identifier: MIT
// A row's bits depend on its own sequence: every batch element gives the same O, LSE, dQ, dK and dV
// alone as among others, in problems of a hundred to two thousand work items, where blocks compute
// several of them one behind the other.
#include <attile/attile.cuh>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "support/catch.h"
#include "support/device.h"
#include "support/random.h"

namespace kernel_batch_bits {

using attile::DqMode;
using attile_test::Device;
using Bf16 = __nv_bfloat16;

struct Shape {
  const char* name;
  int batch, q_heads, kv_heads, q_len, kv_len;
};

/// Normal numbers of a few that are drawn.
template <class T>
std::vector<T> random_values(std::size_t count, int seed) {
  constexpr std::size_t kDrawn = 1 << 16;
  const attile_test::Random random(seed);
  std::vector<T> drawn(kDrawn), values(count);
  for (std::size_t i = 0; i < kDrawn; ++i) drawn[i] = attile::from_float<T>(random.normal(i));
  for (std::size_t i = 0; i < count; ++i) values[i] = drawn[random.bits(i) % kDrawn];
  return values;
}

/// Whether an element is left as the memory was at first.
template <class T>
bool has_gaps(const std::vector<T>& values) {
  unsigned char untouched[sizeof(T)];
  std::memset(untouched, 0xFF, sizeof untouched);
  for (const T& value : values) {
    if (std::memcmp(&value, untouched, sizeof value) == 0) return true;
  }
  return false;
}

/// Elements with other bits in an array of one batch element than in its part of a whole one.
template <class T>
std::size_t differing(const std::vector<T>& whole, const std::vector<T>& one, int element) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < one.size(); ++i) {
    count += std::memcmp(&whole[element * one.size() + i], &one[i], sizeof(T)) != 0;
  }
  return count;
}

/// A user's modifier with a product and a sum in one expression, and no fused operation by name.
struct Affine {
  float factor = 1, summand = 0;

  template <class Real>
  ATTILE_HOST_DEVICE attile::ModifiedScore<Real> operator()(Real s, attile::ScoreIndex,
                                                            attile::Extent) const {
    return {s * Real(factor) + Real(summand), Real(factor)};
  }
};

/// Slopes of the heads and a bias for each row and column, the same for all batch elements.
struct PolicyArrays {
  Device<float> slopes, bias;
  Device<__half> half_bias;
  std::int64_t columns;

  explicit PolicyArrays(const Shape& s)
      : slopes(random_values<float>(s.q_heads, 21)),
        bias(random_values<float>(std::size_t(s.q_len) * s.kv_len, 22)),
        half_bias(random_values<__half>(std::size_t(s.q_len) * s.kv_len, 23)),
        columns(s.kv_len) {}

  template <class Policy>
  void set(Policy& policy) const {
    // Types are named: nvcc 13.0 takes a list without one, assigned in a template, in the order of
    // the members, whatever its designators say.
    if constexpr (std::is_same_v<Policy, attile::SlidingWindow>) {
      policy = Policy{.left = 100, .right = 30};
    } else if constexpr (std::is_same_v<Policy, attile::Softcap>) {
      policy = Policy{.cap = 3.0f};
    } else if constexpr (std::is_same_v<Policy, attile::Alibi>) {
      policy.slopes = slopes.get();
    } else if constexpr (std::is_same_v<Policy, attile::AdditiveBias<float>>) {
      policy = Policy{.bias = bias.get(), .row_stride = columns};
    } else if constexpr (std::is_same_v<Policy, attile::AdditiveBias<__half>>) {
      policy = Policy{.bias = half_bias.get(), .row_stride = columns};
    } else if constexpr (std::is_same_v<Policy, Affine>) {
      policy = Policy{1.25f, 0.375f};
    } else {
      static_assert(std::is_empty_v<Policy>, "its arrays are to be set here");
    }
  }
};

/// What a problem reads.
template <class T, int D, int Dv>
struct Inputs {
  Shape s;
  std::size_t rows, keys;  // of a batch element
  Device<T> q, k, v, dout;
  PolicyArrays policies;

  explicit Inputs(const Shape& shape)
      : s(shape),
        rows(std::size_t(s.q_heads) * s.q_len),
        keys(std::size_t(s.kv_heads) * s.kv_len),
        q(random_values<T>(s.batch * rows * D, 1)),
        k(random_values<T>(s.batch * keys * D, 2)),
        v(random_values<T>(s.batch * keys * Dv, 3)),
        dout(random_values<T>(s.batch * rows * Dv, 4)),
        policies(s) {}

  /// Of `batch` elements from `first` on.
  template <class Args>
  Args args(int first, int batch) const {
    using attile::bshd;
    Args a{};
    a.q =
        bshd<const T>(q.get() + first * rows * D, {.rows = s.q_len, .heads = s.q_heads, .dim = D});
    a.k = bshd<const T>(k.get() + first * keys * D,
                        {.rows = s.kv_len, .heads = s.kv_heads, .dim = D});
    a.v = bshd<const T>(v.get() + first * keys * Dv,
                        {.rows = s.kv_len, .heads = s.kv_heads, .dim = Dv});
    a.batch = batch;
    a.q_heads = s.q_heads, a.kv_heads = s.kv_heads;
    a.q_len = s.q_len, a.kv_len = s.kv_len;
    policies.set(a.mask);
    policies.set(a.score_mod);
    return a;
  }
};

/// What it writes, of `batch` elements.
template <class T, int D, int Dv>
struct Outputs {
  Device<T> o, dq, dk, dv;
  Device<float> lse;

  Outputs(const Inputs<T, D, Dv>& in, int batch)
      : o(batch * in.rows * Dv),
        dq(batch * in.rows * D),
        dk(batch * in.keys * D),
        dv(batch * in.keys * Dv),
        lse(batch * in.rows) {}
};

/// On Hopper the family sm90 has to run 16-bit types, or nothing would be tested.
template <class Traits>
bool is_expected() {
  const bool hopper =
      attile::arch::device_architecture() == 900 &&
      attile::arch::compiled_for([](int a) { return a == 900; }) &&
      !attile::arch::is_empty(attile::forward_kernel<
                              attile::sm90::DefaultForwardTraits<attile::ForwardArgs<__half>, 64>>);
  return !hopper || sizeof(typename Traits::ElementType) == 4 ||
         std::string(Traits::kFamily) == "sm90";
}

/// The family that runs the arguments by the one call.
struct OneCall {
  template <class Args, int D, int Dv>
  static cudaError_t forward(const Args& a) {
    const auto expected = [](auto kernel) {
      return is_expected<typename decltype(kernel)::type>();
    };
    REQUIRE(attile::with_forward_kernel<D, Dv>(a, expected));
    return attile::forward<D, Dv>(a);
  }
  template <class Args, int D, int Dv, DqMode kMode>
  static cudaError_t backward(void* workspace, std::size_t& bytes, const Args& a) {
    const auto expected = [](auto kernel) {
      return is_expected<typename decltype(kernel)::type>();
    };
    REQUIRE(attile::with_backward_kernel<D, Dv, kMode>(a, expected));
    return attile::backward<D, Dv, kMode>(workspace, bytes, a);
  }
};
struct Sm80 {
  template <class Args, int D, int Dv>
  static cudaError_t forward(const Args& a) {
    return attile::forward<attile::sm80::DefaultForwardTraits<Args, D, Dv>>(a);
  }
  template <class Args, int D, int Dv, DqMode kMode>
  static cudaError_t backward(void* workspace, std::size_t& bytes, const Args& a) {
    return attile::backward<attile::sm80::DefaultBackwardTraits<Args, D, Dv, kMode>>(workspace,
                                                                                     bytes, a);
  }
};
struct Portable {
  template <class Args, int D, int Dv>
  static cudaError_t forward(const Args& a) {
    return attile::forward<attile::portable::DefaultForwardTraits<Args, D, Dv>>(a);
  }
  template <class Args, int D, int Dv, DqMode kMode>
  static cudaError_t backward(void* workspace, std::size_t& bytes, const Args& a) {
    return attile::backward<attile::portable::DefaultBackwardTraits<Args, D, Dv, kMode>>(workspace,
                                                                                         bytes, a);
  }
};

template <class Family, class M, class S, class T, int D, int Dv>
void run_forward(const Inputs<T, D, Dv>& in, const Outputs<T, D, Dv>& out, int first, int batch) {
  using Args = attile::ForwardArgs<T, M, S>;
  auto a = in.template args<Args>(first, batch);
  a.o = attile::bshd(out.o.get(), {.rows = in.s.q_len, .heads = in.s.q_heads, .dim = Dv});
  a.lse = out.lse.get();
  REQUIRE(Family::template forward<Args, D, Dv>(a) == cudaSuccess);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
}

template <class Family, class T, int D, class M = attile::NoMask, class S = attile::NoScoreMod,
          int Dv = D>
void forward_alone_and_together(const Shape& shape) {
  const Inputs<T, D, Dv> in(shape);
  const Outputs<T, D, Dv> whole(in, shape.batch), one(in, 1);
  run_forward<Family, M, S>(in, whole, 0, shape.batch);
  const auto o = whole.o.download();
  const auto lse = whole.lse.download();
  REQUIRE(!has_gaps(o));
  REQUIRE(!has_gaps(lse));
  for (int b = 0; b < shape.batch; ++b) {
    INFO(shape.name << ", D " << D << ", batch element " << b);
    run_forward<Family, M, S>(in, one, b, 1);
    CHECK(differing(o, one.o.download(), b) == 0);
    CHECK(differing(lse, one.lse.download(), b) == 0);
  }
}

/// `made`: O and LSE of all batch elements.
template <class Family, DqMode kMode, class M, class S, class T, int D, int Dv>
void run_backward(const Inputs<T, D, Dv>& in, const Outputs<T, D, Dv>& made,
                  const Outputs<T, D, Dv>& out, int first, int batch) {
  using Args = attile::BackwardArgs<T, M, S>;
  auto a = in.template args<Args>(first, batch);
  const Shape& s = in.s;
  const std::size_t row = first * in.rows;
  a.o = attile::bshd<const T>(made.o.get() + row * Dv,
                              {.rows = s.q_len, .heads = s.q_heads, .dim = Dv});
  a.dout = attile::bshd<const T>(in.dout.get() + row * Dv,
                                 {.rows = s.q_len, .heads = s.q_heads, .dim = Dv});
  a.lse = made.lse.get() + row;
  a.dq = attile::bshd(out.dq.get(), {.rows = s.q_len, .heads = s.q_heads, .dim = D});
  a.dk = attile::bshd(out.dk.get(), {.rows = s.kv_len, .heads = s.kv_heads, .dim = D});
  a.dv = attile::bshd(out.dv.get(), {.rows = s.kv_len, .heads = s.kv_heads, .dim = Dv});
  std::size_t bytes = 0;
  const auto call = [&](void* workspace) {
    return Family::template backward<Args, D, Dv, kMode>(workspace, bytes, a);
  };
  REQUIRE(call(nullptr) == cudaSuccess);
  const Device<unsigned char> workspace(bytes);
  REQUIRE(call(workspace.get()) == cudaSuccess);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
}

/// dQ where its sum has an order; dK and dV in every mode.
template <class Family, class T, int D, DqMode kMode, class M = attile::NoMask,
          class S = attile::NoScoreMod, int Dv = D>
void backward_alone_and_together(const Shape& shape) {
  const Inputs<T, D, Dv> in(shape);
  const Outputs<T, D, Dv> whole(in, shape.batch), one(in, 1);
  run_forward<OneCall, M, S>(in, whole, 0, shape.batch);
  run_backward<Family, kMode, M, S>(in, whole, whole, 0, shape.batch);
  const auto dq = whole.dq.download(), dk = whole.dk.download(), dv = whole.dv.download();
  for (const auto* gradient : {&dq, &dk, &dv}) REQUIRE(!has_gaps(*gradient));
  for (int b = 0; b < shape.batch; ++b) {
    INFO(shape.name << ", D " << D << ", batch element " << b);
    run_backward<Family, kMode, M, S>(in, whole, one, b, 1);
    if (kMode != DqMode::kAccumulate) CHECK(differing(dq, one.dq.download(), b) == 0);
    CHECK(differing(dk, one.dk.download(), b) == 0);
    CHECK(differing(dv, one.dv.download(), b) == 0);
  }
}

[[maybe_unused]] constexpr Shape kLong{"768 tiles of 128 rows", 3, 16, 16, 2048, 2048};
[[maybe_unused]] constexpr Shape kMany{"1920 tiles", 15, 16, 2, 1000, 700};
[[maybe_unused]] constexpr Shape kGrouped{"576 tiles", 6, 16, 2, 696, 696};
[[maybe_unused]] constexpr Shape kOddHeads{"135 tiles", 5, 3, 3, 1100, 1100};
[[maybe_unused]] constexpr Shape kFewRows{"packed heads", 70, 32, 4, 3, 600};
constexpr Shape kFewHeads{"108 tiles", 3, 6, 6, 700, 700};
constexpr Shape kFewGroups{"108 tiles, grouped", 3, 6, 2, 700, 700};
constexpr Shape kBiased{"768 tiles", 16, 12, 12, 512, 512};
[[maybe_unused]] constexpr Shape kSmall{"120 tiles", 5, 6, 3, 250, 250};

TEST_CASE("batch_bits.forward") {
  forward_alone_and_together<OneCall, Bf16, 128>(kLong);
  forward_alone_and_together<OneCall, Bf16, 128, attile::Causal>(kLong);
  forward_alone_and_together<OneCall, Bf16, 64, attile::Causal>(kFewHeads);
  forward_alone_and_together<OneCall, Bf16, 256, attile::Causal>(kFewGroups);
#if ATTILE_TEST_FULL
  forward_alone_and_together<OneCall, Bf16, 128, attile::Causal>(kMany);
  forward_alone_and_together<OneCall, Bf16, 128, attile::Causal>(kFewRows);
  forward_alone_and_together<OneCall, Bf16, 192>(kGrouped);
  forward_alone_and_together<OneCall, __half, 64, attile::Causal>(kLong);
  forward_alone_and_together<OneCall, __half, 64, attile::Causal>(kOddHeads);
  forward_alone_and_together<OneCall, __half, 256, attile::Causal>(kOddHeads);
  forward_alone_and_together<OneCall, __half, 128, attile::SlidingWindow>(kMany);
  forward_alone_and_together<OneCall, __half, 64, attile::Causal, attile::Alibi>(kGrouped);
  forward_alone_and_together<OneCall, __half, 64, attile::NoMask, attile::Softcap>(kGrouped);
  forward_alone_and_together<OneCall, __half, 64, attile::NoMask, attile::AdditiveBias<float>>(
      kGrouped);
  forward_alone_and_together<OneCall, __half, 64, attile::Causal, attile::AdditiveBias<float>>(
      kGrouped);
  forward_alone_and_together<OneCall, __half, 64, attile::Causal, Affine>(kGrouped);
  forward_alone_and_together<OneCall, float, 64, attile::Causal>(kGrouped);
  forward_alone_and_together<Sm80, __half, 128, attile::Causal>(kGrouped);
  forward_alone_and_together<Sm80, Bf16, 64, attile::Causal, attile::Alibi>(kOddHeads);
  forward_alone_and_together<Portable, __half, 64, attile::Causal>(kSmall);
#endif
}

TEST_CASE("batch_bits.backward") {
  backward_alone_and_together<OneCall, Bf16, 128, DqMode::kInOrder, attile::Causal>(kGrouped);
  backward_alone_and_together<OneCall, Bf16, 64, DqMode::kInOrder, attile::Causal>(kFewHeads);
  backward_alone_and_together<OneCall, Bf16, 256, DqMode::kInOrder, attile::Causal>(kFewGroups);
  // Tiles of a bias that TMA copies are replaced while other warps and blocks load.
  backward_alone_and_together<OneCall, __half, 64, DqMode::kAccumulate, attile::NoMask,
                              attile::AdditiveBias<__half>>(kBiased);
  backward_alone_and_together<OneCall, __half, 128, DqMode::kAccumulate, attile::Causal,
                              attile::AdditiveBias<__half>>(kBiased);
#if ATTILE_TEST_FULL
  backward_alone_and_together<OneCall, Bf16, 128, DqMode::kInOrder, attile::Causal>(kOddHeads);
  backward_alone_and_together<OneCall, Bf16, 128, DqMode::kAccumulate, attile::Causal>(kGrouped);
  backward_alone_and_together<OneCall, __half, 64, DqMode::kInOrder>(kOddHeads);
  backward_alone_and_together<OneCall, __half, 64, DqMode::kInOrder, attile::Causal, attile::Alibi>(
      kGrouped);
  backward_alone_and_together<OneCall, __half, 256, DqMode::kInOrder, attile::Causal>(kGrouped);
  backward_alone_and_together<OneCall, __half, 256, DqMode::kInOrder, attile::Causal>(kOddHeads);
  backward_alone_and_together<OneCall, float, 64, DqMode::kInOrder, attile::Causal>(kSmall);
  backward_alone_and_together<Sm80, __half, 128, DqMode::kInOrder, attile::Causal>(kGrouped);
  backward_alone_and_together<Sm80, Bf16, 64, DqMode::kAccumulate>(kOddHeads);
  backward_alone_and_together<Portable, __half, 64, DqMode::kInOrder, attile::Causal>(kSmall);
  backward_alone_and_together<Portable, __half, 64, DqMode::kTwoPass, attile::Causal>(kSmall);
#endif
}

}  // namespace kernel_batch_bits
