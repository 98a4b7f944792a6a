// SPDX-License-Identifier: MIT
#pragma once

#include <attile/attile.cuh>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "../../examples/support.cuh"
#include "support/catch.h"
#include "support/random.h"

// The bits of a packed sequence: they follow from its own rows and keys, and neither from the
// others in the pack, nor from its place there, nor from the bounds of the lengths.

namespace attile_test {

/// One sequence of a pack. Its numbers follow from `seed`, wherever it lies.
struct PackedSequence {
  int q_len, kv_len;
  int seed;
  float size = 1;  ///< of its Q, K and V
};

/// Sequences one behind another, each with `gap` rows of NaN behind it.
struct Pack {
  std::vector<PackedSequence> sequences;
  int gap = 0;
  int q_len = 0, kv_len = 0;  ///< the bounds
};

/// Calls the kernels that traits name.
template <class ForwardTraits, class BackwardTraits>
struct ByTraits {
  using ForwardArgs = typename ForwardTraits::Args;
  using BackwardArgs = typename BackwardTraits::Args;
  static constexpr int kD = ForwardTraits::kD;
  static constexpr attile::DqMode kDqMode = BackwardTraits::kDqMode;

  static cudaError_t forward(const ForwardArgs& args) {
    const example::DeviceArray<int> workspace(std::vector<int>(4, -1));
    return attile::forward<ForwardTraits>(workspace.get(), std::size_t{16}, args);
  }
  static cudaError_t backward(void* workspace, std::size_t& bytes, const BackwardArgs& args) {
    return attile::backward<BackwardTraits>(workspace, bytes, args);
  }
};

/// A forward and a backward pass with Packed sequences. Calls: see ByTraits.
template <class Calls>
class PackedRun {
  using T = typename Calls::ForwardArgs::ElementType;
  static constexpr int D = Calls::kD;

 public:
  PackedRun(const Pack& pack, int q_heads, int kv_heads)
      : pack_(pack), q_heads_(q_heads), kv_heads_(kv_heads) {
    for (const PackedSequence& s : pack.sequences) {
      cu_q_.push_back(cu_q_.back() + s.q_len + pack.gap);
      cu_k_.push_back(cu_k_.back() + s.kv_len + pack.gap);
      used_q_.push_back(s.q_len);
      used_k_.push_back(s.kv_len);
    }
  }

  /// All that a sequence gets, as numbers: O, LSE, and dQ (unless its sum has no order), dK, dV.
  std::vector<float> of_sequence(int number) const {
    const example::DeviceArray<int> cu_q(cu_q_), cu_k(cu_k_), used_q(used_q_), used_k(used_k_);
    const attile::Packed packed{cu_q.get(),   cu_k.get(),   cu_q_.back(),
                                cu_k_.back(), used_q.get(), used_k.get()};
    const Array q(filled(1, true)), k(filled(2, false)), v(filled(3, false)), dout(filled(4, true));
    const Array o(empty(true)), dq(empty(true)), dk(empty(false)), dv(empty(false));
    const std::size_t statistics = static_cast<std::size_t>(q_heads_) * cu_q_.back();
    const example::DeviceArray<float> lse(std::vector<float>(statistics, kNan));
    const auto describe = [&](auto& a) {
      a.q = rows<const T>(q, true);
      a.k = rows<const T>(k, false);
      a.v = rows<const T>(v, false);
      a.lse = lse.get();
      a.batch = static_cast<int>(pack_.sequences.size());
      a.q_heads = q_heads_;
      a.kv_heads = kv_heads_;
      a.q_len = pack_.q_len;
      a.kv_len = pack_.kv_len;
      a.head_dim = a.head_dim_v = D;
      a.sequences = packed;
    };
    typename Calls::ForwardArgs forward;
    describe(forward);
    forward.o = rows<T>(o, true);
    REQUIRE(Calls::forward(forward) == cudaSuccess);
    typename Calls::BackwardArgs backward;
    describe(backward);
    backward.o = rows<const T>(o, true);
    backward.dout = rows<const T>(dout, true);
    backward.dq = rows<T>(dq, true);
    backward.dk = rows<T>(dk, false);
    backward.dv = rows<T>(dv, false);
    std::size_t bytes = 0;
    REQUIRE(Calls::backward(nullptr, bytes, backward) == cudaSuccess);
    const example::DeviceArray<unsigned char> workspace(bytes);
    REQUIRE(Calls::backward(workspace.get(), bytes, backward) == cudaSuccess);
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);

    std::vector<float> bits;
    const auto add = [&](const Array& x, bool of_queries) {
      const auto values = x.download();
      const std::size_t row = static_cast<std::size_t>(of_queries ? q_heads_ : kv_heads_) * D;
      const std::size_t first = (of_queries ? cu_q_ : cu_k_)[number] * row;
      const std::size_t count = (of_queries ? used_q_ : used_k_)[number] * row;
      for (std::size_t i = 0; i < count; ++i) bits.push_back(attile::to_float(values[first + i]));
    };
    add(o, true);
    if (Calls::kDqMode != attile::DqMode::kAccumulate) add(dq, true);
    add(dk, false);
    add(dv, false);
    const auto of_rows = lse.download();
    for (int h = 0; h < q_heads_; ++h) {
      const auto first = of_rows.begin() + std::int64_t{h} * cu_q_.back() + cu_q_[number];
      bits.insert(bits.end(), first, first + used_q_[number]);
    }
    return bits;
  }

 private:
  using Array = example::DeviceArray<T>;
  static constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

  template <class X>
  attile::Tensor<X> rows(const Array& x, bool of_queries) const {
    return attile::bshd<X>(x.get(), {.rows = (of_queries ? cu_q_ : cu_k_).back(),
                                     .heads = of_queries ? q_heads_ : kv_heads_,
                                     .dim = D});
  }
  std::vector<T> empty(bool of_queries) const {
    const std::size_t rows = (of_queries ? cu_q_ : cu_k_).back();
    return std::vector<T>(rows * (of_queries ? q_heads_ : kv_heads_) * D,
                          attile::from_float<T>(kNan));
  }
  std::vector<T> filled(int tensor, bool of_queries) const {
    std::vector<T> values = empty(of_queries);
    const std::vector<int>& cu_seqlens = of_queries ? cu_q_ : cu_k_;
    const std::size_t row = static_cast<std::size_t>(of_queries ? q_heads_ : kv_heads_) * D;
    for (std::size_t b = 0; b < pack_.sequences.size(); ++b) {
      const PackedSequence& s = pack_.sequences[b];
      const Random random(static_cast<std::uint64_t>(16 * s.seed + tensor));
      const std::size_t count = (of_queries ? used_q_ : used_k_)[b] * row;
      for (std::size_t i = 0; i < count; ++i) {
        values[cu_seqlens[b] * row + i] = attile::from_float<T>(s.size * random.normal(i));
      }
    }
    return values;
  }

  Pack pack_;
  int q_heads_, kv_heads_;
  std::vector<int> cu_q_{0}, cu_k_{0}, used_q_, used_k_;
};

/// Checks that a sequence has the same bits alone and among others, at other places, beside large
/// numbers, and with bounds that are four times too large. Units    rows, keys: its lengths.
template <class Calls>
void check_packed_bits(int rows, int keys, int q_heads, int kv_heads) {
  const PackedSequence own{rows, keys, 1};
  const auto bits = [&](const Pack& pack, int number) {
    return PackedRun<Calls>(pack, q_heads, kv_heads).of_sequence(number);
  };
  const std::vector<float> alone = bits({{own}, 0, rows, keys}, 0);
  REQUIRE(!alone.empty());
  for (const float x : alone) REQUIRE(x == x);
  const Pack bounds{{own}, 0, 4 * rows, 4 * keys};
  CHECK(bits(bounds, 0) == alone);
  const Pack first{{own, {rows, keys, 2, 20.0f}}, 0, rows, keys};
  CHECK(bits(first, 0) == alone);
  const Pack middle{
      {{0, 3, 3}, {7, 0, 4}, {rows / 2, keys, 5, 20.0f}, own, {3, 2, 6, 20.0f}, {0, 0, 7}},
      1,
      2 * rows,
      3 * keys};
  CHECK(bits(middle, 3) == alone);
}

/// Checks that a sequence of one query has the same bits alone, and beside sequences whose queries
/// fill a part of a tile, or more than one. Others choose kernels and tiles by the rows of a batch
/// (vLLM's issue 51902, and pull request 169 of its flash-attention). Units    keys: the
/// sequence's.
template <class Calls>
void check_decode_bits(int keys, int q_heads, int kv_heads) {
  const PackedSequence own{1, keys, 1};
  const auto bits = [&](const Pack& pack, int number) {
    return PackedRun<Calls>(pack, q_heads, kv_heads).of_sequence(number);
  };
  const std::vector<float> alone = bits({{own}, 0, 1, keys}, 0);
  REQUIRE(!alone.empty());
  for (const float x : alone) REQUIRE(x == x);
  for (const int rows : {9, 10, 129}) {
    const PackedSequence other{rows, rows, 2};
    CHECK(bits({{own, other}, 0, rows, keys}, 0) == alone);
    CHECK(bits({{other, own}, 0, rows, keys}, 1) == alone);
  }
}

}  // namespace attile_test
