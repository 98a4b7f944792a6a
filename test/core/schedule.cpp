// SPDX-License-Identifier: MIT
#include <attile/core/schedule.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "support/catch.h"
#include "support/masks.h"

namespace {

using namespace attile_test;
using attile::Extent;
using attile::Interval;
using attile::Span;
using attile::TileRange;

/// Scores that a loop over the tiles would treat wrongly.
template <class Visible>
int wrong_scores(Interval run, int other_length, int tile, TileRange range,
                 const Visible& visible) {
  int wrong = 0;
  for (int x = run.begin; x < run.end; ++x) {
    for (int y = 0; y < attile::round_up(other_length, tile); ++y) {
      const int t = y / tile;
      const bool visited = range.first <= t && t < range.last;
      const bool full = range.full_first <= t && t < range.full_last;
      const bool seen = y < other_length && visible(x, y);
      wrong += (seen && !visited) || (full && !seen);
    }
  }
  return wrong;
}

bool is_ordered(TileRange r) {
  return 0 <= r.first && r.first <= r.full_first && r.full_first <= r.full_last &&
         r.full_last <= r.last;
}

template <class M>
void check_schedule(const M& mask, int q_tile, int kv_tile, bool no_tile_in_vain) {
  for (const Extent e : extents()) {
    int wrong = 0, in_vain = 0;
    bool ordered = true;
    for (int begin = 0; begin < e.q_len; begin += q_tile) {
      const Interval run{begin, attile::min(begin + q_tile, e.q_len)};
      const Span span = attile::visible_columns(mask, 0, 0, run, e);
      const TileRange range = attile::tiles_of(span, kv_tile);
      ordered = ordered && is_ordered(range);
      wrong += wrong_scores(run, e.kv_len, kv_tile, range, [&](int i, int j) {
        return mask.visible({0, 0, i, j}, e);
      });
      for (int t = range.first; t < range.last; ++t) {
        bool seen = false;
        for (int i = run.begin; i < run.end; ++i) {
          for (int j = t * kv_tile; j < attile::min((t + 1) * kv_tile, e.kv_len); ++j) {
            seen = seen || mask.visible({0, 0, i, j}, e);
          }
        }
        in_vain += !seen;
      }
    }
    for (int begin = 0; begin < e.kv_len; begin += kv_tile) {
      const Interval run{begin, attile::min(begin + kv_tile, e.kv_len)};
      const Span span = attile::visible_rows(mask, 0, 0, run, e);
      const TileRange range = attile::tiles_of(span, q_tile);
      ordered = ordered && is_ordered(range);
      wrong += wrong_scores(run, e.q_len, q_tile, range, [&](int j, int i) {
        return mask.visible({0, 0, i, j}, e);
      });
    }
    INFO("q_len " << e.q_len << ", kv_len " << e.kv_len << ", tiles " << q_tile << " x "
                  << kv_tile);
    CHECK(ordered);
    CHECK(wrong == 0);
    CHECK((in_vain == 0 || !no_tile_in_vain));
  }
}

TEST_CASE("schedule.every_mask") {
  for (const auto& [q_tile, kv_tile] : {std::pair(64, 64), {16, 57}, {57, 16}, {1, 1}, {128, 32}}) {
    visit_interval_masks([&](const auto& mask) { check_schedule(mask, q_tile, kv_tile, true); });
    visit_other_masks([&](const auto& mask) { check_schedule(mask, q_tile, kv_tile, false); });
  }
}

TEST_CASE("schedule.tiles_of") {
  const auto check = [](Span span, int tile, TileRange want) {
    const TileRange got = attile::tiles_of(span, tile);
    CHECK(got.first == want.first);
    CHECK(got.full_first == want.full_first);
    CHECK(got.full_last == want.full_last);
    CHECK(got.last == want.last);
  };
  check({{0, 128}, {0, 128}}, 64, {0, 0, 2, 2});
  check({{0, 100}, {0, 100}}, 64, {0, 0, 1, 2});    // the sequence ends inside the last tile
  check({{10, 300}, {60, 260}}, 64, {0, 1, 4, 5});  // a window
  check({{10, 300}, {70, 100}}, 64, {0, 5, 5, 5});  // no tile is full
  check({{0, 300}, {0, 0}}, 64, {0, 5, 5, 5});      // a mask without intervals
  check({{64, 128}, {64, 128}}, 64, {1, 1, 2, 2});
  check({{5, 5}, {0, 0}}, 64, {0, 0, 0, 0});
  check({{9, 3}, {7, 2}}, 64, {0, 0, 0, 0});
  check({{0, 1 << 30}, {0, 1 << 30}}, 64, {0, 0, 1 << 24, 1 << 24});
}

/// The square causal loop: tiles below the diagonal are full, so that as few as possible are
/// masked.
TEST_CASE("schedule.causal_masks_the_diagonal_alone") {
  const Extent e{512, 512};
  for (int q_tile = 0; q_tile < 8; ++q_tile) {
    const Interval rows{q_tile * 64, q_tile * 64 + 64};
    const TileRange range = attile::tiles_of(attile::Causal{}.columns(0, 0, rows, e), 64);
    CHECK(range.first == 0);
    CHECK(range.full_last - range.full_first == q_tile);
    CHECK(range.last == q_tile + 1);
  }
}

TEST_CASE("schedule.visit_meets_each_tile_once_and_masks_the_edges") {
  struct Visited {
    int tile;
    bool masked;
    bool operator==(const Visited&) const = default;
  };
  for (const TileRange range : {TileRange{1, 3, 6, 9}, TileRange{0, 0, 4, 4}, TileRange{2, 5, 5, 5},
                                TileRange{0, 2, 3, 3}, TileRange{}}) {
    std::vector<Visited> visited;
    attile::visit(range, [&](auto masked, int i) { visited.push_back({i, masked.value}); });
    REQUIRE(static_cast<int>(visited.size()) == range.last - range.first);
    for (int i = 0; i < static_cast<int>(visited.size()); ++i) {
      const int tile = range.first + i;
      const bool full = tile >= range.full_first && tile < range.full_last;
      CHECK(visited[i] == Visited{tile, !full});
    }
  }
}

/// Steps, one for each tile of rows, that a tile of K and V waits before it begins, if all of them
/// begin at once, take their rows from the first on, and add their parts of dQ from the last one to
/// the first (DqMode::kInOrder).
template <class M>
std::vector<int> steps_waited(const M& mask, int br, int bc, Extent e) {
  const int kv_tiles = attile::ceil_div(e.kv_len, bc);
  std::vector<int> free_at(attile::ceil_div(e.q_len, br), 0), waited(kv_tiles, 0);
  for (int j = kv_tiles - 1; j >= 0; --j) {
    const TileRange rows = attile::row_tiles(mask, 0, 0, j * bc, bc, br, e);
    int now = 0;
    for (int i = rows.first; i < rows.last; ++i) {
      waited[j] += attile::max(free_at[i] - now, 0);
      now = attile::max(now, free_at[i]) + 1;
      free_at[i] = now;
    }
  }
  return waited;
}

TEST_CASE("schedule.turns_from_the_last_tile_on_wait_for_no_step_under_causal_masks_and_windows") {
  const Extent e{1024, 1024};
  for (const auto& [br, bc] : {std::pair(64, 64), {32, 128}, {64, 128}}) {
    const std::vector<int> none(e.kv_len / bc, 0);
    CHECK(steps_waited(attile::Causal{}, br, bc, e) == none);
    CHECK(steps_waited(attile::SlidingWindow{255, 0}, br, bc, e) == none);
    CHECK(steps_waited(attile::SlidingWindow{200, 0}, br, bc, e) == none);
    // Without a mask each waits one step more than the one behind it.
    const std::vector<int> waited = steps_waited(attile::NoMask{}, br, bc, e);
    const int tiles = static_cast<int>(waited.size());
    for (int j = 0; j < tiles; ++j) CHECK(waited[j] == tiles - 1 - j);
  }
}

TEST_CASE("schedule.between_keeps_the_tiles_of_a_part_and_what_they_need") {
  constexpr int kTiles = 9;
  for (const TileRange range : {TileRange{1, 3, 6, 9}, TileRange{0, 0, 4, 4}, TileRange{2, 5, 5, 5},
                                TileRange{0, 2, 3, 3}, TileRange{}}) {
    for (int from = 0; from <= kTiles; ++from) {
      for (int to = from; to <= kTiles; ++to) {
        const TileRange part = range.between(from, to);
        CHECK(is_ordered(part));
        for (int t = 0; t < kTiles; ++t) {
          const bool inside = from <= t && t < to;
          CHECK(part.contains(t) == (inside && range.first <= t && t < range.last));
          const bool full = range.full_first <= t && t < range.full_last;
          CHECK(range.full(t) == full);
          CHECK(part.full(t) == (inside && full));
        }
      }
    }
  }
}

TEST_CASE("schedule.columns_that_the_sequence_cuts_are_masked_for_all_rows") {
  const Extent e{256, 100};
  const TileRange whole = attile::row_tiles(attile::NoMask{}, 0, 0, 0, 64, 64, e);
  CHECK(whole.first == 0);
  CHECK(whole.full_first == 0);
  CHECK(whole.full_last == 4);
  CHECK(whole.last == 4);
  const TileRange cut = attile::row_tiles(attile::NoMask{}, 0, 0, 64, 64, 64, e);
  CHECK(cut.first == 0);
  CHECK(cut.full_first == cut.full_last);
  CHECK(cut.last == 4);
}

/// Tiles of rows as the forward kernels of sm90 have them.
struct RowTiles {
  int length, br, bc;
  bool causal;

  int count() const { return attile::ceil_div(length, br); }
  int lead() const { return attile::lead_rows(length, br, 64); }
  /// A step for each Bc columns that a tile sees, and one besides. Of groups of 64 rows, taken: one
  /// alone takes 65 % of the time of three together or of two, and two take 80 % of that of three
  /// (of these, one of three was measured, 70 %: docs/tuning.md).
  double time(int q_tile) const {
    const int groups = (q_tile == 0 ? br - lead() : br) / 64;
    const double share = groups == br / 64 ? 1.0 : groups == 1 ? 0.65 : 0.8;
    const int seen = causal ? std::min((q_tile + 1) * br - lead(), length) : length;
    return attile::ceil_div(seen, bc) * share + 1;
  }
};

/// The longest time of a block over the mean, where `items_of(block)` gives each of `blocks` what
/// it computes.
template <class ItemsOf>
double unevenness(const RowTiles& tiles, int blocks, const ItemsOf& items_of) {
  double longest = 0.0, total = 0.0;
  for (int block = 0; block < blocks; ++block) {
    double time = 0.0;
    for (auto items = items_of(block); items.more(); items.next()) {
      time += tiles.time(items.item().q_tile);
    }
    longest = std::max(longest, time);
    total += time;
  }
  return longest * blocks / total;
}

/// Tiles of all batch heads that are computed never, or more than once.
template <class ItemsOf>
int computed_wrongly(int batch_heads, int q_tiles, int blocks, const ItemsOf& items_of) {
  std::vector<int> seen(batch_heads * q_tiles);
  for (int block = 0; block < blocks; ++block) {
    for (auto items = items_of(block); items.more(); items.next()) {
      ++seen.at(items.item().batch_head * q_tiles + items.item().q_tile);
    }
  }
  return batch_heads * q_tiles - static_cast<int>(std::count(seen.begin(), seen.end(), 1));
}

TEST_CASE("the last tile of rows ends with them, and the first one lacks whole groups") {
  for (const int groups : {1, 2, 3}) {
    for (const int warpgroup_rows : {1, 21, 64}) {
      for (int q_len = 0; q_len < 400; ++q_len) {
        const int tile_rows = groups * warpgroup_rows;
        const int lead = attile::lead_rows(q_len, tile_rows, warpgroup_rows);
        const int beyond = attile::round_up(q_len, tile_rows) - lead - q_len;
        CHECK(lead % warpgroup_rows == 0);
        CHECK(lead < tile_rows);
        CHECK((0 <= beyond && beyond < warpgroup_rows));
      }
    }
  }
}

TEST_CASE("work is dealt out evenly") {
  constexpr int kBlocks = 132;
  struct Shape {
    int dim, br, bc;
  };
  const auto check = [](const Shape& shape, int length, bool causal) {
    const int batch_heads = 16384 / length * (2048 / shape.dim);
    const RowTiles tiles{length, shape.br, shape.bc, causal};
    const std::int64_t bytes = std::int64_t{length} * 2 * shape.dim * 2;
    const auto sections = attile::Sections::of(bytes, tiles.count(), batch_heads, kBlocks);
    INFO("dim " << shape.dim << ", " << shape.br << " x " << shape.bc << ", length " << length);
    if (causal) {
      CHECK(unevenness(tiles, kBlocks, [&](int block) {
              return attile::GrowingItems(block, kBlocks, tiles.count(), batch_heads, sections);
            }) < 1.04);
    } else {
      CHECK(unevenness(tiles, kBlocks, [&](int block) {
              return attile::EvenItems(block, kBlocks, tiles.count(), batch_heads,
                                       tiles.lead() > 0);
            }) < 1.04);
    }
  };
  // The default kernels for few rows under a mask, for many, and without one.
  for (const int length : {1024, 2048}) {
    for (const Shape& shape : {Shape{64, 192, 64}, {128, 192, 64}, {256, 128, 64}}) {
      check(shape, length, true);
    }
  }
  for (const int length : {4096, 8192, 16384}) {
    for (const Shape& shape : {Shape{64, 192, 128}, {128, 192, 80}, {256, 128, 64}}) {
      check(shape, length, true);
    }
  }
  for (int length = 1024; length <= 16384; length *= 2) {
    for (const Shape& shape : {Shape{64, 192, 128}, {128, 128, 128}, {256, 128, 64}}) {
      check(shape, length, false);
    }
  }
}

TEST_CASE("each head is in one round, and no round is two heads larger than another") {
  for (int heads = 1; heads <= 60; ++heads) {
    for (int wanted = 1; wanted <= heads; ++wanted) {
      const attile::HeadRounds rounds(heads, wanted);
      CHECK(rounds.one_each() == (wanted == 1 || heads == 1));
      int next = 0;
      while (next < heads) {
        const auto round = rounds.round_of(next);
        REQUIRE(round.first == next);
        REQUIRE((round.heads == rounds.heads || round.heads == rounds.heads + 1));
        CHECK(2 * round.heads <= 3 * wanted);
        CHECK(4 * (round.heads + 1) > 3 * std::min(wanted, heads));
        for (int i = 0; i < round.heads; ++i) {
          CHECK(rounds.round_of(next + i).first == round.first);
        }
        next += round.heads;
      }
      CHECK(next == heads);
    }
  }
}

TEST_CASE("half of the heads descend, the others ascend, and each begins its tiles in its order") {
  for (int batch = 1; batch <= 5; ++batch) {
    for (int kv_heads = 1; kv_heads <= 9; ++kv_heads) {
      for (int wanted = 1; wanted <= 12; ++wanted) {
        for (const int tiles : {1, 2, 7}) {
          const int all = batch * kv_heads, descending = batch * ((kv_heads + 1) / 2);
          const attile::AlternatingHeads heads{{descending, wanted}, descending, all};
          std::vector<int> begun(all, 0);
          int switches = 0;
          bool descends = true;
          for (int i = 0; i < all * tiles; ++i) {
            const auto tile = heads.tile(i, tiles);
            REQUIRE((0 <= tile.head && tile.head < all));
            const int before = begun[tile.head]++;
            switches += descends != tile.head < descending;
            descends = tile.head < descending;
            CHECK(tile.index == (descends ? tiles - 1 - before : before));
          }
          CHECK(begun == std::vector<int>(all, tiles));  // so each tile has begun once
          CHECK(descends == (kv_heads == 1));            // the short ones of other heads begin last
          // Rounds in turn, but those of the heads that there are more of.
          const int ascending = all - descending;
          if (kv_heads % 2 == 0) {
            const attile::HeadRounds rounds(descending, wanted);
            const int turns = (ascending - rounds.larger) / rounds.heads;
            CHECK(switches == 2 * turns - 1);
          }
        }
      }
    }
  }
}

TEST_CASE("sections are what L2 holds where that can be even, too") {
  constexpr std::int64_t kMegabyte = 1 << 20;
  // 64 batch heads of 16 tiles: whole pairs of waves of 132 blocks would be those of 33 of them.
  const auto of_two = attile::Sections::of(2 * kMegabyte, 16, 64, 132);
  CHECK(of_two.batch_heads == 16);
  CHECK(of_two.alternates);
  // 33 of 8 tiles would be two waves, and a megabyte more than what L2 holds: one wave of 16.
  const auto of_one = attile::Sections::of(kMegabyte, 8, 128, 132);
  CHECK(of_one.batch_heads == 16);
  CHECK(of_one.alternates);
  const auto of_half = attile::Sections::of(kMegabyte / 2, 6, 256, 132);
  CHECK(of_half.batch_heads == 44);
  CHECK(!of_half.alternates);
  // Counted: a wave, or 12 heads of keys.
  CHECK(attile::Sections::counted(6, 1, 256, 132).batch_heads == 22);
  CHECK(attile::Sections::counted(86, 1, 256, 132).batch_heads == 12);
  CHECK(attile::Sections::counted(86, 4, 256, 132).batch_heads == 48);
  CHECK(attile::Sections::counted(86, 4, 16, 132).batch_heads == 16);
  // What L2 holds, but 12 heads of keys where all blocks compute tiles of one section.
  CHECK(attile::Sections::fitting(16, 22, 1, 16, 132).batch_heads == 16);
  CHECK(attile::Sections::fitting(4, 86, 1, 16, 132).batch_heads == 12);
  CHECK(attile::Sections::fitting(8, 4, 4, 32, 132).batch_heads == 8);
  CHECK(attile::Sections::fitting(4, 86, 0, 16, 132).batch_heads == 4);
}

TEST_CASE("each tile of each batch head is somebody's, once") {
  for (const int batch_heads : {1, 7, 40}) {
    for (const int q_tiles : {1, 5, 12, 32}) {
      for (const int blocks : {1, 3, 8, 132}) {
        for (const int megabytes : {1, 3, 40}) {
          const auto sections =
              attile::Sections::of(std::int64_t{megabytes} << 20, q_tiles, batch_heads, blocks);
          CHECK(computed_wrongly(batch_heads, q_tiles, blocks, [&](int block) {
                  return attile::GrowingItems(block, blocks, q_tiles, batch_heads, sections);
                }) == 0);
        }
        for (const bool is_short : {false, true}) {
          CHECK(computed_wrongly(batch_heads, q_tiles, blocks, [&](int block) {
                  return attile::EvenItems(block, blocks, q_tiles, batch_heads, is_short);
                }) == 0);
        }
      }
    }
  }
}

TEST_CASE("a short tile of rows follows the others of its batch head") {
  constexpr int kSlices = 512, kTiles = 6, kBlocks = 132;
  for (int block = 0; block < kBlocks; ++block) {
    int batch_head = 0;
    for (attile::EvenItems items(block, kBlocks, kTiles, kSlices, true); items.more();
         items.next()) {
      const attile::WorkItem item = items.item();
      if (item.q_tile > 0) {
        batch_head = item.batch_head;
      } else {
        CHECK(std::abs(item.batch_head - batch_head) <= 1 + kBlocks / (kTiles - 1));
      }
    }
  }
}

TEST_CASE("batch heads that read the same tiles of data follow each other") {
  using attile::HeadOrder;
  constexpr std::int64_t kMegabyte = 1 << 20;
  const attile::ScoreShape shape{4, 6, {4096, 4096}};  // 32 MB of 16-bit elements for each head
  const auto order = [&](bool batch, bool head, bool row, std::int64_t megabytes) {
    const HeadOrder found = HeadOrder::of({batch, head, row, true}, shape, megabytes * kMegabyte);
    return std::vector<int>{found.by_head, found.together};
  };
  CHECK(order(false, true, true, 2) == std::vector<int>{1, 4});   // (head, row, col)
  CHECK(order(false, true, true, 12) == std::vector<int>{1, 2});  // L2 has no room for 3 or 4
  CHECK(order(false, true, true, 40) == std::vector<int>{1, 1});
  CHECK(order(true, false, true, 2) == std::vector<int>{0, 6});    // (batch, row, col)
  CHECK(order(false, false, true, 2) == std::vector<int>{0, 12});  // (row, col)
  CHECK(order(true, true, true, 2) == std::vector<int>{0, 1});     // nothing is shared
  CHECK(order(false, true, false, 2) == std::vector<int>{0, 1});   // no tiles: (head, col)
  const HeadOrder of_few = HeadOrder::of({false, true, true, true}, {4, 6, {1024, 1024}}, 1);
  CHECK(of_few.by_head);
  CHECK(of_few.together == 1);  // the data of a head stay in L2

  const HeadOrder of_heads{true, 4};
  for (int n = 0; n < 4 * 6 * 5; ++n) {  // 4 sequences, 6 heads, 5 tiles
    const attile::WorkItem item = of_heads.item(n, 5, 24);
    const int batch_head = of_heads.batch_head(item.batch_head, 4, 6);
    CHECK(batch_head % 6 == n / 20);  // head after head,
    CHECK(item.q_tile == n / 4 % 5);  // in each a tile of all sequences after another
    CHECK(batch_head / 6 == n % 4);
  }
}

TEST_CASE("each tile has one place in any order of batch heads") {
  for (const int batch : {1, 3, 8}) {
    for (const int heads : {1, 2, 5}) {
      for (const int tiles : {1, 4, 7}) {
        for (const int together : {1, 2, 3, 8}) {
          for (const bool has_short : {false, true}) {
            const attile::HeadOrder order{batch % 2 == 0, together};
            const int all = batch * heads;
            std::vector<int> times(all * tiles), even_times(all * tiles);
            const auto count = [&](std::vector<int>& counts, attile::WorkItem item) {
              REQUIRE((0 <= item.batch_head && item.batch_head < all));
              REQUIRE((0 <= item.q_tile && item.q_tile < tiles));
              ++counts[order.batch_head(item.batch_head, batch, heads) * tiles + item.q_tile];
            };
            for (int n = 0; n < all * tiles; ++n) {
              count(times, order.item(n, tiles, all));
              count(even_times, order.in_place_of({n / tiles, n % tiles}, tiles, has_short, all));
            }
            CHECK(times == std::vector<int>(all * tiles, 1));
            CHECK(even_times == times);
          }
        }
      }
    }
  }
}

TEST_CASE("a section's heads follow each other, from the last rows on") {
  std::vector<std::vector<int>> got;
  for (int item = 0; item < 6; ++item) {
    const auto [head, index] = attile::section_tile(item, 2, 3, 2);
    got.push_back({head, index});
  }
  const std::vector<std::vector<int>> want{{0, 1}, {1, 1}, {0, 0}, {1, 0}, {2, 1}, {2, 0}};
  CHECK(got == want);
}

/// Is 1 / x, some units in the last place more.
template <int kUnits>
struct NearReciprocal {
  float operator()(float x) const {
    float y = 1.0f / x;
    for (int i = 0; i < std::abs(kUnits); ++i) y = std::nextafter(y, kUnits > 0 ? 1e30f : 0.0f);
    return y;
  }
};

template <int kUnits>
void divides_rightly() {
  constexpr attile::SmallDivision<NearReciprocal<kUnits>> kBy;
  int wrong = 0;
  for (int by = 1; by <= attile::kLargestSmall; by += by < 3000 ? 1 : by / 7) {
    for (int quotient = 0; quotient <= attile::kLargestSmall / by; ++quotient) {
      const int first = quotient * by, last = std::min(first + by - 1, attile::kLargestSmall);
      for (const int x : {first, last}) {
        wrong += kBy.quotient(x, by) != quotient || kBy.remainder(x, by) != x - first;
      }
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("small numbers are divided by a reciprocal that is off by a unit in the last place") {
  divides_rightly<-1>();
  divides_rightly<0>();
  divides_rightly<1>();
}

TEST_CASE("each tile of a sequence's heads is one item of a section") {
  for (const int heads : {1, 2, 6, 7}) {
    for (const int tiles : {1, 3, 8}) {
      for (int section = 1; section <= heads; ++section) {
        std::vector<int> times(heads * tiles);
        for (int item = 0; item < heads * tiles; ++item) {
          const auto [head, index] = attile::section_tile(item, section, heads, tiles);
          REQUIRE((0 <= head && head < heads && 0 <= index && index < tiles));
          ++times[head * tiles + index];
        }
        CHECK(times == std::vector<int>(heads * tiles, 1));
      }
    }
  }
}

}  // namespace
