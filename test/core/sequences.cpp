// SPDX-License-Identifier: MIT
#include <attile/core/check.h>
#include <attile/core/packed.h>
#include <attile/core/packed_batches.h>

#include <climits>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/good_arguments.h"
#include "support/random.h"

namespace {

using attile::Extent;
using attile::Packed;
using attile::PackedBatches;
using attile::Padded;
using attile::RowOrigin;
using attile_test::SmallProblem;

TEST_CASE("sequences.may_read_early is not inherited") {
  struct ReadsMore : Padded {};
  struct SaysSo : Padded {
    constexpr bool may_read_early() const { return true; }
  };
  CHECK(attile::may_read_early(Padded{}));
  CHECK(attile::may_read_early(SaysSo{}));
  CHECK(!attile::may_read_early(ReadsMore{}));
  CHECK(!attile::may_read_early(Packed{}));
}

TEST_CASE("sequences.packed") {
  const std::vector<int> q{0, 9, 9, 17}, k{2, 12, 20, 20}, used_q{9, 0, 5}, used_k{7, 8, 0};
  Packed s{q.data(), k.data(), 20, 25};
  const Extent bounds{100, 100};
  CHECK(s.extent(0, bounds) == Extent{9, 10});
  CHECK(s.extent(1, bounds) == Extent{0, 8});
  CHECK(s.extent(2, bounds) == Extent{8, 0});
  CHECK(s.q_origin(2).batch == 0);
  CHECK(s.q_origin(2).row == 9);
  CHECK(s.kv_origin(1).row == 12);
  CHECK(s.q_shape(3, 100).batches == 1);
  CHECK(s.q_shape(3, 100).rows == 20);
  CHECK(s.kv_shape(3, 100).rows == 25);
  s.seqused_q = used_q.data();
  CHECK(s.extent(2, bounds) == Extent{5, 0});
  s.seqused_k = used_k.data();
  CHECK(s.extent(0, bounds) == Extent{9, 7});
  CHECK(s.extent(0, {4, 6}) == Extent{4, 6});  // a bound that is too small cuts
}

TEST_CASE("sequences.packed_clips_what_device_memory_says") {
  const attile_test::Random random(3);
  constexpr int kBatch = 50, kTotal = 40;
  constexpr Extent kBounds{30, 17};
  std::vector<int> numbers[4];
  for (int which = 0; which < 4; ++which) {
    for (int i = 0; i <= kBatch; ++i) {
      const int n = 1000 * which + i;
      const int small = static_cast<int>(random.uniform(n) * 70) - 15;
      numbers[which].push_back(n % 7 == 0 ? INT_MIN : n % 11 == 0 ? INT_MAX : small);
    }
  }
  Packed s{numbers[0].data(), numbers[1].data(), kTotal, kTotal};
  for (const bool used : {false, true}) {
    if (used) s.seqused_q = numbers[2].data(), s.seqused_k = numbers[3].data();
    int lengths = 0;
    for (int b = 0; b < kBatch; ++b) {
      const Extent e = s.extent(b, kBounds);
      lengths += e.q_len + e.kv_len;
      CHECK((0 <= e.q_len && e.q_len <= kBounds.q_len));
      CHECK((0 <= e.kv_len && e.kv_len <= kBounds.kv_len));
      CHECK(s.q_origin(b).row >= 0);
      CHECK(s.q_origin(b).row + e.q_len <= kTotal);
      CHECK(s.kv_origin(b).row >= 0);
      CHECK(s.kv_origin(b).row + e.kv_len <= kTotal);
    }
    CHECK(lengths > 0);
  }
}

TEST_CASE("sequences.packed_batches") {
  const std::vector<int> offsets{0, 4, 10, 10, 13, 20, 24, 24};
  const PackedBatches s{offsets.data(), 3, 10};
  const Extent bounds{100, 100};
  CHECK(s.extent(0, bounds) == Extent{4, 4});
  CHECK(s.extent(1, bounds) == Extent{6, 6});
  CHECK(s.extent(2, bounds) == Extent{0, 0});
  CHECK(s.extent(4, bounds) == Extent{7, 7});
  CHECK(s.extent(4, {3, 5}) == Extent{3, 5});  // bounds that are too small cut
  CHECK(s.q_origin(1) == RowOrigin{0, 4});
  CHECK(s.q_origin(3) == RowOrigin{1, 0});
  CHECK(s.kv_origin(4) == RowOrigin{1, 3});
  CHECK(s.kv_origin(5) == RowOrigin{2, 0});
  CHECK(s.q_shape(7, 100).batches == 3);
  CHECK(s.kv_shape(7, 100).rows == 10);
  for (int row = 0; row <= 30; ++row) CHECK(s.row_number(s.origin_of(row)) == row);
  CHECK(PackedBatches{offsets.data(), 0, 10}.extent(1, bounds) == Extent{0, 0});
  CHECK(PackedBatches{offsets.data(), 3, 0}.extent(1, bounds) == Extent{0, 0});
  CHECK(PackedBatches{offsets.data(), 3, 0}.q_origin(1) == RowOrigin{0, 0});
}

TEST_CASE("sequences.packed_batches_clip_what_device_memory_says") {
  const attile_test::Random random(5);
  constexpr int kBatch = 80, kBatches = 3, kRows = 17;
  constexpr Extent kBounds{15, 9};
  std::vector<int> offsets;
  for (int i = 0; i <= kBatch; ++i) {
    const int small = static_cast<int>(random.uniform(i) * 80) - 15;
    offsets.push_back(i % 7 == 0 ? INT_MIN : i % 11 == 0 ? INT_MAX : small);
  }
  const PackedBatches s{offsets.data(), kBatches, kRows};
  int lengths = 0;
  for (int b = 0; b < kBatch; ++b) {
    const Extent e = s.extent(b, kBounds);
    lengths += e.q_len;
    CHECK((0 <= e.q_len && e.q_len <= kBounds.q_len));
    CHECK(e.kv_len == attile::min(e.q_len, kBounds.kv_len));
    const attile::RowOrigin first = s.q_origin(b);
    CHECK((0 <= first.batch && 0 <= first.row && first.row + e.q_len <= kRows));
    CHECK((first.batch < kBatches || (first.row == 0 && e.q_len == 0)));
  }
  CHECK(lengths > 0);
}

TEST_CASE("sequences.padded") {
  const std::vector<int> used_q{3, -4, 90}, used_k{0, 7, 2};
  const Extent bounds{20, 6};
  CHECK(Padded{}.extent(1, bounds) == bounds);
  CHECK(Padded{used_q.data()}.extent(0, bounds) == Extent{3, 6});
  const Padded s{used_q.data(), used_k.data()};
  CHECK(s.extent(0, bounds) == Extent{3, 0});
  CHECK(s.extent(1, bounds) == Extent{0, 6});
  CHECK(s.extent(2, bounds) == Extent{20, 2});
  CHECK(s.q_origin(2).batch == 2);
  CHECK(s.q_origin(2).row == 0);
  CHECK(s.q_shape(3, 20).batches == 3);
  CHECK(s.kv_shape(3, 6).rows == 6);
}

/// The sentence for a small problem with these sequences; empty where it is taken.
template <class S>
std::string refusal(const S& sequences, int q_len = SmallProblem::kQLen,
                    int kv_len = SmallProblem::kKvLen, int batch = SmallProblem::kBatch) {
  SmallProblem problem;
  const auto sentence = [&](auto args) {
    problem.describe(args);
    args.sequences = sequences;
    args.q_len = q_len;
    args.kv_len = kv_len;
    args.batch = batch;
    return std::string(attile::check_arguments(args, 0, 0).why);
  };
  attile::ForwardArgs<float, S> forward{};
  forward.o = attile::bshd(problem.o,
                           {.rows = SmallProblem::kQLen, .heads = SmallProblem::kQHeads, .dim = 8});
  attile::BackwardArgs<float, S> backward{};
  backward.o = forward.o;
  backward.dout = attile::bshd<const float>(
      problem.dout,
      {.rows = SmallProblem::kQLen, .heads = SmallProblem::kQHeads, .dim = SmallProblem::kDim});
  backward.dq = attile::bshd(
      problem.dq, {.rows = SmallProblem::kQLen, .heads = SmallProblem::kQHeads, .dim = 8});
  backward.dk = attile::bshd(
      problem.dk, {.rows = SmallProblem::kKvLen, .heads = SmallProblem::kKvHeads, .dim = 8});
  backward.dv = attile::bshd(
      problem.dv, {.rows = SmallProblem::kKvLen, .heads = SmallProblem::kKvHeads, .dim = 8});
  const std::string why = sentence(forward);
  CHECK(sentence(backward) == why);
  return why;
}

TEST_CASE("sequences.check") {
  const int numbers[4] = {0, 3, 6, 6};
  const int* const odd = reinterpret_cast<const int*>(reinterpret_cast<const char*>(numbers) + 2);
  const Packed good{numbers, numbers, 6, 10};
  CHECK(refusal(good) == "");
  const auto with = [&](auto member, auto value) {
    Packed s = good;
    s.*member = value;
    return s;
  };
  const int* const null = nullptr;
  const auto no_q = with(&Packed::cu_seqlens_q, null), no_k = with(&Packed::cu_seqlens_k, null);
  CHECK(refusal(no_q) == "Packed: cu_seqlens_q is null");
  CHECK(refusal(no_k) == "Packed: cu_seqlens_k is null");
  // Kernels read the lengths where there are no keys, or no rows, too.
  CHECK(refusal(no_k, 3, 0) == "Packed: cu_seqlens_k is null");
  CHECK(refusal(no_q, 0, 5) == "Packed: cu_seqlens_q is null");
  CHECK(refusal(no_q, 0, 0) == "");
  CHECK(refusal(no_q, 3, 5, 0) == "");
  CHECK(refusal(with(&Packed::total_q, -1)) == "Packed: total_q is negative");
  CHECK(refusal(with(&Packed::total_k, -1)) == "Packed: total_k is negative");
  CHECK(refusal(with(&Packed::total_q, attile::kUnset)) == "Packed: total_q is not given");
  CHECK(refusal(with(&Packed::total_k, attile::kUnset)) == "Packed: total_k is not given");
  CHECK(refusal(Packed{numbers, numbers}) == "Packed: total_q is not given");
  CHECK(refusal(with(&Packed::total_k, attile::kUnset), 3, 5, 0) ==
        "sequences: the rows of a tensor are not given");
  CHECK(refusal(with(&Packed::total_q, 0)) == "");  // all sequences are empty
  CHECK(refusal(with(&Packed::total_k, 0)) == "");
  CHECK(refusal(with(&Packed::total_k, 0), 3, 0) == "");
  const std::string too_many = "sequences: a tensor must have at most 2^30 rows";
  CHECK(refusal(with(&Packed::total_q, (1 << 30) + 1)) == too_many);
  CHECK(refusal(with(&Packed::total_k, (1 << 30) + 1)) == too_many);
  const std::string tail = " is not aligned to 4 bytes";
  CHECK(refusal(with(&Packed::cu_seqlens_q, odd)) == "Packed: cu_seqlens_q" + tail);
  CHECK(refusal(with(&Packed::cu_seqlens_k, odd)) == "Packed: cu_seqlens_k" + tail);
  CHECK(refusal(with(&Packed::seqused_q, odd)) == "Packed: seqused_q" + tail);
  CHECK(refusal(with(&Packed::seqused_k, odd)) == "Packed: seqused_k" + tail);
  CHECK(refusal(PackedBatches{numbers, 2, 3}) == "");
  CHECK(refusal(PackedBatches{numbers, 0, 3}) == "");
  CHECK(refusal(PackedBatches{nullptr, 2, 3}) == "PackedBatches: cu_seqlens is null");
  CHECK(refusal(PackedBatches{odd, 2, 3}) == "PackedBatches: cu_seqlens" + tail);
  CHECK(refusal(PackedBatches{numbers}) == "PackedBatches: batches is not given");
  CHECK(refusal(PackedBatches{numbers, 2}) == "PackedBatches: rows is not given");
  CHECK(refusal(PackedBatches{numbers, -1, 3}) == "PackedBatches: batches is negative");
  CHECK(refusal(PackedBatches{numbers, 2, -1}) == "PackedBatches: rows is negative");
  CHECK(refusal(PackedBatches{numbers, (1 << 15) + 1, 1 << 15}) ==
        "PackedBatches: batches * rows must be at most 2^30");
  CHECK(refusal(Padded{}) == "");
  CHECK(refusal(Padded{numbers, numbers}) == "");
  CHECK(refusal(Padded{odd, nullptr}) == "Padded: seqused_q" + tail);
  CHECK(refusal(Padded{nullptr, odd}) == "Padded: seqused_k" + tail);
}

}  // namespace
