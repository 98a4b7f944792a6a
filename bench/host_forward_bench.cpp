// SPDX-License-Identifier: MIT
// The CPU executor beside standard attention on a BLAS: S = Q K^T by sgemm, a vectorised softmax,
// O = P V by sgemm, in both ways of using the cores: heads side by side on a single-threaded BLAS,
// and one head after the other on a threaded one.
//
//   host_forward_bench [threads]
//
// Five rounds in which the contenders take turns, on standard normal inputs; medians are printed,
// and the outputs are compared. Exit code 1: they differ.

#include <attile/host.h>

#include <algorithm>
#include <cblas.h>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

using attile::host::NativeFloats;

struct Shape {
  int batch, heads, length, dim;

  std::size_t elements() const { return std::size_t{1} * batch * heads * length * dim; }
  double forward_flops(bool causal) const {
    return 4.0 * elements() * length * (causal ? 0.5 : 1.0);
  }
};

void use_blas_threads([[maybe_unused]] int threads) {
#ifdef OPENBLAS_VERSION
  openblas_set_num_threads(threads);
#endif
}

/// P = softmax(scale S) of `rows` rows, in place.
void softmax(float* s, int rows, int columns, float scale) {
  for (int r = 0; r < rows; ++r, s += columns) {
    float m = s[0];
    for (int c = 0; c < columns; ++c) m = std::max(m, s[c]);
    const NativeFloats unit(scale * attile::kLog2e), base(-m * scale * attile::kLog2e);
    NativeFloats l(0.0f);
    for (int c = 0; c < columns; c += NativeFloats::kWidth) {
      const auto p = exp2(multiply_add(NativeFloats::load(s + c), unit, base));
      p.store(s + c);
      l = l + p;
    }
    const NativeFloats inverse(1.0f / sum(l));
    for (int c = 0; c < columns; c += NativeFloats::kWidth) {
      (NativeFloats::load(s + c) * inverse).store(s + c);
    }
  }
}

void parallel(int threads, const std::function<void(int)>& body) {
  if (!attile::host::run_threads(threads, body)) std::abort();
}

/// Standard attention of all heads; lengths must be multiples of the vector width.
void standard_attention(const Shape& shape, const float* q, const float* k, const float* v,
                        float* s, float* o, int threads, bool heads_side_by_side) {
  const int n = shape.length, d = shape.dim, heads = shape.batch * shape.heads;
  const float scale = 1.0f / std::sqrt(static_cast<float>(d));
  const auto head = [&](int h, float* scores, int softmax_threads) {
    const std::size_t at = std::size_t{1} * h * n * d;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, n, d, 1.0f, q + at, d, k + at, d, 0.0f,
                scores, n);
    parallel(softmax_threads, [&](int t) {
      const int begin = n * t / softmax_threads, end = n * (t + 1) / softmax_threads;
      softmax(scores + std::size_t{1} * begin * n, end - begin, n, scale);
    });
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, d, n, 1.0f, scores, n, v + at, d,
                0.0f, o + at, d);
  };
  use_blas_threads(heads_side_by_side ? 1 : threads);
  if (heads_side_by_side) {
    parallel(threads, [&](int t) {
      for (int h = t; h < heads; h += threads) head(h, s + std::size_t{1} * t * n * n, 1);
    });
  } else {
    for (int h = 0; h < heads; ++h) head(h, s, threads);
  }
}

struct Contender {
  std::string name;
  double flops;
  std::function<void()> run;
  std::vector<double> seconds{};

  double median() const {
    std::vector<double> sorted = seconds;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
};

/// Every round gives every contender a fifth of a second.
void race(std::vector<Contender>& contenders) {
  using Clock = std::chrono::steady_clock;
  constexpr int kRounds = 5;
  const auto since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  for (Contender& c : contenders) c.run();
  for (int round = 0; round < kRounds; ++round) {
    for (Contender& c : contenders) {
      const auto start = Clock::now();
      int runs = 0;
      do {
        c.run();
        ++runs;
      } while (since(start) < 0.2);
      c.seconds.push_back(since(start) / runs);
    }
  }
  for (const Contender& c : contenders) {
    const auto [low, high] = std::minmax_element(c.seconds.begin(), c.seconds.end());
    std::printf("  %-34s %8.2f ms (%.2f ... %.2f) %7.1f GFLOP/s %6.2fx\n", c.name.c_str(),
                1e3 * c.median(), 1e3 * *low, 1e3 * *high, 1e-9 * c.flops / c.median(),
                contenders.front().median() / c.median());
  }
}

template <class T>
std::vector<T> normal(std::size_t n, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> distribution;
  std::vector<T> values(n);
  for (T& x : values) x = attile::from_float<T>(distribution(generator));
  return values;
}

/// All tensors of a problem whose Q, K, V have one shape, dense (batch, head, row, dim).
template <class T, class M>
struct Tensors {
  Shape shape;
  std::vector<T> q = normal<T>(shape.elements(), 1), k = normal<T>(shape.elements(), 2),
                 v = normal<T>(shape.elements(), 3), dout = normal<T>(shape.elements(), 4);
  std::vector<T> o = q, dq = q, dk = q, dv = q;
  std::vector<float> lse = std::vector<float>(shape.elements() / shape.dim);

  auto view(auto& values) const {
    return attile::bhsd(values.data(),
                        {.rows = shape.length, .heads = shape.heads, .dim = shape.dim});
  }
  template <class Args>
  Args with_sizes(Args args) const {
    args.batch = shape.batch;
    args.q_heads = args.kv_heads = shape.heads;
    args.q_len = args.kv_len = shape.length;
    args.head_dim = shape.dim;
    return args;
  }
  void forward(int threads) {
    attile::ForwardArgs<T, M> args;
    args.q = view(q), args.k = view(k), args.v = view(v), args.o = view(o), args.lse = lse.data();
    if (!attile::host::forward(with_sizes(args), {.threads = threads})) std::abort();
  }
  void backward(int threads) {
    attile::BackwardArgs<T, M> args;
    args.q = view(q), args.k = view(k), args.v = view(v), args.o = view(o), args.lse = lse.data();
    args.dout = view(dout), args.dq = view(dq), args.dk = view(dk), args.dv = view(dv);
    if (!attile::host::backward(with_sizes(args), {.threads = threads})) std::abort();
  }
};

bool race_with_blas(const Shape& shape, int threads) {
  Tensors<float, attile::NoMask> x{shape};
  std::vector<float> expected(shape.elements());
  std::vector<float> s(std::size_t{1} * threads * shape.length * shape.length);
  const auto standard = [&](bool heads_side_by_side) {
    standard_attention(shape, x.q.data(), x.k.data(), x.v.data(), s.data(), expected.data(),
                       threads, heads_side_by_side);
  };
  const double flops = shape.forward_flops(false);
  std::vector<Contender> contenders{
      {"attile forward fp32", flops, [&] { x.forward(threads); }},
      {"BLAS, one head after the other", flops, [&] { standard(false); }}};
#ifdef OPENBLAS_VERSION
  contenders.push_back({"BLAS, heads side by side", flops, [&] { standard(true); }});
#endif
  race(contenders);
  float difference = 0.0f;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const float of_this = std::abs(x.o[i] - expected[i]);
    if (!(of_this <= difference) && !std::isnan(difference)) difference = of_this;
  }
  std::printf("  largest difference of the outputs: %.2g\n", difference);
  return difference < 1e-5f;
}

void race_others(const Shape& shape, int threads) {
  Tensors<float, attile::NoMask> plain{shape};
  Tensors<float, attile::Causal> causal{shape};
  Tensors<__nv_bfloat16, attile::NoMask> bf16{shape};
  Tensors<__half, attile::NoMask> fp16{shape};
  plain.forward(threads);
  causal.forward(threads);
  const double full = shape.forward_flops(false), half = shape.forward_flops(true);
  std::vector<Contender> contenders{
      {"attile forward fp32", full, [&] { plain.forward(threads); }},
      {"attile forward fp32, causal", half, [&] { causal.forward(threads); }},
      {"attile forward bf16", full, [&] { bf16.forward(threads); }},
      {"attile forward fp16", full, [&] { fp16.forward(threads); }},
      {"attile backward fp32", 2.5 * full, [&] { plain.backward(threads); }},
      {"attile backward fp32, causal", 2.5 * half, [&] { causal.backward(threads); }}};
  race(contenders);
}

}  // namespace

int main(int argc, char** argv) {
  const int given = argc > 1 ? std::atoi(argv[1]) : 0;
  const int threads = given > 0 ? given : std::max(1u, std::thread::hardware_concurrency());
  std::printf(
      "%d threads, %d floats to a vector; median (fastest ... slowest) of 5 rounds, "
      "speed, time of the first / time\n",
      threads, NativeFloats::kWidth);
  bool same = true;
  for (const int dim : {64, 128}) {
    const Shape shape{1, 16, 1024, dim};
    std::printf("batch %d, heads %d, length %d, D %d\n", shape.batch, shape.heads, shape.length,
                dim);
    same = race_with_blas(shape, threads) && same;
    race_others(shape, threads);
  }
  return same ? 0 : 1;
}
