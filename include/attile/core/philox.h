// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>

#include <cstdint>

namespace attile {

/// Holds 128 random bits.
struct PhiloxBlock {
  std::uint32_t word[4];
};

namespace detail {

inline constexpr std::uint32_t kPhiloxFactor0 = 0xD2511F53u, kPhiloxFactor1 = 0xCD9E8D57u;
/// What a round's keys have more than those of the round before.
inline constexpr std::uint32_t kPhiloxWeyl0 = 0x9E3779B9u, kPhiloxWeyl1 = 0xBB67AE85u;

ATTILE_HOST_DEVICE constexpr std::uint64_t wide_product(std::uint32_t x, std::uint32_t y) {
  return std::uint64_t{x} * y;
}
ATTILE_HOST_DEVICE constexpr std::uint32_t upper_word(std::uint64_t x) {
  return static_cast<std::uint32_t>(x >> 32);
}
ATTILE_HOST_DEVICE constexpr std::uint32_t lower_word(std::uint64_t x) {
  return static_cast<std::uint32_t>(x);
}

/// Does rounds kFirst to kEnd - 1 of Philox4x32, counted from 0.
template <std::uint32_t kFirst, std::uint32_t kEnd>
ATTILE_HOST_DEVICE constexpr PhiloxBlock philox_rounds(PhiloxBlock c, std::uint32_t key0,
                                                       std::uint32_t key1) {
  key0 += kFirst * kPhiloxWeyl0;
  key1 += kFirst * kPhiloxWeyl1;
  for (std::uint32_t round = kFirst; round < kEnd; ++round) {
    const std::uint64_t product0 = wide_product(kPhiloxFactor0, c.word[0]);
    const std::uint64_t product1 = wide_product(kPhiloxFactor1, c.word[2]);
    c = {{upper_word(product1) ^ c.word[1] ^ key0, lower_word(product1),
          upper_word(product0) ^ c.word[3] ^ key1, lower_word(product0)}};
    key0 += kPhiloxWeyl0;
    key1 += kPhiloxWeyl1;
  }
  return c;
}

}  // namespace detail

/// Returns Philox4x32 of kRounds rounds (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as
/// easy as 1, 2, 3", SC 2011): a bijection of the counter, keyed by `key0` and `key1`. With 7
/// rounds or more it passes all tests of BigCrush (table 2 there).
template <int kRounds>
ATTILE_HOST_DEVICE constexpr PhiloxBlock philox4x32(PhiloxBlock counter, std::uint32_t key0,
                                                    std::uint32_t key1) {
  return detail::philox_rounds<0, kRounds>(counter, key0, key1);
}

/// Hold what the first three rounds have in common for counters with the same words 2 and 3: of
/// their six products five depend on word 0 alone, or on word 1 alone, and one on both. A column
/// has what depends on word 0, and a row what depends on word 1. A call of seven rounds that has
/// both does 9 products instead of 14.
struct alignas(16) PhiloxColumn {
  std::uint32_t word[4];
};
struct PhiloxRow {
  std::uint32_t word[2];
};
/// Return them. `word`: word 0 of the counter for a column, and word 1 for a row.
ATTILE_HOST_DEVICE constexpr PhiloxColumn philox_column(std::uint32_t word, std::uint32_t word2,
                                                        std::uint32_t word3, std::uint32_t key0,
                                                        std::uint32_t key1) {
  const std::uint64_t a = detail::wide_product(detail::kPhiloxFactor0, word);
  const std::uint64_t b =
      detail::wide_product(detail::kPhiloxFactor1, detail::upper_word(a) ^ word3 ^ key1);
  const std::uint64_t c = detail::wide_product(
      detail::kPhiloxFactor0,
      detail::upper_word(b) ^
          detail::lower_word(detail::wide_product(detail::kPhiloxFactor1, word2)) ^
          (key0 + detail::kPhiloxWeyl0));
  return {{detail::lower_word(a), detail::lower_word(b) ^ (key0 + 2 * detail::kPhiloxWeyl0),
           detail::upper_word(c) ^ (key1 + 2 * detail::kPhiloxWeyl1), detail::lower_word(c)}};
}
ATTILE_HOST_DEVICE constexpr PhiloxRow philox_row(std::uint32_t word, std::uint32_t word2,
                                                  std::uint32_t key0, std::uint32_t key1) {
  const std::uint64_t a = detail::wide_product(
      detail::kPhiloxFactor0,
      detail::upper_word(detail::wide_product(detail::kPhiloxFactor1, word2)) ^ word ^ key0);
  return {{detail::upper_word(a) ^ (key1 + detail::kPhiloxWeyl1), detail::lower_word(a)}};
}
/// Returns what philox4x32 does of a counter of which these are the parts.
template <int kRounds>
ATTILE_HOST_DEVICE constexpr PhiloxBlock philox4x32(const PhiloxColumn& column,
                                                    const PhiloxRow& row, std::uint32_t key0,
                                                    std::uint32_t key1) {
  const std::uint64_t product =
      detail::wide_product(detail::kPhiloxFactor1, row.word[0] ^ column.word[0]);
  const PhiloxBlock third{{detail::upper_word(product) ^ column.word[1],
                           detail::lower_word(product), column.word[2] ^ row.word[1],
                           column.word[3]}};
  return detail::philox_rounds<3, kRounds>(third, key0, key1);
}

}  // namespace attile
