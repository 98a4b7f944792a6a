// SPDX-License-Identifier: MIT
// promises: attile::tile::Ring: a cluster has 1 to 8 blocks
// promises: attile::tile::Ring: the blocks of a cluster share a tile's panels, or else its rows
#include <attile/tile/panel_tile.cuh>
#include <attile/tile/ring.cuh>

#include <cuda_fp16.h>

template class attile::tile::Ring<attile::tile::PanelTile<144, 64, __half>, 2, 9>;
template class attile::tile::Ring<attile::tile::PanelTile<24, 64, __half>, 2, 2>;
