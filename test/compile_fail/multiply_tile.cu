// SPDX-License-Identifier: MIT
// promises: attile::tile::multiply: an operand is a SharedLeft, a RegisterLeft, a SharedRight
#include <attile/tile_mma.cuh>

namespace tile = attile::tile;

__global__ void kernel() {
  tile::MmaTile<64, 64, 4> s_frag;
  s_frag.clear();
  const tile::PanelTile<64, 128, __half> q_smem{}, k_smem{};
  tile::multiply<__half>(s_frag, q_smem, tile::SharedRightTransposed(k_smem));
}
