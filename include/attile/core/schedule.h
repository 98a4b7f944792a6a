// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>
#include <attile/core/index.h>
#include <attile/core/mask.h>
#include <attile/core/math.h>

#include <cstdint>
#include <type_traits>

namespace attile {

/// The tiles that a loop visits, in order: [first, full_first) need the mask, [full_first,
/// full_last) do not, [full_last, last) do. Units: tile indices.
struct TileRange {
  int first = 0;
  int full_first = 0;
  int full_last = 0;
  int last = 0;

  ATTILE_HOST_DEVICE constexpr bool contains(int tile) const {
    return first <= tile && tile < last;
  }
  /// Whether all of that tile is visible.
  ATTILE_HOST_DEVICE constexpr bool full(int tile) const {
    return full_first <= tile && tile < full_last;
  }
  /// Those of them from `from` to before `to`; from <= to.
  ATTILE_HOST_DEVICE constexpr TileRange between(int from, int to) const {
    const auto clamp = [&](int tile) { return min(max(tile, from), to); };
    return {clamp(first), clamp(full_first), clamp(full_last), clamp(last)};
  }
};

/// Cuts a mask's answer into tiles of `tile` positions (FlashAttention-2, section 3.1.1: only the
/// blocks that the mask's edge crosses are masked). A tile that the end of the sequence cuts is
/// never full.
ATTILE_HOST_DEVICE constexpr TileRange tiles_of(Span span, int tile) {
  if (span.touched.empty()) return {};
  TileRange range;
  range.first = span.touched.begin / tile;
  range.last = ceil_div(span.touched.end, tile);
  range.full_first = max(ceil_div(max(span.full.begin, 0), tile), range.first);
  range.full_last = min(span.full.end / tile, range.last);
  if (span.full.empty() || range.full_first >= range.full_last) {
    range.full_first = range.full_last = range.last;
  }
  return range;
}

/// The tiles that one of two ranges has; without the mask those that both have so.
ATTILE_HOST_DEVICE constexpr TileRange either(const TileRange& a, const TileRange& b) {
  if (a.first >= a.last) return {b.first, b.last, b.last, b.last};
  if (b.first >= b.last) return {a.first, a.last, a.last, a.last};
  TileRange range{min(a.first, b.first), max(a.full_first, b.full_first),
                  min(a.full_last, b.full_last), max(a.last, b.last)};
  if (range.full_first >= range.full_last) range.full_first = range.full_last = range.last;
  return range;
}

/// The tiles of br rows that see any of the bc columns from col0 on; all need the mask where the
/// end of the sequence cuts those columns.
template <class M>
ATTILE_HOST_DEVICE constexpr TileRange row_tiles(const M& mask, int batch, int head, int col0,
                                                 int bc, int br, Extent extent) {
  const Interval columns{col0, min(col0 + bc, extent.kv_len)};
  TileRange range = tiles_of(visible_rows(mask, batch, head, columns, extent), br);
  if (col0 + bc > extent.kv_len) range.full_first = range.full_last = range.last;
  return range;
}

/// Which tile of query rows of which slice (batch and head) work item `item` is, where the tiles of
/// `section` slices follow each other, the last rows, which see most under a causal mask, first;
/// the last section takes the slices that fill none. The tile at the end, which may have fewer
/// rows, comes behind `end_place` others.
struct WorkItem {
  int slice, row_tile;

  ATTILE_HOST_DEVICE constexpr WorkItem(int item, int q_tiles, int slices, int section,
                                        int end_place) {
    const int sections = max(slices / section, 1);
    const int before = min(item / (section * q_tiles), sections - 1) * section;
    const int here = slices - before - section < section ? slices - before : section;
    const int rest = item - before * q_tiles;
    slice = before + rest % here;
    const int place = rest / here;
    row_tile = q_tiles - 1 - (place == end_place ? 0 : place < end_place ? place + 1 : place);
  }
};

/// Where the tile at the end belongs among `q_tiles` tiles of `groups` groups of rows, of which it
/// has `end_groups`, so that those that take longest come first. Taken for it: alone a group takes
/// 65 % of the time of three together or of two, and two take 80 % of that of three; of these a
/// group alone instead of three was measured, 70 % (docs/tuning.md).
/// `growing`: whether later rows see more.
ATTILE_HOST_DEVICE constexpr int end_place(int q_tiles, int groups, int end_groups, bool growing) {
  if (end_groups >= groups) return 0;
  if (!growing) return q_tiles - 1;
  const int saved = end_groups == 1 ? 35 : 20;
  return min((saved * q_tiles + 50) / 100, q_tiles - 1);
}

/// The largest section whose slices' `slice_bytes` of K and V are in L2 together, and whose items
/// are dealt out to `blocks` blocks in whole pairs of turns (`dealt`), so that all get the same.
ATTILE_HOST_DEVICE constexpr int section_size(std::int64_t slice_bytes, int q_tiles, int slices,
                                              int blocks) {
  constexpr std::int64_t kL2Bytes = 32 << 20;
  int a = 2 * blocks, b = q_tiles;
  while (b != 0) {
    const int rest = a % b;
    a = b;
    b = rest;
  }
  const int whole = 2 * blocks / a;  // slices
  const auto fit =
      static_cast<int>(min<std::int64_t>(kL2Bytes / max<std::int64_t>(slice_bytes, 1), slices));
  return min(max(fit / whole, 1) * whole, slices);
}

/// The item that a block gets in a turn: forwards and backwards, so that nobody gets the longest of
/// each turn.
ATTILE_HOST_DEVICE constexpr std::int64_t dealt(int block, int blocks, int turn) {
  return std::int64_t{turn} * blocks + (turn % 2 == 0 ? block : blocks - 1 - block);
}

/// Calls step(masked, tile) for each tile of the range, in order; `masked` is std::true_type for a
/// tile that needs the mask, std::false_type for a full one.
template <class Step>
ATTILE_HOST_DEVICE void visit(const TileRange& range, const Step& step) {
  for (int i = range.first; i < range.full_first; ++i) step(std::true_type{}, i);
  for (int i = range.full_first; i < range.full_last; ++i) step(std::false_type{}, i);
  for (int i = range.full_last; i < range.last; ++i) step(std::true_type{}, i);
}

}  // namespace attile
