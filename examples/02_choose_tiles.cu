// SPDX-License-Identifier: MIT
// The caller's tiles: each Traits is a kernel of its own, and the result does not depend on them
// beyond rounding. The tuning names the family: on tensor cores, the default for fp16, Br and Bc
// are multiples of 16; for the portable kernels they may be any numbers.
#include <attile/attile.cuh>

#include "support.cuh"

namespace {

constexpr int kHeads = 16, kLen = 1000, kDim = 64;

template <int Br, int Bc>
using Kernel = attile::ForwardTraits<Br, Bc, kDim, __half, attile::Causal>;
template <int Br, int Bc, int kThreads>
using Portable = attile::ForwardTraits<
    Br, Bc, kDim, __half, attile::Causal, attile::NoScoreMod, attile::NoDropout, kDim,
    attile::portable::Tuning<attile::portable::TuningValues{.threads = kThreads}>>;

template <class Traits>
std::vector<float> run(const __half* q, const __half* k, const __half* v) {
  const example::DeviceArray<__half> o(kHeads * kLen * kDim);
  const typename Traits::Args args{
      .q = attile::bhsd(q, {.rows = kLen, .heads = kHeads, .dim = kDim}),
      .k = attile::bhsd(k, {.rows = kLen, .heads = kHeads, .dim = kDim}),
      .v = attile::bhsd(v, {.rows = kLen, .heads = kHeads, .dim = kDim}),
      .o = attile::bhsd(o.get(), {.rows = kLen, .heads = kHeads, .dim = kDim}),
      .batch = 1,
      .q_heads = kHeads,
      .kv_heads = kHeads,
      .q_len = kLen,
      .kv_len = kLen,
  };
  cudaEvent_t begin, end;
  example::must(cudaEventCreate(&begin), "cudaEventCreate");
  example::must(cudaEventCreate(&end), "cudaEventCreate");
  example::must(attile::forward<Traits>(args), "forward");  // loads the kernel
  example::must(cudaEventRecord(begin), "cudaEventRecord");
  example::must(attile::forward<Traits>(args), "forward");
  example::must(cudaEventRecord(end), "cudaEventRecord");
  example::must(cudaEventSynchronize(end), "the kernel");
  float ms = 0.0f;
  example::must(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
  example::must(cudaEventDestroy(begin), "cudaEventDestroy");
  example::must(cudaEventDestroy(end), "cudaEventDestroy");
  std::printf("%-8s Br %3d, Bc %3d, %3d threads: %6zu bytes of shared memory, %.3f ms\n",
              Traits::kFamily, Traits::kBr, Traits::kBc, Traits::kThreads, Traits::kSharedBytes,
              ms);
  std::vector<float> result;
  for (const __half x : o.download()) result.push_back(attile::to_float(x));
  return result;
}

}  // namespace

int main() {
  example::need_gpu();
  const std::size_t size = kHeads * kLen * kDim;
  const example::DeviceArray<__half> q(example::normal<__half>(size, 1));
  const example::DeviceArray<__half> k(example::normal<__half>(size, 2));
  const example::DeviceArray<__half> v(example::normal<__half>(size, 3));

  const auto base = run<Kernel<128, 64>>(q.get(), k.get(), v.get());
  const auto small = run<Kernel<64, 32>>(q.get(), k.get(), v.get());
  const auto portable = run<Portable<64, 64, 128>>(q.get(), k.get(), v.get());
  const auto odd = run<Portable<57, 57, 128>>(q.get(), k.get(), v.get());
  // Roundings to fp16 of both results and of P, of values below 4.
  const double bound = 4.0 * 0x1.8p-10;
  const bool ok = example::report("small", example::max_difference(base, small), bound) &&
                  example::report("portable", example::max_difference(base, portable), bound) &&
                  example::report("odd", example::max_difference(base, odd), bound);
  return ok ? 0 : 1;
}
