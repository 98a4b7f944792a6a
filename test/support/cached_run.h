// SPDX-License-Identifier: MIT
#pragma once

#include <attile/attile.cuh>

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "../../examples/support.cuh"
#include "support/catch.h"
#include "support/random.h"

namespace attile_test {

/// One sequence of a batch. Its numbers follow from `seed`, wherever its rows and keys lie: a key's
/// from its number, and a row's from that of the key on its diagonal.
struct CachedSequence {
  int q_len, kv_len;
  int seed;
};

/// A batch of sequences whose keys lie in a cache, and what is not theirs is garbage: NaN in rows,
/// numbers of no page in the page table.
struct CachedBatch {
  std::vector<CachedSequence> sequences;
  int q_len, kv_len;  ///< the bounds
  int page_size = 0;  ///< of a paged cache
};

/// O and LSE of each sequence, as numbers.
using BySequence = std::vector<std::vector<float>>;

/// A batch in device memory, for calls with arguments of any of the policies of caches.
template <class Calls>
class CachedRun {
 public:
  using Args = typename Calls::Args;
  using T = typename Args::ElementType;
  using K = typename Args::Elements::K;
  using V = typename Args::Elements::V;
  static constexpr int D = Calls::kD;
  static constexpr bool kPaged = requires(typename Args::SequencesType s) { s.page_table; };
  static constexpr bool kPacked = Args::SequencesType::kPackedQueries;

  CachedRun(CachedBatch batch, int q_heads, int kv_heads)
      : batch_(std::move(batch)), places_(batch_), q_heads_(q_heads), kv_heads_(kv_heads) {
    fill();
  }

  /// The arguments; policies that hold something have to be set.
  Args args() const {
    const int lines = static_cast<int>(batch_.sequences.size());
    Args a{};
    const auto rows = [&](auto* data, int rows, int heads) {
      return attile::bshd(data, {.rows = rows, .heads = heads, .dim = D});
    };
    const int q_rows = kPacked ? places_.packed_rows : batch_.q_len;
    a.q = rows(static_cast<const T*>(q_.get()), q_rows, q_heads_);
    a.o = rows(o_.get(), q_rows, q_heads_);
    a.k = rows(static_cast<const K*>(k_.get()), places_.kv_rows, kv_heads_);
    a.v = rows(static_cast<const V*>(v_.get()), places_.kv_rows, kv_heads_);
    a.lse = lse_.get();
    a.batch = lines, a.q_heads = q_heads_, a.kv_heads = kv_heads_;
    a.q_len = batch_.q_len, a.kv_len = batch_.kv_len;
    a.head_dim = a.head_dim_v = D;
    auto& queries = a.sequences.queries;
    if constexpr (kPacked) {
      queries.cu_seqlens_q = cu_q_.get();
      queries.total_q = places_.packed_rows;
    }
    queries.seqused_q = used_q_.get();
    a.sequences.seqused_k = used_k_.get();
    if constexpr (kPaged) {
      a.sequences.page_table = table_.get();
      a.sequences.pages_per_sequence = places_.pages_per_sequence;
      a.sequences.pages = places_.pages;
      a.sequences.page_size = batch_.page_size;
    }
    return a;
  }

  void clear_outputs() const {
    o_.upload(std::vector<T>(o_.size(), attile::from_float<T>(kNan)));
    lse_.upload(std::vector<float>(lse_.size(), kNan));
  }

  /// What the sequences got, all of which has been written.
  BySequence by_sequence() const {
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    const std::vector<T> o = o_.download();
    const std::vector<float> lse = lse_.download();
    BySequence found(batch_.sequences.size());
    for (std::size_t b = 0; b < found.size(); ++b) {
      const std::size_t first_row = q_row(static_cast<int>(b));
      const std::size_t first_lse =
          kPacked ? first_row : b * q_heads_ * static_cast<std::size_t>(batch_.q_len);
      const std::size_t rows_of_head = kPacked ? places_.packed_rows : batch_.q_len;
      for (int i = 0; i < batch_.sequences[b].q_len; ++i) {
        for (int x = 0; x < q_heads_ * D; ++x) {
          found[b].push_back(attile::to_float(o[(first_row + i) * q_heads_ * D + x]));
        }
        for (int h = 0; h < q_heads_; ++h) {
          found[b].push_back(lse[first_lse + h * rows_of_head + i]);
        }
      }
      REQUIRE(std::none_of(found[b].begin(), found[b].end(), [](float x) { return x != x; }));
    }
    return found;
  }

 private:
  static constexpr int kMostRowsBefore = 512;
  static constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

  /// Where rows and keys lie.
  struct Places {
    std::vector<int> cu_q{0}, used_q, used_k, table;
    int packed_rows = 0, kv_rows = 0, pages_per_sequence = 0, pages = 0;
    std::size_t q_rows = 0, all_kv_rows = 0;

    explicit Places(const CachedBatch& batch) {
      constexpr int kGap = 2;
      for (const CachedSequence& s : batch.sequences) {
        cu_q.push_back(cu_q.back() + s.q_len + kGap);
        used_q.push_back(s.q_len);
        used_k.push_back(s.kv_len);
      }
      const std::size_t lines = batch.sequences.size();
      packed_rows = cu_q.back();
      q_rows = kPacked ? packed_rows : lines * batch.q_len;
      kv_rows = kPaged ? batch.page_size : batch.kv_len;
      if (kPaged) make_table(batch);
      all_kv_rows = (kPaged ? pages : lines) * kv_rows;
    }

   private:
    void make_table(const CachedBatch& batch) {
      pages_per_sequence = attile::ceil_div(batch.kv_len, batch.page_size) + 1;
      int count = 0;
      for (const CachedSequence& s : batch.sequences) {
        count += attile::ceil_div(s.kv_len, batch.page_size);
      }
      pages = count + 2;  // the first and the last one are nobody's: garbage is clipped to them
      std::vector<int> order(count);
      std::iota(order.begin(), order.end(), 1);
      const Random random(static_cast<std::uint64_t>(count));
      for (int i = count - 1; i > 0; --i) {
        std::swap(order[i], order[static_cast<int>(random.uniform(i) * i)]);
      }
      constexpr int kGarbage[] = {-1, INT_MAX, INT_MIN, 1 << 30};
      table.resize(batch.sequences.size() * pages_per_sequence);
      for (std::size_t i = 0; i < table.size(); ++i) table[i] = kGarbage[i % 4];
      int next = 0;
      for (std::size_t b = 0; b < batch.sequences.size(); ++b) {
        const int used = attile::ceil_div(batch.sequences[b].kv_len, batch.page_size);
        for (int i = 0; i < used; ++i) table[b * pages_per_sequence + i] = order[next++];
      }
    }
  };

  std::size_t q_row(int number) const {
    return kPacked ? places_.cu_q[number] : std::size_t(number) * batch_.q_len;
  }
  std::size_t kv_row(int number, int key) const {
    if (!kPaged) return std::size_t(number) * batch_.kv_len + key;
    const int entry = number * places_.pages_per_sequence + key / batch_.page_size;
    return std::size_t(places_.table[entry]) * batch_.page_size + key % batch_.page_size;
  }

  /// At least so many numbers that follow from a seed; a thousand batches of the same sequences ask
  /// for them again and again.
  template <class X>
  static const std::vector<X>& numbers_of(int seed, std::size_t count) {
    static std::map<int, std::vector<X>> known;
    std::vector<X>& numbers = known[seed];
    const Random random(static_cast<std::uint64_t>(seed));
    numbers.reserve(count);
    while (numbers.size() < count) {
      numbers.push_back(attile::from_float<X>(random.normal(numbers.size())));
    }
    return numbers;
  }

  void fill() const {
    const auto upload = [&]<class X>(const example::DeviceArray<X>& to, int tensor, int heads,
                                     bool of_queries) {
      std::vector<X> values(to.size(), attile::from_float<X>(kNan));
      for (int b = 0; b < static_cast<int>(batch_.sequences.size()); ++b) {
        const CachedSequence& s = batch_.sequences[b];
        const std::size_t size = std::size_t(heads) * D;
        // Rows of queries may begin before the first key.
        const int first = of_queries ? kMostRowsBefore + s.kv_len - s.q_len : 0;
        const int count = of_queries ? s.q_len : s.kv_len;
        REQUIRE(first >= 0);
        const std::vector<X>& numbers = numbers_of<X>(16 * s.seed + tensor, (first + count) * size);
        for (int i = 0; i < count; ++i) {
          const std::size_t row = of_queries ? q_row(b) + i : kv_row(b, i);
          const std::size_t at = first + i;
          std::copy_n(numbers.begin() + at * size, size, values.begin() + row * size);
        }
      }
      to.upload(values);
    };
    upload(q_, 1, q_heads_, true);
    upload(k_, 2, kv_heads_, false);
    upload(v_, 3, kv_heads_, false);
    clear_outputs();
  }

  template <class X>
  static std::vector<X> at_least_one(std::vector<X> values) {
    if (values.empty()) values.push_back({});
    return values;
  }

  CachedBatch batch_;
  Places places_;
  int q_heads_, kv_heads_;
  example::DeviceArray<T> q_{places_.q_rows * q_heads_ * D}, o_{places_.q_rows * q_heads_ * D};
  example::DeviceArray<K> k_{places_.all_kv_rows * kv_heads_ * D};
  example::DeviceArray<V> v_{places_.all_kv_rows * kv_heads_ * D};
  example::DeviceArray<float> lse_{places_.q_rows * q_heads_};
  example::DeviceArray<int> cu_q_{places_.cu_q}, used_q_{places_.used_q}, used_k_{places_.used_k},
      table_{at_least_one(places_.table)};
};

}  // namespace attile_test
