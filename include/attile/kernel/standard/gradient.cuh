// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/launch.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/index.h>
#include <attile/core/score_mod.h>
#include <attile/kernel/backward/score_gradient.cuh>
#include <attile/kernel/standard/rows.cuh>
#include <attile/kernel/standard/workspace.h>
#include <attile/tile/sink_gradient.h>

#include <cstdint>

namespace attile::standard {

/// Holds the one argument of gradient_kernel.
template <class Args>
struct GradientParams {
  using T = typename Args::ElementType;

  const T* p;       ///< dense (batch, q_heads, q_len, kv_len), as are the next four: softmax(S')
  const float* dp;  ///< dO V^T; may be the memory of ds
  const float* s;   ///< scale Q K^T; null unless kNeedsScores
  T* ds;
  T* dropped;  ///< dropout(P); null without dropout
  Tensor<const T> o, dout;
  const float* dlse;  ///< (batch, q_heads, q_len), or null
  int q_heads;
  Extent extent;
  int head_dim_v;
  bool vectors;  ///< dense rows can be moved four elements at a time
  typename Args::ScoreModType score_mod;
  typename Args::DropoutType dropout;
  typename Args::SinkType sink;
  const float* lse;   ///< (batch, q_heads, q_len); read for sinks alone
  float* sink_parts;  ///< the same shape: what each row adds to its sink's gradient; null: unwanted
};

using GradientPart = RowPart<256, 2>;

/// Computes dS = P * (dropout(dP) - D + dLSE) * score_mod'(S) of one row, D = rowsum(dO * O); and
/// dropout(P). To the gradient of a modifier that has one it adds dS before the last factor, and of
/// the sinks' gradient it writes the row's part.
///                                                        [arXiv 2205.14135, Algorithm 3, line 3]
/// Scope    one block of GradientPart::kThreads threads for each row, ReduceShared<float, kThreads>
///          of dynamic shared memory. A thread reads no dP that another one writes dS over.
template <class Args>
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(GradientPart::kThreads, 4)
    gradient_kernel(const ATTILE_GRID_CONSTANT GradientParams<Args> p) {
  constexpr int kThreads = GradientPart::kThreads;
  using S = typename Args::ScoreModType;
  const std::int64_t at = arch::block_index();
  const int batch_head = static_cast<int>(at / p.extent.q_len);
  const int batch = batch_head / p.q_heads;
  const int head = batch_head % p.q_heads;
  const int i = static_cast<int>(at % p.extent.q_len);
  const auto* const o = p.o.row(batch, head, i);
  const auto* const dout = p.dout.row(batch, head, i);
  float product = 0.0f;
  for (int d = arch::thread_index(); d < p.head_dim_v; d += kThreads) {
    product += to_float(dout[d]) * to_float(o[d]);
  }
  float delta = reduce_block<kThreads>(product, Sum{});
  if constexpr (Args::SinkType::kEnabled) {
    delta = tile::delta_beside_sink(delta, p.lse[at], p.sink.logit(head));
  }
  if (p.dlse != nullptr) delta -= p.dlse[at];
  if constexpr (Args::SinkType::kEnabled) {
    if (p.sink_parts != nullptr && arch::thread_index() == 0) {
      const float lse = p.lse[at];
      p.sink_parts[at] =
          lse == -kInf ? 0.0f : tile::sink_gradient_of_row<float>(p.sink.logit(head), lse, delta);
    }
  }

  const auto sampler = p.dropout.sampler(p.q_heads);
  const float keep_scale = sampler.keep_scale();
  const int cols = p.extent.kv_len;
  const std::int64_t row = at * cols;
  for (int col0 = 0; col0 < cols; col0 += GradientPart::kCols) {
    GradientPart prob, ds, s;
    prob.load(p.p + row, col0, cols, p.vectors, 0.0f);
    ds.load(p.dp + row, col0, cols, p.vectors, 0.0f);
    if constexpr (kNeedsScores<S>) s.load(p.s + row, col0, cols, p.vectors, 0.0f);
    const auto step = [&](int col, float& prob_ij, float& ds_ij, float& s_ij) {
      const ScoreIndex index{batch, head, i, col};
      const bool keep = sampler.keep(index);
      float derivative = 1.0f;
      if constexpr (kNeedsScores<S>) derivative = p.score_mod(s_ij, index, p.extent).derivative;
      const float dp_ij = keep ? ds_ij * keep_scale : 0.0f;
      if constexpr (kHasGradient<S>) {
        if (prob_ij != 0.0f) {
          p.score_mod.add_gradient(kNeedsScores<S> ? s_ij : 0.0f, prob_ij * (dp_ij - delta), index,
                                   p.extent, AddAtomically{});
        }
      }
      // Where P is 0, hidden or too small for T, dP and the derivative may be anything.
      ds_ij = prob_ij == 0.0f ? 0.0f : prob_ij * (dp_ij - delta) * derivative;
      prob_ij = keep ? prob_ij * keep_scale : 0.0f;
    };
    prob.for_each(col0, cols, step, ds, s);
    ds.store(p.ds + row, col0, cols, p.vectors);
    if constexpr (Args::DropoutType::kEnabled) {
      prob.store(p.dropped + row, col0, cols, p.vectors);
    }
  }
}

inline constexpr int kClearThreads = 128;

/// Writes the zeros that the gradient of a score modifier begins with.
template <class S>
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(kClearThreads, 1)
    clear_gradient_kernel(const ATTILE_GRID_CONSTANT S mod, const ScoreShape shape) {
  clear_gradient<kClearThreads>(mod, shape);
}

}  // namespace attile::standard
