// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/arch/launch.cuh>
#include <attile/arch/math.h>
#include <attile/arch/memory.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/array.h>
#include <attile/core/config.h>
#include <attile/core/element.h>
#include <attile/core/tensor.h>
#include <attile/core/vec.h>

#include <cub/block/block_reduce.cuh>

#include <cstdint>

// The kernels of standard attention share these pieces. One block works on one row of scores.

namespace attile::standard {

/// Holds the part of a row that a block has in registers: kGroups vectors of four neighbours in
/// each thread, neighbouring threads side by side.
template <int kThreadCount, int kGroups>
struct RowPart {
  static constexpr int kThreads = kThreadCount;
  static constexpr int kCols = kThreads * kGroups * 4;

  Array<Float4, kGroups> group;

  /// Returns the column of the first element of vector `g`, relative to the part's first.
  ATTILE_DEVICE static int col(int g) { return (g * kThreads + arch::thread_index()) * 4; }

  /// Calls visit(column, element, the same elements of `others`) for each of this thread's elements
  /// that is inside the row.
  template <class Visit, class... Parts>
  ATTILE_DEVICE void for_each(int first, int cols, const Visit& visit, Parts&... others) {
    ATTILE_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      ATTILE_UNROLL
      for (int j = 0; j < 4; ++j) {
        const int at = first + col(g) + j;
        if (at < cols) visit(at, group[g][j], others.group[g][j]...);
      }
    }
  }

  /// Reads the columns from `first` on; `beyond` stands for those past the row's end.
  /// Units   `vectors`: every row begins on, and has, a multiple of four elements.
  template <class T>
  ATTILE_DEVICE void load(const T* row, int first, int cols, bool vectors, float beyond) {
    if (vectors) {
      ATTILE_UNROLL
      for (int g = 0; g < kGroups; ++g) {
        const int at = first + col(g);
        Vec<T, 4> x;
        if (at < cols) x = arch::load<4>(row + at);
        ATTILE_UNROLL
        for (int j = 0; j < 4; ++j) group[g][j] = at < cols ? to_float(x[j]) : beyond;
      }
    } else {
      ATTILE_UNROLL
      for (int g = 0; g < kGroups; ++g) group[g] = {beyond, beyond, beyond, beyond};
      for_each(first, cols, [&](int at, float& x) { x = to_float(row[at]); });
    }
  }

  /// Writes factor * the elements, rounded to T.
  template <class T>
  ATTILE_DEVICE void store(T* row, int first, int cols, bool vectors, float factor = 1.0f) {
    if (vectors) {
      ATTILE_UNROLL
      for (int g = 0; g < kGroups; ++g) {
        Vec<T, 4> x;
        ATTILE_UNROLL
        for (int j = 0; j < 4; ++j) x[j] = from_float<T>(factor * group[g][j]);
        const int at = first + col(g);
        if (at < cols) arch::store(row + at, x);
      }
    } else {
      for_each(first, cols, [&](int at, float x) { row[at] = from_float<T>(factor * x); });
    }
  }
};

struct Max {
  ATTILE_DEVICE float operator()(float a, float b) const { return arch::fmax(a, b); }
};
struct Sum {
  ATTILE_DEVICE float operator()(float a, float b) const { return a + b; }
};

/// Holds the shared memory of a reduction over a block.
template <class X, int kThreads>
struct ReduceShared {
  using Reduce = cub::BlockReduce<X, kThreads>;
  typename Reduce::TempStorage temp;
  X result;
};

/// Returns `op` over the values of all threads to every thread, computed in a fixed order.
/// Scope    all kThreads threads of the block, once in a kernel for each `slot`; a
///          ReduceShared<X, kThreads> of dynamic shared memory for each slot.
template <int kThreads, class X, class Op>
ATTILE_DEVICE X reduce_block(const X& x, const Op& op, int slot = 0) {
  using Shared = ReduceShared<X, kThreads>;
  Shared& shared = reinterpret_cast<Shared*>(arch::dynamic_shared())[slot];
  const X result = typename Shared::Reduce(shared.temp).Reduce(x, op);
  if (arch::thread_index() == 0) shared.result = result;
  arch::barrier();  // the result is written before anyone reads it
  return shared.result;
}

inline constexpr int kRowsPerBlock = 8;

/// Stores the dense fp32 `sums` in the type of `out`, or 0 where `sums` is null: one warp for each
/// row, kRowsPerBlock rows for each block.
template <Element T>
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(kRowsPerBlock* arch::kWarpSize, 1)
    store_rows_kernel(const Tensor<T> out, const float* const sums, const int batch,
                      const int heads, const int rows, const int dim) {
  const std::int64_t at = static_cast<std::int64_t>(arch::block_index()) * kRowsPerBlock +
                          arch::thread_index() / arch::kWarpSize;
  if (at >= static_cast<std::int64_t>(batch) * heads * rows) return;
  const int batch_head = static_cast<int>(at / rows);
  T* const row = out.row(batch_head / heads, batch_head % heads, at % rows);
  for (int d = arch::thread_index() % arch::kWarpSize; d < dim; d += arch::kWarpSize) {
    row[d] = from_float<T>(sums != nullptr ? sums[at * dim + d] : 0.0f);
  }
}

}  // namespace attile::standard
