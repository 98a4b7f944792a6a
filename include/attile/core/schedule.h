// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>
#include <attile/core/index.h>
#include <attile/core/mask.h>
#include <attile/core/math.h>
#include <attile/core/tile_modifier.h>

#include <cstdint>
#include <numeric>
#include <type_traits>

namespace attile {

/// Holds the range of tiles that a loop visits, in order: [first, full_first) need the mask,
/// [full_first, full_last) do not, [full_last, last) do. Units: tile indices, or where a loop
/// visits tiles in another order its steps.
///   for (int tile = range.first; tile < range.last; ++tile) masked = !range.full(tile);
struct TileRange {
  int first = 0;
  int full_first = 0;
  int full_last = 0;
  int last = 0;

  ATTILE_HOST_DEVICE constexpr bool contains(int tile) const {
    return first <= tile && tile < last;
  }
  /// Returns whether the whole tile is visible.
  ATTILE_HOST_DEVICE constexpr bool full(int tile) const {
    return full_first <= tile && tile < full_last;
  }
  /// Returns the part of the range that lies in [from, to); from <= to.
  ATTILE_HOST_DEVICE constexpr TileRange between(int from, int to) const {
    const auto clamp = [&](int tile) { return min(max(tile, from), to); };
    return {clamp(first), clamp(full_first), clamp(full_last), clamp(last)};
  }
  /// Returns the range in which tile i of `tiles` has the number tiles - 1 - i.
  ATTILE_HOST_DEVICE constexpr TileRange reversed(int tiles) const {
    return {tiles - last, tiles - full_last, tiles - full_first, tiles - first};
  }
};

/// Returns the tiles of `tile` positions that cover a mask's span (FlashAttention-2, section 3.1.1:
/// only the blocks that the mask's edge crosses are masked). A tile that the end of the sequence
/// cuts is never full.
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

/// Returns the smallest range that holds the tiles of both; a tile is full if it is full in both.
ATTILE_HOST_DEVICE constexpr TileRange hull(const TileRange& a, const TileRange& b) {
  if (a.first >= a.last) return {b.first, b.last, b.last, b.last};
  if (b.first >= b.last) return {a.first, a.last, a.last, a.last};
  TileRange range{min(a.first, b.first), max(a.full_first, b.full_first),
                  min(a.full_last, b.full_last), max(a.last, b.last)};
  if (range.full_first >= range.full_last) range.full_first = range.full_last = range.last;
  return range;
}

/// Returns the tiles of br rows that see any of the bc columns from col0 on. All of them need the
/// mask where the end of the sequence cuts those columns.
template <class M>
ATTILE_HOST_DEVICE constexpr TileRange row_tiles(const M& mask, int batch, int head, int col0,
                                                 int bc, int br, Extent extent) {
  const Interval columns{col0, min(col0 + bc, extent.kv_len)};
  TileRange range = tiles_of(visible_rows(mask, batch, head, columns, extent), br);
  if (col0 + bc > extent.kv_len) range.full_first = range.full_last = range.last;
  return range;
}

/// Returns how many rows of a batch head's first tile lie before row 0. The last tile ends with the
/// last row, or less than `warpgroup_rows` after it, so that the first one lacks the rows of whole
/// warpgroups. Under a causal mask its rows see least; one warpgroup alone takes two thirds of the
/// time of three for a step (bench/log/tuning-sm90.md).
ATTILE_HOST_DEVICE constexpr int lead_rows(int q_len, int tile_rows, int warpgroup_rows) {
  return (round_up(q_len, tile_rows) - q_len) / warpgroup_rows * warpgroup_rows;
}

/// Returns how long the tiles of a batch head take: each warpgroup's rows count 2, and those that
/// the first tile lacks count 1. Units: half of a warpgroup's time in a whole tile.
ATTILE_HOST_DEVICE constexpr std::int64_t batch_head_time(int q_len, int warpgroups,
                                                          int warpgroup_rows) {
  const int tile_rows = warpgroups * warpgroup_rows;
  const int lacking = lead_rows(q_len, tile_rows, warpgroup_rows) / warpgroup_rows;
  return std::int64_t{2} * warpgroups * ceil_div(q_len, tile_rows) - lacking;
}

/// Divides heads into rounds, one after another: the first `larger` rounds have one head more than
/// the others.
struct HeadRounds {
  struct Round {
    int first, heads;
  };

  int heads = 1, larger = 0;

  constexpr HeadRounds() = default;
  /// Makes rounds of `wanted` of `all` heads, or of a few more or less where that leaves a rest.
  ATTILE_HOST_DEVICE constexpr HeadRounds(int all, int wanted) {
    const int rounds = max((all + wanted / 2) / wanted, 1);
    heads = max(all / rounds, 1);
    larger = all % rounds;
  }

  ATTILE_HOST_DEVICE constexpr bool one_each() const { return heads + larger == 1; }
  /// Returns the round that a head is in.
  ATTILE_HOST_DEVICE constexpr Round round_of(int head) const {
    const int smaller_from = larger * (heads + 1);
    const bool is_larger = head < smaller_from;
    const int size = heads + is_larger;
    const int from = is_larger ? 0 : smaller_from;
    return {from + (head - from) / size * size, size};
  }
};

/// Names a tile of rows, or of keys, of a head.
struct HeadTile {
  int head, index;
};

/// Returns the n-th tile of `heads` heads with `tiles` each. Heads go in sections of `section`, one
/// after another: the first tile of each head of a section, then the second one of each, and so on.
ATTILE_HOST_DEVICE constexpr HeadTile nth_tile(int n, int section, int heads, int tiles) {
  const int first = n / (section * tiles) * section;
  const int among = n - first * tiles;
  const int here = min(section, heads - first);
  return {first + among % here, among / here};
}
/// Returns the same where heads begin with their last tile, whose rows see most under a causal
/// mask. A section is heads whose K and V fit L2.
ATTILE_HOST_DEVICE constexpr HeadTile section_tile(int n, int section, int heads, int tiles) {
  const HeadTile tile = nth_tile(n, section, heads, tiles);
  return {tile.head, tiles - 1 - tile.index};
}

/// Returns the number of the work item that a block computes in a wave. A wave has one work item
/// for each block, and every second wave is distributed backwards, so that no block gets the
/// longest item of each wave.
ATTILE_HOST_DEVICE constexpr std::int64_t snake(int block, int blocks, int wave) {
  return std::int64_t{wave} * blocks + (wave % 2 == 1 ? blocks - 1 - block : block);
}

/// Gives the order in which a deterministic backward pass begins its kv blocks where a mask makes
/// them uneven. The first `descending` heads go from their last kv block, which is the shortest
/// under a causal mask, to their first; the others, which are at most as many, from the first to
/// the last. The surplus of descending heads comes first, then rounds of the two kinds alternate:
/// short blocks end in the order in which the long ones behind them may begin, a short and a long
/// one together take about the same time, and those that begin last are short.
struct AlternatingHeads {
  HeadRounds rounds;  ///< the rounds of the descending heads
  int descending, all;

  /// Returns the kv block that is the `begun`-th to begin; each head has `tiles` of them.
  ATTILE_HOST_DEVICE constexpr HeadTile tile(int begun, int tiles) const {
    const int more = 2 * descending - all;
    const int before = begun / tiles;
    const HeadRounds::Round down = rounds.round_of(min(before, more) + max(before - more, 0) / 2);
    const int up = max(down.first - more, 0);
    const int up_heads = max(down.first + down.heads - more, 0) - up;
    const int among = begun - (down.first + up) * tiles;
    const int later = among - down.heads * tiles;
    if (later < 0) return {down.first + among % down.heads, tiles - 1 - among / down.heads};
    return {descending + up + later % up_heads, later / up_heads};
  }
};

/// The part of L2 that the K and V of a section of batch heads may take: 64 % of an H200's. Units:
/// bytes.
inline constexpr std::int64_t kL2Bytes = 32 << 20;

/// Names a tile of query rows of one batch head.
struct WorkItem {
  int batch_head, q_tile;
};

/// Gives the order of a problem's batch heads (a sequence and a head; sequence by sequence they
/// have the numbers sequence * heads + head) in which those that read the same data of a score
/// modifier follow each other.
struct HeadOrder {
  bool by_head = false;  ///< sequences of one head follow each other, not heads of one sequence
  int together = 1;      ///< so many begin a tile each before one of them begins its next one

  /// Returns the order for data that differ along `axes`. Up to a quarter of kL2Bytes, the data of
  /// a head stay in L2 until the next batch head reads them. Else tiles that read the same data
  /// have to be computed at the same time: of as many batch heads as L2 has room for.
  /// Units   head_bytes: of what a batch head's tiles read beside these data.
  static constexpr HeadOrder of(DataAxes axes, ScoreShape shape, std::int64_t head_bytes) {
    if (!axes.share_tiles()) return {};
    const std::int64_t data_bytes = std::int64_t{2} * shape.extent.q_len * shape.extent.kv_len;
    const std::int64_t sharing =
        std::int64_t{axes.batch ? 1 : shape.batch} * (axes.head ? 1 : shape.heads);
    std::int64_t together = 1;
    if (data_bytes > kL2Bytes / 4) {
      const std::int64_t fit = kL2Bytes / max<std::int64_t>(head_bytes, 1);
      together = max<std::int64_t>(min(sharing, fit), 1);
      while (sharing % together != 0) --together;
    }
    return {axes.head && !axes.batch, static_cast<int>(together)};
  }

  /// Returns the number of the batch head that is the n-th in this order.
  ATTILE_HOST_DEVICE constexpr int batch_head(int n, int batch, int heads) const {
    return by_head ? n % batch * heads + n / batch : n;
  }
  /// Returns the tile that is the n-th of `all` batch heads with `tiles` each; its batch head is
  /// the number in this order.
  ATTILE_HOST_DEVICE constexpr WorkItem item(int n, int tiles, int all) const {
    const HeadTile tile = nth_tile(n, together, all, tiles);
    return {tile.head, tile.index};
  }
  /// Returns the tile that takes the place of an item of EvenItems. A short tile stays where it is.
  ATTILE_HOST_DEVICE constexpr WorkItem in_place_of(WorkItem even, int tiles, bool has_short,
                                                    int all) const {
    const int long_tiles = tiles - has_short;
    if (even.q_tile < has_short) return even;
    const WorkItem at =
        item(even.batch_head * long_tiles + even.q_tile - has_short, long_tiles, all);
    return {at.batch_head, at.q_tile + has_short};
  }
};

/// Divides numbers, as they are.
struct Division {
  ATTILE_HOST_DEVICE constexpr int quotient(int x, int by) const { return x / by; }
  ATTILE_HOST_DEVICE constexpr int remainder(int x, int by) const { return x % by; }
};

/// The largest number that SmallDivision divides.
inline constexpr int kLargestSmall = 1 << 20;

/// Divides numbers from 0 to kLargestSmall by a reciprocal, Reciprocal()(by), that is off by one
/// unit in the last place at most: fewer instructions. The half makes the exact quotient lie
/// 0.5 / by or more from each integer, and the error of the product is less.
template <class Reciprocal>
struct SmallDivision {
  ATTILE_HOST_DEVICE int quotient(int x, int by) const {
    return static_cast<int>((static_cast<float>(x) + 0.5f) * Reciprocal()(static_cast<float>(by)));
  }
  ATTILE_HOST_DEVICE int remainder(int x, int by) const { return x - quotient(x, by) * by; }
};

/// Divides batch heads into sections, whose work items follow each other: L2 then holds their K and
/// V, and `blocks` blocks get about the same work (see GrowingItems; test/core/schedule.cpp
/// calculates it). A wave is one item for each block.
struct Sections {
  /// The least number of kv heads that all blocks read at once: with fewer they are slower
  /// (bench/log/tuning-sm90.md).
  static constexpr int kReadAtOnce = 12;

  int batch_heads = 0;      ///< in each section
  bool alternates = false;  ///< every second section runs in reverse order

  /// Returns sections for blocks to which waves of items are distributed. batch_head_bytes: of the
  /// K and V that a batch head reads.
  static constexpr Sections of(std::int64_t batch_head_bytes, int q_tiles, int batch_heads,
                               int blocks) {
    // The items of so many batch heads fill pairs of waves: even if distributed forwards, then
    // backwards.
    const int whole = max(min(2 * blocks / std::gcd(2 * blocks, q_tiles), batch_heads), 1);
    if (whole * batch_head_bytes > kL2Bytes) {
      // Fewer batch heads, whose items nearly fill one or two waves: even if every second section
      // runs in reverse order.
      for (int waves = 2; waves > 0; --waves) {
        const int few = waves * blocks / max(q_tiles, 1);
        const bool fills = few > 0 && 16 * (waves * blocks - few * q_tiles) <= blocks;
        if (fills && few * batch_head_bytes <= kL2Bytes && batch_heads % (2 * few) == 0)
          return {few, true};
      }
    }
    const auto fit = static_cast<int>(
        min<std::int64_t>(kL2Bytes / max<std::int64_t>(batch_head_bytes, 1), batch_heads));
    return {max(fit / whole, 1) * whole, false};
  }

  /// Returns sections for blocks that take the next item when they are free: of as few batch heads
  /// as fill a wave, because those behind the first ones find K and V in L2, but not so few that
  /// all blocks read the same K and V at once. `sharing`: batch heads that read the same ones.
  template <class Divide = Division>
  ATTILE_HOST_DEVICE static constexpr Sections counted(int q_tiles, int sharing, int batch_heads,
                                                       int blocks, const Divide& by = {}) {
    const int tiles = max(q_tiles, 1);
    const int size =
        max(by.quotient(blocks + tiles - 1, tiles), read_at_once(sharing, batch_heads));
    return {max(min(size, batch_heads), 1), false};
  }
  /// Returns sections for such blocks of as many batch heads as L2 has room for, `fit`; where one
  /// section has a tile for each block, also not so few. `sharing`: 0 where that does not matter.
  ATTILE_HOST_DEVICE static constexpr Sections fitting(int fit, int q_tiles, int sharing,
                                                       int batch_heads, int blocks) {
    const bool fills = std::int64_t{fit} * q_tiles >= blocks;
    const int size = fills ? max(fit, read_at_once(sharing, batch_heads)) : fit;
    return {max(min(size, batch_heads), 1), false};
  }

 private:
  /// Returns how many batch heads read kReadAtOnce different K and V, at most `batch_heads`.
  ATTILE_HOST_DEVICE static constexpr int read_at_once(int sharing, int batch_heads) {
    return static_cast<int>(min<std::int64_t>(std::int64_t{kReadAtOnce} * sharing, batch_heads));
  }
};

/// Gives one block of `blocks` its work items, one after another, where all tiles of rows take the
/// same time, except that the first one of each batch head takes less if `is_short`. The long tiles
/// are distributed one batch head after another, then the short ones, so that all blocks get the
/// same; a block computes a short one as soon as the others of its batch head are begun, while L2
/// has its K and V.
class EvenItems {
 public:
  ATTILE_HOST_DEVICE constexpr EvenItems(unsigned block, unsigned blocks, unsigned q_tiles,
                                         unsigned batch_heads, bool is_short)
      : blocks_(blocks),
        long_tiles_(q_tiles - (is_short ? 1 : 0)),
        long_end_(batch_heads * long_tiles_),
        end_(batch_heads * q_tiles),
        long_(block),
        short_(block + (long_end_ + blocks_ - 1 - block) / blocks_ * blocks_) {}

  ATTILE_HOST_DEVICE constexpr bool more() const { return long_ < long_end_ || short_ < end_; }
  ATTILE_HOST_DEVICE constexpr WorkItem item() const {
    if (takes_short()) return {static_cast<int>(short_ - long_end_), 0};
    const bool has_short = end_ > long_end_;
    return {static_cast<int>(long_ / long_tiles_),
            static_cast<int>(long_ % long_tiles_) + (has_short ? 1 : 0)};
  }
  ATTILE_HOST_DEVICE constexpr void next() { (takes_short() ? short_ : long_) += blocks_; }

 private:
  ATTILE_HOST_DEVICE constexpr bool takes_short() const {
    return short_ < end_ && (long_ >= long_end_ || (short_ - long_end_ + 1) * long_tiles_ <= long_);
  }

  // Unsigned: they count up to twice as many tiles as a grid has at most, and no more.
  unsigned blocks_, long_tiles_, long_end_, end_, long_, short_;
};

/// Gives one block its work items where later rows may see more. The items of a section's batch
/// heads follow each other, beginning with the last rows, which see most under a causal mask; the
/// last section also takes the batch heads that fill no section. Items are distributed forwards and
/// backwards in alternate waves, or else every second section runs in reverse order, so that no
/// block gets the longest item of each wave.
class GrowingItems {
 public:
  ATTILE_HOST_DEVICE constexpr GrowingItems(int block, int blocks, int q_tiles, int batch_heads,
                                            Sections sections)
      : block_(block),
        blocks_(blocks),
        q_tiles_(q_tiles),
        batch_heads_(batch_heads),
        sections_(sections) {}

  ATTILE_HOST_DEVICE constexpr bool more() const {
    return number() < std::int64_t{batch_heads_} * q_tiles_;
  }
  ATTILE_HOST_DEVICE constexpr WorkItem item() const { return item(static_cast<int>(number())); }
  /// Returns the item with a number, in the order in which they begin. `by`: divides.
  template <class Divide = Division>
  ATTILE_HOST_DEVICE constexpr WorkItem item(int item, const Divide& by = {}) const {
    const int size = sections_.batch_heads;
    const int later = max(by.quotient(batch_heads_, size), 1) - 1;  // sections after the first one
    const int section = min(by.quotient(item, size * q_tiles_), later);
    const int before = section * size;
    const int here = section == later ? batch_heads_ - before : size;
    const int rest = item - before * q_tiles_;
    const bool upwards = sections_.alternates && (later - section) % 2 == 1;
    const int q_tile = upwards ? by.quotient(rest, here) : q_tiles_ - 1 - by.quotient(rest, here);
    return {before + by.remainder(rest, here), q_tile};
  }
  ATTILE_HOST_DEVICE constexpr void next() { ++wave_; }
  ATTILE_HOST_DEVICE constexpr std::int64_t number() const {
    const bool backwards = !sections_.alternates && wave_ % 2 == 1;
    return std::int64_t{wave_} * blocks_ + (backwards ? blocks_ - 1 - block_ : block_);
  }

 private:
  int block_, blocks_, q_tiles_, batch_heads_;
  Sections sections_;
  int wave_ = 0;
};

/// Calls step(masked, tile) for each tile of the range, in order; `masked` is std::true_type for a
/// tile that needs the mask, std::false_type for a full one.
template <class Step>
ATTILE_HOST_DEVICE void visit(const TileRange& range, const Step& step) {
  for (int i = range.first; i < range.full_first; ++i) step(std::true_type{}, i);
  for (int i = range.full_first; i < range.full_last; ++i) step(std::false_type{}, i);
  for (int i = range.full_last; i < range.last; ++i) step(std::true_type{}, i);
}

}  // namespace attile
