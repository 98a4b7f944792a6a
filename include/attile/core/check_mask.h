// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/index.h>
#include <attile/core/mask.h>
#include <attile/core/tile_mask.h>

namespace attile {

/// Says where a mask's spans, or what it says of a tile, contradict its predicate.
struct MaskFault {
  const char* what = nullptr;  ///< null: none found; else the broken rule
  ScoreIndex at{};             ///< a score that shows it
  Interval run{};              ///< the run of rows or columns that was asked about

  explicit operator bool() const { return what != nullptr; }
};

/// Tests a mask's `columns` and `rows` against its `visible`, for every run of `run_length` rows or
/// columns of one head, as tiles ask for them, and its `of_tile`, for every tile of as many rows
/// and columns. It is for tests of a mask of your own; host only.
/// Cost: q_len * kv_len evaluations, two to four times.
template <Mask M>
MaskFault check_mask(const M& mask, int batch, int head, Extent extent, int run_length) {
  const auto hold = [&](Interval run, Span span, int other_length, bool run_is_rows) -> MaskFault {
    for (int x = run.begin; x < run.end; ++x) {
      for (int y = 0; y < other_length; ++y) {
        const ScoreIndex at{batch, head, run_is_rows ? x : y, run_is_rows ? y : x};
        const bool visible = mask.visible(at, extent);
        if (visible && !span.touched.contains(y)) {
          return {"a visible score lies outside the touched interval", at, run};
        }
        if (!visible && span.full.contains(y)) {
          return {"a hidden score lies inside the full interval", at, run};
        }
      }
    }
    if (!span.touched.empty() && (span.touched.begin < 0 || span.touched.end > other_length)) {
      return {"the touched interval leaves the score matrix", {batch, head, 0, 0}, run};
    }
    if (!span.full.empty() && (span.full.begin < 0 || span.full.end > other_length)) {
      return {"the full interval leaves the score matrix", {batch, head, 0, 0}, run};
    }
    return {};
  };
  if constexpr (IntervalMask<M>) {
    for (int row = 0; row < extent.q_len; ++row) {
      for (int col = 0; col < extent.kv_len; ++col) {
        const ScoreIndex at{batch, head, row, col};
        const Interval one_row{row, row + 1}, one_col{col, col + 1};
        const bool visible = mask.visible(at, extent);
        if (mask.columns(batch, head, one_row, extent).touched.contains(col) != visible) {
          return {"a row's touched interval is not just what the row sees", at, one_row};
        }
        if (mask.rows(batch, head, one_col, extent).touched.contains(row) != visible) {
          return {"a column's touched interval is not just what sees it", at, one_col};
        }
      }
    }
  }
  for (int begin = 0; begin < extent.q_len; begin += run_length) {
    const Interval run{begin, min(begin + run_length, extent.q_len)};
    const Span span = visible_columns(mask, batch, head, run, extent);
    if (const MaskFault fault = hold(run, span, extent.kv_len, true)) return fault;
  }
  for (int begin = 0; begin < extent.kv_len; begin += run_length) {
    const Interval run{begin, min(begin + run_length, extent.kv_len)};
    const Span span = visible_rows(mask, batch, head, run, extent);
    if (const MaskFault fault = hold(run, span, extent.q_len, false)) return fault;
  }
  if constexpr (kHasTileMask<M>) {
    for (int row = 0; row < extent.q_len; ++row) {
      for (int col = 0; col < extent.kv_len; ++col) {
        const int dr = row % run_length, dc = col % run_length;
        const auto tile = mask_of_tile(mask, {batch, head, row - dr, col - dc}, extent);
        const ScoreIndex at{batch, head, row, col};
        if (tile.visible(tile.row(dr), tile.col(dc)) != mask.visible(at, extent)) {
          return {"of_tile says something else of a score than visible", at, {row, row + 1}};
        }
      }
    }
  }
  return {};
}

}  // namespace attile
