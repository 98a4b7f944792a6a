// SPDX-License-Identifier: MIT
// promises: attile::tile: a column-major A needs a row-major B
#include <attile/tile.cuh>

namespace tile = attile::tile;

__global__ void kernel() {
  constexpr tile::Order kByColumns = tile::Order::kColumnMajor;
  tile::RegisterTile<64, 64, 8, 4, 4> s;
  s.clear();
  tile::matmul_nn(s, tile::SharedTile<64, 64, kByColumns>{},
                  tile::SharedTile<64, 64, kByColumns>{});
}
