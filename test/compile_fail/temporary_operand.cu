// SPDX-License-Identifier: MIT
// promises: start_product
// promises: deleted function
#include <attile/tile_wgmma.cuh>

namespace tile = attile::tile;

__global__ void kernel() {
  using Scores = tile::MmaTile<64, 64, 4>;
  Scores s_frag;
  tile::MmaTile<64, 128, 4> o_frag;
  s_frag.clear();
  o_frag.clear();
  tile::start_product(o_frag, tile::RegisterLeft<__half, Scores>(s_frag),
                      tile::PanelTile<64, 128, __half>{});
  tile::wait_product<0>(o_frag);
}
