// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/config.h>
#include <attile/core/index.h>
#include <attile/core/tile_modifier.h>
#include <attile/kernel/sm90/forward_memory.cuh>
#include <attile/kernel/sm90/forward_params.cuh>
#include <attile/tile/modify.cuh>

#include <type_traits>

namespace attile::sm90 {

/// Returns what applies the score modifier to a consumer's scores with these coordinates. What it
/// reads is read beside products, or with kColumns with K, whose stage is released when the
/// modifier has been applied.
template <class Traits, class Coord>
ATTILE_DEVICE auto tile_modifier(const TmaForwardParams<Traits>& p,
                                 const ForwardMemory<Traits>& smem, int k_stage, const Coord& coord,
                                 float scale) {
  using Scores = typename Traits::ScoreRegisters;
  using Math = tile::MathOf<typename Traits::ElementType>;
  if constexpr (Traits::kColumns) {
    using Tile = typename Traits::ColumnTile::type;
    const ScoreIndex first = coord.nearest_inside(coord.at(Scores::row(0), 0));
    const ScoreBlock block{first, coord.extent, kWarpgroupRows, Traits::kBc, scale};
    return tile::ColumnModifier<Scores, Tile, typename Traits::ColumnWord>{
        p.policies.score_mod.column_tile(block, Math()), smem.columns(k_stage),
        coord.extent.q_len - 1 - first.row};
  } else {
    using S = std::remove_cvref_t<decltype(p.modifier())>;
    return tile::Modifier<Scores, Coord, S, Math>(coord, p.modifier(), scale);
  }
}

}  // namespace attile::sm90
