// SPDX-License-Identifier: MIT
#include <attile/arch/halves.h>
#include <attile/core/element.h>

#include <cstdint>

#include "support/catch.h"

namespace {

namespace arch = attile::arch;

TEST_CASE("halves.bytes") {
  CHECK(arch::byte_perm(0x33221100u, 0x77665544u, 0x3210) == 0x33221100u);
  CHECK(arch::byte_perm(0x33221100u, 0x77665544u, 0x7610) == 0x77661100u);
  CHECK(arch::byte_perm(0x33221100u, 0x77665544u, 0x0246) == 0x00224466u);
  CHECK(arch::halves(0x33221100u, 0x77665544u, false) == 0x55441100u);
  CHECK(arch::halves(0x33221100u, 0x77665544u, true) == 0x77663322u);
}

TEST_CASE("halves.numbers") {
  CHECK(arch::add_min_of_halves(0xFFFF0001u, 0x00020002u, 0x80008000u) == 0x00010003u);
  CHECK(arch::add_min_of_halves(0x00050009u, 0xFFFFFFFFu, 0x00060006u) == 0x00040006u);
  CHECK(arch::add_max_of_signed_halves(0x80000001u, 0x00020002u, 0xFFFFFFFFu) == 0xFFFF0003u);
  CHECK(arch::add_max_of_signed_halves(0x00050009u, 0xFFFBFFF6u, 0xFFFFFFFEu) == 0x0000FFFFu);
  CHECK(arch::add_max_of_signed_halves(0x7FFF8000u, 0x0001FFFFu, 0x00000000u) == 0x00007FFFu);
}

TEST_CASE("halves.positive") {
  using attile::from_floats;
  using attile::word_of;
  CHECK(arch::positive_halves<__half>(1.5f, -2.0f) == word_of(from_floats<__half>(1.5f, 0.0f)));
  CHECK(arch::positive_halves<__nv_bfloat16>(-1e-30f, 3.0f) ==
        word_of(from_floats<__nv_bfloat16>(0.0f, 3.0f)));
}

}  // namespace
