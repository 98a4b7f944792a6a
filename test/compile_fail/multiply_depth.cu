// SPDX-License-Identifier: MIT
// promises: attile::tile::multiply: a is (rows, depth), b is (depth, columns)
#include <attile/tile_mma.cuh>

namespace tile = attile::tile;

__global__ void kernel() {
  using Scores = tile::MmaTile<64, 64, 4>;
  Scores s_frag;
  s_frag.clear();
  const tile::PanelTile<64, 128, __half> q_smem{}, k_smem{};
  tile::multiply<__half>(s_frag, tile::SharedLeft(q_smem, Scores::warp_row()),
                         tile::SharedRight(k_smem));
}
