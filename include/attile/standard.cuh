// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/device.cuh>
#include <attile/arch/launch.cuh>
#include <attile/core/args.h>
#include <attile/core/check.h>
#include <attile/core/math.h>
#include <attile/core/status.h>
#include <attile/core/tensor.h>
#include <attile/core/workspace.h>
#include <attile/kernel/standard/gradient.cuh>
#include <attile/kernel/standard/launch.cuh>
#include <attile/kernel/standard/product.cuh>
#include <attile/kernel/standard/rows.cuh>
#include <attile/kernel/standard/softmax.cuh>
#include <attile/kernel/standard/workspace.h>

#include <cublas_v2.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

// Standard attention writes S and P to device memory; cuBLAS computes the products, with one kernel
// between them (arXiv 2205.14135, Algorithm 0 and Algorithm 3). It is the baseline that the other
// kernels are compared with; quadratic in memory. It is not part of attile.cuh: include it by name
// and link cuBLAS (in CMake, CUDA::cublas). It takes two products forward, four backward and one
// more for kNeedsScores; hidden scores are computed like all others.
//
// The table has the bytes moved for each of the N = batch * q_heads * q_len * kv_len scores; each
// operand of a product counts once, and a line with `+` only where it applies.
//
//   forward        fp32  16-bit     backward                   fp32  16-bit
//   S = Q K^T      w 4   w 4        dP = dO V^T                w 4   w 4
//   softmax reads  r 4   r 4        dS reads dP                r 4   r 4
//   writes P       w 4   w 2          reads P                  r 4   r 2
//   O = P V        r 4   r 2          writes dS                w 4   w 2
//                                   dV = P^T dO                r 4   r 2
//                                   dQ = dS K                  r 4   r 2
//                                   dK = dS^T Q                r 4   r 2
//   sum            16    12         sum                        28    18
//   + dropout      w 4   w 2        + dropout                  w 4   w 2
//   + kv_len above                  + kNeedsScores: S is       w 4   w 4
//     16384        r 4   r 4          made again, and read     r 4   r 4
//
// Device memory of the caller, in bytes:
//   p                   fp32: 4 N   16-bit: 2 N
//   forward workspace   fp32: 0     16-bit: 4 N   with dropout fp32: + 4 N   16-bit: + 2 N
//   backward workspace  fp32: 4 N   16-bit: 6 N   with dropout fp32: + 4 N   16-bit: + 2 N
//     + 4 N for kNeedsScores: a score modifier, but not Alibi and biases (derivative 1)
//     + 4 batch q_heads q_len with sinks
//     + 4 batch kv_heads kv_len max(D, Dv) for 16-bit types with q_heads > kv_heads
// each part rounded up to 16 bytes, and a workspace at least 16.

namespace attile::standard {

namespace detail {

/// Checks what both passes ask of sizes and of the current device.
template <class Args>
Check check_sizes(const Args& args) {
  const Sizes sizes = sizes_of(args);
  if (sizes.rows > INT32_MAX || sizes.kv_rows > INT32_MAX) {
    return refuse("batch * heads * length must be below 2^31 for standard attention");
  }
  if (sizes.rows > 0 && args.kv_len > (std::int64_t{1} << 56) / sizes.rows) {
    return refuse("the scores of standard attention take more memory than any device has");
  }
  return {};
}

template <class T>
Check check_strides(const Tensor<T>& t, const char* why, int batch, int heads, int rows, int dim) {
  return fits_product(t, batch, heads, rows, dim) ? Check{} : refuse(why);
}

#define ATTILE_STRIDES_TEXT(name) \
  name ": cuBLAS takes no row stride below the row's length, and no negative stride"

/// Checks Q, K and V as operands of both passes.
template <class Args>
Check check_inputs(const Args& a, HeadDims dim) {
  return attile::detail::first_refusal(
      check_strides(a.q, ATTILE_STRIDES_TEXT("q"), a.batch, a.q_heads, a.q_len, dim.qk),
      check_strides(a.k, ATTILE_STRIDES_TEXT("k"), a.batch, a.kv_heads, a.kv_len, dim.qk),
      check_strides(a.v, ATTILE_STRIDES_TEXT("v"), a.batch, a.kv_heads, a.kv_len, dim.v));
}

/// Returns whether P, which is not among the arguments, can be read and written.
template <class T>
bool usable(const T* p, const Sizes& sizes) {
  return sizes.scores() == 0 || (p != nullptr && !attile::detail::misaligned(p));
}

}  // namespace detail

/// Returns the bytes of P, the dense (batch, q_heads, q_len, kv_len) array of T that `forward`
/// writes and `backward` reads. For arguments that `check` accepts.
template <class Args>
std::size_t probabilities_bytes(const Args& args) {
  return sizeof(typename Args::ElementType) * static_cast<std::size_t>(sizes_of(args).scores());
}

/// Says in one sentence why `forward` would refuse these arguments on the current device. Launches
/// nothing. Beyond the contract, head_dim must be given, and Q, K, V and O must be what cuBLAS can
/// address: a row stride of at least the row's length, no negative stride.
template <ForwardPass Args>
Check check(const Args& a) {
  if (const Check arguments = check_arguments(a, 0, 0); !arguments) return arguments;
  const HeadDims dim = head_dims(a, 0, 0);
  using detail::check_strides;
  const Check problem = attile::detail::first_refusal(
      detail::check_inputs(a, dim),
      check_strides(a.o, ATTILE_STRIDES_TEXT("o"), a.batch, a.q_heads, a.q_len, dim.v),
      detail::check_sizes(a));
  if (!problem) return problem;
  return detail::with_softmax_kernel<Args>(
      a.kv_len, [&](auto kernel, int, std::size_t) { return arch::check_launch(kernel, 0, 0); });
}

/// Says the same for `backward`: head_dim must be given, and Q, K, V, dO, dQ, dK and dV must be
/// what cuBLAS can address.
template <BackwardPass Args>
Check check(const Args& a) {
  if (const Check arguments = check_arguments(a, 0, 0); !arguments) return arguments;
  const HeadDims dim = head_dims(a, 0, 0);
  using detail::check_strides;
  const Check problem = attile::detail::first_refusal(
      detail::check_inputs(a, dim),
      check_strides(a.dout, ATTILE_STRIDES_TEXT("dout"), a.batch, a.q_heads, a.q_len, dim.v),
      check_strides(a.dq, ATTILE_STRIDES_TEXT("dq"), a.batch, a.q_heads, a.q_len, dim.qk),
      check_strides(a.dk, ATTILE_STRIDES_TEXT("dk"), a.batch, a.kv_heads, a.kv_len, dim.qk),
      check_strides(a.dv, ATTILE_STRIDES_TEXT("dv"), a.batch, a.kv_heads, a.kv_len, dim.v),
      detail::check_sizes(a));
  if (!problem) return problem;
  return arch::check_launch(gradient_kernel<Args>, 0, 0);
}

#undef ATTILE_STRIDES_TEXT

/// Says the same of a call that computes: also why it would refuse this workspace, null included.
template <class Args>
Check check(const Args& args, const void* workspace, std::size_t workspace_bytes) {
  if (const Check ok = check(args); !ok) return ok;
  if constexpr (!Args::kIsForward) {
    return check_workspace(workspace, workspace_bytes, backward_workspace(args).bytes);
  } else {
    return check_workspace(workspace, workspace_bytes, forward_workspace(args).bytes);
  }
}

/// Computes O, P and, where wanted, LSE:
///   S = scale Q K^T,  P = softmax(S'),  O = dropout(P) V     [arXiv 2205.14135, Algorithm 0]
/// S and the sums of products are fp32, P is rounded to T.
/// Shapes   see ForwardArgs, but `head_dim` is required: there is no kernel's D to stand for it.
///          `p`: probabilities_bytes(args), before dropout, for `backward`.
/// Scratch  as in attile::backward: a null `workspace` only sets `workspace_bytes`, a variable, and
///          needs neither `handle` nor `p`; else device memory, aligned to 16 bytes.
/// Scope    host; asynchronous on `stream`. The handle's stream and its pointer, math and atomics
///          modes are put back. A workspace that the caller gave the handle (cublasSetWorkspace) is
///          used if the handle is on `stream` already, and is lost if not. With one, and on that
///          stream, nothing is allocated and the call can be captured; without, cuBLAS puts nodes
///          that allocate into a captured graph.
/// Bits     the same each time, but cuBLAS may choose another kernel for another batch.
/// Errors   before anything is launched what `check` says, cudaErrorInvalidValue for a `p` that is
///          null or misaligned, cudaErrorInvalidResourceHandle for a handle that is none; else the
///          first launch's error or what cuBLAS says: see `to_cuda_error` (out of its memory:
///          cudaErrorMemoryAllocation; a failed launch: cudaErrorLaunchFailure; no kernel for the
///          operands: cudaErrorNotSupported).
template <ForwardPass Args>
[[nodiscard]] cudaError_t forward(cublasHandle_t handle, typename Args::ElementType* p,
                                  void* workspace, WorkspaceBytes workspace_bytes, const Args& args,
                                  cudaStream_t stream = nullptr) {
  using T = typename Args::ElementType;
  if (const Check ok = check(args); !ok) return ok.error;
  const Sizes sizes = sizes_of(args);
  const ForwardWorkspace w = forward_workspace(args);
  if (const auto answer = attile::detail::answer_workspace(workspace, workspace_bytes, w.bytes)) {
    return *answer;
  }
  if (!detail::usable(p, sizes)) return cudaErrorInvalidValue;
  if (sizes.rows == 0) return cudaSuccess;
  const HandleScope scope(handle, stream);
  if (const cudaError_t error = scope.error()) return error;

  float* s = part<float>(workspace, w.s);
  if constexpr (std::same_as<T, float>) s = p;
  T* const dropped = Args::DropoutType::kEnabled ? part<T>(workspace, w.dropped) : nullptr;
  const auto [D, Dv] = sizes.dim;
  const Products products{handle, args.batch, args.kv_heads, sizes.group};
  if (sizes.scores() > 0) {
    if (const auto error = products.each_head<Form::kNT>(
            {args.q_len, args.kv_len, D}, scale_of(args, D),
            per_q_head(args.q, args.q_len, D, sizes.group), per_kv_head(args.k, args.kv_len, D),
            detail::per_score(args, sizes, s))) {
      return error;  // line 1: S = scale Q K^T
    }
  }
  if (const auto error = detail::launch_softmax(args, sizes, s, p, dropped, stream)) {
    return error;  // line 2: P = softmax(S')
  }
  if (sizes.scores() == 0) {
    return detail::store_rows(args.o, nullptr, args.batch, args.q_heads, args.q_len, Dv, stream);
  }
  return products.each_head<Form::kNN>(
      {args.q_len, Dv, args.kv_len}, 1.0f,
      detail::per_score(args, sizes, Args::DropoutType::kEnabled ? dropped : p),
      per_kv_head(args.v, args.kv_len, Dv),
      per_q_head(args.o, args.q_len, Dv, sizes.group));  // line 3
}

/// Computes dQ, dK and dV from the P that `forward` wrote for the same problem:
///   dV = dropout(P)^T dO,  dP = dO V^T,  dS = P * (dropout(dP) - D + dLSE) * score_mod'(S),
///   dQ = scale dS K,  dK = scale dS^T Q,  D = rowsum(dO * O)  [arXiv 2205.14135, Algorithm 3]
/// Sums are fp32; dS is rounded to T. LSE must be given, and is read for sinks alone. Where several
/// scores add to an element of a modifier's gradient, they do in no fixed order.
/// Shapes   see BackwardArgs; `head_dim` is required. `p`, Scratch, Scope, Bits, Errors: `forward`.
template <BackwardPass Args>
[[nodiscard]] cudaError_t backward(cublasHandle_t handle, const typename Args::ElementType* p,
                                   void* workspace, WorkspaceBytes workspace_bytes,
                                   const Args& args, cudaStream_t stream = nullptr) {
  using T = typename Args::ElementType;
  if (const Check ok = check(args); !ok) return ok.error;
  const Sizes sizes = sizes_of(args);
  const BackwardWorkspace w = backward_workspace(args);
  if (const auto answer = attile::detail::answer_workspace(workspace, workspace_bytes, w.bytes)) {
    return *answer;
  }
  if (!detail::usable(p, sizes)) return cudaErrorInvalidValue;
  const HandleScope scope(handle, stream);
  if (const cudaError_t error = scope.error()) return error;
  if (const auto error = detail::launch_clear_gradient(args, stream)) return error;
  const auto [D, Dv] = sizes.dim;
  float* const sink_parts =
      args.sink.gradient() != nullptr ? part<float>(workspace, w.sink_parts) : nullptr;
  if (sizes.scores() == 0) return detail::gradient_without_scores(args, sizes, sink_parts, stream);

  float* const dp = part<float>(workspace, w.dp);
  float* const s = part<float>(workspace, w.s);
  T* const ds = part<T>(workspace, w.ds);
  T* const dropped = Args::DropoutType::kEnabled ? part<T>(workspace, w.dropped) : nullptr;
  float* const sums = w.has_sums ? part<float>(workspace, w.sums) : nullptr;
  const float scale = scale_of(args, D);
  const int group = sizes.group;
  const Matrices<const T> q = per_q_head(args.q, args.q_len, D, group);
  const Matrices<const T> k = per_kv_head(args.k, args.kv_len, D);
  const Matrices<const T> v = per_kv_head(args.v, args.kv_len, Dv);
  const Matrices<const T> dout = per_q_head(args.dout, args.q_len, Dv, group);
  const Matrices<const T> ds_all = detail::per_score<const T>(args, sizes, ds);
  const Products products{handle, args.batch, args.kv_heads, group};
  if (const auto error = products.each_head<Form::kNT>({args.q_len, args.kv_len, Dv}, 1.0f, dout, v,
                                                       detail::per_score(args, sizes, dp))) {
    return error;  // line 2: dP = dO V^T
  }
  if constexpr (kNeedsScores<typename Args::ScoreModType>) {
    if (const auto error = products.each_head<Form::kNT>({args.q_len, args.kv_len, D}, scale, q, k,
                                                         detail::per_score(args, sizes, s))) {
      return error;
    }
  }
  if (const auto error =
          detail::launch_gradient(args, sizes, p, dp, s, ds, dropped, sink_parts, stream)) {
    return error;  // line 3: dS
  }
  if (const auto error = detail::launch_sinks(args, sink_parts, stream)) return error;
  if (const auto error = detail::group_gradient(
          products, {args.kv_len, Dv, args.q_len}, 1.0f,
          detail::per_score<const T>(args, sizes, Args::DropoutType::kEnabled ? dropped : p), dout,
          args.dv, sums, stream)) {
    return error;  // line 1: dV = dropout(P)^T dO
  }
  if (const auto error =
          products.each_head<Form::kNN>({args.q_len, D, args.kv_len}, scale, ds_all, k,
                                        per_q_head(args.dq, args.q_len, D, group))) {
    return error;  // line 4: dQ = scale dS K
  }
  return detail::group_gradient(products, {args.kv_len, D, args.q_len}, scale, ds_all, q, args.dk,
                                sums, stream);  // line 5: dK = scale dS^T Q
}

}  // namespace attile::standard
