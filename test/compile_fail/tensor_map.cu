// SPDX-License-Identifier: MIT
// promises: attile::tile::make_map: the tensor and the tile have different elements
#include <attile/tile_wgmma.cuh>

namespace tile = attile::tile;

attile::Check map_of(attile::arch::TensorMap& map, attile::Tensor<const __half> k) {
  return tile::make_map<tile::PanelTile<64, 64, __nv_bfloat16>>(map, k, {1, 64}, 1, 64);
}
