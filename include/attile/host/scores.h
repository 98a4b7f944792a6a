// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>
#include <attile/core/index.h>
#include <attile/core/mask.h>
#include <attile/core/math.h>
#include <attile/core/score_mod.h>
#include <attile/host/panels.h>
#include <attile/host/simd.h>

#include <cstddef>

namespace attile::host {

/// Names the scores that one step computes: a strip of rows against a tile of columns. Transposed
/// (for dK and dV), the strip holds columns of S and the tile rows of it.
template <bool kTransposed>
struct Coord {
  int batch, head;
  Interval strip;  ///< positions of the strip, at most kStripRows
  Interval tile;   ///< positions of the tile

  ScoreIndex at(int r, int c) const {
    return kTransposed ? ScoreIndex{batch, head, tile.begin + c, strip.begin + r}
                       : ScoreIndex{batch, head, strip.begin + r, tile.begin + c};
  }
};

/// Says how much of a tile a strip sees, in positions of the tile.
struct Reach {
  Interval wide;   ///< the positions that are computed: whole panels
  Interval valid;  ///< those of them that lie inside the tile
  Interval full;   ///< the positions that are visible from the whole strip

  bool empty() const { return wide.empty(); }
  bool needs_mask() const { return wide.begin < full.begin || full.end < wide.end; }
};

/// Returns the reach of a strip that sees the whole tile.
template <class V>
Reach whole_tile(int columns) {
  return {{0, round_up(columns, kPanelWidth<V>)}, {0, columns}, {0, columns}};
}

/// Returns how much of a tile the mask lets one strip see.
template <class V, bool kTransposed, class P>
Reach reach_of(const P& problem, const Coord<kTransposed>& coord) {
  const auto& mask = problem.args.mask;
  const Extent extent = problem.extent(coord.batch);
  const Span span = kTransposed
                        ? visible_rows(mask, coord.batch, coord.head, coord.strip, extent)
                        : visible_columns(mask, coord.batch, coord.head, coord.strip, extent);
  const auto in_tile = [&](Interval x) -> Interval {
    const Interval inside = intersect(x, coord.tile);
    return {inside.begin - coord.tile.begin, inside.end - coord.tile.begin};
  };
  const Interval touched = in_tile(span.touched);
  if (touched.empty()) return {};
  constexpr int kWidth = kPanelWidth<V>;
  const Interval wide{touched.begin / kWidth * kWidth, round_up(touched.end, kWidth)};
  return {wide, {wide.begin, min(wide.end, coord.tile.end - coord.tile.begin)}, in_tile(span.full)};
}

/// Computes S' = score_mod(scale S) in place, -inf where hidden, and score_mod' where it is wanted.
/// Without a modifier S stays as it is, unscaled, and only hidden scores are written.
/// Shapes   s, derivative (kStripRows, kMaxTileColumns); derivative may be null.
template <bool kMasked, bool kTransposed, class P>
void modify_scores(const P& problem, const Coord<kTransposed>& coord, const Reach& reach, float* s,
                   float* derivative) {
  constexpr bool kModified = !kIsIdentity<typename P::ScoreModType>;
  if constexpr (!kMasked && !kModified) return;
  const auto& args = problem.args;
  const Extent extent = problem.extent(coord.batch);
  const float scale = problem.score_scale(coord.batch, coord.head);
  for (int r = 0; r < coord.strip.end - coord.strip.begin; ++r) {
    float* const row = s + r * kMaxTileColumns;
    float* const slope = kModified && derivative ? derivative + r * kMaxTileColumns : nullptr;
    for (int c = reach.wide.begin; c < reach.wide.end; ++c) {
      if (kMasked && !reach.full.contains(c)) {
        if (c >= reach.valid.end || !args.mask.visible(coord.at(r, c), extent)) {
          row[c] = -kInf;
          if (slope != nullptr) slope[c] = 0.0f;
          continue;
        }
      } else if (!kModified) {
        c = reach.full.end - 1;
        continue;
      }
      if constexpr (kModified) {
        const auto modified = args.score_mod(scale * row[c], coord.at(r, c), extent);
        row[c] = static_cast<float>(modified.value);
        if (slope != nullptr) slope[c] = static_cast<float>(modified.derivative);
      }
    }
  }
}

/// Calls put(r * kMaxTileColumns + c, kept) for the scores that dropout decides on.
template <bool kTransposed, class P, class Put>
void for_each_kept(const P& problem, const Coord<kTransposed>& coord, const Reach& reach,
                   const Put& put) {
  for (int r = 0; r < coord.strip.end - coord.strip.begin; ++r) {
    for (int c = reach.valid.begin; c < reach.valid.end; ++c) {
      put(r * kMaxTileColumns + c, problem.sampler.keep(coord.at(r, c)));
    }
  }
}

/// Gives tile::OnlineSoftmax a strip of scores. It is marked for both sides as that is.
template <class V>
struct ScoreRows {
  float* s;
  Interval wide;

  ATTILE_HOST_DEVICE float row_max(int r) const {
    const float* row = s + r * kMaxTileColumns;
    V result = V::load(row + wide.begin);
    for (int c = wide.begin + V::kWidth; c < wide.end; c += V::kWidth) {
      result = maximum(result, V::load(row + c));
    }
    return largest(result);
  }

  /// Computes s = 2^(s * scale_log2 - base), and returns the sum of the row.
  ATTILE_HOST_DEVICE float exponentiate(int r, float scale_log2, float base) const {
    float* const row = s + r * kMaxTileColumns;
    V total(0.0f);
    for (int c = wide.begin; c < wide.end; c += V::kWidth) {
      const V p = host::exp2(multiply_add(V::load(row + c), V(scale_log2), V(-base)));
      p.store(row + c);
      total = total + p;
    }
    return sum(total);
  }
};

/// Gives tile::OnlineSoftmax a strip of O. One thread holds whole rows.
template <class V>
struct OutputRows {
  float* o;
  int stride;  ///< floats from row to row: a multiple of the vector width

  ATTILE_HOST_DEVICE void scale_row(int r, float factor) const {
    if (factor == 1.0f) return;
    float* const row = o + std::ptrdiff_t{r} * stride;
    for (int d = 0; d < stride; d += V::kWidth) (V::load(row + d) * V(factor)).store(row + d);
  }
  ATTILE_HOST_DEVICE void clear_row(int r) const {
    float* const row = o + std::ptrdiff_t{r} * stride;
    for (int d = 0; d < stride; d += V::kWidth) V(0.0f).store(row + d);
  }
  ATTILE_HOST_DEVICE float sum_lanes(float x) const { return x; }
};

}  // namespace attile::host
