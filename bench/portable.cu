// SPDX-License-Identifier: MIT
// Rates of the portable kernels: fp32 (and fp16), several tiles, B * S = 16384, H * D = 2048.
// Times are CUDA events around one call; FLOPs are 4 B H S^2 D forward (half under a causal mask),
// 2.5 times that backward. Each kernel's output is held against fp64 on a few rows before it is
// timed. Inputs are standard normal. least_B/s is the least traffic that a pass could have (every
// tensor moved once) over its time: far below the memory's peak, memory is not what bounds it.
#include <attile/attile.cuh>
#include <attile/reference.h>

#include <benchmark/benchmark.h>
#include <cmath>
#include <random>
#include <string>
#include <vector>

namespace {

bool ok(benchmark::State& state, cudaError_t error) {
  if (error != cudaSuccess) state.SkipWithError(cudaGetErrorString(error));
  return error == cudaSuccess;
}

/// Device memory that is freed at the end; null where it cannot be had.
template <class T>
struct Array {
  T* data = nullptr;

  explicit Array(std::size_t size) {
    if (cudaMalloc(&data, size * sizeof(T)) != cudaSuccess) data = nullptr;
    if (data != nullptr) static_cast<void>(cudaMemset(data, 0xFF, size * sizeof(T)));
  }
  explicit Array(const std::vector<T>& values) : Array(values.size()) {
    static_cast<void>(
        cudaMemcpy(data, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() { static_cast<void>(cudaFree(data)); }

  std::vector<T> download(std::size_t first, std::size_t count) const {
    std::vector<T> values(count);
    static_cast<void>(
        cudaMemcpy(values.data(), data + first, count * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }
};

/// Standard normal numbers; all problems here have the same number of elements, made once.
template <class T, unsigned kSeed>
const std::vector<T>& normal(std::size_t size) {
  static const std::vector<T> values = [&] {
    std::minstd_rand generator(kSeed);
    std::normal_distribution<float> distribution;
    std::vector<T> result(size);
    for (T& value : result) value = attile::from_float<T>(distribution(generator));
    return result;
  }();
  return values;
}

/// Dense (batch, head, row, dim) tensors.
template <class T>
struct Problem {
  int batch, heads, len, dim;
  std::size_t size = static_cast<std::size_t>(batch) * heads * len * dim;
  const std::vector<T>&q_host = normal<T, 1>(size), &k_host = normal<T, 2>(size),
        &v_host = normal<T, 3>(size), &dout_host = normal<T, 4>(size);
  Array<T> q{q_host}, k{k_host}, v{v_host}, dout{dout_host}, o{size}, dq{size}, dk{size}, dv{size};
  Array<float> lse{static_cast<std::size_t>(batch) * heads * len};

  /// `tensors` of the size of Q, and LSE, once each. Units: bytes.
  double least_bytes(int tensors) const {
    return static_cast<double>(size) * (tensors * sizeof(T) + 1.0 / dim * sizeof(float));
  }

  template <class Args>
  Args sizes() const {
    Args a;
    a.q = attile::bhsd<const T>(q.data, {.rows = len, .heads = heads, .dim = dim});
    a.k = attile::bhsd<const T>(k.data, {.rows = len, .heads = heads, .dim = dim});
    a.v = attile::bhsd<const T>(v.data, {.rows = len, .heads = heads, .dim = dim});
    a.lse = lse.data;
    a.batch = batch, a.q_heads = a.kv_heads = heads, a.q_len = a.kv_len = len;
    return a;
  }
  template <class Args>
  Args forward() const {
    Args a = sizes<Args>();
    a.o = attile::bhsd(o.data, {.rows = len, .heads = heads, .dim = dim});
    return a;
  }
  template <class Args>
  Args backward() const {
    Args a = sizes<Args>();
    a.o = attile::bhsd<const T>(o.data, {.rows = len, .heads = heads, .dim = dim});
    a.dout = attile::bhsd<const T>(dout.data, {.rows = len, .heads = heads, .dim = dim});
    a.dq = attile::bhsd(dq.data, {.rows = len, .heads = heads, .dim = dim});
    a.dk = attile::bhsd(dk.data, {.rows = len, .heads = heads, .dim = dim});
    a.dv = attile::bhsd(dv.data, {.rows = len, .heads = heads, .dim = dim});
    return a;
  }

  /// The last rows of the first head, which see every key also under a causal mask.
  static constexpr int kRows = 8;
  std::size_t first() const { return static_cast<std::size_t>(len - kRows) * dim; }
  template <class Args>
  Args on_host() const {
    Args a = sizes<Args>();
    a.q.data = q_host.data() + first();
    a.k.data = k_host.data(), a.v.data = v_host.data();
    a.batch = a.q_heads = a.kv_heads = 1;
    a.q_len = kRows;
    a.head_dim = dim;
    return a;
  }
  double worst(const Array<T>& got, const std::vector<double>& want) const {
    const std::vector<T> rows = got.download(first(), want.size());
    double worst = 0.0, scale = 0.0;
    for (std::size_t i = 0; i < want.size(); ++i) {
      const double error = std::abs(attile::to_float(rows[i]) - want[i]);
      if (!(error <= worst) && !std::isnan(worst)) worst = error;
      scale = std::max(scale, std::abs(want[i]));
    }
    return worst / scale;
  }
};

/// Half a unit in the last place of T, and a few roundings of fp32 sums.
template <class T>
constexpr double kTolerance = (sizeof(T) == 4              ? 0.0
                               : std::is_same_v<T, __half> ? 0x1p-11
                                                           : 0x1p-8) +
                              2e-5;

template <class Call>
void measure(benchmark::State& state, double flops, double least_bytes, Call&& call) {
  cudaEvent_t begin, end;
  if (!ok(state, cudaEventCreate(&begin)) || !ok(state, cudaEventCreate(&end))) return;
  for (auto _ : state) {
    if (!ok(state, cudaEventRecord(begin)) || !ok(state, call())) break;
    if (!ok(state, cudaEventRecord(end)) || !ok(state, cudaEventSynchronize(end))) break;
    float ms = 0.0f;
    if (!ok(state, cudaEventElapsedTime(&ms, begin, end))) break;
    state.SetIterationTime(ms * 1e-3);
  }
  constexpr auto kRate = benchmark::Counter::kIsIterationInvariantRate;
  state.counters["FLOP/s"] = benchmark::Counter(flops, kRate);
  state.counters["least_B/s"] = benchmark::Counter(least_bytes, kRate);
  static_cast<void>(cudaEventDestroy(begin));
  static_cast<void>(cudaEventDestroy(end));
}

template <class Traits>
double forward_flops(const typename Traits::Args& a) {
  constexpr bool kHalf = std::is_same_v<typename Traits::MaskType, attile::Causal>;
  return (kHalf ? 2.0 : 4.0) * a.batch * a.q_heads * a.q_len * a.kv_len * Traits::kD;
}

bool no_gpu(benchmark::State& state) {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess && count > 0) return false;
  state.SkipWithError("no CUDA device");
  return true;
}

template <class Traits>
void forward(benchmark::State& state) {
  if (no_gpu(state)) return;
  using Args = typename Traits::Args;
  const int len = static_cast<int>(state.range(0));
  const Problem<typename Traits::ElementType> problem{16384 / len, 2048 / Traits::kD, len,
                                                      Traits::kD};
  const auto args = problem.template forward<Args>();
  if (!ok(state, attile::forward<Traits>(args))) return;
  const auto expected = attile::reference::forward(problem.template on_host<Args>()).o;
  if (!(problem.worst(problem.o, expected) <= kTolerance<typename Traits::ElementType>)) {
    return state.SkipWithError("wrong output");
  }
  constexpr int kTensors = 4;  // Q, K, V, O
  measure(state, forward_flops<Traits>(args), problem.least_bytes(kTensors),
          [&] { return attile::forward<Traits>(args); });
}

template <class Traits>
void backward(benchmark::State& state) {
  if (no_gpu(state)) return;
  using Args = typename Traits::Args;
  using ForwardArgs = attile::ForwardArgs<typename Traits::ElementType, typename Traits::MaskType>;
  const int len = static_cast<int>(state.range(0));
  const Problem<typename Traits::ElementType> problem{16384 / len, 2048 / Traits::kD, len,
                                                      Traits::kD};
  const auto args = problem.template backward<Args>();
  std::size_t bytes = 0;
  if (!ok(state, attile::forward<Traits::kD>(problem.template forward<ForwardArgs>()))) return;
  if (!ok(state, attile::backward<Traits>(nullptr, bytes, args))) return;
  const Array<unsigned char> workspace(bytes);
  if (!ok(state, attile::backward<Traits>(workspace.data, bytes, args))) return;
  auto on_host = problem.template on_host<Args>();
  on_host.dout = on_host.q;
  on_host.dout.data = problem.dout_host.data() + problem.first();
  const auto expected = attile::reference::backward(on_host).dq;
  if (!(problem.worst(problem.dq, expected) <= kTolerance<typename Traits::ElementType>)) {
    return state.SkipWithError("wrong output");
  }
  constexpr int kTensors = 8;  // Q, K, V, O, dO, dQ, dK, dV
  measure(state, 2.5 * forward_flops<Traits>(args), problem.least_bytes(kTensors),
          [&] { return attile::backward<Traits>(workspace.data, bytes, args); });
}

using attile::Causal;
using attile::NoMask;
// kSharedKb: 99, or 227 for the tiles of compute capability 9.0 and 10.0.
template <int D, int kSharedKb = 99, class T = float, class M = NoMask>
using Forward = attile::portable::DefaultForwardTraits<attile::ForwardArgs<T, M>, D, D, kSharedKb>;
template <int D, int kSharedKb = 99, attile::DqMode kMode = attile::DqMode::kAccumulate>
using Backward =
    attile::portable::DefaultBackwardTraits<attile::BackwardArgs<float>, D, D, kMode, kSharedKb>;

constexpr auto kTwoPass = attile::DqMode::kTwoPass;
constexpr auto kInOrder = attile::DqMode::kInOrder;

void shapes(benchmark::internal::Benchmark* b) {
  b->Arg(4096)->UseManualTime()->Unit(benchmark::kMillisecond)->Iterations(10);
}

BENCHMARK(forward<Forward<64>>)->Apply(shapes);
BENCHMARK(forward<Forward<64, 99, float, Causal>>)->Apply(shapes);
BENCHMARK(forward<Forward<64, 99, __half>>)->Apply(shapes);
BENCHMARK(forward<Forward<128>>)->Apply(shapes);
BENCHMARK(forward<Forward<128, 227>>)->Apply(shapes);
BENCHMARK(forward<Forward<256>>)->Apply(shapes);
BENCHMARK(forward<Forward<256, 227>>)->Apply(shapes);
BENCHMARK(backward<Backward<64>>)->Apply(shapes);
BENCHMARK(backward<Backward<64, 227>>)->Apply(shapes);
BENCHMARK(backward<Backward<64, 99, kTwoPass>>)->Apply(shapes);
BENCHMARK(backward<Backward<64, 99, kInOrder>>)->Apply(shapes);
BENCHMARK(backward<Backward<64, 227, kInOrder>>)->Apply(shapes);
BENCHMARK(backward<Backward<128>>)->Apply(shapes);
BENCHMARK(backward<Backward<128, 227>>)->Apply(shapes);
BENCHMARK(backward<Backward<128, 99, kTwoPass>>)->Apply(shapes);
BENCHMARK(backward<Backward<128, 99, kInOrder>>)->Apply(shapes);
BENCHMARK(backward<Backward<128, 227, kInOrder>>)->Apply(shapes);
BENCHMARK(backward<Backward<256>>)->Apply(shapes);

int attribute(cudaDeviceAttr name, int device) {
  int value = 0;
  return cudaDeviceGetAttribute(&value, name, device) == cudaSuccess ? value : 0;
}

std::string version(int number) {
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

/// What the rates depend on, as the CUDA runtime reports it, into the head of the output.
void add_context() {
  int driver = 0, runtime = 0, device = 0;
  cudaDeviceProp properties{};
  if (cudaDriverGetVersion(&driver) == cudaSuccess &&
      cudaRuntimeGetVersion(&runtime) == cudaSuccess) {
    benchmark::AddCustomContext("CUDA driver, runtime", version(driver) + ", " + version(runtime));
  }
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaGetDeviceProperties(&properties, device) != cudaSuccess) {
    return benchmark::AddCustomContext("device", "none");
  }
  // Both clocks are in kHz; a memory clock moves two bits on each line of the bus.
  const double clock = 1e3 * attribute(cudaDevAttrClockRate, device);
  const double memory = 2e3 * attribute(cudaDevAttrMemoryClockRate, device) *
                        attribute(cudaDevAttrGlobalMemoryBusWidth, device) / 8;
  benchmark::AddCustomContext("device", properties.name);
  benchmark::AddCustomContext("SMs", std::to_string(properties.multiProcessorCount));
  benchmark::AddCustomContext("SM clock, MHz", std::to_string(std::lround(clock * 1e-6)));
  benchmark::AddCustomContext("memory peak, GB/s", std::to_string(std::lround(memory * 1e-9)));
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  add_context();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
