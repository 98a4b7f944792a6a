// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/arch/grid_dependency.cuh>
#include <attile/arch/launch.cuh>
#include <attile/arch/math.h>
#include <attile/arch/memory.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/device_policy.h>
#include <attile/core/element.h>
#include <attile/core/math.h>
#include <attile/core/vec.h>
#include <attile/core/work_tile.h>
#include <attile/kernel/backward/backward_params.cuh>
#include <attile/kernel/backward/backward_schedule.cuh>
#include <attile/kernel/backward/dq_mode.h>
#include <attile/kernel/backward/dq_order.cuh>
#include <attile/kernel/backward/score_gradient.cuh>
#include <attile/tile/copy.cuh>
#include <attile/tile/sink_gradient.h>
#include <attile/tile/warp_sum.cuh>

#include <cstddef>
#include <cstdint>

// This kernel runs before the pass over K/V blocks, in all families. Lines are those of
// FlashAttention-2 (arXiv 2307.08691), Algorithm 2.

namespace attile {

/// Returns the tile of query rows of a block of the kernels before and after the pass, counted
/// through all heads. The kernel before ends where the pass begins, and the one after begins where
/// the pass ends, so that L2 still holds what they read.
template <class Traits>
ATTILE_DEVICE int q_tile_of_block() {
  const int block = arch::block_index();
  return Traits::kDqMode == DqMode::kInOrder ? block : arch::block_count() - 1 - block;
}

/// Computes rowsum(dO * O) of 32 rows, one for each lane; each sum is in the order of its columns.
/// Where a row sees one key, O is its V, and a dP that is summed in the same order cancels delta
/// without a rounding. Rows are read in whole lines of 128 bytes, by way of shared memory; 8 KB of
/// a warp are in flight at a time.
template <class T>
struct RowProducts {
  static constexpr int kVector = 16 / sizeof(T);
  static constexpr int kSide = 8;  ///< lanes side by side along a row
  static constexpr int kDown = arch::kWarpSize / kSide;
  static constexpr int kLoads = arch::kWarpSize / kDown;  ///< loads of a lane, of each tensor
  static constexpr int kPitch = (kSide + 1) * kVector;    ///< 8 rows begin in different banks
  static constexpr int kTile = arch::kWarpSize * kPitch;
  static constexpr std::size_t kBytes = 2 * kTile * sizeof(T);  ///< shared memory of a warp
  using Bits = Vec<int, 4>;  ///< one vector; elements of 16 bits would take a register each
  using Rows = tile::Matrix<const T>;

  T* shared;

  /// Returns the sum of row `row0 + lane`, of which `rows` exist; the first loads are in flight
  /// while it calls `meanwhile`.
  /// Scope    a warp with shared memory of its own.
  template <class F>
  ATTILE_DEVICE float operator()(const Rows& dout, const Rows& o, int row0, int rows,
                                 const F& meanwhile) const {
    const int lane = arch::thread_index() % arch::kWarpSize;
    float sum = 0.0f;
    if (dout.vectors && o.vectors) {
      for (int col0 = 0; col0 < o.cols; col0 += kSide * kVector) {
        add_columns(sum, dout, o, row0, rows, col0, meanwhile);
      }
      return sum;
    }
    meanwhile();
    if (lane >= rows) return sum;
    const T *const x = dout.row(row0 + lane), *const y = o.row(row0 + lane);
    ATTILE_UNROLL_BY(4)
    for (int d = 0; d < o.cols; ++d) sum += to_float(x[d]) * to_float(y[d]);
    return sum;
  }

 private:
  template <class F>
  ATTILE_DEVICE void add_columns(float& sum, const Rows& dout, const Rows& o, int row0, int rows,
                                 int col0, const F& meanwhile) const {
    const int lane = arch::thread_index() % arch::kWarpSize;
    const int row = lane / kSide;
    const int col = lane % kSide * kVector;
    const T* x_from = dout.row(row0 + row) + col0 + col;
    const T* y_from = o.row(row0 + row) + col0 + col;
    const int left = col0 + col < o.cols ? rows - row : 0;  // rows from the lane's first on
    Bits x[kLoads], y[kLoads];
    ATTILE_UNROLL
    for (int i = 0; i < kLoads; ++i) {
      x[i] = y[i] = {};
      if (i * kDown < left) {
        x[i] = arch::load<4>(reinterpret_cast<const int*>(x_from));
        y[i] = arch::load<4>(reinterpret_cast<const int*>(y_from));
      }
      x_from += kDown * dout.row_stride;
      y_from += kDown * o.row_stride;
    }
    if (col0 == 0) meanwhile();
    T* const to = shared + row * kPitch + col;
    arch::warp_barrier();  // the previous columns have been added before they are overwritten
    ATTILE_UNROLL
    for (int i = 0; i < kLoads; ++i) {
      arch::store(reinterpret_cast<int*>(to + i * kDown * kPitch), x[i]);
      arch::store(reinterpret_cast<int*>(to + i * kDown * kPitch + kTile), y[i]);
    }
    arch::warp_barrier();  // all lanes' vectors are written before others read them
    const T* const from = shared + lane * kPitch;
    ATTILE_UNROLL
    for (int v = 0; v < kSide * kVector; v += kVector) {  // past the last column both are 0
      const auto a = arch::load<kVector>(from + v);
      const auto b = arch::load<kVector>(from + v + kTile);
      ATTILE_UNROLL
      for (int e = 0; e < kVector; ++e) sum += to_float(a[e]) * to_float(b[e]);
    }
  }
};

/// Stores what a warp's rows add to the gradient of their head's sink, where that is wanted.
/// `first`: their first row in the tile. `sink`: that head's. `lse`, `delta`: of the lane's row.
/// Scope    all lanes of a warp.
template <class Traits>
ATTILE_DEVICE void store_sink_part(const BackwardParams<Traits>& p, const WorkTile& tile, int first,
                                   float sink, float lse, float delta) {
  static_assert(arch::kWarpSize == 32, "kSinkParts counts the rows of a warp");
  if (p.policies.sink.gradient() == nullptr) return;
  const float sum = tile::warp_sum(tile::sink_gradient_of_row<float>(sink, lse, delta));
  if (arch::thread_index() % arch::kWarpSize != 0) return;
  p.sink_parts[p.sink_part(tile) + first / arch::kWarpSize] = sum;
}

/// Stores that a tile without rows, the `number`-th one, adds nothing to the gradient of its head's
/// sink.
template <class Traits>
ATTILE_DEVICE void clear_sink_parts(const BackwardParams<Traits>& p, const WorkTile& tile,
                                    int number) {
  const int part = arch::thread_index();
  if (p.policies.sink.gradient() == nullptr || part >= kSinkParts<Traits>) return;
  std::int64_t first = 0;
  if (tile.sequence >= 0) {
    first = p.sink_part(tile);
  } else if constexpr (BackwardParams<Traits>::kPackedSequences) {
    first = p.sink_part_of_none(number);
  }
  p.sink_parts[first + part] = 0.0f;
}

/// Returns LSE and dLSE of a row; -inf and 0 where it is not there.
template <class Traits>
ATTILE_DEVICE Vec<float, 2> read_lse(const BackwardParams<Traits>& p, const WorkTile& tile, int row,
                                     bool there) {
  float lse = -kInf, dlse = 0.0f;
  if (there) {
    const auto of_row = [&](const auto& x) {
      return p.first_row(x, tile.sequence, tile.head)[row];
    };
    lse = of_row(p.lse);
    if (p.l.data != nullptr) lse += arch::log(of_row(p.l));
    if (p.dlse.data != nullptr) dlse = of_row(p.dlse);
  }
  return {lse, dlse};
}

/// Writes zeros to dq_accum of `rows` rows of a tile, from its row `first` on.
/// Scope    all lanes of a warp.
template <class Traits>
ATTILE_DEVICE void zero_fill_rows(const BackwardParams<Traits>& p, const WorkTile& tile, int first,
                                  int rows) {
  constexpr int kWarp = arch::kWarpSize;
  const int mine = arch::thread_index() % kWarp * 4;
  float* const zeros = p.dq_accum_of(tile) + first * Traits::kDqCols + mine;
  ATTILE_UNROLL_BY(8)
  for (int i = 0; i < rows * Traits::kDqCols; i += kWarp * 4) {
    if (Traits::kBr % kWarp == 0 || i + mine < rows * Traits::kDqCols) {
      arch::store(zeros + i, Float4{});
    }
  }
}

/// Is the number of warps of the preprocessing kernel, each of which takes 32 rows of a tile.
template <class Traits>
inline constexpr int kPreprocessWarps = min(ceil_div(Traits::kBr, arch::kWarpSize), 4);
template <class Traits>
inline constexpr int kPreprocessThreads = kPreprocessWarps<Traits>* arch::kWarpSize;
/// Is the number of its blocks for which a multiprocessor has registers at least: those of 16
/// warps, and with kInOrder, or packed sequences in several batches, of 12, as more would spill. By
/// 16 instead of 12 a pass of 512 packed
/// sequences of 128 rows takes 0.985 of the time (H200, bench/log/tuning-sequences.md).
template <class Traits>
inline constexpr int kPreprocessBlocks = [] {
  constexpr bool kInBatches = kIsInBatches<typename Traits::SequencesType>;
  constexpr int kWarps = Traits::kDqMode == DqMode::kInOrder || kInBatches ? 12 : 16;
  return kWarps / kPreprocessWarps<Traits>;
}();
template <class Traits>
inline constexpr std::size_t kPreprocessSharedBytes =
    kPreprocessWarps<Traits>* RowProducts<typename Traits::ElementType>::kBytes;

/// Computes line 4, the row statistics that the loops read, and writes the zeros of the sum of dQ
/// (line 3) where the pass does not: one block for each slot of a tile of query rows of each head.
/// It also writes the zeros of the gradient of a score modifier that has one, and the parts of that
/// of the sinks.
template <class Traits>
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(kPreprocessThreads<Traits>, kPreprocessBlocks<Traits>)
    backward_preprocess_kernel(const ATTILE_GRID_CONSTANT typename Traits::Params p) {
  detail::require_device_policies<typename Traits::Policies>();
  using Products = RowProducts<typename Traits::ElementType>;
  constexpr bool kInOrder = Traits::kDqMode == DqMode::kInOrder;
  constexpr int kWarp = arch::kWarpSize;
  constexpr bool kPacked = BackwardParams<Traits>::kPackedSequences;
  constexpr bool kWhole = Traits::kBr % kWarp == 0;
  const int thread = arch::thread_index();
  arch::launch_dependents();
  if (kInOrder && arch::block_index() == 0 && thread == 0) {
    *p.begun_counter() = 0;
  }
  if constexpr (kHasGradient<typename Traits::ScoreModType>) {
    clear_gradient<kPreprocessThreads<Traits>>(p.policies.score_mod, p.score_shape());
  }
  if (p.q_tile_count() == 0) {
    if constexpr (kPacked) list_kv_blocks<kPreprocessThreads<Traits>>(p);
    if constexpr (Traits::kSortsLastKvBlocks) sort_last_kv_blocks<kPreprocessThreads<Traits>>(p);
    return;
  }
  const DqOrder<Traits> order(p);
  order.template reset<kPreprocessThreads<Traits>>();
  const int number = q_tile_of_block<Traits>();
  const WorkTile tile = p.row_tile(number, p.q_tiles);
  const auto list_tiles = [&] {
    if constexpr (Traits::kSortsLastKvBlocks) sort_last_kv_blocks<kPreprocessThreads<Traits>>(p);
    if constexpr (kPacked) {
      list_kv_blocks<kPreprocessThreads<Traits>>(p);
      if (thread < kWarp) list_row_tile(p, number, tile);
    }
  };
  if (!p.has_rows(tile)) {
    list_tiles();
    if constexpr (Traits::SinkType::kEnabled) clear_sink_parts(p, tile, number);
    return;
  }
  const int q_len = p.extent(tile).q_len;
  bool written = false;  // whether a kv tile that sees those rows overwrites their sum
  if constexpr (kInOrder) written = order.nearest_seen(tile, 0, 1) < p.kv_tiles;
  const auto dout = p.rows_of_head(p.dout, tile, p.head_dim_v);
  const auto o = p.o_of(tile);
  float sink = -kInf;
  if constexpr (Traits::SinkType::kEnabled) sink = p.policies.sink.logit(tile.head);
  const Products products{reinterpret_cast<typename Traits::ElementType*>(
      arch::dynamic_shared() + thread / kWarp * Products::kBytes)};
  for (int first = thread / kWarp * kWarp; first < Traits::kBr;
       first += kPreprocessThreads<Traits>) {
    const int rows = kWhole ? kWarp : min(Traits::kBr - first, kWarp);  // rows of the warp
    const int row = tile.row0 + first + thread % kWarp;
    const bool there = row < q_len && thread % kWarp < rows;
    const Vec<float, 2> statistics = read_lse(p, tile, row, there);
    const float lse = statistics[0], dlse = statistics[1];
    const auto meanwhile = [&] {
      if (first < kPreprocessThreads<Traits>) list_tiles();  // once
      if (p.dq_accum == nullptr || written || p.pass_fills(tile)) return;
      zero_fill_rows(p, tile, first, rows);
    };
    float sum =
        products(dout, o, tile.row0 + first, min(q_len - tile.row0 - first, rows), meanwhile);
    if constexpr (Traits::SinkType::kEnabled) sum = tile::delta_beside_sink(sum, lse, sink);
    // An empty row has no gradient, whatever its dLSE: P = 0 must meet a finite factor.
    const float row_lse = lse == -kInf ? kInf : lse;
    const float delta = lse == -kInf ? 0.0f : sum - dlse;
    if constexpr (Traits::SinkType::kEnabled) store_sink_part(p, tile, first, sink, row_lse, delta);
    if (thread % kWarp >= rows) continue;
    const std::int64_t at = p.scratch_row(tile) + first + thread % kWarp;
    float step_lse = row_lse, step_delta = delta;
    if constexpr (Traits::kSignsP) {
      const float half = 0.5f * p.sampler().keep_scale();
      step_lse -= arch::log(half);
      step_delta /= half;
    }
    p.row_lse[at] = Traits::kLog2Lse ? p.log2_lse.of(step_lse) : step_lse;
    p.delta[at] = step_delta;
  }
}

}  // namespace attile
