// SPDX-License-Identifier: MIT
#include <attile/core/cache.h>
#include <attile/core/check.h>
#include <attile/core/tile_slots.h>

#include <climits>
#include <cstdint>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/good_arguments.h"
#include "support/random.h"

namespace core_cache {

using attile::Cached;
using attile::CachedPacked;
using attile::Extent;
using attile::kUnset;
using attile::Paged;
using attile::PagedPacked;
using attile::RowOrigin;
using attile::RowShape;
using attile_test::SmallProblem;

bool same(Extent a, Extent b) { return a.q_len == b.q_len && a.kv_len == b.kv_len; }
bool same(RowOrigin a, RowOrigin b) { return a.batch == b.batch && a.row == b.row; }
bool same(RowShape a, RowShape b) { return a.batches == b.batches && a.rows == b.rows; }

/// A policy of a user's: without kv_row it is none.
struct OwnPages : attile::Uniform {
  static constexpr bool kUniform = false;
  static constexpr bool kPaged = true;
};
struct OwnPagesFound : OwnPages {
  ATTILE_HOST_DEVICE RowOrigin kv_row(RowOrigin origin, int row) const {
    return {origin.batch, row};
  }
};
static_assert(!attile::Sequences<OwnPages> && attile::Sequences<OwnPagesFound>);
static_assert(attile::kIsForwardOnly<OwnPagesFound> && attile::kIsForwardOnly<Cached>);
static_assert(!attile::kIsForwardOnly<attile::Packed> && !attile::kIsForwardOnly<attile::Uniform>);

TEST_CASE("cache.a line of the page table bounds the keys of a sequence") {
  attile::ForwardArgs<float, attile::Paged> args{
      .batch = 1, .q_heads = 1, .kv_heads = 1, .q_len = 1, .kv_len = 1 << 30};
  args.sequences.pages_per_sequence = 4;
  args.sequences.page_size = 16;
  args.sequences.pages = 9;
  CHECK(attile::longest_lengths(args).kv_len == 64);
  args.kv_len = 50;
  CHECK(attile::longest_lengths(args).kv_len == 50);
}

TEST_CASE("cache.one_piece_for_each_sequence") {
  const std::vector<int> used_q{3, 1}, used_k{10, 90}, caches{4, 4}, pad{2, 0}, q{0, 3, 4};
  const Extent bounds{5, 40};
  CHECK(same(Cached{}.extent(1, bounds), bounds));
  CHECK(same(Cached{}.kv_origin(1), {1, 0}));
  CHECK(same(Cached{}.kv_shape(2, 40), {2, 40}));
  const Cached s{.queries = {used_q.data()},
                 .seqused_k = used_k.data(),
                 .caches = 5,
                 .cache_batch_idx = caches.data(),
                 .leftpad_k = pad.data()};
  CHECK(same(s.extent(0, bounds), {3, 8}));
  CHECK(same(s.extent(1, bounds), {1, 40}));
  CHECK(same(s.q_origin(1), {1, 0}));
  CHECK(same(s.kv_origin(0), {4, 2}));
  CHECK(same(s.kv_origin(1), {4, 0}));
  CHECK(same(s.q_shape(2, 5), {2, 5}));
  CHECK(same(s.kv_shape(2, 40), {5, 40}));
  const CachedPacked p{.queries = {q.data(), 6}, .seqused_k = used_k.data()};
  CHECK(same(p.extent(0, bounds), {3, 10}));
  CHECK(same(p.q_origin(1), {0, 3}));
  CHECK(same(p.q_shape(2, 5), {1, 6}));
}

/// Packed queries have slots by the rows of their tensor, and keys of a cache by the bound.
TEST_CASE("cache.slots") {
  using attile::Axis;
  const std::vector<int> q{0, 3, 4, 20};
  const CachedPacked packed{.queries = {q.data(), 20}};
  const attile::TileSlots<Axis::kRows, 8, CachedPacked> rows(packed, 3, 1000);
  CHECK(rows.count() == 20 / 8 + 3);
  CHECK(rows.slots(2) == 3);
  CHECK(rows.find(3, 1).sequence == 2);
  const attile::TileSlots<Axis::kKeys, 8, CachedPacked> keys(packed, 3, 1000);
  CHECK(keys.count() == 3 * 125);
  CHECK(keys.find(125, 1).sequence == 1);
  const Cached padded;
  CHECK(attile::TileSlots<Axis::kRows, 8, Cached>(padded, 3, 20).count() == 9);
}

TEST_CASE("cache.pages") {
  const std::vector<int> table{7, 3, 0, -9, 5, 2, 1, -9}, used_k{8, 11}, pad{0, 3}, lines{1, 1};
  Paged s{.page_table = table.data(),
          .table_stride = 4,
          .pages_per_sequence = 3,
          .page_size = 4,
          .pages = 8,
          .seqused_k = used_k.data(),
          .leftpad_k = pad.data()};
  const Extent bounds{5, 400};
  CHECK(same(s.extent(0, bounds), {5, 8}));
  CHECK(same(s.extent(1, bounds), {5, 8}));
  CHECK(same(s.extent(1, {5, 10}), {5, 7}));  // the bound is one of positions
  CHECK(same(s.kv_shape(2, 400), {8, 4}));
  CHECK(same(s.kv_row(s.kv_origin(0), 0), {7, 0}));
  CHECK(same(s.kv_row(s.kv_origin(0), 7), {3, 3}));
  CHECK(same(s.kv_row(s.kv_origin(1), 0), {5, 3}));
  CHECK(same(s.kv_row(s.kv_origin(1), 7), {1, 2}));
  s.cache_batch_idx = lines.data(), s.tables = 2;
  CHECK(same(s.kv_row(s.kv_origin(0), 5), {2, 1}));
  s.table_stride = 0;  // one line for all
  CHECK(same(s.kv_row(s.kv_origin(0), 5), {3, 1}));
  s.table_stride = kUnset;
  CHECK(same(s.kv_row(s.kv_origin(0), 5), {5, 1}));  // lines of 3: -9 begins the second one
}

TEST_CASE("cache.page_offsets_have_64_bits") {
  // Page ids at which 32 bits would not hold the offset, nor the place in a table of long lines.
  constexpr std::int64_t kPageStride = std::int64_t{16} * 2 * 8 * 128;
  const std::vector<int> used_k{16};
  for (const int page : {65535, 65536, 1000000}) {
    const Paged s{.page_table = &page,
                  .pages_per_sequence = 1,
                  .page_size = 16,
                  .pages = 1000001,
                  .seqused_k = used_k.data()};
    const RowOrigin at = s.kv_row(s.kv_origin(0), 9);
    const attile::Tensor<const float> pages{nullptr, kPageStride, 128, 8 * 128};
    const std::int64_t bytes = reinterpret_cast<std::intptr_t>(pages.row(at.batch, 3, at.row));
    CHECK(bytes == 4 * (page * kPageStride + 3 * 128 + 9 * 8 * 128));
  }
  const std::vector<int> far_line{42};
  const int line = 100000;
  constexpr std::int64_t kLine = 1 << 20;
  // The table begins so far ahead that the entry of line 100000 is the only one there is.
  const auto begin = reinterpret_cast<std::uintptr_t>(far_line.data()) - 4 * kLine * line;
  const Paged s{.page_table = reinterpret_cast<const int*>(begin),
                .table_stride = kLine,
                .pages_per_sequence = 1,
                .page_size = 16,
                .pages = 50,
                .seqused_k = used_k.data(),
                .cache_batch_idx = &line,
                .tables = line + 1};
  CHECK(same(s.kv_row(s.kv_origin(0), 15), {42, 15}));
}

/// What `append` asks about is not clipped: a row that is not there is none.
TEST_CASE("cache.rows_to_write") {
  const std::vector<int> used_k{8, INT_MAX}, pad{2, -5}, caches{4, 5};
  const auto is = [](attile::Interval x, int begin, int end) {
    return x.begin == begin && x.end == end;
  };
  Cached s{.seqused_k = used_k.data(), .leftpad_k = pad.data()};
  CHECK((is(s.key_positions(0, 9), 2, 8) && is(s.key_positions(1, 9), 0, INT_MAX)));
  CHECK(is(Cached{}.key_positions(1, 9), 0, 9));
  CHECK(same(s.cache_row(1, 8, 9), {1, 8}));
  CHECK(same(s.cache_row(1, 9, 9), attile::kNoRow));
  CHECK(same(s.cache_row(1, -1, 9), attile::kNoRow));
  CHECK(same(s.cache_row(1, std::int64_t{1} << 32, 9), attile::kNoRow));
  s.caches = 5, s.cache_batch_idx = caches.data();
  CHECK(same(s.cache_row(0, 3, 9), {4, 3}));
  CHECK(same(s.cache_row(1, 3, 9), attile::kNoRow));
  s.caches = 0, s.cache_batch_idx = nullptr;
  CHECK(same(s.cache_row(0, 3, 9), attile::kNoRow));

  const std::vector<int> table{3, 0, -9, -1, 4, 1};
  Paged p{.page_table = table.data(),
          .table_stride = 3,
          .pages_per_sequence = 2,
          .page_size = 4,
          .pages = 4,
          .seqused_k = used_k.data()};
  CHECK(is(p.key_positions(1, 9), 0, INT_MAX));
  CHECK(same(p.cache_row(0, 2, 9), {3, 2}));
  CHECK(same(p.cache_row(0, 7, 9), {0, 3}));
  CHECK(same(p.cache_row(0, 7, 7), attile::kNoRow));
  CHECK(same(p.cache_row(0, 8, 9), attile::kNoRow));  // the line ends
  CHECK(same(p.cache_row(1, 2, 9), attile::kNoRow));  // the entry is negative
  CHECK(same(p.cache_row(1, 5, 9), attile::kNoRow));  // and too large
  p.cache_batch_idx = caches.data(), p.tables = 2;
  CHECK(same(p.cache_row(0, 2, 9), attile::kNoRow));
}

/// Whatever device memory says, no row lies outside of the tensors, nor an entry of the table.
template <class S>
void check_that_all_is_clipped(const S& s, Extent bounds, int batch) {
  int keys = 0;
  for (int b = 0; b < batch; ++b) {
    const Extent e = s.extent(b, bounds);
    keys += e.kv_len;
    REQUIRE((0 <= e.kv_len && e.kv_len <= bounds.kv_len));
    const RowShape shape = s.kv_shape(batch, bounds.kv_len);
    for (int row = 0; row < e.kv_len; ++row) {
      RowOrigin at = s.kv_origin(b);
      if constexpr (attile::kIsPaged<S>) {
        REQUIRE((0 <= at.batch && at.batch < s.tables));
        REQUIRE(at.row + row < s.pages_per_sequence * int{s.page_size});
        at = s.kv_row(at, row);
      } else {
        at.row += row;
      }
      REQUIRE((0 <= at.batch && at.batch < shape.batches));
      REQUIRE((0 <= at.row && at.row < shape.rows));
    }
  }
  CHECK(keys > 0);
}

TEST_CASE("cache.clips_what_device_memory_says") {
  const attile_test::Random random(4);
  constexpr int kBatch = 60;
  std::vector<int> numbers[4];
  for (int which = 0; which < 4; ++which) {
    for (int i = 0; i < kBatch; ++i) {
      const int n = 1000 * which + i;
      const int small = static_cast<int>(random.uniform(n) * 60) - 8;
      numbers[which].push_back(n % 7 == 0 ? INT_MIN : n % 11 == 0 ? INT_MAX : small);
    }
  }
  const Cached cached{.seqused_k = numbers[0].data(),
                      .caches = 9,
                      .cache_batch_idx = numbers[1].data(),
                      .leftpad_k = numbers[2].data()};
  check_that_all_is_clipped(cached, {3, 30}, kBatch);
  Paged paged{.page_table = numbers[3].data(),
              .pages_per_sequence = 6,
              .page_size = 7,
              .pages = 20,
              .seqused_k = numbers[0].data(),
              .cache_batch_idx = numbers[1].data(),
              .tables = 10,
              .leftpad_k = numbers[2].data()};
  check_that_all_is_clipped(paged, {3, 30}, kBatch);
  check_that_all_is_clipped(paged, {3, 1 << 30}, kBatch);  // more than a line of the table holds
  paged.pages = 0;
  for (int b = 0; b < kBatch; ++b) CHECK(paged.extent(b, {3, 30}).kv_len == 0);
  const std::vector<int> all(1, INT_MAX);
  paged.seqused_k = all.data(), paged.leftpad_k = nullptr;
  paged.pages = 20, paged.pages_per_sequence = 1 << 28, paged.page_size = 1 << 28;
  CHECK(paged.extent(0, {3, 1 << 30}).kv_len == 1 << 30);  // their product does not overflow
}

/// The sentence for a small problem with these sequences; empty where it is taken.
template <class S>
std::string refusal(const S& sequences, int batch = SmallProblem::kBatch,
                    int kv_len = SmallProblem::kKvLen) {
  SmallProblem problem;
  attile::ForwardArgs<float, S> args{};
  problem.describe(args);
  args.o = attile::bshd(problem.o,
                        {.rows = SmallProblem::kQLen, .heads = SmallProblem::kQHeads, .dim = 8});
  args.sequences = sequences;
  args.batch = batch;
  args.kv_len = kv_len;
  return attile::check_arguments(args, 0, 0).why;
}

/// The same policy with another value of a member.
template <class S, class Member, class Value>
S with(S sequences, Member S::*member, Value value) {
  sequences.*member = value;
  return sequences;
}

TEST_CASE("cache.faults") {
  const int numbers[8] = {};
  const int* const odd =
      reinterpret_cast<const int*>(reinterpret_cast<std::uintptr_t>(numbers) + 2);
  const std::string tail = " is not aligned to 4 bytes";

  CHECK(refusal(Cached{}) == "");
  CHECK(refusal(with(Cached{}, &Cached::caches, -1)) == "CachedKeys: caches is negative");
  CHECK(refusal(with(Cached{}, &Cached::caches, SmallProblem::kBatch)) == "");
  CHECK(refusal(with(Cached{}, &Cached::caches, SmallProblem::kBatch - 1)) ==
        "CachedKeys: caches is less than batch, and cache_batch_idx is null");
  CHECK(refusal(with(Cached{}, &Cached::caches, 0)) == "");  // no sequence has keys
  Cached indexed{.caches = 1, .cache_batch_idx = numbers};
  CHECK(refusal(indexed) == "");
  CHECK(refusal(with(indexed, &Cached::caches, kUnset)) ==
        "CachedKeys: caches is not given, which cache_batch_idx needs");
  CHECK(refusal(with(indexed, &Cached::seqused_k, odd)) == "CachedKeys: seqused_k" + tail);
  CHECK(refusal(with(indexed, &Cached::leftpad_k, odd)) == "CachedKeys: leftpad_k" + tail);
  CHECK(refusal(with(indexed, &Cached::cache_batch_idx, odd)) ==
        "CachedKeys: cache_batch_idx" + tail);
  CHECK(refusal(Cached{.queries = {odd}}) == "PaddedQueries: seqused_q" + tail);

  CHECK(refusal(CachedPacked{}) == "PackedQueries: cu_seqlens_q is null");
  CHECK(refusal(CachedPacked{.queries = {numbers}}) == "PackedQueries: total_q is not given");
  CHECK(refusal(CachedPacked{.queries = {numbers, -1}}) == "PackedQueries: total_q is negative");
  CHECK(refusal(CachedPacked{.queries = {odd, 3}}) == "PackedQueries: cu_seqlens_q" + tail);
  CHECK(refusal(CachedPacked{.queries = {numbers, 3, odd}}) == "PackedQueries: seqused_q" + tail);
  CHECK(refusal(CachedPacked{.queries = {numbers, 3}}) == "");
  CHECK(refusal(PagedPacked{}) == "PackedQueries: cu_seqlens_q is null");

  const Paged good{.page_table = numbers,
                   .pages_per_sequence = 2,
                   .page_size = 1,
                   .pages = 1,
                   .seqused_k = numbers};
  CHECK(refusal(good) == "");
  CHECK(refusal(good, SmallProblem::kBatch, 1 << 30) == "");  // a bound above the table is clipped
  const auto paged = [&](auto Paged::*member, auto value) {
    return refusal(with(good, member, value));
  };
  const int* const null = nullptr;
  CHECK(paged(&Paged::page_table, null) == "PagedKeys: page_table is null");
  CHECK(paged(&Paged::page_table, odd) == "PagedKeys: page_table" + tail);
  CHECK(paged(&Paged::table_stride, -1) == "PagedKeys: table_stride is negative");
  CHECK(paged(&Paged::table_stride, 0) == "");
  CHECK(paged(&Paged::pages_per_sequence, kUnset) == "PagedKeys: pages_per_sequence is not given");
  CHECK(paged(&Paged::pages_per_sequence, -1) == "PagedKeys: pages_per_sequence is negative");
  CHECK(paged(&Paged::page_size, kUnset) == "PagedKeys: page_size is not given");
  CHECK(paged(&Paged::page_size, 0) == "PagedKeys: page_size must be at least 1");
  CHECK(paged(&Paged::page_size, -4) == "PagedKeys: page_size must be at least 1");
  CHECK(paged(&Paged::page_size, (1 << 30) + 1) ==
        "sequences: a tensor must have at most 2^30 rows");
  CHECK(paged(&Paged::pages, kUnset) == "PagedKeys: pages is not given");
  CHECK(paged(&Paged::pages, -1) == "PagedKeys: pages is negative");
  CHECK(paged(&Paged::seqused_k, null) == "PagedKeys: seqused_k is null");
  CHECK(paged(&Paged::seqused_k, odd) == "PagedKeys: seqused_k" + tail);
  CHECK(paged(&Paged::leftpad_k, odd) == "PagedKeys: leftpad_k" + tail);
  CHECK(paged(&Paged::cache_batch_idx, numbers) ==
        "PagedKeys: tables is not given, which cache_batch_idx needs");
  CHECK(paged(&Paged::tables, -1) == "PagedKeys: tables is negative");
  CHECK(paged(&Paged::tables, SmallProblem::kBatch - 1) ==
        "PagedKeys: tables is less than batch, and cache_batch_idx is null");
  Paged lines = good;
  lines.cache_batch_idx = numbers, lines.tables = 1;
  CHECK(refusal(lines) == "");
  CHECK(refusal(with(lines, &Paged::cache_batch_idx, odd)) == "PagedKeys: cache_batch_idx" + tail);
  // Without keys there is no table to name.
  Paged empty = with(good, &Paged::page_table, null);
  CHECK(refusal(with(empty, &Paged::pages, 0)) == "");
  CHECK(refusal(with(empty, &Paged::pages_per_sequence, 0)) == "");
}

/// Null K and V are refused where there are pages, whatever rows a page has.
TEST_CASE("cache.pages_are_there") {
  const int numbers[8] = {};
  SmallProblem problem;
  attile::ForwardArgs<float, Paged> args{};
  problem.describe(args);
  args.o = attile::bshd(problem.o,
                        {.rows = SmallProblem::kQLen, .heads = SmallProblem::kQHeads, .dim = 8});
  args.sequences = {.page_table = numbers,
                    .pages_per_sequence = 2,
                    .page_size = 1,
                    .pages = 1,
                    .seqused_k = numbers};
  args.k.data = nullptr;
  CHECK(std::string(attile::check_arguments(args, 0, 0).why) == "k is null");
  CHECK(same(attile::longest_lengths(args), {SmallProblem::kQLen, 2}));
  args.sequences.pages = 0;
  CHECK(std::string(attile::check_arguments(args, 0, 0).why).empty());
  CHECK(attile::longest_lengths(args).kv_len == 0);
}

}  // namespace core_cache
