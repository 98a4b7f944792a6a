// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/append.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "support/catch.h"
#include "support/random.h"
#include "support/tensors.h"

// `append` against what it is: loops over rows and elements, and rotations in fp64.

namespace attile_test {

using attile::RotaryLayout;

/// One call of `append`. What a policy does not have is not read.
struct AppendCase {
  const char* name;
  int batch = 5, q_heads = 4, kv_heads = 2;  ///< q_heads 0: no queries
  int q_len = 4, kv_len = 50, page_size = 16;
  int dim = 32, dim_v = 16;
  int dims = 16;  ///< that are rotated
  RotaryLayout layout = RotaryLayout::kHalves;
  bool leftpad = false, indices = false, seqlens = false;
  bool in_place = false;   ///< rotated queries overwrite the queries
  bool unaligned = false;  ///< no row begins at a multiple of 16 bytes
  bool one_table = false;  ///< cosines and sines side by side
  bool beyond = false;     ///< numbers in device memory that name rows which are not there
  /// Above 0: the one piece, or page, of the cache that is there. Its offset needs 64 bits.
  int only_piece = 0;
};

/// The batch stride of the cache of such a case, in elements.
inline constexpr std::int64_t kFar = std::int64_t{1} << 30;

inline std::vector<AppendCase> append_cases() {
  constexpr RotaryLayout kInterleaved = RotaryLayout::kInterleaved;
  return {
      {.name = "a part of each row is rotated"},
      {.name = "interleaved", .page_size = 7, .layout = kInterleaved, .leftpad = true},
      {.name = "all of each row", .page_size = 1, .dims = 32, .indices = true, .one_table = true},
      {.name = "a part that is no vectors", .page_size = 64, .dims = 8, .layout = kInterleaved},
      {.name = "odd dimensions", .dim = 31, .dim_v = 7, .dims = 10, .unaligned = true},
      {.name = "rows that end in half an item", .dim = 40, .dim_v = 24, .layout = kInterleaved},
      {.name = "one row each, in place", .q_len = 1, .in_place = true},
      {.name = "the cache is full", .batch = 24, .page_size = 7, .beyond = true},
      {.name = "everything at once",
       .batch = 36,
       .page_size = 7,
       .layout = kInterleaved,
       .leftpad = true,
       .indices = true,
       .seqlens = true,
       .in_place = true,
       .beyond = true},
      {.name = "no queries", .q_heads = 0},
      {.name = "many heads", .q_heads = 20, .kv_heads = 5, .dim = 64, .dim_v = 64},
      {.name = "many sequences", .batch = 70, .q_len = 3, .kv_len = 9, .page_size = 7},
      {.name = "pieces far apart", .batch = 1, .kv_len = 16, .indices = true, .only_piece = 5},
      {.name = "a long sequence", .batch = 2, .q_len = 90, .kv_len = 100, .seqlens = true},
  };
}

/// What an element of an output has to be.
struct ExpectedElement {
  enum { kUnchanged, kCopied, kRotated } kind = kUnchanged;
  std::size_t from = 0;         ///< kCopied: the element of the new rows
  double exact = 0, slack = 0;  ///< kRotated
};

/// The element type of the tables of a rotary embedding.
template <class R>
struct TableOf {
  using type = float;
};
template <class Table>
struct TableOf<attile::Rotary<Table>> {
  using type = Table;
};

/// The memory of a case on the host, and what it has to be afterwards. The new rows of Q, K and V
/// are one buffer (row, all heads of Q, of K, of V), and the caches of K and V another one. What
/// belongs to no row is NaN.
template <class T, class S, class R>
class AppendProblem {
 public:
  using Args = attile::AppendArgs<T, S, R>;
  using Table = typename TableOf<R>::type;
  static constexpr bool kPackedQueries = S::kPackedQueries;
  static constexpr bool kPaged = attile::kIsPaged<S>;
  static constexpr bool kRotates = R::kEnabled;

  explicit AppendProblem(const AppendCase& the_case) : c(the_case) {
    if (!kRotates) c.q_heads = 0;
    make_lengths();
    if constexpr (kPaged) make_pages();
    q_rows = kPackedQueries ? offsets.back() + 3 : c.batch * c.q_len;
    const int pieces = kPaged ? pages : lines;
    cache_rows = (is_far() ? 1 : pieces) * (kPaged ? c.page_size : c.kv_len);
    new_rows.assign(first() + std::int64_t{q_rows} * new_stride(), poison<T>());
    cache.assign(first() + std::int64_t{cache_rows} * cache_stride(), poison<T>());
    q_out.assign(first() + std::int64_t{q_rows} * q_out_stride(), poison<T>());
    if constexpr (kRotates) make_tables();
    expected_cache.resize(cache.size());
    sequence_of.assign(cache.size(), -1);
    expected_q.resize(q_to().size());
    fill_and_expect();
    source = new_rows, cache_before = cache, q_before = q_to();
  }

  /// All memory that a call may access.
  std::vector<Region> regions() {
    std::vector<Region> all;
    const auto add = [&](auto& x) { all.push_back({x.data(), x.size() * sizeof(x[0])}); };
    add(lengths), add(offsets), add(seqused), add(leftpad), add(indices), add(seqlens);
    add(page_table), add(new_rows), add(cache), add(q_out), add(tables), add(dropped);
    return all;
  }
  /// The arguments; `at(pointer)` is where host memory lies for the executor.
  template <class At>
  Args args(const At& at) {
    const int rows = kPackedQueries ? 0 : c.q_len;
    const auto of_new = [&](std::int64_t column, int dim) {
      return attile::Tensor<const T>{at(new_rows.data()) + first() + column, rows * new_stride(),
                                     dim, new_stride()};
    };
    const std::int64_t piece = (kPaged ? c.page_size : c.kv_len) * cache_stride();
    const auto of_cache = [&](std::int64_t column, int dim) {
      const auto there = reinterpret_cast<std::uintptr_t>(at(cache.data()) + first() + column);
      const auto before = static_cast<std::uintptr_t>(c.only_piece * kFar) * sizeof(T);
      return attile::Tensor<T>{reinterpret_cast<T*>(there - before), is_far() ? kFar : piece, dim,
                               cache_stride()};
    };
    const std::int64_t q_columns = std::int64_t{c.q_heads} * c.dim;
    const std::int64_t k_columns = std::int64_t{c.kv_heads} * c.dim;
    Args a{};
    a.k_new = of_new(q_columns, c.dim);
    a.v_new = of_new(q_columns + k_columns, c.dim_v);
    a.k = of_cache(0, c.dim);
    a.v = of_cache(k_columns, c.dim_v);
    if (c.q_heads > 0) {
      a.q = of_new(0, c.dim);
      a.q_out = {at(q_to().data()) + first(), rows * q_to_stride(), c.dim, q_to_stride()};
    }
    a.dropped = at(dropped.data());
    a.batch = c.batch, a.kv_heads = c.kv_heads, a.q_len = c.q_len, a.kv_len = c.kv_len;
    if (c.q_heads > 0) a.q_heads = c.q_heads;
    a.head_dim = c.dim, a.head_dim_v = c.dim_v;
    if constexpr (kRotates) {
      a.rotary.cos = at(tables.data()) + first();
      a.rotary.sin = a.rotary.cos + sine();
      a.rotary.rows = table_rows, a.rotary.dims = c.dims;
      a.rotary.layout = c.layout;
      if (c.seqlens) a.rotary.seqlens = at(seqlens.data());
      if (c.one_table) a.rotary.row_stride = table_stride();
    }
    if constexpr (kPackedQueries) {
      a.sequences.queries = {at(offsets.data()), q_rows};
    } else {
      a.sequences.queries = {at(lengths.data())};
    }
    a.sequences.seqused_k = at(seqused.data());
    if (c.indices) a.sequences.cache_batch_idx = at(indices.data());
    if (c.leftpad) a.sequences.leftpad_k = at(leftpad.data());
    if constexpr (kPaged) {
      a.sequences.page_table = at(page_table.data()), a.sequences.pages = pages;
      a.sequences.pages_per_sequence = entries, a.sequences.page_size = c.page_size;
      a.sequences.table_stride = entries + 2;
      if (c.indices) a.sequences.tables = lines;
    } else if (c.indices) {
      a.sequences.caches = lines;
    }
    return a;
  }

  /// Whether another run of the case gave the same bits.
  bool has_results_of(const AppendProblem& other) const {
    const auto same = [](const std::vector<T>& a, const std::vector<T>& b) {
      return std::equal(a.begin(), a.end(), b.begin(), b.end(), same_bits<T>);
    };
    return same(cache, other.cache) && same(q_to(), other.q_to());
  }

  /// Makes lengths, and offsets of packed rows, anything. Sequences still have caches of their own,
  /// so that without queries no two rows are written to one.
  void garble(std::uint64_t seed) {
    const Random random(seed);
    std::uint64_t drawn = 0;
    for (std::vector<int>* numbers : {&lengths, &offsets, &seqused, &leftpad}) {
      for (int& x : *numbers) {
        const int any[] = {-1, INT_MIN, INT_MAX, 1 << 24, q_rows, q_rows / 2};
        if (random.uniform(drawn++) < 0.3) x = any[static_cast<int>(random.uniform(drawn++) * 6)];
      }
    }
  }

  /// Holds the outputs against what they have to be.
  void check() const {
    CHECK(dropped[0] == expected_dropped);
    CHECK(wrong(cache_before, cache, expected_cache) == 0);
    CHECK(wrong(q_before, q_to(), expected_q) == 0);
    CHECK(rows_written > 0);
    CHECK((expected_dropped > 1000) == c.beyond);
  }

 protected:
  std::vector<T>& q_to() { return c.in_place ? new_rows : q_out; }
  const std::vector<T>& q_to() const { return c.in_place ? new_rows : q_out; }
  bool is_far() const { return c.only_piece > 0; }
  int first() const { return c.unaligned ? 1 : 0; }
  std::int64_t odd() const { return c.unaligned ? 1 : 16; }
  std::int64_t new_stride() const {
    return std::int64_t{c.q_heads + c.kv_heads} * c.dim + c.kv_heads * c.dim_v + odd();
  }
  std::int64_t cache_stride() const { return std::int64_t{c.kv_heads} * (c.dim + c.dim_v) + odd(); }
  std::int64_t q_out_stride() const { return std::int64_t{c.q_heads} * c.dim + odd(); }
  std::int64_t q_to_stride() const { return c.in_place ? new_stride() : q_out_stride(); }
  std::int64_t table_stride() const { return c.one_table ? c.dims : c.dims / 2; }
  std::int64_t sine() const { return c.one_table ? c.dims / 2 : table_rows * table_stride(); }

  void make_lengths() {
    const Random random(7);
    lines = is_far() && !kPaged ? c.only_piece + 1 : c.indices ? c.batch + 2 : c.batch;
    for (int b = 0; b < c.batch; ++b) {
      const int some[] = {c.q_len, 1, 0, c.q_len / 2};
      const int rows = c.q_len == 1 ? int{b != 1} : some[b % 4];
      lengths.push_back(rows);
      offsets.push_back(offsets.back() + rows);
      const int pad = c.leftpad ? static_cast<int>(random.uniform(b) * 4) : 0;
      const int least = pad + rows;
      const int used = least + static_cast<int>(random.uniform(100 + b) * (c.kv_len - least + 1));
      leftpad.push_back(pad);
      seqused.push_back(std::min(used, c.kv_len));
      indices.push_back(lines - 1 - b);
      seqlens.push_back(7 * b + 3);
    }
    if (!c.beyond) return;
    const int any[] = {c.kv_len + 1, INT_MAX, c.q_len - 1, INT_MIN, c.kv_len + 2, 0, c.kv_len};
    for (int b = 0; b < c.batch; ++b) {
      if (b % 3 != 1) seqused[b] = any[b / 2 % 7];
      if (b % 6 == 1) leftpad[b] = b % 12 == 1 ? INT_MAX : seqused[b] - 1;
      if (b % 12 == 4) leftpad[b] = INT_MIN;
      if (b % 8 == 7) indices[b] = b % 16 == 7 ? -1 : lines;
      if (b % 9 == 8) seqlens[b] = b % 18 == 8 ? -2 : INT_MAX;
    }
  }
  /// Pages in no order, of which the first and the last are nobody's. Beyond: lines that end before
  /// kv_len, and entries that name no page.
  void make_pages() {
    entries = c.beyond ? (c.kv_len - 4) / c.page_size : (c.kv_len - 1) / c.page_size + 1;
    const int stride = entries + 2;
    pages = lines * entries + 2;
    page_table.assign(std::size_t(lines) * stride, 0);
    for (int line = 0; line < lines; ++line) {
      for (int entry = 0; entry < stride; ++entry) {
        const int number = line * entries + entry;
        int& page = page_table[std::size_t(line) * stride + entry];
        page = entry < entries ? pages - 2 - number : 0;
        const int none[] = {-1, pages, INT_MAX, INT_MIN};
        if (c.beyond && number % 5 == 3) page = none[number % 4];
        if (is_far()) page = c.only_piece;
      }
    }
    if (is_far()) pages = c.only_piece + 1;
  }
  void make_tables() {
    table_rows = c.kv_len + (c.seqlens ? 7 * c.batch : 0);
    tables.resize(first() + 2 * std::size_t(table_rows) * (c.dims / 2));
    for (int t = 0; t < table_rows; ++t) {
      for (int p = 0; p < c.dims / 2; ++p) {
        const double angle = t * std::pow(10000.0, -2.0 * p / c.dims);
        const std::int64_t at = first() + t * table_stride() + p;
        tables[at] = attile::from_float<Table>(static_cast<float>(std::cos(angle)));
        tables[at + sine()] = attile::from_float<Table>(static_cast<float>(std::sin(angle)));
      }
    }
  }

  /// The row of the cache buffer of a position, or -1.
  std::int64_t row_of(int b, std::int64_t position) const {
    if (position < (c.leftpad ? std::max(leftpad[b], 0) : 0) || position >= c.kv_len) return -1;
    const int line = c.indices ? indices[b] : b;
    if (line < 0 || line >= lines) return -1;
    if (is_far()) return position;
    if (!kPaged) return std::int64_t{line} * c.kv_len + position;
    if (position / c.page_size >= entries) return -1;
    const int page = page_table[std::size_t(line) * (entries + 2) + position / c.page_size];
    if (page < 0 || page >= pages) return -1;
    return std::int64_t{page} * c.page_size + position % c.page_size;
  }

  void fill_and_expect() {
    const Random random(11);
    for (int b = 0; b < c.batch; ++b) {
      for (int i = 0; i < lengths[b]; ++i) {
        const std::int64_t row = kPackedQueries ? offsets[b] + i : std::int64_t{b} * c.q_len + i;
        const std::int64_t begin = first() + row * new_stride();
        for (std::int64_t x = 0; x < new_stride() - odd(); ++x) {
          new_rows[begin + x] = attile::from_float<T>(random.normal(begin + x));
        }
        const std::int64_t position = std::int64_t{seqused[b]} - lengths[b] + i;
        std::int64_t turned = position - (c.leftpad ? std::max(leftpad[b], 0) : 0);
        if (c.seqlens) turned = std::int64_t{seqlens[b]} + i;
        const bool has_angles = !kRotates || (0 <= turned && turned < table_rows);
        const std::int64_t to = has_angles ? row_of(b, position) : -1;
        expected_dropped += to < 0;
        rows_written += to >= 0;
        for (int h = 0; h < c.q_heads && has_angles; ++h) {
          expect_rotated(expected_q, first() + row * q_to_stride() + h * c.dim, begin + h * c.dim,
                         turned);
        }
        if (to < 0) continue;
        const std::int64_t k_from = begin + std::int64_t{c.q_heads} * c.dim;
        const std::int64_t k_to = first() + to * cache_stride();
        std::fill_n(sequence_of.begin() + k_to, cache_stride() - odd(), b);
        for (int h = 0; h < c.kv_heads; ++h) {
          expect_rotated(expected_cache, k_to + h * c.dim, k_from + h * c.dim, turned);
          for (int x = 0; x < c.dim_v; ++x) {
            const std::int64_t column = std::int64_t{c.kv_heads} * c.dim + h * c.dim_v + x;
            expected_cache[k_to + column] = {ExpectedElement::kCopied,
                                             static_cast<std::size_t>(k_from + column)};
          }
        }
      }
    }
  }
  /// A rounding to T, and three of fp32 in each of two products and their sum.
  void expect_rotated(std::vector<ExpectedElement>& expected, std::int64_t to, std::int64_t from,
                      std::int64_t position) const {
    for (int x = 0; x < c.dim; ++x) {
      expected[to + x] = {ExpectedElement::kCopied, static_cast<std::size_t>(from + x)};
    }
    if constexpr (kRotates) {
      constexpr double kUnit = sizeof(T) == 4              ? 0x1p-24
                               : std::is_same_v<T, __half> ? 0x1p-11
                                                           : 0x1p-8;
      constexpr double kLeast = std::is_same_v<T, __half> ? 0x1p-25 : 0;  // below normal numbers
      for (int p = 0; p < c.dims / 2; ++p) {
        const bool halves = c.layout == RotaryLayout::kHalves;
        const int at[2] = {halves ? p : 2 * p, halves ? p + c.dims / 2 : 2 * p + 1};
        const std::int64_t angle = first() + position * table_stride() + p;
        const double cos = attile::to_float(tables[angle]);
        const double sin = attile::to_float(tables[angle + sine()]);
        const double x = attile::to_float(new_rows[from + at[0]]);
        const double y = attile::to_float(new_rows[from + at[1]]);
        const double exact[2] = {x * cos - y * sin, x * sin + y * cos};
        const double terms[2] = {std::abs(x * cos) + std::abs(y * sin),
                                 std::abs(x * sin) + std::abs(y * cos)};
        for (int i = 0; i < 2; ++i) {
          expected[to + at[i]] = {ExpectedElement::kRotated, 0, exact[i],
                                  kUnit * std::abs(exact[i]) + 0x1p-22 * terms[i] + kLeast};
        }
      }
    }
  }

  /// How many elements of an output are not what they have to be.
  int wrong(const std::vector<T>& before, const std::vector<T>& after,
            const std::vector<ExpectedElement>& expected) const {
    int count = 0;
    for (std::size_t i = 0; i < after.size(); ++i) {
      const ExpectedElement& e = expected[i];
      if (e.kind == ExpectedElement::kRotated) {
        count += !(std::abs(attile::to_float(after[i]) - e.exact) <= e.slack);
      } else {
        const T& same = e.kind == ExpectedElement::kCopied ? source[e.from] : before[i];
        count += !same_bits(after[i], same);
      }
    }
    return count;
  }

  AppendCase c;
  std::vector<int> lengths, offsets{0}, seqused, leftpad, indices, seqlens, page_table;
  std::vector<int> dropped{1000};
  std::vector<T> new_rows, cache, q_out;
  std::vector<Table> tables;
  std::vector<T> source, cache_before, q_before;  ///< of the new rows, and of what is written
  std::vector<ExpectedElement> expected_cache, expected_q;
  std::vector<int> sequence_of;  ///< which writes an element of the cache; -1: none
  int lines = 0, pages = 0, entries = 0, q_rows = 0, cache_rows = 0, table_rows = 0;
  int expected_dropped = 1000, rows_written = 0;
};

/// Runs a case: `append(problem)` returns what went wrong, or "".
template <class T, class S, class R, class Append>
void check_append(const AppendCase& c, const Append& append) {
  INFO(c.name);
  AppendProblem<T, S, R> problem(c);
  REQUIRE(append(problem) == std::string());
  problem.check();
}

/// Runs every case with every kind of sequences.
template <class Append>
void check_all_appends(const Append& append) {
  using attile::NoRotary;
  using attile::Rotary;
  using Half = __half;
  using Bf16 = __nv_bfloat16;
  for (const AppendCase& c : append_cases()) {
    check_append<Half, attile::Cached, Rotary<>>(c, append);
    check_append<Half, attile::Paged, Rotary<>>(c, append);
    check_append<float, attile::CachedPacked, Rotary<>>(c, append);
    check_append<Bf16, attile::PagedPacked, Rotary<Bf16>>(c, append);
    check_append<Half, attile::PagedPacked, NoRotary>(c, append);
  }
}

/// Runs cases whose numbers in device memory are anything: the executor has nothing to say against
/// them, which would see an access out of bounds.
template <class Append>
void check_garbled_appends(const Append& append) {
  const AppendCase c{.name = "", .batch = 70, .q_heads = 0, .page_size = 7, .leftpad = true};
  for (std::uint64_t seed = 1; seed < 9; ++seed) {
    AppendProblem<float, attile::CachedPacked, attile::Rotary<>> pieces(c);
    AppendProblem<__half, attile::Paged, attile::Rotary<>> pages(c);
    AppendProblem<__nv_bfloat16, attile::PagedPacked, attile::Rotary<__nv_bfloat16>> packed(c);
    pieces.garble(seed), pages.garble(seed), packed.garble(seed);
    CHECK(append(pieces) == std::string());
    CHECK(append(pages) == std::string());
    CHECK(append(packed) == std::string());
  }
}

}  // namespace attile_test
