// SPDX-License-Identifier: MIT
#include <attile/core/math.h>
#include <attile/core/packed.h>
#include <attile/core/sequences.h>
#include <attile/core/tile_slots.h>

#include <cstdint>
#include <set>
#include <tuple>
#include <vector>

#include "support/catch.h"

namespace {

using attile::Axis;
constexpr int kTile = 4;

attile::Packed packed(const std::vector<int>& offsets, int total) {
  attile::Packed sequences;
  sequences.cu_seqlens_q = sequences.cu_seqlens_k = offsets.data();
  sequences.total_q = sequences.total_k = total;
  return sequences;
}

/// Finds the sequence of every item of a grid, and counts how often each tile of each sequence and
/// head comes: never twice. Returns the tiles that come: (sequence, head, index).
template <Axis kAxis, class S>
std::set<std::tuple<int, int, int>> tiles_found(const S& sequences, int batch, int bound,
                                                int heads) {
  const attile::TileSlots<kAxis, kTile, S> slots(sequences, batch, bound);
  std::set<std::tuple<int, int, int>> found;
  for (int item = 0; item < slots.count() * heads; ++item) {
    const auto share = slots.find(item, heads);
    if (!share.is_sequence) continue;
    REQUIRE((0 <= share.sequence && share.sequence < batch));
    REQUIRE((0 <= share.item && share.item < heads * share.slots));
    REQUIRE(share.slots == slots.slots(share.sequence));
    const auto [place, is_new] =
        found.insert({share.sequence, share.item / share.slots, share.item % share.slots});
    REQUIRE(is_new);
  }
  return found;
}

TEST_CASE("every tile of packed sequences has a slot") {
  using Offsets = std::vector<int>;
  for (const Offsets& offsets : {Offsets{0, 9}, Offsets{0, 0}, Offsets{3, 12}, Offsets{0, 4, 8, 12},
                                 Offsets{0, 3, 6, 9}, Offsets{0, 0, 0, 17, 17, 18, 18},
                                 Offsets{5, 5, 6, 30, 31, 31}, Offsets{0, 1, 2, 3, 4, 5}}) {
    const int batch = static_cast<int>(offsets.size()) - 1;
    for (const int unused : {0, 1, 7}) {
      const attile::Packed sequences = packed(offsets, offsets.back() + unused);
      for (const int heads : {1, 3}) {
        for (const int bound : {32, 100}) {
          const auto found = tiles_found<Axis::kRows>(sequences, batch, bound, heads);
          CHECK(found == tiles_found<Axis::kKeys>(sequences, batch, bound, heads));
          for (int b = 0; b < batch; ++b) {
            const int tiles = attile::ceil_div(sequences.extent(b, {bound, bound}).q_len, kTile);
            for (int i = 0; i < heads * tiles; ++i) {
              CHECK(found.count({b, i / tiles, i % tiles}) == 1);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("slots of packed sequences do not depend on the bound") {
  const std::vector<int> offsets{0, 3, 9, 9, 40};
  const attile::Packed sequences = packed(offsets, 41);
  const attile::TileSlots<Axis::kRows, kTile, attile::Packed> near(sequences, 4, 31);
  const attile::TileSlots<Axis::kRows, kTile, attile::Packed> far(sequences, 4, 8192);
  CHECK(near.count() == 41 / kTile + 4);
  CHECK(far.count() == near.count());
  CHECK(attile::TileSlots<Axis::kRows, kTile, attile::Packed>(sequences, 4, 0).count() == 0);
  CHECK(attile::TileSlots<Axis::kRows, kTile, attile::Packed>(sequences, 0, 31).count() == 0);
}

TEST_CASE("where offsets decrease, a sequence has all of its slots or none") {
  for (unsigned seed = 1; seed < 2000; ++seed) {
    std::uint64_t state = seed;
    const auto next = [&](int below) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      return static_cast<int>((state >> 33) % below);
    };
    const int batch = 1 + next(9), total = 1 + next(60), heads = 1 + next(3);
    std::vector<int> offsets(batch + 1);
    for (int& offset : offsets) offset = next(total + 20) - 10;
    const attile::Packed sequences = packed(offsets, total);
    const attile::TileSlots<Axis::kRows, kTile, attile::Packed> slots(sequences, batch, total);
    const auto found = tiles_found<Axis::kRows>(sequences, batch, total, heads);
    for (int b = 0; b < batch; ++b) {
      int count = 0;
      for (const auto& [sequence, head, index] : found) count += sequence == b;
      if (count != 0) CHECK(count == heads * slots.slots(b));
      const auto share = slots.find(slots.first(b), 1);
      CHECK((count != 0) == (share.is_sequence && share.sequence == b));
    }
  }
}

TEST_CASE("other sequences have slots for the bound") {
  const std::vector<int> lengths{5, 0, 9};
  const attile::Padded sequences{lengths.data(), nullptr};
  const attile::TileSlots<Axis::kRows, kTile, attile::Padded> slots(sequences, 3, 10);
  CHECK(slots.count() == 9);
  CHECK(tiles_found<Axis::kRows>(sequences, 3, 10, 2).size() == 18);
  CHECK(slots.first(2) == 6);
  CHECK(tiles_found<Axis::kRows>(attile::Uniform{}, 3, 10, 2).size() == 18);
}

}  // namespace
