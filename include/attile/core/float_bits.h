// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>

#include <cstdint>
#include <cstring>

namespace attile {

/// Return the bits of an fp32 number, and the number with these bits.
ATTILE_HOST_DEVICE std::uint32_t word_of(float x) {
  std::uint32_t word;
  std::memcpy(&word, &x, sizeof word);
  return word;
}
ATTILE_HOST_DEVICE float float_of(std::uint32_t word) {
  float x;
  std::memcpy(&x, &word, sizeof x);
  return x;
}

}  // namespace attile
