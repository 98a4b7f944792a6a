// SPDX-License-Identifier: MIT
#include <attile/core/dropout.h>

#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

#include "support/catch.h"

namespace {

using namespace attile;

template <int kRounds>
PhiloxBlock philox(std::uint32_t c0, std::uint32_t c1, std::uint32_t c2, std::uint32_t c3,
                   std::uint32_t k0, std::uint32_t k1) {
  return philox4x32<kRounds>({{c0, c1, c2, c3}}, k0, k1);
}

bool equal(PhiloxBlock a, PhiloxBlock b) {
  for (int i = 0; i < 4; ++i) {
    if (a.word[i] != b.word[i]) return false;
  }
  return true;
}

/// The lines `philox4x32 7` and `philox4x32 10` of kat_vectors in Random123 1.14.
TEST_CASE("philox.known_answers") {
  constexpr std::uint32_t f = 0xffffffff;
  CHECK(equal(philox<7>(0, 0, 0, 0, 0, 0), {{0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48}}));
  CHECK(equal(philox<7>(f, f, f, f, f, f), {{0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662}}));
  CHECK(equal(philox<7>(0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0),
              {{0x4dfccaba, 0x190a87f0, 0xc47362ba, 0xb6b5242a}}));
  CHECK(equal(philox<10>(0, 0, 0, 0, 0, 0), {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}));
  CHECK(equal(philox<10>(f, f, f, f, f, f), {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}));
  CHECK(equal(philox<10>(0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0),
              {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}));
  static_assert(philox4x32<7>({{0, 0, 0, 0}}, 0, 0).word[0] == 0x5f6fb709);
}

/// A call of which a column's and a row's parts are known is the same call.
TEST_CASE("philox.columns_and_rows") {
  std::uint32_t x = 1;
  const auto next = [&] { return x = x * 1664525u + 1013904223u; };
  for (int i = 0; i < 100; ++i) {
    const std::uint32_t c[4] = {next(), next(), next(), next()}, k0 = next(), k1 = next();
    const PhiloxColumn column = philox_column(c[0], c[2], c[3], k0, k1);
    const PhiloxRow row = philox_row(c[1], c[2], k0, k1);
    CHECK(equal(philox4x32<7>(column, row, k0, k1), philox<7>(c[0], c[1], c[2], c[3], k0, k1)));
    CHECK(equal(philox4x32<10>(column, row, k0, k1), philox<10>(c[0], c[1], c[2], c[3], k0, k1)));
  }
  const auto sampler = PhiloxDropout{.probability = 0.5f, .seed = 5, .offset = 7}.sampler(3);
  CHECK(equal(sampler.group(sampler.column(1, 2, 9), sampler.row(1, 2, 8)),
              sampler.group(1, 2, 8, 9)));
}

PhiloxDropout half(std::uint64_t seed = 5, std::uint64_t offset = 7) {
  return {0.5f, seed, offset, nullptr, nullptr};
}

constexpr double kSigmas = 5;  // one in 1.7 million by chance; seeds are fixed

/// The rate at which scores are kept has to be the rounded probability; the deviation of the mean
/// of n independent bits is sqrt(p (1 - p) / n).
TEST_CASE("dropout.keep_rate") {
  constexpr int kHeads = 4, kLength = 256;
  constexpr double n = double{kHeads} * kLength * kLength;
  for (const float probability : {0.0f, 0.001f, 0.1f, 0.3f, 0.5f, 0.9f, 0.999f, 0.9999f}) {
    const PhiloxDropout dropout{probability, 99, 3, nullptr, nullptr};
    const auto sampler = dropout.sampler(kHeads);
    int kept = 0;
    for (int h = 0; h < kHeads; ++h) {
      for (int i = 0; i < kLength; ++i) {
        for (int j = 0; j < kLength; ++j) kept += sampler.keep({0, h, i, j});
      }
    }
    const double p = std::round(probability * 65536.0) / 65536;
    INFO("probability " << probability << ", kept " << kept);
    CHECK(std::abs(kept / n - (1 - p)) <= kSigmas * std::sqrt(p * (1 - p) / n));
    CHECK(sampler.keep_scale() * (1 - p) == Approx(1.0).epsilon(1e-7));
  }
}

TEST_CASE("dropout.probability_is_rounded_to_16_bits") {
  const auto threshold = [](float p) {
    return PhiloxDropout{p, 0, 0, nullptr, nullptr}.threshold();
  };
  CHECK(threshold(0.0f) == 0);
  CHECK(threshold(0x1p-17f) == 1);
  CHECK(threshold(0x1p-18f) == 0);
  CHECK(threshold(0.3f) == 19661);
  CHECK(threshold(0.5f) == 32768);
  CHECK(threshold(1.0f - 0x1p-16f) == 65535);
  CHECK(threshold(1.0f) == 65536);
  // The largest probability that is taken: the next one, 1 - 2^-17, would be rounded to 1.
  constexpr float kLargest = 1.0f - 0x1p-17f - 0x1p-24f;
  CHECK(threshold(kLargest) == 65535);
  CHECK(threshold(1.0f - 0x1p-17f) == 65536);
  const auto fault = [](float p) { return PhiloxDropout{p, 0, 0, nullptr, nullptr}.fault(); };
  CHECK(fault(1.0f - 0x1p-16f) == nullptr);
  CHECK(fault(kLargest) == nullptr);
  CHECK(fault(1.0f - 0x1p-17f) != nullptr);
  CHECK(fault(-0x1p-149f) != nullptr);
  CHECK(PhiloxDropout{0.0f, 0, 0, nullptr, nullptr}.sampler(1).keep_scale() == 1.0f);
}

/// No two scores share their random bits: 64 decisions tell any two of them apart.
TEST_CASE("dropout.scores_are_independent") {
  constexpr int kHeads = 3, kLength = 33;
  std::set<std::uint64_t> signatures;
  for (int b = 0; b < 2; ++b) {
    for (int h = 0; h < kHeads; ++h) {
      for (int i = 0; i < kLength; ++i) {
        for (int j = 0; j < kLength; ++j) {
          std::uint64_t bits = 0;
          for (std::uint64_t seed = 0; seed < 64; ++seed) {
            bits = bits * 2 + half(seed).sampler(kHeads).keep({b, h, i, j});
          }
          signatures.insert(bits);
        }
      }
    }
  }
  CHECK(signatures.size() == 2u * kHeads * kLength * kLength);
}

/// Two independent halves agree about half of the time.
void check_independent(const PhiloxDropout& x, const PhiloxDropout& y, ScoreIndex shift) {
  constexpr int kLength = 256;
  constexpr double n = double{kLength} * kLength;
  int agree = 0;
  for (int i = 0; i < kLength; ++i) {
    for (int j = 0; j < kLength; ++j) {
      agree += x.sampler(4).keep({0, 0, i, j}) ==
               y.sampler(4).keep({shift.batch, shift.head, i + shift.row, j + shift.col});
    }
  }
  INFO("shift " << shift.batch << " " << shift.head << " " << shift.row << " " << shift.col);
  CHECK(std::abs(agree / n - 0.5) <= kSigmas * 0.5 / std::sqrt(n));
}

TEST_CASE("dropout.neighbours_heads_batches_seeds_and_offsets_differ") {
  for (const ScoreIndex shift : {ScoreIndex{0, 0, 0, 1},
                                 {0, 0, 1, 0},
                                 {0, 0, 8, 0},
                                 {0, 0, 0, 8},
                                 {0, 0, 8, 8},
                                 {0, 0, 16, 0},
                                 {0, 0, 0, 16},
                                 {0, 1, 0, 0},
                                 {1, 0, 0, 0}}) {
    check_independent(half(), half(), shift);
  }
  check_independent(half(5, 7), half(6, 7), {});
  check_independent(half(5, 7), half(5, 8), {});
  check_independent(half(5, 7), half(5 + (std::uint64_t{1} << 32), 7), {});
  check_independent(half(5, 7), half(5, 7 + (std::uint64_t{1} << 32)), {});
}

TEST_CASE("dropout.the_last_head_of_a_batch_is_not_the_first_of_the_next") {
  const auto sampler = half().sampler(3);
  int differ = 0;
  for (int j = 0; j < 64; ++j) differ += sampler.keep({0, 2, 0, j}) != sampler.keep({1, 0, 0, j});
  CHECK(differ > 0);
}

TEST_CASE("dropout.pointers_win") {
  const std::uint64_t seed = 1234, offset = 56;
  const PhiloxDropout by_value{0.5f, seed, offset, nullptr, nullptr};
  const PhiloxDropout by_pointer{0.5f, 1, 2, &seed, &offset};
  const PhiloxDropout seed_only{0.5f, 1, offset, &seed, nullptr};
  for (int i = 0; i < 40; ++i) {
    for (int j = 0; j < 40; ++j) {
      const ScoreIndex at{1, 2, i, j};
      const bool keep = by_value.sampler(4).keep(at);
      CHECK(by_pointer.sampler(4).keep(at) == keep);
      CHECK(seed_only.sampler(4).keep(at) == keep);
    }
  }
}

/// What a seed drops stays what it is, from version to version.
TEST_CASE("dropout.decisions_are_frozen") {
  const auto sampler = PhiloxDropout{0.25f, 2026, 11, nullptr, nullptr}.sampler(8);
  std::uint64_t bits = 0;
  for (int i = 0; i < 8; ++i) {
    for (int j = 0; j < 8; ++j) bits = bits * 2 + sampler.keep({1, 5, 5 * i + 1, 7 * j + 2});
  }
  CHECK(bits == 0xbaefb5ffbf7ef8e4u);
}

/// A kernel with the tensor cores' layout asks for groups: each score's bits are where GroupSampler
/// says, and a group's number is 8 or 4 higher 16 rows or columns on.
TEST_CASE("dropout.groups_decide_as_single_scores_do") {
  static_assert(GroupSampler<PhiloxDropout::Sampler> && !GroupSampler<NoDropout::Sampler>);
  const auto sampler = half().sampler(4);
  using Sampler = PhiloxDropout::Sampler;
  for (int row = 0; row < 48; ++row) {
    for (int col = 0; col < 48; ++col) {
      const PhiloxBlock random =
          sampler.group(1, 2, Sampler::row_group(row), sampler.col_group(col));
      const std::uint32_t word = random.word[row / 8 % 2 * 2 + col / 8 % 2];
      CHECK(sampler.keeps(col % 2 == 0 ? word << 16 : word) == sampler.keep({1, 2, row, col}));
      CHECK(Sampler::row_group(row + 16) == Sampler::row_group(row) + 8);
      CHECK(sampler.col_group(col + 16) == sampler.col_group(col) + 4);
    }
  }
}

/// A part of the keys has the decisions that it has among all of them.
TEST_CASE("dropout.first_col") {
  const PhiloxDropout all{.probability = 0.5f, .seed = 3, .offset = 4};
  for (const int first : {0, 16, 48, 1 << 20, (1 << 30) - 16}) {
    const attile::PartDropout part{all, first};
    CHECK(part.fault() == nullptr);
    const auto of_all = all.sampler(4);
    const auto of_part = part.sampler(4);
    for (int row = 0; row < 40; ++row) {
      for (int col = 0; col < 70; ++col) {
        CHECK(of_part.keep({1, 2, row, col}) == of_all.keep({1, 2, row, first + col}));
      }
    }
  }
}

TEST_CASE("dropout.none") {
  static_assert(!NoDropout::kEnabled && PhiloxDropout::kEnabled);
  static_assert(Dropout<NoDropout> && Dropout<PhiloxDropout> && !Dropout<int>);
  CHECK(NoDropout{}.sampler(3).keep({1, 2, 3, 4}));
  CHECK(NoDropout{}.sampler(3).keep_scale() == 1.0f);
}

}  // namespace
