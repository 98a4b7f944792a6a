// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>

#include <cstdint>

namespace attile {

/// Divides ints by a number that is known on the host: a multiplication and a shift, where a GPU
/// divides by some twenty instructions. It is made from that number, and converts back to it. A
/// number below 1 can be held and asked for, but not be divided by.
/// [T. Granlund, P. L. Montgomery: Division by Invariant Integers using Multiplication, PLDI 1994]
class FastDivmod {
 public:
  struct Result {
    int quotient, remainder;
  };

  /// Converts implicitly, so that a member of this type is written as an int.
  constexpr FastDivmod(int divisor) : divisor_(divisor) {
    if (divisor < 1) return;
    while ((std::int64_t{1} << shift_) < divisor) ++shift_;
    const std::int64_t above = (std::int64_t{1} << shift_) - divisor;  // below the divisor
    multiplier_ = static_cast<std::uint32_t>((above << 32) / divisor + 1);
  }

  ATTILE_HOST_DEVICE constexpr operator int() const { return divisor_; }

  /// Returns x / divisor and x % divisor, for 0 <= x.
  ATTILE_HOST_DEVICE constexpr Result divmod(int x) const {
    const auto n = static_cast<std::uint32_t>(x);
    // 2^32 + multiplier is the least integer above 2^(32 + shift) / divisor. The sum is below 2^32,
    // since n is below 2^31.
    const auto high = static_cast<std::uint32_t>(std::uint64_t{multiplier_} * n >> 32);
    const int quotient = static_cast<int>((high + n) >> shift_);
    return {quotient, x - quotient * divisor_};
  }

 private:
  int divisor_;
  std::uint32_t multiplier_ = 0;
  int shift_ = 0;
};

}  // namespace attile
