// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/atomic.cuh>
#include <attile/arch/attributes.h>
#include <attile/arch/launch.cuh>
#include <attile/arch/math.h>
#include <attile/arch/memory.cuh>
#include <attile/core/append.h>
#include <attile/core/array.h>
#include <attile/core/config.h>
#include <attile/core/element.h>
#include <attile/core/fp8.h>
#include <attile/core/math.h>
#include <attile/core/rotary.h>
#include <attile/core/vec.h>
#include <attile/kernel/append/append_params.cuh>
#include <attile/kernel/problem/row_items.cuh>

#include <cstdint>

// The kernel of `append`. A warp moves a part of one new row, and nothing else. A step of
// generation has few rows, and its time is that of loads that wait for each other: the lengths,
// then the page and the angles. So each lane first loads the elements that it moves, whose address
// depends on none of these, and rotates them when everything else has been asked for.

namespace attile {

/// Holds the cosines and sines of N pairs.
template <int N>
struct PairAngles {
  Array<float, N> cos, sin;

  /// Loads those of the pairs from number `pair` on, which are all rotated.
  /// Units    with N above 1 the first cosine, and the first sine, are aligned to 16 bytes.
  template <class Table>
  ATTILE_DEVICE void load(const Rotary<Table>& rotary, std::int64_t position, int pair) {
    const std::int64_t angle = rotary.angle(position, pair);
    load(rotary.cos + angle, cos);
    load(rotary.sin + angle, sin);
  }

 private:
  template <class Table>
  ATTILE_DEVICE static void load(const Table* from, Array<float, N>& x) {
    constexpr int kVector = min(N, static_cast<int>(16 / sizeof(Table)));
    ATTILE_UNROLL
    for (int i = 0; i < N; i += kVector) {
      const Vec<Table, kVector> some = arch::load<kVector>(from + i);
      ATTILE_UNROLL
      for (int j = 0; j < kVector; ++j) x[i + j] = to_float(some[j]);
    }
  }
};

/// Holds the elements of N pairs of a row, as they are in memory.
template <class T, int N>
class PairVectors {
 public:
  ATTILE_DEVICE PairVectors(const T* row, PairOffsets at, int dim)
      : first_(arch::load<N>(row + at.first)), has_second_(at.second < dim) {
    if (has_second_) second_ = arch::load<N>(row + at.second);
  }
  /// Stores them; to fp8 what each is over the scale.
  template <class X>
  ATTILE_DEVICE void store(X* row, PairOffsets at, float scale) const {
    arch::store(row + at.first, stored<X>(first_, scale));
    if (has_second_) arch::store(row + at.second, stored<X>(second_, scale));
  }
  /// Rotates each pair.
  ATTILE_DEVICE void rotate(const PairAngles<N>& angles, RotaryLayout layout) {
    if (layout == RotaryLayout::kHalves) {
      rotate<RotaryLayout::kHalves>(angles);
    } else {
      rotate<RotaryLayout::kInterleaved>(angles);
    }
  }

 private:
  template <class X>
  ATTILE_DEVICE static Vec<X, N> stored(const Vec<T, N>& some, float scale) {
    if constexpr (Fp8<X>) {
      Vec<X, N> rounded;
      ATTILE_UNROLL
      for (int i = 0; i < N; ++i) {
        rounded[i] = from_float<X>(arch::divide(to_float(some[i]), scale));
      }
      return rounded;
    } else {
      return some;
    }
  }
  template <RotaryLayout kLayout>
  ATTILE_DEVICE void rotate(const PairAngles<N>& angles) {
    constexpr bool kHalves = kLayout == RotaryLayout::kHalves;
    ATTILE_UNROLL
    for (int i = 0; i < N; ++i) {
      T& x = element(kHalves ? i : 2 * i);
      T& y = element(kHalves ? i + N : 2 * i + 1);
      const RotatedPair turned =
          attile::rotate(to_float(x), to_float(y), angles.cos[i], angles.sin[i]);
      x = from_float<T>(turned.first);
      y = from_float<T>(turned.second);
    }
  }
  /// Returns element i of all 2 N.
  ATTILE_DEVICE T& element(int i) { return i < N ? first_[i] : second_[i - N]; }

  Vec<T, N> first_, second_{};
  bool has_second_;  ///< false: the row ends before it
};

/// Moves one item of N pairs of a new row; the first item of a row counts it if it is dropped.
/// Scope    any lane. `rows`: the new rows of the sequence, of which the tile's row is one.
template <int N, class Args>
ATTILE_DEVICE void append_item(const AppendParams<Args>& p, const RowItemTile& at, int rows,
                               int number) {
  using T = typename Args::ElementType;
  const Args& args = p.args;
  const AppendItem item = p.item(number);
  const bool is_q = item.role == AppendRole::kQ, is_v = item.role == AppendRole::kV;
  PairOffsets offsets = neighbours(item.pair, N);
  bool rotates = false;
  if constexpr (Args::RotaryType::kEnabled) {
    rotates = !is_v && args.rotary.rotates(item.pair);
    if (rotates) offsets = args.rotary.offsets(item.pair, N);
  }
  const RowOrigin origin = args.sequences.q_origin(at.sequence);
  PairVectors<T, N> x(p.source(item, {origin.batch, origin.row + at.row}), offsets,
                      is_v ? args.head_dim_v : args.head_dim);

  const float scale = p.scale(item, at.sequence);

  const NewRow row = new_row(args, at.sequence, rows, at.row);
  PairAngles<N> angles{};  // g++ does not see that only those that were loaded are read
  if constexpr (Args::RotaryType::kEnabled) {
    if (rotates && row.has_angles) angles.load(args.rotary, row.rotary_position, item.pair);
  }
  const RowOrigin to = is_q ? row.origin : cache_row(args, at.sequence, row);
  const bool is_written = is_q ? row.has_angles : to.batch >= 0;
  if (!is_written) {
    if (number == 0 && args.dropped != nullptr) arch::fetch_add(args.dropped, 1);
    return;
  }
  if constexpr (Args::RotaryType::kEnabled) {
    if (rotates) x.rotate(angles, args.rotary.layout);
  }
  p.with_target(item, to, [&](auto* row) { x.store(row, offsets, scale); });
}

/// Appends the new rows.
/// Scope    as with_row_item.
template <class Args>
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(kRowItemThreads, 1)
    append_kernel(const ATTILE_GRID_CONSTANT AppendParams<Args> p) {
  with_row_item(p, [&](const RowItemTile& at, int rows, int item) {
    if (p.item_pairs == 1) {
      append_item<1>(p, at, rows, item);
    } else {
      append_item<AppendParams<Args>::kVector>(p, at, rows, item);
    }
  });
}

}  // namespace attile
