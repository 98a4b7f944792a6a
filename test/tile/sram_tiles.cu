// SPDX-License-Identifier: MIT
// core/sram_tiles.h computes the shared memory of kernels that it does not include: held here
// against their traits. Nothing is launched.
#include <attile/core/sram_tiles.h>
#include <attile/kernel/portable/backward_traits.cuh>
#include <attile/kernel/portable/forward_traits.cuh>

#include "support/catch.h"

namespace {

template <int Br, int Bc, int D, int Dv = D>
using Forward =
    attile::portable::ForwardTraits<Br, Bc, D, attile::Elements<__half>, attile::Policies<>, Dv>;
template <int Br, int Bc, int D, int Dv = D>
using Backward =
    attile::portable::BackwardTraits<Br, Bc, D, attile::Elements<float>, attile::Policies<>, Dv>;

template <int Br, int Bc, int D, int Dv = D>
void check_bytes() {
  CAPTURE(Br, Bc, D, Dv);
  CHECK(attile::forward_tile_bytes(Br, Bc, D, Dv) == Forward<Br, Bc, D, Dv>::kSharedBytes);
  CHECK(attile::backward_tile_bytes(Br, Bc, D, Dv) == Backward<Br, Bc, D, Dv>::kKvSharedBytes);
}

/// The largest tiles for a memory are tiles that the traits accept, and take what was said.
template <int kKilobytes, int D>
void check_largest() {
  CAPTURE(kKilobytes, D);
  constexpr std::size_t kBytes = 1024 * kKilobytes;
  constexpr auto kForward = attile::largest_forward_tiles(kBytes, D);
  constexpr auto kBackward = attile::largest_backward_tiles(kBytes, D);
  CHECK(Forward<kForward.br, kForward.bc, D>::kSharedBytes == kForward.bytes);
  CHECK(Backward<kBackward.br, kBackward.bc, D>::kKvSharedBytes == kBackward.bytes);
  CHECK(kForward.bytes <= kBytes);
  CHECK(kBackward.bytes <= kBytes);
}

template <int... D>
void check_largest_on_every_device() {
  (check_largest<99, D>(), ...);
  (check_largest<163, D>(), ...);
  (check_largest<227, D>(), ...);
}

}  // namespace

TEST_CASE("sram_tiles.bytes_are_those_of_the_traits") {
  check_bytes<64, 64, 64>();
  check_bytes<32, 48, 128>();
  check_bytes<16, 16, 256>();
  check_bytes<64, 32, 125>();  // the largest padded K, once rounded up, and
  check_bytes<64, 32, 129>();  // the smallest without padding
  check_bytes<100, 100, 8>();  // P is larger than K
  check_bytes<17, 5, 33>();
  check_bytes<1, 1, 1>();
  check_bytes<64, 32, 192, 128>();
  check_bytes<16, 16, 1, 256>();
}

TEST_CASE("sram_tiles.the_largest_tiles_are_tiles_that_the_traits_accept") {
  check_largest_on_every_device<1, 30, 64, 96, 128, 256>();
}
