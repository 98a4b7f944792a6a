// SPDX-License-Identifier: MIT
// A kind of policy that the library does not have, added to it as policy/overlay.cmake says: what
// the kernels of all families make of it, on the simulated machine. A factor of a half, which
// rounds nothing, has to give the bits of half the scale.
#include <attile/forward.cuh>

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <vector>

#include "../examples/support.cuh"
#include "support/random.h"

namespace {

constexpr int kLen = 40, kDim = 64;

template <class T>
std::vector<T> numbers(int seed) {
  const attile_test::Random random(static_cast<std::uint64_t>(seed));
  std::vector<T> x;
  for (int i = 0; i < kLen * kDim; ++i) x.push_back(attile::from_float<T>(random.normal(i)));
  return x;
}

template <class Traits>
std::vector<typename Traits::ElementType> forward(float scale, float temperature) {
  using T = typename Traits::ElementType;
  const example::DeviceArray<T> q(numbers<T>(1)), k(numbers<T>(2)), v(numbers<T>(3));
  const example::DeviceArray<T> o(std::vector<T>(kLen * kDim));
  typename Traits::Args args;
  args.q = attile::bhsd<const T>(q.get(), {.rows = kLen, .heads = 1, .dim = kDim});
  args.k = attile::bhsd<const T>(k.get(), {.rows = kLen, .heads = 1, .dim = kDim});
  args.v = attile::bhsd<const T>(v.get(), {.rows = kLen, .heads = 1, .dim = kDim});
  args.o = attile::bhsd(o.get(), {.rows = kLen, .heads = 1, .dim = kDim});
  args.batch = args.q_heads = args.kv_heads = 1;
  args.q_len = args.kv_len = kLen;
  args.scale = scale;
  if constexpr (requires { args.temperature.inverse; }) args.temperature = {temperature};
  if (attile::forward<Traits>(args) != cudaSuccess) std::puts("forward is refused");
  return o.download();
}

template <class T, class Tuning>
int faults(const char* family) {
  using attile::Causal;
  using attile::Policies;
  using Tempered = Policies<Causal, attile::Temperature>;
  using With = typename Tuning::template Forward<64, 64, kDim, attile::Elements<T>, Tempered, kDim>;
  using Plain =
      typename Tuning::template Forward<64, 64, kDim, attile::Elements<T>, Policies<Causal>, kDim>;
  const auto want = forward<Plain>(0.0625f, 1.0f);
  const auto got = forward<With>(0.125f, 0.5f);
  const auto other = forward<With>(0.125f, 1.0f);
  const auto same = [&](const auto& x) {
    return std::memcmp(x.data(), want.data(), want.size() * sizeof(T)) == 0;
  };
  typename With::Args args;
  args.batch = args.q_heads = args.kv_heads = args.q_len = args.kv_len = 1;
  args.temperature.inverse = -1.0f;
  const attile::Check check = attile::check_arguments(args, kDim, kDim);
  const bool refuses = !check && std::strncmp(check.why, "Temperature:", 12) == 0;
  if (same(got) && !same(other) && refuses) return 0;
  std::printf("%s: the policy is not applied as it should be\n", family);
  return 1;
}

}  // namespace

int main() {
  return faults<float, attile::portable::Tuning<>>("portable") +
         faults<__half, attile::sm80::Tuning<>>("sm80") +
         faults<__half, attile::sm90::Tuning<>>("sm90");
}
