// SPDX-License-Identifier: MIT
// One attention kernel behind a C interface, for callers that load libraries at run time:
// bench/compare.py builds one shared library from this file for every kernel that it measures.
//
//   ATTILE_D, ATTILE_DV   head dimensions                     ATTILE_TYPE  __half, __nv_bfloat16...
//   ATTILE_MASK           NoMask, Causal or SlidingWindow     ATTILE_DIRECTION  kForward, kBackward
//   ATTILE_DQ_MODE        kAccumulate or kInOrder, for backward
#include <attile/attile.cuh>

#include <cstddef>
#include <cstdint>
#include <type_traits>

extern "C" {

/// A (batch, head, row, dim) view. Units: strides count elements.
struct AttileTensor {
  void* data;
  std::int64_t batch_stride, head_stride, row_stride;
};

/// Arguments of the kernel in device memory; what its direction does not have may be null.
/// `window_left` and `window_right` are SlidingWindow's.
struct AttileProblem {
  AttileTensor q, k, v, o, dout, dq, dk, dv;
  float* lse;
  void* workspace;
  std::size_t workspace_bytes;
  cudaStream_t stream;
  std::int32_t batch, q_heads, kv_heads, q_len, kv_len, window_left, window_right;
  float scale;
};

}  // extern "C"

namespace {

using T = ATTILE_TYPE;
using MaskType = attile::ATTILE_MASK;
constexpr int kD = ATTILE_D, kDv = ATTILE_DV;
[[maybe_unused]] constexpr auto kMode = attile::DqMode::ATTILE_DQ_MODE;
using Args =
    std::conditional_t<attile::Direction::ATTILE_DIRECTION == attile::Direction::kForward,
                       attile::ForwardArgs<T, MaskType>, attile::BackwardArgs<T, MaskType>>;

template <class A>
concept Backward = requires(A a) {
  a.dout.data;
};

template <class Element>
void set(attile::Tensor<Element>& to, const AttileTensor& from) {
  to = {static_cast<Element*>(from.data), from.batch_stride, from.head_stride, from.row_stride};
}

template <class A = Args>
A args_of(const AttileProblem& p) {
  A a;
  set(a.q, p.q), set(a.k, p.k), set(a.v, p.v), set(a.o, p.o);
  if constexpr (Backward<A>) {
    set(a.dout, p.dout), set(a.dq, p.dq), set(a.dk, p.dk), set(a.dv, p.dv);
  }
  if constexpr (requires { a.mask.left; }) a.mask = {p.window_left, p.window_right};
  a.lse = p.lse;
  a.batch = p.batch, a.q_heads = p.q_heads, a.kv_heads = p.kv_heads;
  a.q_len = p.q_len, a.kv_len = p.kv_len;
  a.scale = p.scale;
  return a;
}

template <class A>
attile::Check check(const A& a) {
  return attile::check<kD, kDv>(a);
}

template <Backward A>
attile::Check check(const A& a) {
  return attile::check<kD, kDv, kMode>(a);
}

template <class A>
cudaError_t workspace_of(const A&, std::size_t& bytes) {
  bytes = 0;
  return cudaSuccess;
}

template <Backward A>
cudaError_t workspace_of(const A& a, std::size_t& bytes) {
  return attile::backward<kD, kDv, kMode>(nullptr, bytes, a);
}

template <class A>
cudaError_t run(const A& a, const AttileProblem& p) {
  return attile::forward<kD, kDv>(a, p.stream);
}

template <Backward A>
cudaError_t run(const A& a, const AttileProblem& p) {
  std::size_t bytes = p.workspace_bytes;
  return attile::backward<kD, kDv, kMode>(p.workspace, bytes, a, p.stream);
}

}  // namespace

// The library is to be built with hidden visibility: many are loaded into one process.
#pragma GCC visibility push(default)
extern "C" {

/// The size of AttileProblem that this library was built with. Units: bytes.
std::size_t attile_problem_bytes() { return sizeof(AttileProblem); }

/// Why the kernel would refuse `problem`, in one sentence; empty when it would not.
const char* attile_check(const AttileProblem* problem) { return check(args_of(*problem)).why; }

/// Sets `bytes` to the scratch memory that `attile_run` needs: 0 for a forward kernel.
/// Errors   a cudaError_t; 0 for success.
int attile_workspace(const AttileProblem* problem, std::size_t* bytes) {
  return workspace_of(args_of(*problem), *bytes);
}

/// Runs the kernel, asynchronously on the problem's stream.
/// Errors   a cudaError_t; 0 for success.
int attile_run(const AttileProblem* problem) { return run(args_of(*problem), *problem); }

/// What a number returned by the others means.
const char* attile_error(int error) { return cudaGetErrorString(static_cast<cudaError_t>(error)); }

}  // extern "C"
#pragma GCC visibility pop
