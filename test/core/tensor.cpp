// SPDX-License-Identifier: MIT
#include <attile/core/check.h>
#include <attile/core/math.h>
#include <attile/core/tensor.h>

#include <cstdint>
#include <set>
#include <type_traits>

#include "support/catch.h"

namespace {

using attile::Tensor;
using attile::detail::overlaps_itself;

TEST_CASE("tensor.dense_layouts") {
  float x[2 * 3 * 4 * 5];
  const Tensor<float> rows = attile::bshd(x, {.rows = 3, .heads = 4, .dim = 5});
  CHECK(rows.row(0, 0, 0) == x);
  CHECK(rows.row(1, 2, 1) == x + ((1 * 3 + 1) * 4 + 2) * 5);
  const Tensor<float> heads = attile::bhsd(x, {.rows = 3, .heads = 4, .dim = 5});
  CHECK(heads.row(1, 2, 1) == x + ((1 * 4 + 2) * 3 + 1) * 5);
  const Tensor<const float> read = heads;
  CHECK(read.row(1, 2, 1) == heads.row(1, 2, 1));
  static_assert(std::is_convertible_v<Tensor<float>, Tensor<const float>>);
  static_assert(!std::is_convertible_v<Tensor<const float>, Tensor<float>>);
  static_assert(!std::is_convertible_v<Tensor<float>, Tensor<const double>>);
}

TEST_CASE("tensor.offsets_beyond_2_to_the_31") {
  char* base = reinterpret_cast<char*>(std::uintptr_t{1} << 40);
  const Tensor<char> t{base, std::int64_t{1} << 33, 3'000'000'000, -9728};
  CHECK(t.row(0, 0, 225304) - base == -2'191'757'312);
  CHECK(t.row(2, 1, 0) - base == (std::int64_t{2} << 33) + 3'000'000'000);
  const Tensor<char> dense = attile::bshd(base, {.rows = 1 << 20, .heads = 64, .dim = 256});
  CHECK(dense.batch_stride == std::int64_t{1} << 34);
}

bool overlaps(const Tensor<float>& t, int batch, int heads, int rows, int dim) {
  std::set<std::int64_t> seen;
  for (int b = 0; b < batch; ++b) {
    for (int h = 0; h < heads; ++h) {
      for (int i = 0; i < rows; ++i) {
        for (int c = 0; c < dim; ++c) {
          const std::int64_t at = b * t.batch_stride + h * t.head_stride + i * t.row_stride + c;
          if (!seen.insert(at).second) return true;
        }
      }
    }
  }
  return false;
}

/// Every small view: none that overlaps may pass.
TEST_CASE("tensor.overlap_is_never_missed") {
  constexpr std::int64_t kStrides[] = {-7, -4, -2, -1, 0, 1, 2, 3, 4, 6, 8, 12};
  int missed = 0, refused = 0, right = 0;
  for (int sizes = 0; sizes < 81; ++sizes) {
    const int batch = 1 + sizes % 3, heads = 1 + sizes / 3 % 3, rows = 1 + sizes / 9 % 3;
    const int dim = 1 + sizes / 27;
    for (const auto b : kStrides) {
      for (const auto h : kStrides) {
        for (const auto r : kStrides) {
          const Tensor<float> t{nullptr, b, h, r};
          const bool truth = overlaps(t, batch, heads, rows, dim);
          const bool said = overlaps_itself(t, batch, heads, rows, dim);
          missed += truth && !said;
          refused += said && !truth;
          right += !said && !truth;
        }
      }
    }
  }
  CHECK(missed == 0);
  CHECK(right > 10 * refused);  // interleaved views are few
}

TEST_CASE("tensor.usual_layouts_do_not_overlap") {
  const auto fine = [](const Tensor<float>& t) { return !overlaps_itself(t, 2, 4, 10, 64); };
  float* p = nullptr;
  CHECK(fine(attile::bshd(p, {.rows = 10, .heads = 4, .dim = 64})));
  CHECK(fine(attile::bhsd(p, {.rows = 10, .heads = 4, .dim = 64})));
  CHECK(fine({p, 10 * 3 * 256, 64, 3 * 256}));  // packed QKV
  CHECK(fine({p, 640, 2 * 640, 64}));           // (head, batch, row, dim)
  CHECK(fine({p, 64, 2 * 64, 8 * 64}));         // (row, head, batch, dim)
  CHECK(fine({p, 4 * 650, 650, -65}));          // rows backwards
  CHECK(fine({p, std::int64_t{1} << 40, std::int64_t{1} << 36, 64}));
  CHECK_FALSE(fine({p, 10 * 256, 64, 255}));
  CHECK_FALSE(fine({p, 10 * 256 - 1, 64, 256}));
  CHECK_FALSE(fine({p, 0, 64, 256}));
  CHECK(overlaps_itself(Tensor<float>{p, 0, 0, 63}, 1, 1, 2, 64));
  CHECK_FALSE(overlaps_itself(Tensor<float>{p, 0, 0, 0}, 1, 1, 1, 64));
}

TEST_CASE("math.rounding") {
  using attile::ceil_div;
  using attile::round_up;
  CHECK(ceil_div(0, 64) == 0);
  CHECK(ceil_div(1, 64) == 1);
  CHECK(ceil_div(64, 64) == 1);
  CHECK(ceil_div(65, 64) == 2);
  CHECK(ceil_div(2147483647, 64) == 33554432);
  CHECK(round_up(57, 8) == 64);
  CHECK(round_up(64, 8) == 64);
  CHECK(round_up(std::int64_t{1} << 40, std::int64_t{3}) % 3 == 0);
  CHECK(attile::min(3, -1) == -1);
  CHECK(attile::max(3, -1) == 3);
}

}  // namespace
