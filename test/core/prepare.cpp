// SPDX-License-Identifier: MIT
#include <attile/core/check_mask.h>
#include <attile/core/mask.h>
#include <attile/core/prepare.h>
#include <attile/core/prepared_mask.h>
#include <attile/host/prepare.h>

#include <cstddef>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/masks.h"
#include "support/prepared.h"

namespace {

using namespace attile_test;
using attile::Extent;
using attile::Interval;
using attile::KeyPadding;
using attile::PackedIds;
using attile::RowIntervals;
using attile::ScoreIndex;
using attile::SeenIntervals;
using attile::SortedDocument;
using attile::SortedIds;
using attile::Span;

static_assert(attile::IntervalMask<KeyPadding> && attile::IntervalMask<SortedDocument>);
static_assert(attile::SpanMask<RowIntervals> && !attile::IntervalMask<RowIntervals>);
static_assert(attile::IntervalMask<attile::And<attile::Causal, SortedDocument>>);
static_assert(!attile::kUniformOnly<KeyPadding> && attile::kUniformOnly<SortedDocument>);

constexpr int kBatch = 2;

/// The mask's spans agree with its predicate, and that with `expected`, as do those of its
/// intersection with a causal mask.
template <class Mask, class Expected>
void hold(const Mask& mask, Extent e, const Expected& expected) {
  int wrong = 0;
  for (int b = 0; b < kBatch; ++b) {
    for (int i = 0; i < e.q_len; ++i) {
      for (int j = 0; j < e.kv_len; ++j) {
        wrong += mask.visible({b, 0, i, j}, e) != expected(ScoreIndex{b, 0, i, j});
      }
    }
    for (const int run_length : kRunLengths) {
      const auto fault = attile::check_mask(mask, b, 0, e, run_length);
      CHECK(std::string(fault ? fault.what : "") == "");
      const attile::And<attile::Causal, Mask> both{{}, mask};
      const auto in_both = attile::check_mask(both, b, 0, e, run_length);
      CHECK(std::string(in_both ? in_both.what : "") == "");
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("prepare.key_padding") {
  for (const Extent e : extents()) {
    for (const int length : {0, -1, 1, 57, 64, e.kv_len, e.kv_len + 1, 2147483647, -2147483647}) {
      INFO("q_len " << e.q_len << ", kv_len " << e.kv_len << ", length " << length);
      const int lengths[kBatch] = {5, length};
      hold(KeyPadding{lengths}, e, [&](ScoreIndex i) { return i.col < lengths[i.batch]; });
    }
  }
}

TEST_CASE("prepare.sorted_documents_are_documents") {
  for (const Extent e : extents()) {
    for (const bool hide : {false, true}) {
      INFO("q_len " << e.q_len << ", kv_len " << e.kv_len << ", hide " << hide);
      const DocumentRows rows(kBatch, e.q_len, e.kv_len, hide);
      const Table table = host_table(rows.source);
      const attile::Document document{rows.q_ids.data(), rows.kv_ids.data()};
      hold(SortedDocument{table.data()}, e, [&](ScoreIndex i) { return document.visible(i, e); });
    }
  }
}

TEST_CASE("prepare.row_intervals") {
  for (const Extent e : extents()) {
    for (const int prefix : {0, 17, 64}) {
      for (const bool one : {false, true}) {
        INFO("q_len " << e.q_len << ", kv_len " << e.kv_len << ", prefix " << prefix);
        const IntervalRows rows(kBatch, e.q_len, e.kv_len, prefix, one);
        const Table table = host_table(rows.source);
        hold(RowIntervals{table.data()}, e, [&](ScoreIndex i) { return rows.sees(i); });
      }
    }
  }
}

/// Tiles are skipped, and whole ones found, for documents of 48 rows behind a prefix of 32 columns:
/// by rows and columns in sixteens the answers are exact.
TEST_CASE("prepare.row_intervals_skip_tiles") {
  const Extent e{192, 224};
  std::vector<Interval> first(192, Interval{0, 32}), second;
  for (int i = 0; i < e.q_len; ++i) second.push_back({32 + i / 48 * 48, 80 + i / 48 * 48});
  const SeenIntervals source{first.data(), second.data(), 1, e.q_len, e.kv_len};
  const Table table = host_table(source);
  const RowIntervals mask{table.data()};
  const auto is = [](Interval x, Interval y) { return x.begin == y.begin && x.end == y.end; };
  for (int document = 0; document < 4; ++document) {
    const int begin = 48 * document;
    const Span rows = mask.columns(0, 0, {begin + 16, begin + 48}, e);
    CHECK(is(rows.touched, {0, begin + 80}));
    // The first document's rows see one interval, which the prefix and the document make.
    CHECK(is(rows.full, document == 0 ? Interval{0, 80} : Interval{begin + 32, begin + 80}));
    const Span columns = mask.rows(0, 0, {begin + 32, begin + 64}, e);
    CHECK(is(columns.touched, {begin, begin + 48}));
    CHECK(is(columns.full, {begin, begin + 48}));
  }
  const Span prefix = mask.rows(0, 0, {0, 32}, e);
  CHECK(is(prefix.touched, {0, 192}));
  CHECK(is(prefix.full, {0, 192}));
}

/// What masks say of tiles is what they say of scores, from any first score on.
TEST_CASE("prepare.tiles_of_masks") {
  const Extent e{130, 150};
  const DocumentRows documents(kBatch, e.q_len, e.kv_len, true);
  const IntervalRows intervals(kBatch, e.q_len, e.kv_len, 20);
  const Table document_table = host_table(documents.source);
  const Table interval_table = host_table(intervals.source);
  const int lengths[kBatch] = {70, 149};
  const auto look = [&]<class Mask>(const Mask& mask) {
    static_assert(attile::kHasTileMask<Mask>);
    int wrong = 0;
    for (const ScoreIndex first : {ScoreIndex{0, 0, 0, 0}, ScoreIndex{1, 2, 17, 33}}) {
      const auto tile = attile::mask_of_tile(mask, first, e);
      for (int i = first.row; i < e.q_len; ++i) {
        for (int j = first.col; j < e.kv_len; ++j) {
          const bool visible = tile.visible(tile.row(i - first.row), tile.col(j - first.col));
          wrong += visible != mask.visible({first.batch, first.head, i, j}, e);
        }
      }
    }
    CHECK(wrong == 0);
  };
  const attile::Document document{documents.q_ids.data(), documents.kv_ids.data()};
  const SortedDocument sorted{document_table.data()};
  const RowIntervals of_rows{interval_table.data()};
  look(document);
  look(sorted);
  look(of_rows);
  look(KeyPadding{lengths});
  look(attile::And<attile::Causal, attile::Document>{{}, document});
  look(attile::And<attile::And<KeyPadding, Gaps>, RowIntervals>{{{lengths}, {3}}, of_rows});
  static_assert(!attile::kHasTileMask<attile::Causal>);
  static_assert(!attile::kHasTileMask<attile::And<attile::Causal, Gaps>>);
}

/// One that inherits a mask changes what is visible, and has no tiles then.
struct OtherDocument : attile::Document {
  ATTILE_HOST_DEVICE bool visible(ScoreIndex i, Extent e) const {
    return !attile::Document::visible(i, e);
  }
};
static_assert(!attile::kHasTileMask<OtherDocument>);

/// Whatever a table holds, answers lie inside the lengths.
TEST_CASE("prepare.answers_of_any_table_lie_inside") {
  const auto inside = [](Interval x, int length) {
    return x.empty() || (0 <= x.begin && x.end <= length);
  };
  int outside = 0;
  for (const Extent e : extents()) {
    const auto look = [&](const auto& mask) {
      for (int b = 0; b < kBatch; ++b) {
        for (int begin = 0; begin < e.q_len; begin += 16) {
          const Span span = mask.columns(b, 0, {begin, attile::min(begin + 16, e.q_len)}, e);
          outside += !inside(span.touched, e.kv_len) + !inside(span.full, e.kv_len);
        }
        for (int begin = 0; begin < e.kv_len; begin += 16) {
          const Span span = mask.rows(b, 0, {begin, attile::min(begin + 16, e.kv_len)}, e);
          outside += !inside(span.touched, e.q_len) + !inside(span.full, e.q_len);
        }
      }
    };
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      const auto entries = static_cast<std::size_t>(RowIntervals::Places::size(e));
      const Table table =
          any_entries(kBatch * (entries + static_cast<std::size_t>(e.kv_len)), seed, e.kv_len);
      look(SortedDocument{table.data()});
      look(RowIntervals{table.data()});
    }
  }
  CHECK(outside == 0);
}

/// Ids out of order give a table, of which nothing leaves the lengths.
TEST_CASE("prepare.ids_out_of_order") {
  for (const Extent e : extents()) {
    const DocumentRows rows(kBatch, e.q_len, e.kv_len, false, /*sorted=*/false);
    const Table table = host_table(rows.source);
    const auto* const entries = reinterpret_cast<const SortedDocument::Entry*>(table.data());
    int outside = 0;
    for (int n = 0; n < kBatch * (e.q_len + e.kv_len); ++n) {
      const int length = n % (e.q_len + e.kv_len) < e.q_len ? e.kv_len : e.q_len;
      for (const int x : entries[n].data) outside += x < 0 || x > length;
    }
    CHECK(outside == 0);
  }
}

/// Offsets are the rows with which runs of equal ids begin, also where a batch begins with the id
/// that the one before ends with; the runs that `sequences` leaves out have none.
TEST_CASE("prepare.offsets_of_packed_sequences") {
  for (const int rows : {0, 1, 5, 127, 128, 129, 700}) {
    for (const int batches : {0, 1, 3}) {
      for (const int length : {1, 2, 64, 90}) {
        std::vector<int> ids, begins;
        for (int i = 0; i < batches * rows; ++i) {
          const int in_batch = i % rows;
          if (in_batch % length == 0) begins.push_back(i);
          ids.push_back(7 - in_batch / length % 3);  // ids may decrease, and come again
        }
        const auto runs = static_cast<int>(begins.size());
        for (const int sequences : {0, 1, runs, runs + 1, runs + 200}) {
          INFO(batches << " x " << rows << " by " << length << ", " << sequences);
          const Table table = host_table(PackedIds{ids.data(), batches, rows, sequences});
          REQUIRE(!table.empty());
          const int* const found = reinterpret_cast<const int*>(table.data());
          int wrong = found[sequences + 1] != runs;
          for (int n = 0; n <= sequences; ++n) {
            wrong += found[n] != (n < runs ? begins[static_cast<std::size_t>(n)] : batches * rows);
          }
          CHECK(wrong == 0);
        }
      }
    }
  }
}

template <class Source>
std::string why(const Source& source) {
  return attile::table_size(source).check.why;
}

TEST_CASE("prepare.refusals") {
  const int ids[8] = {};
  const Interval intervals[4] = {};
  CHECK(why(SortedIds{ids, ids, 1, 4, 8}) == "");
  CHECK(why(SortedIds{ids, ids}) == "batch is not given");
  CHECK(why(SortedIds{ids, ids, 1}) == "q_len is not given");
  CHECK(why(SortedIds{ids, ids, 1, 4}) == "kv_len is not given");
  CHECK(why(SortedIds{ids, ids, -1, 4, 4}) == "batch is negative");
  CHECK(why(SortedIds{ids, ids, 1, -4, 4}) == "q_len is negative");
  CHECK(why(SortedIds{ids, ids, 1, 4, -4}) == "kv_len is negative");
  CHECK(why(SortedIds{ids, ids, 1, (1 << 30) + 1, 4}) == "q_len must be at most 2^30");
  CHECK(why(SortedIds{ids, ids, 1, 4, (1 << 30) + 1}) == "kv_len must be at most 2^30");
  const char* const null = "SortedIds: q_ids and kv_ids must not be null";
  CHECK(why(SortedIds{nullptr, ids, 1, 4, 4}) == null);
  CHECK(why(SortedIds{ids, nullptr, 1, 4, 4}) == null);
  CHECK(why(SortedIds{nullptr, nullptr, 0, 4, 4}) == "");
  CHECK(why(SortedIds{ids, nullptr, 1, 4, 0}) == "");
  CHECK(why(SeenIntervals{intervals, nullptr, 1, 4, 4}) == "");
  CHECK(why(SeenIntervals{nullptr, intervals, 1, 4, 4}) == "SeenIntervals: first must not be null");
  CHECK(why(SeenIntervals{nullptr, nullptr, 1, 0, 4}) == "");
  CHECK(why(PackedIds{ids, 2, 4, 3}) == "");
  CHECK(why(PackedIds{ids}) == "PackedIds: batches is not given");
  CHECK(why(PackedIds{ids, 2}) == "PackedIds: rows is not given");
  CHECK(why(PackedIds{ids, 2, 4}) == "PackedIds: sequences is not given");
  CHECK(why(PackedIds{ids, -2, 4, 3}) == "PackedIds: batches is negative");
  CHECK(why(PackedIds{ids, 2, -4, 3}) == "PackedIds: rows is negative");
  CHECK(why(PackedIds{ids, 2, 4, -3}) == "PackedIds: sequences is negative");
  CHECK(why(PackedIds{ids, 2, 4, (1 << 30) + 1}) == "PackedIds: sequences must be at most 2^30");
  CHECK(why(PackedIds{ids, (1 << 15) + 1, 1 << 15, 3}) ==
        "PackedIds: batches * rows must be at most 2^30");
  CHECK(why(PackedIds{nullptr, 2, 4, 3}) == "PackedIds: ids must not be null");
  CHECK(why(PackedIds{nullptr, 0, 4, 3}) == "");
  CHECK(table_bytes(PackedIds{ids, 2, 4, 3}) == (4 + 1 + 1) * 4);
  CHECK(table_bytes(SortedIds{nullptr, nullptr, 0, 4, 4}) == 16);
  CHECK(table_bytes(SortedIds{ids, ids, 1, 4, 8}) == 96);
  CHECK(table_bytes(SeenIntervals{intervals, nullptr, 2, 20, 40}) == 2 * (20 + 4 + 3) * 16);

  Table table(6);
  const SortedIds source{ids, ids, 1, 4, 8};
  CHECK_FALSE(attile::host::prepare(nullptr, 96, source));
  CHECK_FALSE(attile::host::prepare(table.data(), 95, source));
  CHECK_FALSE(attile::host::prepare(reinterpret_cast<char*>(table.data()) + 8, 96, source));
  CHECK(attile::host::prepare(table.data(), 96, source));
}

}  // namespace
