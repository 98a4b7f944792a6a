// SPDX-License-Identifier: MIT
#include <attile/arch/boxed_tensor.h>

#include <cstdint>

#include "support/catch.h"

namespace {

using attile::arch::boxable;
using attile::arch::BoxedTensor;

BoxedTensor good() {
  static const char data[16]{};
  const std::uintptr_t aligned = (reinterpret_cast<std::uintptr_t>(data) + 15) / 16 * 16;
  return {reinterpret_cast<const void*>(aligned),
          {100, 7, 3, 2, 1},
          {2, 256, 2048, 8192, 0},
          {64, 8, 1, 1, 1}};
}

/// A good one but for one change.
template <class Change>
bool boxable_with(Change change) {
  BoxedTensor tensor = good();
  change(tensor);
  return boxable(tensor);
}

TEST_CASE("boxed_tensor.what_copies_can_address") {
  CHECK(boxable(good()));
  CHECK_FALSE(boxable_with([](BoxedTensor& x) { x.data = nullptr; }));
  CHECK_FALSE(boxable_with([](BoxedTensor& x) { x.data = static_cast<const char*>(x.data) + 8; }));
  CHECK_FALSE(boxable_with([](BoxedTensor& x) { x.size[3] = 0; }));
  CHECK(boxable_with([](BoxedTensor& x) { x.size[1] = std::int64_t{1} << 32; }));
  CHECK_FALSE(boxable_with([](BoxedTensor& x) { x.size[1] = (std::int64_t{1} << 32) + 1; }));
}

TEST_CASE("boxed_tensor.strides") {
  for (const std::int64_t bad : {std::int64_t{0}, std::int64_t{-256}, std::int64_t{8},
                                 std::int64_t{264}, std::int64_t{1} << 40}) {
    CHECK_FALSE(boxable_with([&](BoxedTensor& x) { x.stride_bytes[1] = bad; }));
    // That of a dimension with one element is not used.
    CHECK(boxable_with([&](BoxedTensor& x) { x.stride_bytes[4] = bad; }));
  }
  CHECK(boxable_with([](BoxedTensor& x) { x.stride_bytes[2] = (std::int64_t{1} << 40) - 16; }));
  // Rows of a dimension may lie within those of another one.
  CHECK(boxable_with([](BoxedTensor& x) { x.stride_bytes[2] = 16; }));
}

TEST_CASE("boxed_tensor.what_copies_can_write") {
  for (int columns = 1; columns <= 100; ++columns) {
    BoxedTensor tensor = good();
    tensor.size[0] = columns;
    CHECK(boxable(tensor));
    CHECK(attile::arch::storable(tensor) == (columns % 8 == 0));
  }
  BoxedTensor elsewhere = good();
  elsewhere.size[0] = 64;
  elsewhere.data = nullptr;
  CHECK_FALSE(attile::arch::storable(elsewhere));
}

}  // namespace
