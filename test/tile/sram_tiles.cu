// SPDX-License-Identifier: MIT
// core/sram_tiles.h computes the shared memory of kernels that it does not include: held here
// against their traits. Nothing is launched.
#include <attile/core/sram_tiles.h>
#include <attile/kernel/portable/backward_traits.cuh>
#include <attile/kernel/portable/forward_traits.cuh>

#include "support/catch.h"

namespace {

template <int Br, int Bc, int D, int Dv = D>
constexpr bool kSameBytes =
    attile::forward_tile_bytes(Br, Bc, D, Dv) ==
    attile::portable::ForwardTraits<Br, Bc, D, __half, attile::NoMask, attile::NoScoreMod,
                                    attile::NoDropout,
                                    Dv>::kSharedBytes&& attile::backward_tile_bytes(Br, Bc, D,
                                                                                    Dv) ==
    attile::portable::BackwardTraits<Br, Bc, D, float, attile::NoMask, attile::NoScoreMod,
                                     attile::NoDropout, Dv>::kColumnsSharedBytes;

/// The largest tiles for a memory are tiles that the traits accept.
template <int kKilobytes, int D>
constexpr bool kLargestAreTheTraits = [] {
  constexpr std::size_t kBytes = 1024 * kKilobytes;
  constexpr auto kForward = attile::largest_forward_tiles(kBytes, D);
  constexpr auto kBackward = attile::largest_backward_tiles(kBytes, D);
  using Forward = attile::portable::ForwardTraits<kForward.br, kForward.bc, D, float>;
  using Backward = attile::portable::BackwardTraits<kBackward.br, kBackward.bc, D, __half>;
  return Forward::kSharedBytes == kForward.bytes && Forward::kSharedBytes <= kBytes &&
         Backward::kColumnsSharedBytes == kBackward.bytes &&
         Backward::kColumnsSharedBytes <= kBytes;
}();

template <int kKilobytes>
constexpr bool kLargestOfAllDims =
    kLargestAreTheTraits<kKilobytes, 1>&& kLargestAreTheTraits<kKilobytes, 30>&&
        kLargestAreTheTraits<kKilobytes, 64>&& kLargestAreTheTraits<kKilobytes, 96>&&
            kLargestAreTheTraits<kKilobytes, 128>&& kLargestAreTheTraits<kKilobytes, 256>;

}  // namespace

TEST_CASE("sram_tiles.bytes_are_those_of_the_traits") {
  STATIC_REQUIRE(kSameBytes<64, 64, 64>);
  STATIC_REQUIRE(kSameBytes<32, 48, 128>);
  STATIC_REQUIRE(kSameBytes<16, 16, 256>);
  STATIC_REQUIRE(kSameBytes<100, 100, 8>);  // P is larger than K
  STATIC_REQUIRE(kSameBytes<17, 5, 33>);
  STATIC_REQUIRE(kSameBytes<1, 1, 1>);
  STATIC_REQUIRE(kSameBytes<64, 32, 192, 128>);
  STATIC_REQUIRE(kSameBytes<16, 16, 1, 256>);
}

TEST_CASE("sram_tiles.the_largest_tiles_are_tiles_that_the_traits_accept") {
  STATIC_REQUIRE(kLargestOfAllDims<99>);
  STATIC_REQUIRE(kLargestOfAllDims<163>);
  STATIC_REQUIRE(kLargestOfAllDims<227>);
}
