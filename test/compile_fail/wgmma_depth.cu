// SPDX-License-Identifier: MIT
// promises: attile::tile::start_product: a is (rows, depth), b is (depth, columns)
#include <attile/tile_wgmma.cuh>

namespace tile = attile::tile;

__global__ void kernel() {
  using Scores = tile::MmaTile<64, 128, 4>;
  Scores s_frag;
  s_frag.clear();
  const tile::RegisterLeft<__half, Scores> p_left(s_frag);
  tile::MmaTile<64, 64, 4> o_frag;
  tile::start_product(o_frag, p_left, tile::PanelTile<64, 64, __half>{});
  tile::wait_product<0>(o_frag);
}
