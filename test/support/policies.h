// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/args.h>
#include <attile/core/block_sparse.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "support/block_lists.h"
#include "support/cases.h"
#include "support/learned_factor.h"
#include "support/own_lengths.h"
#include "support/prepared.h"
#include "support/random.h"
#include "support/tensors.h"

namespace attile_test {

/// A user's mask without spans: row i sees column j unless period divides i + j.
struct Gaps {
  int period = 3;

  ATTILE_HOST_DEVICE bool visible(attile::ScoreIndex i, attile::Extent) const {
    return (i.row + i.col) % period != 0;
  }
};

/// A user's score modifier: s + 0.05 s^2 (1 + head).
struct Bend {
  template <class Real>
  ATTILE_HOST_DEVICE attile::ModifiedScore<Real> operator()(Real s, attile::ScoreIndex i,
                                                            attile::Extent) const {
    const Real a = Real(0.05) * Real(1 + i.head);
    return {s + a * s * s, Real(1) + Real(2) * a * s};
  }
};

/// The policies of a case.
template <class... Ps>
struct Combination {
  using type = attile::Policies<Ps...>;
};

namespace detail {

using attile::And;
using attile::Causal;
using attile::Document;
using attile::PhiloxDropout;
using SoftcapAlibi = attile::Then<attile::Softcap, attile::Alibi>;
template <bool kShares>
using FactorSoftcapBias =
    attile::Then<attile::Then<LearnedFactor<kShares>, attile::Softcap>, attile::LearnedBias<float>>;

template <Policy>
struct CombinationOf;
template <>
struct CombinationOf<Policy::kNone> : Combination<> {};
template <>
struct CombinationOf<Policy::kCausal> : Combination<Causal> {};
template <>
struct CombinationOf<Policy::kCausalTopLeft> : Combination<attile::CausalTopLeft> {};
template <>
struct CombinationOf<Policy::kWindow> : Combination<attile::SlidingWindow> {};
template <>
struct CombinationOf<Policy::kPrefix> : Combination<attile::Prefix> {};
template <>
struct CombinationOf<Policy::kDocument> : Combination<Document> {};
template <>
struct CombinationOf<Policy::kCausalDocument> : Combination<And<Causal, Document>> {};
template <>
struct CombinationOf<Policy::kWindowPrefix>
    : Combination<And<attile::SlidingWindow, attile::Prefix>> {};
template <>
struct CombinationOf<Policy::kKeyPadding> : Combination<attile::KeyPadding> {};
template <>
struct CombinationOf<Policy::kCausalKeyPadding> : Combination<And<Causal, attile::KeyPadding>> {};
template <>
struct CombinationOf<Policy::kSortedDocument> : Combination<attile::SortedDocument> {};
template <>
struct CombinationOf<Policy::kCausalSortedDocument>
    : Combination<And<Causal, attile::SortedDocument>> {};
template <>
struct CombinationOf<Policy::kRowIntervals> : Combination<attile::RowIntervals> {};
template <>
struct CombinationOf<Policy::kCausalRowIntervals> : Combination<And<Causal, attile::RowIntervals>> {
};
/// Two masks of intervals, asked about each score because of the modifier.
template <>
struct CombinationOf<Policy::kPreparedAlibi>
    : Combination<And<attile::SortedDocument, attile::KeyPadding>, attile::Alibi, PhiloxDropout> {};
template <>
struct CombinationOf<Policy::kAlibi> : Combination<Causal, attile::Alibi> {};
template <>
struct CombinationOf<Policy::kFullAlibi> : Combination<attile::Alibi> {};
template <>
struct CombinationOf<Policy::kSoftcap> : Combination<attile::Softcap> {};
template <>
struct CombinationOf<Policy::kBias> : Combination<attile::AdditiveBias<float>> {};
template <>
struct CombinationOf<Policy::kHalfBias> : Combination<Causal, attile::AdditiveBias<__half>> {};
template <>
struct CombinationOf<Policy::kSoftcapAlibi> : Combination<Causal, SoftcapAlibi> {};
template <>
struct CombinationOf<Policy::kSoftcapBias>
    : Combination<Causal, attile::Then<attile::Softcap, attile::AdditiveBias<__half>>> {};
template <>
struct CombinationOf<Policy::kDropout> : Combination<PhiloxDropout> {};
template <>
struct CombinationOf<Policy::kCausalDropout> : Combination<Causal, PhiloxDropout> {};
template <>
struct CombinationOf<Policy::kHalfBiasDropout>
    : Combination<Causal, attile::AdditiveBias<__half>, PhiloxDropout> {};
template <>
struct CombinationOf<Policy::kUser> : Combination<Gaps, Bend> {};
template <>
struct CombinationOf<Policy::kEverything>
    : Combination<And<Causal, Document>, SoftcapAlibi, PhiloxDropout> {};
template <>
struct CombinationOf<Policy::kLearned> : Combination<Causal, FactorSoftcapBias<true>> {};
template <>
struct CombinationOf<Policy::kLearnedDropout>
    : Combination<Causal, FactorSoftcapBias<false>, PhiloxDropout> {};
template <>
struct CombinationOf<Policy::kLearnedBias> : Combination<Causal, attile::LearnedBias<float>> {};
template <>
struct CombinationOf<Policy::kLearnedBiasDropout>
    : Combination<attile::LearnedBias<float>, PhiloxDropout> {};
template <>
struct CombinationOf<Policy::kBlockSparse> : Combination<attile::BlockSparse<Causal, 128, 64>> {};
template <>
struct CombinationOf<Policy::kBlockSparseEverything>
    : Combination<attile::BlockSparse<Gaps>, SoftcapAlibi, PhiloxDropout> {};
template <>
struct CombinationOf<Policy::kOwnLengths> : Combination<OwnLengths> {};
template <>
struct CombinationOf<Policy::kPackedCausal> : Combination<Causal, attile::Packed> {};
template <>
struct CombinationOf<Policy::kPackedBias>
    : Combination<Causal, attile::AdditiveBias<__half>, attile::Packed> {};
template <>
struct CombinationOf<Policy::kPackedBatches> : Combination<Causal, attile::PackedBatches> {};
template <>
struct CombinationOf<Policy::kPaddedEverything>
    : Combination<Gaps, SoftcapAlibi, PhiloxDropout, attile::Padded> {};
template <>
struct CombinationOf<Policy::kSink> : Combination<Causal, attile::Sink<>> {};
template <>
struct CombinationOf<Policy::kSinkEverything>
    : Combination<Gaps, SoftcapAlibi, PhiloxDropout, attile::Sink<__nv_bfloat16>> {};
template <>
struct CombinationOf<Policy::kOwnLengthsSink> : Combination<Causal, OwnLengths, attile::Sink<>> {};
template <>
struct CombinationOf<Policy::kCachedCausal> : Combination<Causal, attile::Cached> {};
template <>
struct CombinationOf<Policy::kCachedPackedAlibi>
    : Combination<Causal, SoftcapAlibi, attile::CachedPacked> {};
template <>
struct CombinationOf<Policy::kPagedWindow>
    : Combination<attile::SlidingWindow, attile::Sink<>, attile::Paged> {};
template <>
struct CombinationOf<Policy::kPagedPackedEverything>
    : Combination<And<Causal, attile::KeyPadding>, SoftcapAlibi, PhiloxDropout,
                  attile::PagedPacked> {};
template <>
struct CombinationOf<Policy::kEarlier> : Combination<attile::EarlierKeys<float>> {};
template <>
struct CombinationOf<Policy::kEarlierEverything>
    : Combination<Gaps, SoftcapAlibi, attile::PartDropout, attile::Packed,
                  attile::EarlierKeys<__nv_bfloat16>> {};
template <>
struct CombinationOf<Policy::kEarlierPaged>
    : Combination<Causal, attile::Paged, attile::EarlierKeys<float>> {};

}  // namespace detail

template <Policy kPolicy>
using CombinationOf = typename detail::CombinationOf<kPolicy>::type;

/// The type of O of a forward pass.
template <attile::Element T, Policy kPolicy>
using OutputOf = std::conditional_t<has_fp32_output(kPolicy), float, T>;
template <attile::Element T, Policy kPolicy>
using ForwardArgsOf =
    attile::ForwardArgs<attile::Elements<T, T, T, OutputOf<T, kPolicy>>, CombinationOf<kPolicy>>;
template <attile::Element T, Policy kPolicy>
using BackwardArgsOf = attile::BackwardArgs<T, CombinationOf<kPolicy>>;

/// The arrays that a case's policies point to, and the policies.
class PolicyData {
 public:
  PackedRows q_rows, kv_rows;  ///< of sequences with lengths of their own

  explicit PolicyData(const Case& c)
      : q_rows(c, false),
        kv_rows(c, true),
        case_(c),
        blocks_(random_blocks(c)),
        bias_(bias_elements()),
        half_bias_(half_bias_elements()),
        gradients_(2 * gradient_elements()),
        sinks_(has_sinks(c.policy) ? c.q_heads : 0),
        half_sinks_(has_sinks(c.policy) ? c.q_heads : 0),
        dsinks_(has_sinks(c.policy) ? c.q_heads : 0) {
    for (int b = 0; b < c.batch; ++b) {
      for (int i = 0; i < c.q_len; ++i) q_ids_.push_back(document(b, i, c.q_len));
      for (int j = 0; j < c.kv_len; ++j) {
        const int id = document(b, j, c.kv_len);
        kv_ids_.push_back(c.hide && id == 1 ? -1 : id);
      }
      lengths_.push_back(c.prefix * (b + 1) / 2);
      const int paddings[] = {c.prefix, -3, c.kv_len + 5, 0, c.kv_len};
      key_lengths_.push_back(paddings[b % 5]);
    }
    if (uses_table(c.policy)) {
      document_table_ = host_table(DocumentRows(c.batch, c.q_len, c.kv_len, c.hide).source);
      interval_table_ =
          host_table(IntervalRows(c.batch, c.q_len, c.kv_len, c.prefix, c.pointers).source);
    }
    const int slopes = c.pointers ? c.batch * c.q_heads : c.q_heads;
    for (int i = 0; i < slopes; ++i) slopes_.push_back(0.5f / static_cast<float>(1 + i));
    for (int i = 0; i < c.q_heads; ++i) factors_.push_back(1 + 0.25f / static_cast<float>(1 + i));
    for (int h = 0; has_sinks(c.policy) && h < c.q_heads; ++h) {
      half_sinks_.data()[h] = attile::from_float<__nv_bfloat16>(sink_of(h));
      sinks_.data()[h] = sink_of(h);
    }
    const Random random(7);
    for (std::int64_t i = 0; i < bias_elements(); ++i) {
      const int row = static_cast<int>(i / c.kv_len % bias_rows());
      const bool hidden = c.hide && ((row == 3 && !c.distances) || random.uniform(i) < 0.25);
      bias_.data()[i] = hidden ? -attile::kInf : random.normal(i);
    }
    for (std::int64_t i = 0; i < half_bias_elements(); ++i) {
      if (!has_half_bias(i)) continue;  // gaps stay NaN
      const bool hidden = c.hide && random.uniform(i) < 0.25;
      half_bias_.data()[i] = attile::from_float<__half>(hidden ? -attile::kInf : random.normal(i));
    }
  }

  void operator()(attile::SlidingWindow& m) const { m = {case_.left, case_.right}; }
  void operator()(attile::Prefix& m) const {
    m = {case_.prefix, case_.pointers ? lengths_.data() : nullptr};
  }
  void operator()(attile::Document& m) const { m = {q_ids_.data(), kv_ids_.data()}; }
  void operator()(attile::KeyPadding& m) const { m = {key_lengths_.data()}; }
  void operator()(attile::SortedDocument& m) const { m = {document_table_.data()}; }
  void operator()(attile::RowIntervals& m) const { m = {interval_table_.data()}; }
  void operator()(attile::Alibi& s) const {
    s = {slopes_.data(), case_.pointers ? case_.q_heads : 0};
  }
  void operator()(attile::Softcap& s) const { s = {case_.cap}; }
  void operator()(attile::AdditiveBias<float>& s) const {
    if (case_.distances) {
      s = {bias_.data() + case_.q_len, 0, distances(), -1, 1};
      return;
    }
    const std::int64_t row = case_.hide ? case_.kv_len : 0;  // one row for all, or each its own
    s = {bias_.data(), 0, std::int64_t{bias_rows()} * case_.kv_len, row, 1};
  }
  void operator()(attile::AdditiveBias<__half>& s) const {
    if (case_.distances) {
      s = {half_bias_.data() + case_.q_len, 0, distances(), -1, 1};
      return;
    }
    const std::int64_t pitch = half_bias_pitch(), rows = bias_rows();
    s = {half_bias_.data(), case_.hide ? case_.q_heads * rows * pitch : 0, rows * pitch,
         case_.hide ? pitch : 0, 1};
  }
  void operator()(attile::LearnedBias<float>& s) const {
    (*this)(s.bias);
    s.gradient = gradient(0);
  }
  template <bool kShares>
  void operator()(LearnedFactor<kShares>& s) const {
    s = {factors_.data(), gradient(1)};
  }
  void operator()(attile::PartDropout& p) const {
    (*this)(static_cast<attile::PhiloxDropout&>(p));
    p.first_col = case_.first_col;
  }
  void operator()(attile::PhiloxDropout& p) const {
    p = {case_.probability, 1234567890123u, 42};
    if (case_.pointers) {
      p.seed = p.offset = 0;
      p.seed_pointer = &seed_and_offset_[0];
      p.offset_pointer = &seed_and_offset_[1];
    }
  }
  void operator()(Gaps& m) const { m = {case_.period}; }
  template <class M, int QBlock, int KvBlock>
  void operator()(attile::BlockSparse<M, QBlock, KvBlock>& m) const {
    (*this)(m.inner);
    blocks_.describe(m);
  }
  void operator()(OwnLengths& s) const {
    s = {q_rows.first.data(),   q_rows.length.data(), kv_rows.first.data(),
         kv_rows.length.data(), q_rows.rows,          kv_rows.rows};
  }
  void operator()(attile::Sink<float>& s) const { s = {sinks_.data(), dsinks_.data()}; }
  void operator()(attile::Sink<__nv_bfloat16>& s) const {
    s = {half_sinks_.data(), dsinks_.data()};
  }
  void operator()(attile::Padded& s) const { s = {q_rows.length.data(), kv_rows.length.data()}; }
  void operator()(attile::Packed& s) const {
    s = {q_rows.cu_seqlens.data(),
         kv_rows.cu_seqlens.data(),
         q_rows.rows,
         kv_rows.rows,
         nullptr,
         nullptr};
    if (case_.tight) return;
    s.seqused_q = q_rows.length.data();
    s.seqused_k = kv_rows.length.data();
  }
  void operator()(attile::PackedBatches& s) const {
    s = {q_rows.cu_seqlens.data(), q_rows.batches, q_rows.rows};
  }
  void operator()(attile::PaddedQueries& s) const { s = {q_rows.length.data()}; }
  void operator()(attile::PackedQueries& s) const {
    s = {q_rows.cu_seqlens.data(), q_rows.rows, case_.tight ? nullptr : q_rows.length.data()};
  }
  template <class Queries>
  void operator()(attile::CachedKeys<Queries>& s) const {
    (*this)(s.queries);
    const CacheData& cache = kv_rows.cache;
    s.seqused_k = cache.seqused.data();
    s.caches = cache.lines;
    s.cache_batch_idx = case_.pointers ? cache.cache_batch_idx.data() : nullptr;
    s.leftpad_k = case_.leftpad ? cache.leftpad.data() : nullptr;
  }
  template <class Queries>
  void operator()(attile::PagedKeys<Queries>& s) const {
    (*this)(s.queries);
    const CacheData& cache = kv_rows.cache;
    s.page_table = cache.page_table.data();
    s.table_stride = cache.table_stride;
    s.pages_per_sequence = cache.pages_per_sequence;
    s.page_size = cache.page_size;
    s.pages = cache.pages;
    s.seqused_k = cache.seqused.data();
    s.cache_batch_idx = case_.pointers ? cache.cache_batch_idx.data() : nullptr;
    s.tables = cache.lines;
    s.leftpad_k = case_.leftpad ? cache.leftpad.data() : nullptr;
  }
  template <class A, class B>
  void operator()(attile::And<A, B>& m) const {
    (*this)(m.first);
    (*this)(m.second);
  }
  template <class A, class B>
  void operator()(attile::Then<A, B>& s) const {
    (*this)(s.first);
    (*this)(s.second);
  }
  template <class Policy>
  void operator()(Policy&) const {}  // has no parameters

  std::vector<Region> regions() {
    std::vector<Region> all = {region(q_ids_),
                               region(kv_ids_),
                               region(lengths_),
                               region(slopes_),
                               bias_.region(),
                               {seed_and_offset_, sizeof(seed_and_offset_)},
                               gradients_.region(),
                               region(factors_),
                               region(q_rows.first),
                               region(q_rows.length),
                               region(kv_rows.first),
                               region(kv_rows.length),
                               region(q_rows.cu_seqlens),
                               region(kv_rows.cu_seqlens),
                               region(kv_rows.cache.seqused),
                               region(kv_rows.cache.leftpad),
                               region(kv_rows.cache.cache_batch_idx),
                               region(kv_rows.cache.page_table),
                               region(key_lengths_),
                               region(document_table_),
                               region(interval_table_)};
    all.push_back(half_bias_.region());
    all.push_back(sinks_.region());
    all.push_back(half_sinks_.region());
    all.push_back(dsinks_.region());
    for (std::vector<int>* list : blocks_.all()) all.push_back(region(*list));
    return all;
  }
  /// Of what is learned, with room between its elements.
  Buffer<float>& gradient_buffer() { return gradients_; }
  /// Of the sinks' gradient.
  Buffer<float>& dsinks() { return dsinks_; }

 private:
  static int document(int batch, int position, int length) {
    return static_cast<int>((std::int64_t{position} * (3 + batch) + batch) / length);
  }
  static bool uses_table(Policy p) {
    using enum Policy;
    return p == kSortedDocument || p == kCausalSortedDocument || p == kRowIntervals ||
           p == kCausalRowIntervals || p == kPreparedAlibi;
  }
  static BlockLists random_blocks(const Case& c) {
    if (!lists_blocks(c.policy)) return {};
    const int columns = c.policy == Policy::kBlockSparse ? 64 : 128;
    BlockLists lists{c.pointers ? c.batch : 1, c.pointers ? c.q_heads : 1,
                     attile::ceil_div(c.q_len, 128), attile::ceil_div(c.kv_len, columns)};
    const Random random(17);
    lists.fill([&](int batch, int head, int row, int col) {
      const int at = ((batch * c.q_heads + head) * lists.q_blocks + row) * lists.kv_blocks + col;
      if (c.hide && (row == 1 || col == 1)) return BlockLists::kNone;
      const double x = random.uniform(at);
      return x < 0.3 ? BlockLists::kNone : x < 0.7 ? BlockLists::kPartial : BlockLists::kFull;
    });
    return lists;
  }
  float sink_of(int head) const {
    const float normal = 1.5f + Random(23).normal(head);
    const float mixed[] = {normal, -attile::kInf, 30.0f, -30.0f};
    switch (case_.sinks) {
      case Sinks::kNormal:
        return normal;
      case Sinks::kMixed:
        return mixed[head % 4];
      case Sinks::kHigh:
        return 61.7f;
      case Sinks::kLarge:
        return 200.0f;
      case Sinks::kNone:
        return -attile::kInf;
    }
    return normal;
  }
  int bias_rows() const { return case_.hide ? case_.q_len : 1; }
  /// The elements that a head has of a bias of column - row, and gaps.
  std::int64_t distances() const { return case_.q_len + case_.kv_len + 3; }
  int half_bias_pitch() const {
    if (case_.distances) return static_cast<int>(distances());
    return case_.pointers ? case_.kv_len + 1 : attile::round_up(case_.kv_len, 8);
  }
  std::int64_t half_bias_elements() const {
    const bool has_bias = case_.policy == Policy::kHalfBias ||
                          case_.policy == Policy::kSoftcapBias ||
                          case_.policy == Policy::kPackedBias;
    if (!has_bias && case_.policy != Policy::kHalfBiasDropout) return 0;
    if (case_.distances) return case_.q_heads * distances();
    if (case_.policy == Policy::kPackedBias && case_.hide) return packed_bias_end();
    const std::int64_t batches = case_.hide ? case_.batch : 1;
    return batches * case_.q_heads * bias_rows() * half_bias_pitch();
  }
  /// The elements of a bias of the scores of packed sequences end with the last score that is
  /// there, and not with the bounds of lengths.
  std::int64_t packed_bias_end() const {
    std::int64_t end = 0;
    for (int b = 0; b < case_.batch; ++b) {
      if (q_rows.length[b] == 0 || kv_rows.length[b] == 0) continue;
      const std::int64_t last_head = std::int64_t{b} * case_.q_heads + case_.q_heads - 1;
      const std::int64_t row = last_head * bias_rows() + q_rows.length[b] - 1;
      end = row * half_bias_pitch() + kv_rows.length[b];
    }
    return end;
  }
  /// Whether the bias of 16 bits has such an element: those beyond a sequence's own rows and keys
  /// are not there.
  bool has_half_bias(std::int64_t i) const {
    if (case_.distances) return true;
    const std::int64_t col = i % half_bias_pitch(), row = i / half_bias_pitch();
    if (case_.policy != Policy::kPackedBias || !case_.hide) return col < case_.kv_len;
    const std::int64_t b = row / bias_rows() / case_.q_heads;
    return row % bias_rows() < q_rows.length[b] && col < kv_rows.length[b];
  }
  std::int64_t bias_elements() const {
    const bool has_bias = case_.policy == Policy::kBias || learns(case_.policy);
    if (!has_bias) return 0;
    if (case_.distances) return case_.q_heads * distances();
    return std::int64_t{case_.q_heads} * bias_rows() * case_.kv_len;
  }
  /// That of the bias lies before that of the factors.
  attile::BiasGradient gradient(int place) const {
    float* const data = gradients_.data() + place * gradient_elements();
    const std::int64_t row = 2 * case_.kv_len + 3, head = row * case_.q_len + 1;
    switch (case_.sums) {
      case Sums::kNone:
        return {data, head * case_.q_heads, head, row, 2};
      case Sums::kHeads:
        return {data, 0, 0, row, 2};
      case Sums::kRows:
        return {data, 0, row * case_.q_len, row, 0};
      case Sums::kColumns:
        return {data + 5, 0, 0, 0, 3};
      case Sums::kHeadColumns:
        return {data, head * case_.q_heads, head, 0, 1};
      case Sums::kDistances:
        return {data + case_.q_len, 0, case_.q_len + case_.kv_len + 2, -1, 1};
      case Sums::kWholeHeads:
        return {data, case_.q_heads + 1, 1, 0, 0};
    }
    return {};
  }
  std::int64_t gradient_elements() const {
    const std::int64_t batch_heads = std::int64_t{std::max(case_.batch, 1)} * case_.q_heads;
    const std::int64_t scores = batch_heads * case_.q_len * case_.kv_len;
    if (!learns(case_.policy)) return 0;
    return 2 * scores + 4 * (batch_heads + 1) * (case_.q_len + case_.kv_len + 2);
  }
  template <class T>
  static Region region(std::vector<T>& v) {
    return {v.data(), v.size() * sizeof(T)};
  }

  Case case_;
  BlockLists blocks_;
  std::vector<int> q_ids_, kv_ids_, lengths_, key_lengths_;
  Table document_table_, interval_table_;
  std::vector<float> slopes_, factors_;
  Buffer<float> bias_;
  Buffer<__half> half_bias_;
  // Policies point to the outputs, too, as to what they only read.
  mutable Buffer<float> gradients_;
  Buffer<float> sinks_;
  Buffer<__nv_bfloat16> half_sinks_;
  mutable Buffer<float> dsinks_;
  std::uint64_t seed_and_offset_[2] = {987654321, 0x700000005u};
};

/// Replaces every pointer in a problem's arguments by what `move` makes of it.
template <class Move>
struct Relocate {
  Move move;

  template <class T>
  void operator()(T*& pointer) const {
    if (pointer != nullptr) pointer = static_cast<T*>(move(pointer));
  }
  template <class T>
  void operator()(attile::Tensor<T>& t) const {
    (*this)(t.data);
  }
  void operator()(attile::Scales& s) const { (*this)(s.data); }
  void operator()(attile::NoScales&) const {}
  void operator()(attile::Prefix& m) const { (*this)(m.lengths); }
  void operator()(attile::Document& m) const {
    (*this)(m.q_ids);
    (*this)(m.kv_ids);
  }
  void operator()(attile::KeyPadding& m) const { (*this)(m.lengths); }
  void operator()(attile::SortedDocument& m) const { (*this)(m.table); }
  void operator()(attile::RowIntervals& m) const { (*this)(m.table); }
  template <class M, int QBlock, int KvBlock>
  void operator()(attile::BlockSparse<M, QBlock, KvBlock>& m) const {
    (*this)(m.inner);
    for (const int** list : lists_of(m)) (*this)(*list);
  }
  void operator()(attile::Alibi& s) const { (*this)(s.slopes); }
  template <class T>
  void operator()(attile::AdditiveBias<T>& s) const {
    (*this)(s.bias);
  }
  template <class T>
  void operator()(attile::LearnedBias<T>& s) const {
    (*this)(s.bias);
    (*this)(s.gradient.data);
  }
  template <bool kShares>
  void operator()(LearnedFactor<kShares>& s) const {
    (*this)(s.factors);
    (*this)(s.gradient.data);
  }
  void operator()(OwnLengths& s) const {
    (*this)(s.q_first);
    (*this)(s.q_len);
    (*this)(s.kv_first);
    (*this)(s.kv_len);
  }
  template <class T>
  void operator()(attile::Sink<T>& s) const {
    (*this)(s.sinks);
    (*this)(s.dsinks);
  }
  template <class T>
  void operator()(attile::EarlierKeys<T>& s) const {
    (*this)(s.o);
    (*this)(s.lse);
  }
  void operator()(attile::Padded& s) const {
    (*this)(s.seqused_q);
    (*this)(s.seqused_k);
  }
  void operator()(attile::Packed& s) const {
    (*this)(s.cu_seqlens_q);
    (*this)(s.cu_seqlens_k);
    (*this)(s.seqused_q);
    (*this)(s.seqused_k);
  }
  void operator()(attile::PackedBatches& s) const { (*this)(s.cu_seqlens); }
  void operator()(attile::PaddedQueries& s) const { (*this)(s.seqused_q); }
  void operator()(attile::PackedQueries& s) const {
    (*this)(s.cu_seqlens_q);
    (*this)(s.seqused_q);
  }
  template <class Queries>
  void operator()(attile::CachedKeys<Queries>& s) const {
    (*this)(s.queries);
    (*this)(s.seqused_k);
    (*this)(s.cache_batch_idx);
    (*this)(s.leftpad_k);
  }
  template <class Queries>
  void operator()(attile::PagedKeys<Queries>& s) const {
    (*this)(s.queries);
    (*this)(s.page_table);
    (*this)(s.seqused_k);
    (*this)(s.cache_batch_idx);
    (*this)(s.leftpad_k);
  }
  void operator()(attile::PartDropout& p) const { (*this)(static_cast<attile::PhiloxDropout&>(p)); }
  void operator()(attile::PhiloxDropout& p) const {
    (*this)(p.seed_pointer);
    (*this)(p.offset_pointer);
  }
  template <class A, class B>
  void operator()(attile::And<A, B>& m) const {
    (*this)(m.first);
    (*this)(m.second);
  }
  template <class A, class B>
  void operator()(attile::Then<A, B>& s) const {
    (*this)(s.first);
    (*this)(s.second);
  }
  template <class E, class P>
  void operator()(attile::Arguments<attile::Direction::kForward, E, P>& a) const {
    (*this)(a.q);
    (*this)(a.k);
    (*this)(a.v);
    (*this)(a.q_scale);
    (*this)(a.k_scale);
    (*this)(a.v_scale);
    (*this)(a.o);
    (*this)(a.lse);
    policies(a);
  }
  template <class E, class P>
  void operator()(attile::Arguments<attile::Direction::kBackward, E, P>& a) const {
    (*this)(a.q);
    (*this)(a.k);
    (*this)(a.v);
    (*this)(a.o);
    (*this)(a.lse);
    (*this)(a.dout);
    (*this)(a.dlse);
    (*this)(a.dq);
    (*this)(a.dk);
    (*this)(a.dv);
    policies(a);
  }
  template <class Policy>
  void operator()(Policy&) const {}  // holds no pointer

 private:
  template <class Args>
  void policies(Args& a) const {
    (*this)(a.mask);
    (*this)(a.score_mod);
    (*this)(a.dropout);
    (*this)(a.sequences);
    (*this)(a.sink);
  }
};

}  // namespace attile_test
