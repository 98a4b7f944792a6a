// SPDX-License-Identifier: MIT
#include <attile/core/fast_divmod.h>

#include <climits>
#include <cstdint>
#include <vector>

#include "support/catch.h"
#include "support/random.h"

namespace {

using attile::FastDivmod;

/// Whether a divisor divides the numbers around its multiples, and the largest ones, exactly.
bool divides(int divisor, const std::vector<int>& numbers) {
  const FastDivmod fast = divisor;
  const auto agrees = [&](std::int64_t n) {
    if (n < 0 || n > INT_MAX) return true;
    const int x = static_cast<int>(n);
    const auto [quotient, remainder] = fast.divmod(x);
    return quotient == x / divisor && remainder == x % divisor;
  };
  bool all = agrees(0) && agrees(INT_MAX) && agrees(INT_MAX - 1);
  const std::int64_t last = INT_MAX / divisor;
  for (const std::int64_t factor : {std::int64_t{1}, std::int64_t{2}, last / 2, last - 1, last}) {
    for (int offset = -1; offset <= 1; ++offset) all = all && agrees(factor * divisor + offset);
  }
  for (const int n : numbers) all = all && agrees(n);
  return all;
}

TEST_CASE("fast_divmod.divides_as_the_operators_do") {
  const attile_test::Random random(5);
  std::vector<int> numbers;
  for (int i = 0; i < 200; ++i) {
    numbers.push_back(static_cast<int>(random.uniform(i) * 2147483647.0) >> (i % 31));
  }
  for (int divisor = 1; divisor <= 5000; ++divisor) {
    INFO(divisor);
    REQUIRE(divides(divisor, numbers));
  }
  for (int bit = 1; bit < 31; ++bit) {
    for (int offset = -1; offset <= 1; ++offset) {
      const int divisor = (1 << bit) + offset;
      INFO(divisor);
      REQUIRE(divides(divisor, numbers));
    }
  }
  for (const int divisor : numbers) {
    INFO(divisor);
    if (divisor > 0) REQUIRE(divides(divisor, numbers));
  }
  REQUIRE(divides(INT_MAX, numbers));
  REQUIRE(divides(INT_MAX - 1, numbers));
}

TEST_CASE("fast_divmod.holds_any_int") {
  for (const int x : {INT_MIN, -1, 0, 1, 16, INT_MAX}) CHECK(int{FastDivmod(x)} == x);
}

}  // namespace
