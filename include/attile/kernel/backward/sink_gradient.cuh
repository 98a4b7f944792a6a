// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/arch/grid_dependency.cuh>
#include <attile/arch/launch.cuh>
#include <attile/arch/thread.cuh>
#include <attile/tile/warp_sum.cuh>

#include <cstddef>
#include <cstdint>

// The gradient of the sinks, dsink = -sum of exp(sink - LSE) (D - dLSE) over the rows of a query
// head in all sequences (see AttentionSink). Kernels that know LSE and D of rows write the sums of
// some rows each, parts, to the workspace; a last kernel adds them in a fixed order.

namespace attile {

/// Holds the one argument of sum_sinks_kernel.
struct SinkSums {
  const float* parts;  ///< (batch, heads, count), of query heads
  float* dsinks;       ///< one for each of these heads
  int batch, heads;
  int count;  ///< the parts of each head of each sequence
};

/// Adds the parts of each query head, and writes the gradient of its sink: zero without parts. The
/// order is that of the parts' numbers in their sequences and of the sequences, and parts that are
/// 0 change nothing, so that more of them behind a sequence's last row leave the bits as they are.
/// Scope    one block for each query head. Beside the previous kernel, which may be under way, it
///          only waits.
template <int kThreads>
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(kThreads, 1)
    sum_sinks_kernel(const ATTILE_GRID_CONSTANT SinkSums p) {
  constexpr int kWarps = kThreads / arch::kWarpSize;
  float* const of_warps = reinterpret_cast<float*>(arch::dynamic_shared());  // (kWarps)
  const int warp = arch::thread_index() / arch::kWarpSize;
  const int lane = arch::thread_index() % arch::kWarpSize;
  const int head = arch::block_index();
  arch::await_dependencies();  // the parts are written before they are read
  float sum = 0.0f;
  for (int chunk = 0; chunk * arch::kWarpSize < p.count; ++chunk) {
    const int part = chunk * arch::kWarpSize + lane;
    if (part >= p.count) continue;
    // Warps share the sequences. The next parts of a sequence are another warp's, so that few
    // sequences have work for all warps, too.
    ATTILE_UNROLL_BY(4)
    for (int b = (warp + chunk) % kWarps; b < p.batch; b += kWarps) {
      const std::int64_t batch_head = static_cast<std::int64_t>(b) * p.heads + head;
      sum += p.parts[batch_head * p.count + part];
    }
  }
  sum = tile::warp_sum(sum);
  if (lane == 0) of_warps[warp] = sum;
  arch::barrier();  // the sums of all warps are written before one thread adds them
  if (arch::thread_index() != 0) return;
  float total = 0.0f;
  ATTILE_UNROLL
  for (int w = 0; w < kWarps; ++w) total += of_warps[w];
  p.dsinks[head] = total;
}

/// Launches sum_sinks_kernel behind the kernels of a pass. `is_first`: whether none was launched.
/// It is a template so that a program without sinks has no such kernel.
template <int kThreads = 256>
[[nodiscard]] cudaError_t launch_sum_sinks(const SinkSums& sums, bool is_first,
                                           cudaStream_t stream) {
  constexpr std::size_t kSharedBytes = kThreads / arch::kWarpSize * sizeof(float);
  const auto blocks = static_cast<unsigned>(sums.heads);
  const auto kernel = sum_sinks_kernel<kThreads>;
  if (is_first) return arch::launch(kernel, blocks, kThreads, kSharedBytes, stream, sums);
  return arch::launch_dependent(kernel, blocks, kThreads, kSharedBytes, stream, sums);
}

}  // namespace attile
