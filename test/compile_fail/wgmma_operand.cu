// SPDX-License-Identifier: MIT
// promises: attile::tile::start_product: the left operand is in registers
#include <attile/tile_wgmma.cuh>

namespace tile = attile::tile;

__global__ void kernel() {
  tile::MmaTile<64, 64, 4> s_frag, o_frag;
  s_frag.clear();
  tile::start_product(o_frag, s_frag, tile::PanelTile<64, 64, __half>{});
  tile::wait_product<0>(o_frag);
}
