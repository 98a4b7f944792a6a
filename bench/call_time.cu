// SPDX-License-Identifier: MIT
// What a call takes of the host: back to back on a stream, without synchronisation, after the first
// one. An empty kernel's launch stands beside them. Problems are so small that the device keeps up,
// and calls wait for it between batches of them.
#include <attile/arch/launch.cuh>
#include <attile/attile.cuh>

#include <benchmark/benchmark.h>
#include <cstddef>
#include <cstdio>
#include <cstdlib>

namespace {

using T = __nv_bfloat16;
constexpr int kLen = 64, kHeads = 1, kDim = 64, kBatchOfCalls = 200;

ATTILE_KERNEL void empty_kernel() {}

void must(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "call_time: %s\n", cudaGetErrorString(error));
  std::exit(1);
}

template <class Call>
void time_calls(benchmark::State& state, const Call& call) {
  must(call());
  must(cudaDeviceSynchronize());
  for (auto _ : state) {
    for (int i = 0; i < kBatchOfCalls; ++i) must(call());
    state.PauseTiming();
    must(cudaDeviceSynchronize());
    state.ResumeTiming();
  }
  state.counters["us"] =
      benchmark::Counter(1e-6 * static_cast<double>(state.iterations()) * kBatchOfCalls,
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

/// Arrays of the problem; all zeros.
struct Memory {
  T* data = nullptr;
  float* lse = nullptr;
  void* workspace = nullptr;
  std::size_t bytes = 0;

  static constexpr int kElements = kLen * kHeads * kDim;
  Memory() {
    must(cudaMalloc(&data, 8 * kElements * sizeof(T)));
    must(cudaMemset(data, 0, 8 * kElements * sizeof(T)));
    must(cudaMalloc(&lse, kLen * kHeads * sizeof(float)));
    must(cudaMemset(lse, 0, kLen * kHeads * sizeof(float)));
    must(attile::backward<kDim>(nullptr, bytes, backward()));
    must(cudaMalloc(&workspace, bytes));
  }
  attile::Tensor<T> tensor(int i) const {
    return attile::bshd(data + i * kElements, {.rows = kLen, .heads = kHeads, .dim = kDim});
  }
  template <class Args>
  void describe(Args& args) const {
    args.q = tensor(0), args.k = tensor(1), args.v = tensor(2), args.o = tensor(3);
    args.lse = lse;
    args.batch = 1, args.q_heads = args.kv_heads = kHeads, args.q_len = args.kv_len = kLen;
  }
  attile::ForwardArgs<T, attile::Causal> forward() const {
    attile::ForwardArgs<T, attile::Causal> args;
    describe(args);
    return args;
  }
  attile::BackwardArgs<T, attile::Causal> backward() const {
    attile::BackwardArgs<T, attile::Causal> args;
    describe(args);
    args.dout = tensor(4), args.dq = tensor(5), args.dk = tensor(6), args.dv = tensor(7);
    return args;
  }
};

void empty_launch(benchmark::State& state) {
  time_calls(state, [] { return attile::arch::launch(empty_kernel, 1, 128, 0, nullptr); });
}

void forward_call(benchmark::State& state) {
  const Memory memory;
  const auto args = memory.forward();
  time_calls(state, [&] { return attile::forward<kDim>(args); });
}

void backward_call(benchmark::State& state) {
  const Memory memory;
  const auto args = memory.backward();
  std::size_t bytes = memory.bytes;
  time_calls(state, [&] { return attile::backward<kDim>(memory.workspace, bytes, args); });
}

/// The same problem by `decode`, with splits, whose scratch memory is made ready once.
void decode_call(benchmark::State& state) {
  const Memory memory;
  auto args = memory.forward();
  args.splits = attile::Splits::fill();
  std::size_t bytes = 0;
  must(attile::decode<kDim>(nullptr, bytes, args));
  void* workspace = nullptr;
  must(cudaMalloc(&workspace, bytes));
  must(attile::reset_workspace(workspace, bytes));
  time_calls(state, [&] { return attile::decode<kDim>(workspace, bytes, args); });
  must(cudaFree(workspace));
}

BENCHMARK(empty_launch)->UseRealTime();
BENCHMARK(forward_call)->UseRealTime();
BENCHMARK(backward_call)->UseRealTime();
BENCHMARK(decode_call)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
