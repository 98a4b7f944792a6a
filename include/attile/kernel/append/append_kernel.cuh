// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/atomic.cuh>
#include <attile/arch/attributes.h>
#include <attile/arch/grid_dependency.cuh>
#include <attile/arch/launch.cuh>
#include <attile/arch/memory.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/append.h>
#include <attile/core/config.h>
#include <attile/core/element.h>
#include <attile/core/math.h>
#include <attile/core/rotary.h>
#include <attile/core/vec.h>
#include <attile/kernel/append/append_params.cuh>

#include <cstdint>

// The kernel of `append`. A warp moves a part of one new row, some heads of it, and nothing else:
// a step of generation has few rows, and what it costs are the loads that wait for each other (the
// lengths, then the page and the angles). So each lane begins with the elements that it moves,
// whose address needs none of these.

namespace attile {

/// The threads of a block. Warps have nothing in common.
inline constexpr int kAppendThreads = 128;
inline constexpr int kAppendWarps = kAppendThreads / arch::kWarpSize;

/// Returns the blocks for that many tiles: a warp each.
inline unsigned append_blocks(std::int64_t tiles) {
  return static_cast<unsigned>(ceil_div<std::int64_t>(tiles, kAppendWarps));
}

/// Holds the elements of N pairs of a row, as they are in memory.
template <class T, int N>
struct PairVectors {
  Vec<T, N> first, second{};
  bool has_second;  ///< false: the row ends before it

  ATTILE_DEVICE PairVectors(const T* row, PairOffsets at, int dim)
      : first(arch::load<N>(row + at.first)), has_second(at.second < dim) {
    if (has_second) second = arch::load<N>(row + at.second);
  }
  ATTILE_DEVICE void store(T* row, PairOffsets at) const {
    arch::store(row + at.first, first);
    if (has_second) arch::store(row + at.second, second);
  }
  /// Returns element i of all 2 N.
  ATTILE_DEVICE T& operator[](int i) { return i < N ? first[i] : second[i - N]; }

  /// Rotates each pair; `cos` and `sin` have an angle for each.
  template <RotaryLayout kLayout>
  ATTILE_DEVICE void rotate(const float (&cos)[N], const float (&sin)[N]) {
    ATTILE_UNROLL
    for (int i = 0; i < N; ++i) {
      constexpr bool kHalves = kLayout == RotaryLayout::kHalves;
      T& x = (*this)[kHalves ? i : 2 * i];
      T& y = (*this)[kHalves ? i + N : 2 * i + 1];
      const RotatedPair turned = attile::rotate(to_float(x), to_float(y), cos[i], sin[i]);
      x = from_float<T>(turned.first);
      y = from_float<T>(turned.second);
    }
  }
};

/// Loads N neighbours of a table, which is aligned to 16 bytes if N is above 1.
template <int N, class Table>
ATTILE_DEVICE void load_angles(const Table* from, float (&x)[N]) {
  constexpr int kVector = min(N, static_cast<int>(16 / sizeof(Table)));
  ATTILE_UNROLL
  for (int i = 0; i < N; i += kVector) {
    const Vec<Table, kVector> some = arch::load<kVector>(from + i);
    ATTILE_UNROLL
    for (int j = 0; j < kVector; ++j) x[i + j] = to_float(some[j]);
  }
}

/// Rotates N pairs from number `pair` on, which are all rotated, by the angles of a position.
template <class T, int N, class Table>
ATTILE_DEVICE void rotate_pairs(PairVectors<T, N>& x, const Rotary<Table>& rotary,
                                std::int64_t position, int pair) {
  float cos[N], sin[N];
  load_angles(rotary.cos + rotary.angle(position, pair), cos);
  load_angles(rotary.sin + rotary.angle(position, pair), sin);
  if (rotary.layout == RotaryLayout::kHalves) {
    x.template rotate<RotaryLayout::kHalves>(cos, sin);
  } else {
    x.template rotate<RotaryLayout::kInterleaved>(cos, sin);
  }
}

/// Moves one item of N pairs of a new row, and counts the row if it is dropped.
/// Scope    any lane. `rows`: the new rows of the sequence, of which the tile's row is one.
template <int N, class Args>
ATTILE_DEVICE void append_item(const AppendParams<Args>& p, const AppendTile& at, int rows,
                               int number) {
  using T = typename Args::ElementType;
  const Args& args = p.args;
  const AppendItem item = p.item(number);
  const bool is_v = item.role == AppendRole::kV;
  PairOffsets offsets = neighbours(item.pair, N);
  bool rotates = false;
  if constexpr (Args::RotaryType::kEnabled) {
    rotates = !is_v && args.rotary.rotates(item.pair);
    if (rotates) offsets = args.rotary.offsets(item.pair, N);
  }

  const RowOrigin origin = args.sequences.q_origin(at.sequence);
  const T* const from = p.source(item.role).row(origin.batch, item.head, origin.row + at.row);
  PairVectors<T, N> x(from, offsets, is_v ? args.head_dim_v : args.head_dim);

  const NewRow row = new_row(args, at.sequence, rows, at.row);
  if (number == 0 && row.is_dropped() && args.dropped != nullptr) arch::fetch_add(args.dropped, 1);
  const bool is_q = item.role == AppendRole::kQ;
  if (is_q ? !row.has_angles : row.is_dropped()) return;
  const RowOrigin to = is_q ? row.origin : row.cache_row;
  if constexpr (Args::RotaryType::kEnabled) {
    if (rotates) rotate_pairs(x, args.rotary, row.position, item.pair);
  }
  x.store(p.target(item.role).row(to.batch, item.head, to.row), offsets);
}

/// Appends the new rows.
/// Scope    kAppendThreads threads a block, append_blocks blocks.
template <class Args>
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(kAppendThreads, 1)
    append_kernel(const ATTILE_GRID_CONSTANT AppendParams<Args> p) {
  // The kernel before has written the new rows and the lengths, and has read the cache, before they
  // are read and it is written. The next one may begin, and waits likewise.
  arch::await_dependencies();
  arch::launch_dependents();
  const int warp = arch::thread_index() / arch::kWarpSize;
  const int lane = arch::thread_index() % arch::kWarpSize;
  const std::int64_t number = std::int64_t{arch::block_index()} * kAppendWarps + warp;
  if (number >= p.tiles) return;
  const AppendTile at = p.tile(static_cast<int>(number));
  if (at.sequence < 0) return;
  const int rows = new_rows(p.args, at.sequence);
  const int item = at.first_item + lane;
  if (at.row >= rows || item >= p.row_items) return;
  if (p.item_pairs == 1) {
    append_item<1>(p, at, rows, item);
  } else {
    append_item<AppendParams<Args>::kVector>(p, at, rows, item);
  }
}

}  // namespace attile
