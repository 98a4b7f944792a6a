// SPDX-License-Identifier: MIT
// The model of examples/08_train_gpt without a GPU: its kernels on the simulated machine, attention
// by the CPU executor, and the products by loops that read matrices column by column, as cuBLAS
// documents them. In fp32, so that a gradient can be held against the slope of the loss.
#include <attile/host.h>

#include <cublas_v2.h>

#include <cmath>
#include <cstddef>
#include <random>
#include <vector>

#include "../../examples/08_train_gpt/model.cuh"
#include "support/catch.h"
#include "support/policy_lists.h"

// ---- the part of cuBLAS that the model calls ----------------------------------------------------

namespace {

/// A matrix for cuBLAS: element (row, col) lies at row + col * ld, at col + row * ld transposed.
struct Operand {
  const float* data;
  std::size_t row_stride, col_stride;

  Operand(const void* data, cublasOperation_t operation, int ld)
      : data(static_cast<const float*>(data)),
        row_stride(operation == CUBLAS_OP_N ? 1 : ld),
        col_stride(operation == CUBLAS_OP_N ? ld : 1) {}
};

/// Not seen by the machine, to which these loops would be slow.
__attribute__((no_sanitize("thread"))) float dot(const Operand& a, const Operand& b, int row,
                                                 int col, int depth) {
  const float* const of_row = a.data + row * a.row_stride;
  const float* const of_col = b.data + col * b.col_stride;
  double sum = 0;
  for (int i = 0; i < depth; ++i) {
    sum += static_cast<double>(of_row[i * a.col_stride]) * of_col[i * b.row_stride];
  }
  return static_cast<float>(sum);
}

}  // namespace

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t*) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasDestroy_v2(cublasHandle_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) { return CUBLAS_STATUS_SUCCESS; }
const char* cublasGetStatusString(cublasStatus_t) { return "an error of the products"; }

/// C = op(A) op(B), (m, n) = (m, k) (k, n).
cublasStatus_t cublasGemmEx(cublasHandle_t, cublasOperation_t op_a, cublasOperation_t op_b, int m,
                            int n, int k, const void*, const void* a, cudaDataType, int lda,
                            const void* b, cudaDataType, int ldb, const void*, void* c,
                            cudaDataType, int ldc, cublasComputeType_t, cublasGemmAlgo_t) {
  if (lda < (op_a == CUBLAS_OP_N ? m : k) || ldb < (op_b == CUBLAS_OP_N ? k : n) || ldc != m) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  std::vector<float> sums;
  for (int col = 0; col < n; ++col) {
    for (int row = 0; row < m; ++row) {
      sums.push_back(dot({a, op_a, lda}, {b, op_b, ldb}, row, col, k));
    }
  }
  const std::size_t bytes = sums.size() * sizeof(float);
  return cudaMemcpy(c, sums.data(), bytes, cudaMemcpyHostToDevice) == cudaSuccess
             ? CUBLAS_STATUS_SUCCESS
             : CUBLAS_STATUS_EXECUTION_FAILED;
}
}

namespace {

using namespace gpt;
using example::moved;

class HostAttention : public Attention<float> {
 public:
  void forward(const AttentionForward<float>& args, int) override {
    REQUIRE(attile::host::forward(args));
    mark(args.o.data, args.batch * args.q_len * args.q_heads * args.head_dim);
    mark(args.lse, args.batch * args.q_len * args.q_heads);
  }
  void backward(const AttentionBackward<float>& args, int) override {
    REQUIRE(attile::host::backward(args));
    mark(args.dq.data, args.batch * args.q_len * args.q_heads * args.head_dim * 3);
  }

 private:
  /// The machine learns what it did not see written.
  static void mark(float* data, int count) {
    const std::vector<float> copy(data, data + count);
    REQUIRE(cudaMemcpy(data, copy.data(), copy.size() * sizeof(float), cudaMemcpyHostToDevice) ==
            cudaSuccess);
  }
};

constexpr Shape kShape{.layers = 2, .heads = 2, .vocabulary = 24, .batch = 3, .len = 23};
static_assert(kShape.rows() > kRowsOfPart, "the sums over rows have one part");

DeviceArray<int> random_tokens(unsigned seed) {
  std::mt19937 random(seed);
  std::vector<int> tokens(kShape.rows());
  for (int& token : tokens) token = static_cast<int>(random() % kShape.vocabulary);
  return DeviceArray<int>(tokens);
}

struct Trained {
  HostAttention attention;
  Model<float> model{kShape, 1, attention};
  DeviceArray<int> tokens = random_tokens(2), targets = random_tokens(3);
  DeviceArray<float> mean{1};

  double loss() {
    model.forward(tokens.get(), targets.get(), mean.get());
    return mean.download()[0];
  }
  /// The loss with other weights of a parameter, as products and layers read them.
  double loss_at(const Parameter<float>& p, const std::vector<float>& weights) {
    set(p, weights);
    return loss();
  }
  static void set(const Parameter<float>& p, const std::vector<float>& weights) {
    p.rounded.upload(weights);
    p.w.upload(weights);
  }
};

/// Along the gradient the slope of the loss is the gradient's squared length.
TEST_CASE("train_gpt.gradients_are_slopes_of_the_loss") {
  Trained t;
  CHECK(std::abs(t.loss() - std::log(kShape.vocabulary)) < 1);
  t.model.backward();
  // The gradients of the first layer have passed through the second one, whose code is the same.
  constexpr std::size_t kOfLayer = 8, kLeftOut = attile_test::kTestLarge ? 0 : kOfLayer;
  const std::size_t count = t.model.parameters().size() - kLeftOut;
  for (std::size_t i = 0; i < count; ++i) {
    const Parameter<float>& p = *t.model.parameters()[i];
    const std::vector<float> weights = p.w.download(), gradient = p.gradient.download();
    double squared = 0;
    for (const float g : gradient) squared += static_cast<double>(g) * g;
    // A central difference misses the slope by O(step^2), and by the loss's rounding over the step.
    const double step = 0.02 / std::sqrt(squared);
    const double behind = t.loss_at(p, moved(weights, gradient, -step));
    const double ahead = t.loss_at(p, moved(weights, gradient, step));
    Trained::set(p, weights);
    const double slope = (ahead - behind) / (2 * step);
    INFO("parameter " << i << " (" << p.rows << ", " << p.cols << "), slope " << slope
                      << ", squared length " << squared);
    CHECK(squared > 0);
    CHECK(std::abs(slope / squared - 1) < 2e-3);
  }
}

TEST_CASE("train_gpt.updates_are_adamw's") {
  constexpr float kRate = 0.01f;
  Trained t;
  const Parameter<float>& p = *t.model.parameters()[2];
  REQUIRE(p.decays);
  std::vector<float> weights = p.w.download();
  std::vector<double> m(weights.size()), v(weights.size());
  std::vector<double> expected(weights.begin(), weights.end());
  double first_loss = 0, last_loss = 0;
  for (int step = 1; step <= (attile_test::kTestLarge ? 3 : 2); ++step) {
    last_loss = t.loss();
    if (step == 1) first_loss = last_loss;
    t.model.backward();
    const std::vector<float> g = p.gradient.download();
    t.model.update(kRate);
    for (std::size_t i = 0; i < g.size(); ++i) {
      m[i] = 0.9 * m[i] + 0.1 * g[i];
      v[i] = 0.95 * v[i] + 0.05 * g[i] * g[i];
      const double mean = m[i] / (1 - std::pow(0.9, step)),
                   square = v[i] / (1 - std::pow(0.95, step));
      expected[i] -= kRate * (mean / (std::sqrt(square) + 1e-8) + 0.1 * expected[i]);
    }
  }
  CHECK(last_loss < first_loss);
  weights = p.w.download();
  CHECK(weights == p.rounded.download());
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (!(std::abs(weights[i] - expected[i]) < 1e-5)) FAIL("weight " << i);
  }
}

}  // namespace
