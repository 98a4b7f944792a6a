// SPDX-License-Identifier: MIT
#include <attile/core/check_mask.h>
#include <attile/core/mask.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/masks.h"

namespace {

using namespace attile_test;
using attile::Extent;
using attile::Interval;
using attile::MaskFault;
using attile::ScoreIndex;
using attile::Span;

constexpr auto hold_against_predicate = [](const auto& mask) {
  for (const Extent extent : extents()) {
    for (const int run_length : kRunLengths) {
      for (const int batch : {0, 1}) {
        if (batch * extent.kv_len > 199 || batch * extent.q_len > 199) continue;  // of the ids
        const MaskFault fault = attile::check_mask(mask, batch, 0, extent, run_length);
        INFO("q_len " << extent.q_len << ", kv_len " << extent.kv_len << ", run of " << run_length
                      << " from " << fault.run.begin << ", at " << fault.at.row << ", "
                      << fault.at.col);
        CHECK(std::string(fault ? fault.what : "") == "");
      }
    }
  }
};

TEST_CASE("mask.intervals_hold_against_the_predicate") {
  visit_interval_masks(hold_against_predicate);
}

TEST_CASE("mask.others_hold_against_the_predicate") { visit_other_masks(hold_against_predicate); }

/// Whether the touched interval begins and ends at visible scores, and the full one could not be
/// longer.
template <class Visible>
bool is_tight(Interval run, int other_length, Span span, const Visible& visible) {
  const auto anywhere = [&](int y) {
    for (int x = run.begin; x < run.end; ++x) {
      if (visible(x, y)) return true;
    }
    return false;
  };
  const auto everywhere = [&](int y) {
    for (int x = run.begin; x < run.end; ++x) {
      if (!visible(x, y)) return false;
    }
    return true;
  };
  int full = 0;
  for (int y = 0; y < other_length; ++y) full += everywhere(y);
  const bool touched_is_tight =
      span.touched.empty() || (anywhere(span.touched.begin) && anywhere(span.touched.end - 1));
  return touched_is_tight && full == (span.full.empty() ? 0 : span.full.end - span.full.begin);
}

TEST_CASE("mask.intervals_are_tight") {
  visit_interval_masks([](const auto& mask) {
    for (const Extent e : extents()) {
      for (const int length : kRunLengths) {
        int loose = 0;
        for (int begin = 0; begin < e.q_len; begin += length) {
          const Interval run{begin, attile::min(begin + length, e.q_len)};
          loose += !is_tight(run, e.kv_len, mask.columns(0, 0, run, e), [&](int i, int j) {
            return mask.visible({0, 0, i, j}, e);
          });
        }
        for (int begin = 0; begin < e.kv_len; begin += length) {
          const Interval run{begin, attile::min(begin + length, e.kv_len)};
          loose += !is_tight(run, e.q_len, mask.rows(0, 0, run, e), [&](int j, int i) {
            return mask.visible({0, 0, i, j}, e);
          });
        }
        INFO("q_len " << e.q_len << ", kv_len " << e.kv_len << ", runs of " << length);
        CHECK(loose == 0);
      }
    }
  });
}

TEST_CASE("mask.alignment") {
  using namespace attile;
  const Extent wide{2, 5}, tall{5, 2};
  CHECK(Causal{}.visible({0, 0, 0, 3}, wide));
  CHECK_FALSE(Causal{}.visible({0, 0, 0, 4}, wide));
  CHECK(Causal{}.visible({0, 0, 1, 4}, wide));
  CHECK_FALSE(Causal{}.visible({0, 0, 2, 0}, tall));
  CHECK(Causal{}.visible({0, 0, 3, 0}, tall));
  CHECK_FALSE(CausalTopLeft{}.visible({0, 0, 0, 1}, wide));
  CHECK(CausalTopLeft{}.visible({0, 0, 0, 0}, tall));
}

int visible_in_row(const auto& mask, int row, Extent e) {
  int count = 0;
  for (int j = 0; j < e.kv_len; ++j) count += mask.visible({0, 0, row, j}, e);
  return count;
}

TEST_CASE("mask.windows_include_both_ends") {
  using attile::SlidingWindow;
  const Extent e{100, 100};
  CHECK(visible_in_row(SlidingWindow{5, 0}, 50, e) == 6);
  CHECK(visible_in_row(SlidingWindow{0, 0}, 50, e) == 1);
  CHECK(visible_in_row(SlidingWindow{3, 4}, 50, e) == 8);
  CHECK(visible_in_row(SlidingWindow{-1, 0}, 50, e) == 51);
  CHECK(visible_in_row(SlidingWindow{-1, -1}, 50, e) == 100);
  CHECK(visible_in_row(SlidingWindow{2, -7}, 50, e) == 52);
  CHECK(visible_in_row(SlidingWindow{5, 0}, 2, e) == 3);
  for (const Extent other : extents()) {  // a window that reaches everywhere is causal
    for (int i = 0; i < other.q_len; ++i) {
      CHECK(visible_in_row(SlidingWindow{other.kv_len + other.q_len, 0}, i, other) ==
            visible_in_row(attile::Causal{}, i, other));
    }
  }
}

TEST_CASE("mask.lengths_of_2_to_the_30") {
  using namespace attile;
  constexpr int kLong = 1 << 30;
  const Extent square{kLong, kLong}, wide{1, kLong}, tall{kLong, 1};
  const auto same = [](Interval a, Interval b) { return a.begin == b.begin && a.end == b.end; };
  const Interval last{kLong - 1, kLong};
  CHECK(same(Causal{}.columns(0, 0, last, square).full, {0, kLong}));
  CHECK(same(Causal{}.columns(0, 0, {0, 1}, wide).full, {0, kLong}));
  CHECK(Causal{}.columns(0, 0, {0, kLong - 1}, tall).touched.empty());
  CHECK(same(Causal{}.rows(0, 0, {0, 1}, tall).touched, last));
  const SlidingWindow widest{2147483647, 2147483647};
  CHECK(same(widest.columns(0, 0, {0, kLong}, square).full, {0, kLong}));
  CHECK(widest.visible({0, 0, 0, kLong - 1}, square));
  CHECK(widest.visible({0, 0, kLong - 1, 0}, tall));
  CHECK(same(SlidingWindow{1, 0}.columns(0, 0, last, square).touched, {kLong - 2, kLong}));
  const Prefix prefix{2147483647, nullptr};
  CHECK(same(prefix.columns(0, 0, {0, 1}, square).full, {0, kLong}));
}

/// Lengths near which sums of positions and sizes leave the range of an int, or nearly do.
const std::vector<Extent>& long_extents() {
  constexpr int kLong = 1 << 30;
  static const std::vector<Extent> all = {
      {kLong, kLong}, {kLong - 7, kLong}, {kLong, kLong - 7}, {1, kLong},
      {kLong, 1},     {kLong, kLong / 2}, {kLong / 3, kLong}, {9, 11},
      {11, 9}};
  return all;
}

/// Positions at and near the ends of an axis and of the diagonal.
std::vector<int> positions(int length, int diagonal) {
  std::vector<int> all;
  for (const std::int64_t near :
       {std::int64_t{0}, std::int64_t{length} / 2, std::int64_t{length}, std::int64_t{diagonal}}) {
    for (const std::int64_t x : {near - 2, near - 1, near, near + 1}) {
      if (0 <= x && x < length) all.push_back(static_cast<int>(x));
    }
  }
  return all;
}

/// What a line of scores sees of [0, length), in 64 bits; [end, end) where it sees nothing.
struct Seen {
  std::int64_t begin, end;
  Seen(std::int64_t first, std::int64_t last, std::int64_t length)
      : begin(std::max<std::int64_t>(first, 0)), end(std::min(last + 1, length)) {}
  bool is(Interval x) const { return begin < end ? x.begin == begin && x.end == end : x.empty(); }
};

/// Holds a mask of one batch against row_sees(row) and col_sees(col), both Seen, for rows and
/// columns at and near the ends.
template <class M, class RowSees, class ColSees>
void hold_lines(const M& mask, Extent e, const RowSees& row_sees, const ColSees& col_sees) {
  int wrong = 0;
  const std::vector<int> rows = positions(e.q_len, -e.shift());
  const std::vector<int> cols = positions(e.kv_len, e.shift());
  for (const int row : rows) {
    const Seen seen = row_sees(row);
    const Span span = mask.columns(0, 0, {row, row + 1}, e);
    wrong += !seen.is(span.touched) + !seen.is(span.full);
    for (const int col : cols) {
      wrong += mask.visible({0, 0, row, col}, e) != (seen.begin <= col && col < seen.end);
    }
  }
  for (const int col : cols) {
    const Seen seen = col_sees(col);
    const Span span = mask.rows(0, 0, {col, col + 1}, e);
    wrong += !seen.is(span.touched) + !seen.is(span.full);
  }
  INFO("q_len " << e.q_len << ", kv_len " << e.kv_len);
  CHECK(wrong == 0);
}

TEST_CASE("mask.windows_of_any_size_at_any_length") {
  constexpr int kLong = 1 << 30, kHighest = std::numeric_limits<int>::max();
  constexpr std::int64_t kFar = std::int64_t{1} << 40;
  const int sizes[] = {std::numeric_limits<int>::min(),
                       -1,
                       0,
                       1,
                       5,
                       kLong - 1,
                       kLong,
                       kLong + 1,
                       kHighest - 1,
                       kHighest};
  for (const Extent e : long_extents()) {
    for (const int left : sizes) {
      for (const int right : sizes) {
        INFO("window of " << left << ", " << right);
        const std::int64_t to_left = left < 0 ? kFar : left, to_right = right < 0 ? kFar : right;
        const std::int64_t shift = std::int64_t{e.kv_len} - e.q_len;
        hold_lines(
            attile::SlidingWindow{left, right}, e,
            [&](int row) { return Seen(row + shift - to_left, row + shift + to_right, e.kv_len); },
            [&](int col) { return Seen(col - shift - to_right, col - shift + to_left, e.q_len); });
      }
    }
  }
}

/// A length in device memory is below 0 or above kv_len without a check: it counts as 0 or kv_len.
TEST_CASE("mask.prefixes_of_any_length") {
  constexpr int kLong = 1 << 30, kHighest = std::numeric_limits<int>::max();
  for (const Extent e : long_extents()) {
    for (const int length : {std::numeric_limits<int>::min(), -kLong, -1, 0, 1, 7, 10, 12,
                             kLong - 1, kLong, kLong + 1, kHighest - 1, kHighest}) {
      INFO("length " << length);
      const std::int64_t prefix = std::clamp<std::int64_t>(length, 0, e.kv_len);
      const std::int64_t shift = std::int64_t{e.kv_len} - e.q_len;
      const auto row_sees = [&](int row) {
        return Seen(0, std::max(prefix - 1, row + shift), e.kv_len);
      };
      const auto col_sees = [&](int col) {
        return Seen(col < prefix ? 0 : col - shift, e.q_len - 1, e.q_len);
      };
      hold_lines(attile::Prefix{-1, &length}, e, row_sees, col_sees);
      if (length >= 0) hold_lines(attile::Prefix{length, nullptr}, e, row_sees, col_sees);
    }
  }
}

/// A prefix adds to what is causal, and does not take from it.
TEST_CASE("mask.prefix_is_a_union") {
  const Extent e{4, 6};
  CHECK(visible_in_row(attile::Prefix{5, nullptr}, 0, e) == 5);
  CHECK(visible_in_row(attile::Prefix{5, nullptr}, 3, e) == 6);
  CHECK(visible_in_row(attile::Prefix{1, nullptr}, 0, e) == 3);
  const attile::And<attile::Prefix, attile::Causal> both{.first = {5, nullptr}, .second = {}};
  CHECK(visible_in_row(both, 0, e) == 3);
}

/// Causal, with one lie.
struct Lie {
  enum What { kNone, kShort, kLong, kFullTooLong, kFullInEmptyRows, kRowsShort, kRowsFull, kBelow };
  What what = kNone;

  bool visible(ScoreIndex i, Extent e) const { return attile::Causal{}.visible(i, e); }
  Span columns(int b, int h, Interval run, Extent e) const {
    Span span = attile::Causal{}.columns(b, h, run, e);
    if (what == kShort) --span.touched.end;
    if (what == kLong) span.touched.end = e.kv_len + 1;
    if (what == kFullTooLong) ++span.full.end;
    if (what == kFullInEmptyRows && span.full.empty()) span.full = {0, 1};
    if (what == kBelow) span.touched.begin = -1;
    return span;
  }
  Span rows(int b, int h, Interval run, Extent e) const {
    Span span = attile::Causal{}.rows(b, h, run, e);
    if (what == kRowsShort) ++span.touched.begin;
    if (what == kRowsFull && !span.full.empty()) --span.full.begin;
    return span;
  }
};
static_assert(attile::SpanMask<Lie>);

TEST_CASE("mask.check_mask_finds_lies") {
  const auto found = [](Lie::What what, int run_length) {
    const MaskFault fault = attile::check_mask(Lie{what}, 0, 0, {70, 65}, run_length);
    return std::string(fault ? fault.what : "");
  };
  const std::string outside = "a visible score lies outside the touched interval";
  const std::string hidden = "a hidden score lies inside the full interval";
  const std::string leaves = "the touched interval leaves the score matrix";
  for (const int run_length : {1, 16, 57, 64}) {
    INFO("runs of " << run_length);
    CHECK(found(Lie::kNone, run_length) == "");
    CHECK(found(Lie::kShort, run_length) == outside);
    CHECK(found(Lie::kLong, run_length) == leaves);
    CHECK(found(Lie::kBelow, run_length) == leaves);
    CHECK(found(Lie::kFullTooLong, run_length) == hidden);
    CHECK(found(Lie::kFullInEmptyRows, run_length) == hidden);
    CHECK(found(Lie::kRowsShort, run_length) == outside);
    CHECK(found(Lie::kRowsFull, run_length) == hidden);
  }
}

/// Says that rows and columns are intervals, with one lie.
struct IntervalLie {
  static constexpr bool kIntervals = true;

  enum What { kNone, kGap, kTooWide, kColumnTooWide };
  What what = kNone;

  bool visible(ScoreIndex i, Extent e) const {
    return attile::Causal{}.visible(i, e) && (what != kGap || i.row != 20 || i.col != 7);
  }
  Span columns(int b, int h, Interval run, Extent e) const {
    Span span = attile::Causal{}.columns(b, h, run, e);
    span.full = {};
    if (what == kTooWide && run.begin <= 20 && 20 < run.end) span.touched.end = e.kv_len;
    return span;
  }
  Span rows(int b, int h, Interval run, Extent e) const {
    Span span{attile::Causal{}.rows(b, h, run, e).touched, {}};
    if (what == kColumnTooWide && run.begin <= 7 && 7 < run.end) span.touched.begin = 0;
    return span;
  }
};
static_assert(attile::IntervalMask<IntervalLie> && !attile::IntervalMask<Lie>);

TEST_CASE("mask.check_mask_finds_lines_that_are_no_intervals") {
  const auto fault = [](IntervalLie::What what, int run_length) {
    return attile::check_mask(IntervalLie{what}, 0, 0, {70, 65}, run_length);
  };
  for (const int run_length : {1, 16, 64}) {
    INFO("runs of " << run_length);
    CHECK_FALSE(fault(IntervalLie::kNone, run_length));
    for (const auto what : {IntervalLie::kGap, IntervalLie::kTooWide}) {
      const MaskFault found = fault(what, run_length);
      REQUIRE(found);
      CHECK(std::string(found.what) == "a row's touched interval is not just what the row sees");
      CHECK(found.at.row == 20);
      CHECK(found.at.col == (what == IntervalLie::kGap ? 7 : 16));
    }
    const MaskFault found = fault(IntervalLie::kColumnTooWide, run_length);
    REQUIRE(found);
    CHECK(std::string(found.what) == "a column's touched interval is not just what sees it");
    CHECK(found.at.row == 0);
    CHECK(found.at.col == 7);
  }
}

/// Has an `of_tile` that forgets one score of its `visible`.
struct TileLie {
  int forgotten_row = -1;

  bool visible(ScoreIndex i, Extent e) const { return attile::Causal{}.visible(i, e); }
  struct Tile {
    using Mask = TileLie;
    ScoreIndex first;
    Extent extent;
    int forgotten_row;
    int row(int dr) const { return first.row + dr; }
    int col(int dc) const { return first.col + dc; }
    bool visible(int row, int col) const {
      const bool is_forgotten = row == forgotten_row && col == 3;
      return attile::Causal{}.visible({first.batch, first.head, row, col}, extent) && !is_forgotten;
    }
  };
  Tile of_tile(ScoreIndex first, Extent e) const { return {first, e, forgotten_row}; }
};
static_assert(attile::kHasTileMask<TileLie>);

TEST_CASE("mask.check_mask_asks_of_tile") {
  for (const int run_length : {1, 16, 57, 64}) {
    INFO("runs of " << run_length);
    CHECK_FALSE(attile::check_mask(TileLie{}, 0, 0, {70, 65}, run_length));
    const MaskFault found = attile::check_mask(TileLie{69}, 0, 0, {70, 65}, run_length);
    REQUIRE(found);
    CHECK(std::string(found.what) == "of_tile says something else of a score than visible");
    CHECK(found.at.row == 69);
    CHECK(found.at.col == 3);
  }
}

TEST_CASE("mask.check_mask_says_where") {
  const MaskFault fault = attile::check_mask(Lie{Lie::kShort}, 0, 0, {64, 64}, 16);
  REQUIRE(fault);
  CHECK(fault.run.begin == 0);
  CHECK(fault.run.end == 16);
  CHECK(fault.at.row == 15);
  CHECK(fault.at.col == 15);
}

}  // namespace
