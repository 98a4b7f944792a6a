// SPDX-License-Identifier: MIT
// promises: attile::tile: of the result of a warpgroup's product each warp has 16 rows
#include <attile/tile_wgmma.cuh>

namespace tile = attile::tile;

__global__ void kernel() {
  tile::MmaTile<128, 64, 4> s_frag;
  const tile::PanelTile<128, 128, __half> q_smem{};
  const tile::PanelTile<64, 128, __half> k_smem{};
  tile::start_transposed_product(s_frag, q_smem, k_smem);
  tile::wait_product<0>(s_frag);
}
