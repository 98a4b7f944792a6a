// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/launch.cuh>
#include <attile/core/args.h>
#include <attile/core/math.h>
#include <attile/core/tensor.h>
#include <attile/kernel/backward/sink_gradient.cuh>
#include <attile/kernel/standard/gradient.cuh>
#include <attile/kernel/standard/product.cuh>
#include <attile/kernel/standard/rows.cuh>
#include <attile/kernel/standard/softmax.cuh>
#include <attile/kernel/standard/workspace.h>

#include <cstdint>

// The host functions that launch standard attention's kernels.

namespace attile::standard::detail {

/// Returns whether dense rows of `cols` elements can be moved four at a time.
template <class... Pointers>
bool four_at_a_time(int cols, const Pointers*... data) {
  return cols % 4 == 0 &&
         ((reinterpret_cast<std::uintptr_t>(data) % (4 * sizeof(Pointers)) == 0) && ...);
}

/// Calls visit(kernel, threads of a block, its shared memory in bytes) with the softmax kernel for
/// rows of that length.
template <class Args, class Visit>
auto with_softmax_kernel(int cols, const Visit& visit) {
  const auto with = [&]<class Part, bool kReread>() {
    return visit(softmax_kernel<Args, Part, kReread>, Part::kThreads,
                 kSoftmaxSharedBytes<Part, kReread>);
  };
  if (cols <= ShortRow::kCols) return with.template operator()<ShortRow, false>();
  if (cols <= MediumRow::kCols) return with.template operator()<MediumRow, false>();
  if (cols <= LongRow::kCols) return with.template operator()<LongRow, false>();
  return with.template operator()<PartOfRow, true>();
}

/// Returns the dense matrices of all query heads' scores.
template <class X, class Args>
Matrices<X> per_score(const Args& args, const Sizes& sizes, X* data) {
  return per_q_head(bhsd(data, {.rows = args.q_len, .heads = args.q_heads, .dim = args.kv_len}),
                    args.q_len, args.kv_len, sizes.group);
}

/// Computes P, dropout(P) and LSE from S, which may be the memory of P.
template <class Args, class T = typename Args::ElementType>
cudaError_t launch_softmax(const Args& args, const Sizes& sizes, const float* s, T* p, T* dropped,
                           cudaStream_t stream) {
  const SoftmaxParams<Args> params{.s = s,
                                   .p = p,
                                   .dropped = dropped,
                                   .lse = args.lse,
                                   .q_heads = args.q_heads,
                                   .extent = {args.q_len, args.kv_len},
                                   .vectors = four_at_a_time(args.kv_len, s, p, dropped),
                                   .mask = args.mask,
                                   .score_mod = args.score_mod,
                                   .dropout = args.dropout,
                                   .sink = args.sink};
  const auto launch = [&](auto kernel, int threads, std::size_t shared_bytes) {
    return arch::launch(kernel, static_cast<unsigned>(sizes.rows), static_cast<unsigned>(threads),
                        shared_bytes, stream, params);
  };
  return with_softmax_kernel<Args>(args.kv_len, launch);
}

/// Computes dS, which may be dP's memory, and dropout(P) from P, dP and, for some modifiers, S.
/// Where sinks have a gradient, it computes their parts of it.
template <class Args, class T = typename Args::ElementType>
cudaError_t launch_gradient(const Args& args, const Sizes& sizes, const T* p, const float* dp,
                            const float* s, T* ds, T* dropped, float* sink_parts,
                            cudaStream_t stream) {
  const GradientParams<Args> params{.p = p,
                                    .dp = dp,
                                    .s = s,
                                    .ds = ds,
                                    .dropped = dropped,
                                    .o = args.o,
                                    .dout = args.dout,
                                    .dlse = args.dlse,
                                    .q_heads = args.q_heads,
                                    .extent = {args.q_len, args.kv_len},
                                    .head_dim_v = sizes.dim.v,
                                    .vectors = four_at_a_time(args.kv_len, p, dp, s, ds, dropped),
                                    .score_mod = args.score_mod,
                                    .dropout = args.dropout,
                                    .sink = args.sink,
                                    .lse = args.lse,
                                    .sink_parts = sink_parts};
  constexpr int kThreads = GradientPart::kThreads;
  return arch::launch(gradient_kernel<Args>, static_cast<unsigned>(sizes.rows), kThreads,
                      sizeof(ReduceShared<float, kThreads>), stream, params);
}

/// Adds the parts of the sinks' gradient, where that is wanted.
template <class Args>
cudaError_t launch_sinks(const Args& args, const float* parts, cudaStream_t stream) {
  if constexpr (Args::SinkType::kEnabled) {
    if (float* const dsinks = args.sink.gradient()) {
      return launch_sum_sinks({parts, dsinks, args.batch, args.q_heads, args.q_len}, true, stream);
    }
  }
  return cudaSuccess;
}

/// Zeroes the gradient of a modifier that has one.
template <class Args>
cudaError_t launch_clear_gradient(const Args& args, cudaStream_t stream) {
  const ScoreShape shape = score_shape(args);
  const std::int64_t lines = gradient_lines(args.score_mod, shape);
  if (lines == 0) return cudaSuccess;
  if constexpr (kHasGradient<typename Args::ScoreModType>) {
    constexpr std::int64_t kWarps = kClearThreads / arch::kWarpSize, kMostBlocks = 1 << 16;
    const auto blocks = static_cast<unsigned>(min(ceil_div(lines, kWarps), kMostBlocks));
    return arch::launch(clear_gradient_kernel<typename Args::ScoreModType>, blocks, kClearThreads,
                        0, stream, args.score_mod, shape);
  }
  return cudaSuccess;
}

/// Writes dense fp32 sums to `out`, of the same shape, or 0 where they are null.
template <class T>
cudaError_t store_rows(const Tensor<T>& out, const float* sums, int batch, int heads, int rows,
                       int dim, cudaStream_t stream) {
  const std::int64_t count = std::int64_t{batch} * heads * rows;
  if (count == 0) return cudaSuccess;
  return arch::launch(
      store_rows_kernel<T>, static_cast<unsigned>(ceil_div<std::int64_t>(count, kRowsPerBlock)),
      kRowsPerBlock * arch::kWarpSize, 0, stream, out, sums, batch, heads, rows, dim);
}

/// Computes the gradients of a problem without scores: those of the sinks, and zeros for others.
template <class Args>
cudaError_t gradient_without_scores(const Args& args, const Sizes& sizes, float* sink_parts,
                                    cudaStream_t stream) {
  using T = typename Args::ElementType;
  if (sizes.rows > 0 && sink_parts != nullptr) {
    if (const auto error = launch_gradient<Args, T>(args, sizes, nullptr, nullptr, nullptr, nullptr,
                                                    nullptr, sink_parts, stream)) {
      return error;
    }
  }
  if (const auto error = launch_sinks(args, sink_parts, stream)) return error;
  const auto clear = [&](const Tensor<T>& t, int heads, int rows, int dim) {
    return store_rows(t, nullptr, args.batch, heads, rows, dim, stream);
  };
  if (const auto error = clear(args.dq, args.q_heads, args.q_len, sizes.dim.qk)) return error;
  if (const auto error = clear(args.dk, args.kv_heads, args.kv_len, sizes.dim.qk)) return error;
  return clear(args.dv, args.kv_heads, args.kv_len, sizes.dim.v);
}

/// Computes dK or dV = alpha * (sum of X^T Y over a kv head's query heads), by fp32 sums if given.
template <class T>
cudaError_t group_gradient(const Products& products, ProductSize size, float alpha,
                           const Matrices<const T>& x, const Matrices<const T>& y,
                           const Tensor<T>& out, float* sums, cudaStream_t stream) {
  const int kv_len = size.rows;
  const int dim = size.cols;
  if (sums == nullptr) {
    return products.sum_of_group<Form::kTN>(size, alpha, x, y, per_kv_head(out, kv_len, dim));
  }
  const Tensor<float> dense = bhsd(sums, {.rows = kv_len, .heads = products.kv_heads, .dim = dim});
  if (const auto error =
          products.sum_of_group<Form::kTN>(size, alpha, x, y, per_kv_head(dense, kv_len, dim))) {
    return error;
  }
  return store_rows(out, sums, products.batch, products.kv_heads, kv_len, dim, stream);
}

}  // namespace attile::standard::detail
