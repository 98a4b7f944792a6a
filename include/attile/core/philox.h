// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>

#include <cstdint>

namespace attile {

/// Holds 128 random bits.
struct PhiloxBlock {
  std::uint32_t word[4];
};

/// Returns Philox4x32 of kRounds rounds (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as
/// easy as 1, 2, 3", SC 2011): a bijection of the counter, keyed by `key0` and `key1`. With 7
/// rounds or more it passes all tests of BigCrush (table 2 there).
template <int kRounds>
ATTILE_HOST_DEVICE constexpr PhiloxBlock philox4x32(PhiloxBlock counter, std::uint32_t key0,
                                                    std::uint32_t key1) {
  PhiloxBlock c = counter;
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53u} * c.word[0];
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57u} * c.word[2];
    c = {{static_cast<std::uint32_t>(product1 >> 32) ^ c.word[1] ^ key0,
          static_cast<std::uint32_t>(product1),
          static_cast<std::uint32_t>(product0 >> 32) ^ c.word[3] ^ key1,
          static_cast<std::uint32_t>(product0)}};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return c;
}

}  // namespace attile
