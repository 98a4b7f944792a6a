// SPDX-License-Identifier: MIT
// Standard attention: rows of every kernel's length, and what only it refuses.
#include <attile/standard.cuh>

#include <cublas_v2.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "kernel/standard_executor.cuh"
#include "support/bad_arguments.h"
#include "support/problem.h"

namespace kernel_standard {

using namespace attile_test;

/// Rows that a short block holds, a long block holds, and none holds; of any alignment.
template <class T, Policy kPolicy>
void run_long_rows() {
  using standard::LongRow;
  using standard::MediumRow;
  using standard::ShortRow;
  for (const int kv_len : {ShortRow::kCols, ShortRow::kCols + 1, MediumRow::kCols + 1, 5000,
                           LongRow::kCols, LongRow::kCols + 4, LongRow::kCols + 1001}) {
    DYNAMIC_SECTION(kv_len << " columns") {
      const Case c{.name = "long_row",
                   .policy = kPolicy,
                   .q_heads = 2,
                   .kv_heads = 1,
                   .q_len = 5,
                   .kv_len = kv_len,
                   .head_dim = 16,
                   .dlse = true};
      StandardExecutor forward{Direction::kForward};
      CHECK(forward_faults<T, kPolicy>(forward, c) == "");
      StandardExecutor backward{Direction::kBackward};
      CHECK(backward_faults<T, kPolicy>(backward, c) == "");
    }
  }
}

TEST_CASE("standard.long_rows.fp32.causal") { run_long_rows<float, Policy::kCausal>(); }
TEST_CASE("standard.long_rows.fp32.everything") { run_long_rows<float, Policy::kEverything>(); }
TEST_CASE("standard.long_rows.fp16.causal") { run_long_rows<__half, Policy::kCausal>(); }

// ---- what is refused ----------------------------------------------------------------------------

TEST_CASE(
    "standard: of the suite's layouts cuBLAS refuses only rows that run backwards or repeat") {
  std::vector<std::string> refused;
  for (const Case& c : kCases) {
    if (has_own_lengths(c.policy)) continue;  // laid out for other policies than this problem's
    Problem<float, Policy::kNone> problem(c);
    const bool forward = bool(standard::check(problem.forward_args()));
    const bool backward = bool(standard::check(problem.backward_args()));
    INFO(c.name);
    CHECK(forward == StandardExecutor{Direction::kForward}.takes(c));
    CHECK(backward == StandardExecutor{Direction::kBackward}.takes(c));
    if (!forward) refused.push_back(std::string("forward ") + c.name);
    if (!backward) refused.push_back(std::string("backward ") + c.name);
  }
  CHECK(refused == std::vector<std::string>{"forward causal_reversed", "backward causal_reversed",
                                            "backward broadcast", "forward earlier_reversed",
                                            "backward earlier_reversed"});
}

std::string strides_text(const std::string& name) {
  return name + ": cuBLAS takes no row stride below the row's length, and no negative stride";
}

TEST_CASE("standard: each tensor with strides that cuBLAS cannot address is refused by name") {
  SmallProblem problem;
  const auto refused = [](const std::string& name, const auto& args) {
    INFO(name);
    CHECK(standard::check(args).error == cudaErrorInvalidValue);
    CHECK(standard::check(args).why == strides_text(name));
  };
  const auto spoil = [&](const char* name, const auto& make, auto member) {
    const auto with = [&](const auto& change) {
      auto args = make();
      change(args.*member);
      refused(name, args);
    };
    with([](auto& t) { t.row_stride = -t.row_stride; });
    with([](auto& t) { t.head_stride = -t.head_stride; });
    with([](auto& t) { t.batch_stride = -t.batch_stride; });
    if constexpr (std::is_const_v<std::remove_pointer_t<decltype((make().*member).data)>>) {
      with([](auto& t) { t.row_stride = 0; });
      with([](auto& t) { t.row_stride = SmallProblem::kDim - 1; });
    }
  };
  using Forward = attile::ForwardArgs<float>;
  using Backward = attile::BackwardArgs<float>;
  const auto forward = [&] { return problem.forward(); };
  const auto backward = [&] { return problem.backward(); };
  spoil("q", forward, &Forward::q);
  spoil("k", forward, &Forward::k);
  spoil("v", forward, &Forward::v);
  spoil("o", forward, &Forward::o);
  spoil("q", backward, &Backward::q);
  spoil("k", backward, &Backward::k);
  spoil("v", backward, &Backward::v);
  spoil("dout", backward, &Backward::dout);
  spoil("dq", backward, &Backward::dq);
  spoil("dk", backward, &Backward::dk);
  spoil("dv", backward, &Backward::dv);
  // Strides of axes of length 1 are nobody's business, and O of backward is not an operand.
  auto one_row = problem.forward();
  one_row.q_len = 1;
  one_row.q.row_stride = one_row.o.row_stride = -3;
  CHECK(standard::check(one_row).why == std::string());
  auto any_o = problem.backward();
  any_o.o.row_stride = 0;
  CHECK(standard::check(any_o).why == std::string());
}

TEST_CASE("standard: more rows or scores than can be are refused") {
  SmallProblem problem;
  auto args = problem.forward();
  args.k.row_stride = args.v.row_stride = SmallProblem::kDim;
  args.q = args.o =
      attile::bhsd(problem.q, {.rows = 1 << 29, .heads = 4, .dim = SmallProblem::kDim});
  args.o.data = problem.o;
  args.q_len = 1 << 29;
  CHECK(standard::check(args).why ==
        std::string("batch * heads * length must be below 2^31 for standard attention"));
  args.q_len = 1 << 27;
  args.kv_len = 1 << 28;
  args.k = attile::bhsd<const float>(problem.k,
                                     {.rows = 1 << 28, .heads = 2, .dim = SmallProblem::kDim});
  args.v = attile::bhsd<const float>(problem.v,
                                     {.rows = 1 << 28, .heads = 2, .dim = SmallProblem::kDim});
  CHECK(standard::check(args).why ==
        std::string("the scores of standard attention take more memory than any device has"));
}

struct ExpectRefused {
  int* count;

  template <class Args>
  void operator()(const char* name, const char* why, const Args& args) const {
    if constexpr (std::is_same_v<Args, attile::ForwardArgs<float>> ||
                  std::is_same_v<Args, attile::BackwardArgs<float>>) {
      INFO(name);
      CHECK(std::string(standard::check(args).why) == why);
      ++*count;
    }
  }
};

TEST_CASE("standard: every bad set of arguments is refused") {
  int count = 0;
  visit_bad_forward(ExpectRefused{&count});
  visit_bad_backward(ExpectRefused{&count});
  CHECK(count >= 100);
}

// ---- the call -----------------------------------------------------------------------------------

/// A problem in device memory, all ones.
struct DeviceProblem {
  static constexpr int kHeads = 2, kLen = 64, kDim = 32;
  static constexpr std::size_t kElements = std::size_t{2} * kHeads * kLen * kDim;

  float* data = nullptr;
  attile::ForwardArgs<float> forward{};
  attile::BackwardArgs<float> backward{};

  DeviceProblem() {
    constexpr int kTensors = 9;
    REQUIRE(cudaMalloc(&data, kTensors * kElements * sizeof(float)) == cudaSuccess);
    const std::vector<float> ones(kTensors * kElements, 1.0f);
    REQUIRE(cudaMemcpy(data, ones.data(), ones.size() * sizeof(float), cudaMemcpyHostToDevice) ==
            cudaSuccess);
    const auto tensor = [&](int i) {
      return attile::bshd(data + i * kElements, {.rows = kLen, .heads = kHeads, .dim = kDim});
    };
    forward = {.q = tensor(0),
               .k = tensor(1),
               .v = tensor(2),
               .o = tensor(3),
               .lse = data + 8 * kElements,
               .batch = 2,
               .q_heads = kHeads,
               .kv_heads = kHeads,
               .q_len = kLen,
               .kv_len = kLen,
               .head_dim = kDim};
    backward = {.q = tensor(0),
                .k = tensor(1),
                .v = tensor(2),
                .o = tensor(3),
                .lse = data + 8 * kElements,
                .dout = tensor(4),
                .dq = tensor(5),
                .dk = tensor(6),
                .dv = tensor(7),
                .batch = 2,
                .q_heads = kHeads,
                .kv_heads = kHeads,
                .q_len = kLen,
                .kv_len = kLen,
                .head_dim = kDim};
  }
  DeviceProblem(const DeviceProblem&) = delete;
  DeviceProblem& operator=(const DeviceProblem&) = delete;
  ~DeviceProblem() { static_cast<void>(cudaFree(data)); }
};

TEST_CASE("standard: pointers beside the arguments are checked before anything is launched") {
  const DeviceProblem problem;
  const GuardedWorkspace p(standard::probabilities_bytes(problem.forward));
  float* const good_p = static_cast<float*>(p.get());
  std::size_t bytes = 0;
  REQUIRE(standard::backward(nullptr, static_cast<const float*>(nullptr), nullptr, bytes,
                             problem.backward) == cudaSuccess);
  CHECK(bytes == standard::probabilities_bytes(problem.forward));
  const GuardedWorkspace memory(bytes + 16);
  unsigned char* const good = static_cast<unsigned char*>(memory.get());
  const auto forward = [&](cublasHandle_t h, float* probabilities, void* workspace,
                           const std::size_t size) {
    return standard::forward(h, probabilities, workspace, size, problem.forward);
  };
  const auto backward = [&](cublasHandle_t h, const float* probabilities, void* workspace,
                            const std::size_t size) {
    return standard::backward(h, probabilities, workspace, size, problem.backward);
  };
  CHECK(forward(standard_handle(), nullptr, good, bytes) == cudaErrorInvalidValue);
  CHECK(forward(standard_handle(), good_p, good + 8, bytes) == cudaErrorInvalidValue);
  CHECK(forward(standard_handle(), good_p, good, 15) == cudaErrorInvalidValue);
  CHECK(forward(nullptr, good_p, good, bytes) == cudaErrorInvalidResourceHandle);
  CHECK(backward(standard_handle(), nullptr, good, bytes) == cudaErrorInvalidValue);
  CHECK(backward(standard_handle(), good_p, good + 8, bytes) == cudaErrorInvalidValue);
  CHECK(backward(standard_handle(), good_p, good, bytes - 1) == cudaErrorInvalidValue);
  CHECK(backward(nullptr, good_p, good, bytes) == cudaErrorInvalidResourceHandle);
  CHECK(forward(standard_handle(), good_p, nullptr, bytes) == cudaErrorInvalidValue);
  CHECK(backward(standard_handle(), good_p, nullptr, bytes) == cudaErrorInvalidValue);
  const auto why = [](attile::Check check) { return std::string(check.why); };
  const std::string misaligned = "workspace is not aligned to 16 bytes";
  const std::string too_small =
      "workspace_bytes is less than the call needs: a null workspace asks how many";
  CHECK(why(standard::check(problem.forward, good + 8, bytes)) == misaligned);
  CHECK(why(standard::check(problem.forward, good, 15)) == too_small);
  CHECK(why(standard::check(problem.forward, good, 16)) == "");
  CHECK(why(standard::check(problem.backward, good + 8, bytes)) == misaligned);
  CHECK(why(standard::check(problem.backward, good, bytes - 1)) == too_small);
  CHECK(why(standard::check(problem.backward, good, bytes)) == "");
  CHECK(forward(standard_handle(), good_p, good, bytes) == cudaSuccess);
  CHECK(backward(standard_handle(), good_p, good, bytes) == cudaSuccess);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
}

TEST_CASE("standard: the handle is put back, and a capture on its stream allocates nothing") {
  const DeviceProblem problem;
  std::size_t forward_bytes = 0, backward_bytes = 0;
  const GuardedWorkspace p(standard::probabilities_bytes(problem.forward));
  float* const probabilities = static_cast<float*>(p.get());
  REQUIRE(standard::forward(nullptr, probabilities, nullptr, forward_bytes, problem.forward) ==
          cudaSuccess);
  REQUIRE(standard::backward(nullptr, static_cast<const float*>(probabilities), nullptr,
                             backward_bytes, problem.backward) == cudaSuccess);
  const GuardedWorkspace memory(std::max(forward_bytes, backward_bytes));
  constexpr std::size_t kCublasBytes = std::size_t{32} << 20;
  const GuardedWorkspace cublas_memory(kCublasBytes);
  cublasHandle_t h = nullptr;
  cudaStream_t own = nullptr, other = nullptr;
  REQUIRE(cublasCreate(&h) == CUBLAS_STATUS_SUCCESS);
  REQUIRE(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking) == cudaSuccess);
  REQUIRE(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking) == cudaSuccess);
  REQUIRE(cublasSetStream(h, own) == CUBLAS_STATUS_SUCCESS);
  REQUIRE(cublasSetWorkspace(h, cublas_memory.get(), kCublasBytes) == CUBLAS_STATUS_SUCCESS);
  REQUIRE(cublasSetPointerMode(h, CUBLAS_POINTER_MODE_DEVICE) == CUBLAS_STATUS_SUCCESS);
  REQUIRE(cublasSetMathMode(h, CUBLAS_TF32_TENSOR_OP_MATH) == CUBLAS_STATUS_SUCCESS);
  REQUIRE(cublasSetAtomicsMode(h, CUBLAS_ATOMICS_ALLOWED) == CUBLAS_STATUS_SUCCESS);
  const auto both = [&](cudaStream_t stream) {
    CHECK(standard::forward(h, probabilities, memory.get(), forward_bytes, problem.forward,
                            stream) == cudaSuccess);
    CHECK(standard::backward(h, static_cast<const float*>(probabilities), memory.get(),
                             backward_bytes, problem.backward, stream) == cudaSuccess);
    cudaStream_t stream_now = nullptr;
    cublasPointerMode_t pointer_mode{};
    cublasMath_t math_mode{};
    CHECK(cublasGetStream(h, &stream_now) == CUBLAS_STATUS_SUCCESS);
    CHECK(cublasGetPointerMode(h, &pointer_mode) == CUBLAS_STATUS_SUCCESS);
    CHECK(cublasGetMathMode(h, &math_mode) == CUBLAS_STATUS_SUCCESS);
    CHECK(stream_now == own);
    CHECK(pointer_mode == CUBLAS_POINTER_MODE_DEVICE);
    CHECK(math_mode == CUBLAS_TF32_TENSOR_OP_MATH);
    cublasAtomicsMode_t atomics_mode{};
    CHECK(cublasGetAtomicsMode(h, &atomics_mode) == CUBLAS_STATUS_SUCCESS);
    CHECK(atomics_mode == CUBLAS_ATOMICS_ALLOWED);
  };

  both(own);  // loads what is loaded at first use
  REQUIRE(cudaStreamBeginCapture(own, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  both(own);
  cudaGraph_t graph = nullptr;
  REQUIRE(cudaStreamEndCapture(own, &graph) == cudaSuccess);
  std::size_t count = 0;
  REQUIRE(cudaGraphGetNodes(graph, nullptr, &count) == cudaSuccess);
  std::vector<cudaGraphNode_t> nodes(count);
  REQUIRE(cudaGraphGetNodes(graph, nodes.data(), &count) == cudaSuccess);
  CHECK(count >= 8);  // six products, softmax, dS
  for (const cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type{};
    CHECK(cudaGraphNodeGetType(node, &type) == cudaSuccess);
    CHECK((type == cudaGraphNodeTypeKernel || type == cudaGraphNodeTypeMemset));
  }
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);

  both(other);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(cublas_memory.check() == cudaSuccess);
  CHECK(memory.check() == cudaSuccess);
  CHECK(cublasDestroy(h) == CUBLAS_STATUS_SUCCESS);
  CHECK(cudaStreamDestroy(own) == cudaSuccess);
  CHECK(cudaStreamDestroy(other) == cudaSuccess);
}

}  // namespace kernel_standard
