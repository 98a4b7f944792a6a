// SPDX-License-Identifier: MIT
// promises: attile::tile::PreloadedModifier: a tile has rows of one head
#include <attile/tile_mma.cuh>

namespace tile = attile::tile;

using Scores = tile::MmaTile<64, 64, 4>;
__global__ void kernel(tile::PackedHeadsCoord coord) {
  const tile::PreloadedModifier<Scores, tile::PackedHeadsCoord, attile::Softcap> modifier(
      coord, attile::Softcap{1.0f}, 1.0f);
  Scores scores;
  modifier.apply<true>(scores);
}
