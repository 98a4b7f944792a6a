// SPDX-License-Identifier: MIT
// promises: attile::tile::matmul_nt: a is (rows, depth), b is (cols, depth)
#include <attile/tile.cuh>

namespace tile = attile::tile;

__global__ void kernel() {
  tile::RegisterTile<64, 32, 8, 1, 1> s;
  s.clear();
  tile::matmul_nt(s, tile::SharedTile<64, 64>{}, tile::SharedTile<64, 64>{});
}
