// SPDX-License-Identifier: MIT
#include <attile/core/mask.h>
#include <attile/core/work_tile.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "support/catch.h"

namespace {

using attile::WorkTile;

/// Counts how often the work tiles of a grid of `blocks` have each row, and that each has the tiles
/// of keys that its rows see.
template <int Br, int Bc>
void rows_come_once(const attile::ScoreShape& shape, int kv_heads, int blocks) {
  CAPTURE(shape.batch, shape.heads, shape.extent.q_len, shape.extent.kv_len, kv_heads, blocks, Br);
  const attile::DenseTiles<Br, Bc> tiles(shape, kv_heads, 512);
  const int q_len = shape.extent.q_len;
  std::vector<int> times(shape.batch * shape.heads * q_len);
  int wrong = 0, count = 0;
  for (int block = 0; block < blocks; ++block) {
    tiles.visit(block, blocks, attile::Causal{}, [&](const WorkTile& at) {
      ++count;
      const int group = shape.heads / kv_heads;
      wrong += at.kv_head != at.head / group || at.row0 % Br != 0 || at.row0 >= q_len;
      for (int row = at.row0; row < at.row0 + Br && row < q_len; ++row) {
        ++times[(at.sequence * shape.heads + at.head) * q_len + row];
        for (int col = 0; col < shape.extent.kv_len; ++col) {
          const bool seen =
              attile::Causal{}.visible({at.sequence, at.head, row, col}, shape.extent);
          wrong += seen && !at.kv_tiles.contains(col / Bc);
          wrong += !seen && at.kv_tiles.full(col / Bc);
        }
      }
    });
  }
  for (const int n : times) wrong += n != 1;
  CHECK(wrong == 0);
  CHECK(count == tiles.count());
}

}  // namespace

TEST_CASE("the blocks of a grid have each row of each head once, with the keys that it sees") {
  for (const auto& [batch, heads, kv_heads] :
       {std::tuple{1, 1, 1}, std::tuple{2, 6, 2}, std::tuple{3, 4, 4}}) {
    for (const auto& [q_len, kv_len] :
         {std::tuple{1, 1}, std::tuple{65, 100}, std::tuple{130, 70}}) {
      for (const int blocks : {1, 5, 64}) {
        rows_come_once<64, 32>({batch, heads, {q_len, kv_len}}, kv_heads, blocks);
        rows_come_once<16, 48>({batch, heads, {q_len, kv_len}}, kv_heads, blocks);
      }
    }
  }
}

TEST_CASE("there are no work tiles without sequences, heads or rows") {
  for (const attile::ScoreShape& shape :
       {attile::ScoreShape{0, 2, {8, 8}}, attile::ScoreShape{1, 2, {0, 8}}}) {
    const attile::DenseTiles<64, 64> tiles(shape, 1, 512);
    CHECK(tiles.count() == 0);
    int visited = 0;
    tiles.visit(0, 1, attile::NoMask{}, [&](const WorkTile&) { ++visited; });
    CHECK(visited == 0);
  }
}

TEST_CASE("heads whose keys fit L2 follow each other, and more of them do not") {
  // 4 MB of keys for each kv head: 8 of them fit, with the 2 query heads of each.
  const attile::DenseTiles<64, 64> tiles({2, 32, {128, 8192}}, 16, 512);
  CHECK(tiles.section == 16);
  CHECK(tiles.tile(0, attile::NoMask{}).row0 == 64);
  CHECK(tiles.tile(15, attile::NoMask{}).row0 == 64);
  CHECK(tiles.tile(16, attile::NoMask{}).row0 == 0);
  CHECK(tiles.tile(32, attile::NoMask{}).head == 16);
  // One kv head that is larger than L2 still comes with its query heads.
  CHECK(attile::DenseTiles<64, 64>({1, 8, {128, 1 << 20}}, 2, 512).section == 4);
}

TEST_CASE("sizes that make no work tiles are refused with a sentence") {
  using Tiles = attile::DenseTiles<64, 64>;
  const auto why = [](const attile::ScoreShape& shape, int kv_heads) {
    return std::string(Tiles(shape, kv_heads, 512).check().why);
  };
  CHECK(why({2, 6, {100, 70}}, 3).empty());
  CHECK(why({0, 0, {0, 0}}, 1).empty());
  const std::string negative = "DenseTiles: batch, q_heads, q_len and kv_len must not be negative";
  CHECK(why({-1, 6, {100, 70}}, 3) == negative);
  CHECK(why({2, 6, {100, -70}}, 3) == negative);
  const std::string multiple =
      "DenseTiles: q_heads must be a multiple of kv_heads, which are at least 1";
  CHECK(why({2, 6, {100, 70}}, 4) == multiple);
  CHECK(why({2, 6, {100, 70}}, 0) == multiple);
  CHECK(why({2, 6, {(1 << 30) + 1, 70}}, 3) == "DenseTiles: q_len and kv_len must be at most 2^30");
  const std::string many = "DenseTiles: the problem has more than 2^31 - 1 tiles";
  CHECK(why({1 << 16, 1 << 15, {1, 1}}, 1) == many);
  CHECK(why({1 << 10, 1 << 10, {1 << 20, 1}}, 1) == many);
}
