// SPDX-License-Identifier: MIT
// What Q, K and V in fp8 cost, and two ways to pay less, neither of which changes the result
// without roundings. A mean of K, over all keys, adds the same to all scores of a row, and so
// nothing to P: taken off, it leaves smaller numbers to round. A Hadamard transform of Q and K with
// random signs, which is orthogonal, leaves Q K^T as it is, and spreads an outlier over all columns
// of its row, so that not one rounding decides about a score. Both are the caller's business; a
// model can do them where it makes Q and K. It runs on the CPU.
#include <attile/host.h>
#include <attile/reference.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

namespace {

using E4m3 = __nv_fp8_e4m3;
using Types = attile::Elements<E4m3, E4m3, E4m3, float>;
using Floats = std::vector<float>;

constexpr int kRows = 64, kKeys = 512, kDim = 64;
static_assert(std::has_single_bit(unsigned{kDim}),
              "a Hadamard matrix of this kind has 2^n columns");

struct Tensors {
  Floats q, k, v;
};

/// The arguments of one head, for Q, K, V and O of any types.
template <class Args, class Q, class K, class V>
Args one_head(const std::vector<Q>& q, const std::vector<K>& k, const std::vector<V>& v) {
  Args args{};
  args.q = attile::bhsd(q.data(), {.rows = kRows, .heads = 1, .dim = kDim});
  args.k = attile::bhsd(k.data(), {.rows = kKeys, .heads = 1, .dim = kDim});
  args.v = attile::bhsd(v.data(), {.rows = kKeys, .heads = 1, .dim = kDim});
  args.batch = args.q_heads = args.kv_heads = 1;
  args.q_len = kRows, args.kv_len = kKeys, args.head_dim = kDim;
  return args;
}

std::vector<double> exact(const Tensors& x) {
  return attile::reference::forward(one_head<attile::ForwardArgs<float>>(x.q, x.k, x.v)).o;
}

/// Attention with everything rounded to e4m3, by scales of whole tensors. Q, K and V are the only
/// ones that are: the CPU executor multiplies P in fp32, which the kernels for fp8 do not.
std::vector<double> in_fp8(const Tensors& x) {
  std::vector<E4m3> q(x.q.size()), k(x.k.size()), v(x.v.size());
  Floats scales(3), o(x.q.size());
  auto args = one_head<attile::ForwardArgs<Types>>(q, k, v);
  args.o = attile::bhsd(o.data(), {.rows = kRows, .heads = 1, .dim = kDim});

  attile::QuantizeArgs<float, Types> from{};
  from.q = attile::bhsd(x.q.data(), {.rows = kRows, .heads = 1, .dim = kDim});
  from.k = attile::bhsd(x.k.data(), {.rows = kKeys, .heads = 1, .dim = kDim});
  from.v = attile::bhsd(x.v.data(), {.rows = kKeys, .heads = 1, .dim = kDim});
  from.q_out = attile::bhsd(q.data(), {.rows = kRows, .heads = 1, .dim = kDim});
  from.k_out = attile::bhsd(k.data(), {.rows = kKeys, .heads = 1, .dim = kDim});
  from.v_out = attile::bhsd(v.data(), {.rows = kKeys, .heads = 1, .dim = kDim});
  from.q_scale = {&scales[0]}, from.k_scale = {&scales[1]}, from.v_scale = {&scales[2]};
  from.batch = from.q_heads = from.kv_heads = 1;
  from.q_len = kRows, from.kv_len = kKeys, from.head_dim = kDim;

  args.q_scale = from.q_scale, args.k_scale = from.k_scale, args.v_scale = from.v_scale;
  attile::Check check = attile::host::quantize(from);
  if (check) check = attile::host::forward(args);
  if (!check) std::printf("refused: %s\n", check.why);
  return {o.begin(), o.end()};
}

/// Takes the mean of K over all keys off, column by column.
void subtract_mean(Floats& k) {
  for (int c = 0; c < kDim; ++c) {
    double mean = 0;
    for (int j = 0; j < kKeys; ++j) mean += k[j * kDim + c] / double{kKeys};
    for (int j = 0; j < kKeys; ++j) k[j * kDim + c] -= static_cast<float>(mean);
  }
}

/// Changes the signs of some columns, the same in Q and K, and multiplies each row by a Hadamard
/// matrix over the root of its size: log2(kDim) steps of sums and differences.
void transform(Floats& x) {
  const float root = 1 / std::sqrt(float{kDim});
  for (std::size_t row = 0; row < x.size(); row += kDim) {
    std::mt19937 signs(7);
    for (int c = 0; c < kDim; ++c) x[row + c] *= signs() % 2 == 0 ? root : -root;
    for (int half = 1; half < kDim; half *= 2) {
      for (int c = 0; c < kDim; ++c) {
        if ((c & half) != 0) continue;
        const float a = x[row + c], b = x[row + c + half];
        x[row + c] = a + b;
        x[row + c + half] = a - b;
      }
    }
  }
}

double rms(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum / static_cast<double>(a.size()));
}

/// Normal numbers. `outliers`: one of a thousand in Q and K is ten times as large besides; `bias`:
/// each column of K has a mean, of some columns a large one, as keys of language models have.
Tensors data(bool outliers, bool bias) {
  std::mt19937 engine(1);
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> one_of(0, 999);
  const auto numbers = [&](int rows, bool may_be_large) {
    Floats x;
    for (int i = 0; i < rows * kDim; ++i) {
      const float large = 10 * normal(engine);
      const bool is_large = one_of(engine) == 0 && may_be_large;
      x.push_back(normal(engine) + (is_large ? large : 0.0f));
    }
    return x;
  };
  Tensors x{numbers(kRows, outliers), numbers(kKeys, outliers), numbers(kKeys, false)};
  for (int c = 0; c < kDim && bias; ++c) {
    const float mean = normal(engine) * (c % 16 == 0 ? 16.0f : 1.0f);
    for (int j = 0; j < kKeys; ++j) x.k[j * kDim + c] += mean;
  }
  return x;
}

/// The errors of O against fp64 of the tensors as they were, for each of the four ways.
struct Errors {
  double plain, mean, hadamard, both;
};

Errors errors_of(const Tensors& x, bool& is_exact) {
  const std::vector<double> wanted = exact(x);
  const auto error = [&](bool mean, bool hadamard) {
    Tensors y = x;
    if (mean) subtract_mean(y.k);
    if (hadamard) transform(y.q), transform(y.k);
    is_exact &= rms(exact(y), wanted) < 1e-4;  // what fp32 leaves of sums of large numbers
    return rms(in_fp8(y), wanted);
  };
  return {error(false, false), error(true, false), error(false, true), error(true, true)};
}

}  // namespace

int main() {
  std::printf(
      "Root mean square error of O against fp64 of what was rounded to e4m3, D %d, %d keys\n", kDim,
      kKeys);
  std::printf("%-34s %10s %12s %12s %12s\n", "", "as it is", "K - mean", "Hadamard", "both");
  bool is_exact = true;
  const auto line = [&](const char* name, bool outliers, bool bias) {
    const Errors e = errors_of(data(outliers, bias), is_exact);
    std::printf("%-34s %10.2e %12.2e %12.2e %12.2e\n", name, e.plain, e.mean, e.hadamard, e.both);
    return e;
  };
  line("normal", false, false);
  const Errors outliers = line("normal, outliers in Q and K", true, false);
  const Errors bias = line("normal, and K has a mean", false, true);
  const Errors all = line("normal, outliers, a mean of K", true, true);
  const bool is_better = outliers.hadamard < 0.7 * outliers.plain && bias.mean < 0.7 * bias.plain &&
                         all.both < 0.7 * all.plain;
  std::printf("%s\n", !is_exact    ? "FAILED: fp64 sees a difference between the ways"
                      : !is_better ? "FAILED: no way leaves a smaller error"
                                   : "In fp64 all ways give the same O.");
  return is_exact && is_better ? 0 : 1;
}
