// SPDX-License-Identifier: MIT
// What each algorithm does and moves, from its loops and tiles: FLOPs of its matrix products, and
// bytes of device memory that its kernels load and store. A byte that a second block loads again is
// counted again, though the L2 cache may have it: these are loads by kernels, not by DRAM.
#pragma once

#include <attile/core/index.h>
#include <attile/core/mask.h>
#include <attile/core/math.h>
#include <attile/core/schedule.h>

#include <cstddef>

#include "options.h"

namespace algorithms {

/// Whole numbers, exact below 2^53.
struct Cost {
  double flops = 0;
  double bytes = 0;
};

/// Units   batch_heads: batch * heads; element: bytes.
struct Shape {
  double batch_heads, len, dim, element;

  double rows() const { return batch_heads * len; }
  double scores() const { return rows() * len; }
  /// Bytes of Q, or of any other tensor.
  double tensor() const { return rows() * dim * element; }
  attile::Extent extent() const { return {static_cast<int>(len), static_cast<int>(len)}; }
};

/// What the two loops over tiles of one head visit.
struct Visits {
  double outer = 0;   ///< rows of the outer tiles, once for each inner tile
  double loaded = 0;  ///< rows that the inner loop loads, over all turns of the outer one
  double tiles = 0;
  double scores = 0;
};

/// A loop over tiles of `outer` of outer_len positions, in it one over the tiles of `inner` of
/// inner_len positions that span(run of outer positions) touches.
template <class SpanOf>
Visits visits(int outer_len, int outer, int inner_len, int inner, const SpanOf& span) {
  Visits v;
  for (int begin = 0; begin < outer_len; begin += outer) {
    const attile::Interval run{begin, attile::min(begin + outer, outer_len)};
    const attile::TileRange range = attile::tiles_of(span(run), inner);
    const double loaded = attile::min(range.last * inner, inner_len) - range.first * inner;
    v.outer += (run.end - run.begin) * (range.last - range.first);
    v.loaded += loaded;
    v.tiles += range.last - range.first;
    v.scores += loaded * (run.end - run.begin);
  }
  return v;
}

/// The outer loop over Q, as in FlashAttention-2 forward.
template <class Mask>
Visits visits_by_rows(const Mask& mask, attile::Extent extent, int br, int bc) {
  return visits(extent.q_len, br, extent.kv_len, bc, [&](attile::Interval rows) {
    return attile::visible_columns(mask, 0, 0, rows, extent);
  });
}

/// The outer loop over K and V, as in FlashAttention-1 and in every backward pass.
template <class Mask>
Visits visits_by_columns(const Mask& mask, attile::Extent extent, int br, int bc) {
  return visits(extent.kv_len, bc, extent.q_len, br, [&](attile::Interval columns) {
    return attile::visible_rows(mask, 0, 0, columns, extent);
  });
}

/// Two products of all scores, hidden ones too. With X the bytes of a tensor and N the scores:
/// 4 X for Q, K, V, O; S written (4 N) and read (4 N, twice beyond 16384 columns), P written and
/// read (2 e N). attile/standard.cuh has the table.
inline Cost standard_forward(const Shape& s) {
  const double reads = s.len > 16384 ? 2 : 1;
  return {4 * s.scores() * s.dim, 4 * s.tensor() + s.scores() * (4 + 4 * reads + 2 * s.element)};
}

/// Four products: P is kept. 10 X: dO V^T reads 2, rowsum(dO * O) 2, P^T dO 1, dS K 1, dS^T Q 1,
/// and dQ, dK, dV are written. dP written and read (8 N), P read twice (2 e N), dS written once and
/// read twice (3 e N).
inline Cost standard_backward(const Shape& s) {
  return {8 * s.scores() * s.dim, 10 * s.tensor() + s.scores() * (8 + 5 * s.element)};
}

/// K and V read once for each slab of rows that sees them. For each tile of K and V that sees a
/// row: its Q read (e D), its O, l and m read and written (8 D + 16), but not read by the first,
/// which here sees every row. 16-bit types: the sums are read (4 D) and O is written (e D) at the
/// end.
template <class Mask>
Cost flash1_forward(const Shape& s, const Mask& mask, int br, int bc, int slab_tiles) {
  const Visits v = visits_by_columns(mask, s.extent(), br, bc);
  const Visits slabs = visits_by_columns(mask, s.extent(), br * slab_tiles, bc);
  const double conversion = s.element < 4 ? (4 + s.element) * s.dim : 0;
  const double each_visit = s.element * s.dim + 8 * s.dim + 16;
  return {4 * s.batch_heads * v.scores * s.dim,
          s.rows() * (conversion - 4 * s.dim - 8) +
              s.batch_heads * (2 * slabs.outer * s.dim * s.element + v.loaded * each_visit)};
}

/// Q read and O written once: 2 X. LSE written: 4 a row. K and V read once for each tile of Q that
/// sees them.
template <class Mask>
Cost flash2_forward(const Shape& s, const Mask& mask, int br, int bc) {
  const Visits v = visits_by_rows(mask, s.extent(), br, bc);
  return {4 * s.batch_heads * v.scores * s.dim,
          2 * s.tensor() + 4 * s.rows() + 2 * s.batch_heads * v.loaded * s.dim * s.element};
}

/// Both FlashAttention backward passes. Five products.
/// Before: O and dO read (2 X) and LSE (FlashAttention-1: l and m), LSE and delta written (8 a row,
/// rows rounded up to Br). The loops: K and V read, dK and dV written (4 X); for each tile of K and
/// V that sees a row: Q and dO (2 e D), the sum of dQ read and written (8 D); for each tile: Br of
/// LSE and delta (8 Br). After: the sum read (4 D a row), dQ written (X). The sum of dQ is set
/// before (4 D a row); FlashAttention-1 does not, and its first tile, which here sees every row,
/// does not read it; whose turn it is takes 8 a tile, with what is set before.
template <class Mask>
Cost flash_backward(const Shape& s, const Mask& mask, int br, int bc, Algorithm algorithm) {
  const bool first = algorithm == Algorithm::kFlash1;
  const Visits v = visits_by_columns(mask, s.extent(), br, bc);
  const double before = 2 * s.tensor() + s.rows() * (first ? 8 - 4 * s.dim : 4 + 4 * s.dim) +
                        8 * s.batch_heads * attile::round_up(s.extent().q_len, br);
  const double loops = 4 * s.tensor() + s.batch_heads * (v.loaded * (2 * s.element + 8) * s.dim +
                                                         v.tiles * 8 * (first ? br + 1 : br));
  const double after = 4 * s.rows() * s.dim + s.tensor();
  return {10 * s.batch_heads * v.scores * s.dim, before + loops + after};
}

}  // namespace algorithms
