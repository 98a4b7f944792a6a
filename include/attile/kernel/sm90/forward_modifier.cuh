// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/index.h>
#include <attile/core/sequences.h>
#include <attile/core/tile_modifier.h>
#include <attile/kernel/sm90/forward_memory.cuh>
#include <attile/kernel/sm90/forward_params.cuh>
#include <attile/tile/dropout.cuh>
#include <attile/tile/modifier_words.cuh>
#include <attile/tile/modify.cuh>
#include <attile/tile/tile_coord.cuh>

#include <type_traits>

namespace attile::sm90 {

/// Returns what applies the score modifier to a consumer's scores with these coordinates. What it
/// reads is read beside products, or with kWords comes with K, whose stage is released when the
/// modifier has been applied. `part`: which rows of the work tile they are.
template <class Traits, class Coord>
ATTILE_DEVICE auto tile_modifier(const TmaForwardParams<Traits>& p,
                                 const ForwardMemory<Traits>& smem, int k_stage, int part,
                                 const Coord& coord, float scale) {
  using Scores = typename Traits::ScoreRegisters;
  using Math = tile::MathOf<typename Traits::ElementType>;
  [[maybe_unused]] const auto block = [&] {
    const ScoreIndex first = coord.nearest_inside(coord.at(Scores::row(0), 0));
    return ScoreBlock{first, coord.extent, kWarpgroupRows, Traits::kBc, scale};
  };
  if constexpr (Traits::kWords == ModifierWords::kColumns) {
    const ScoreBlock scores = block();
    const auto of_columns = modifier_of_columns(p.modifier(), p.policies.score_mod, scores, Math());
    using Tile = std::remove_const_t<decltype(of_columns)>;
    return tile::ColumnModifier<Scores, Tile, typename Traits::Word>{
        of_columns, smem.words(k_stage), coord.extent.q_len - 1 - scores.first.row};
  } else if constexpr (Traits::kWords == ModifierWords::kDiagonals) {
    const int row = part * kWarpgroupRows + Scores::row(0) % kWarpgroupRows;  // in the work tile
    const auto of_diagonals =
        modifier_of_diagonals(p.modifier(), p.policies.score_mod, block(), Math());
    using Tile = std::remove_const_t<decltype(of_diagonals)>;
    return tile::DiagonalModifier<Scores, Tile, typename Traits::Word>{
        of_diagonals, {smem.words(k_stage) + (Traits::kBr - 1 - row + Scores::col(0))}};
  } else {
    using S = std::remove_cvref_t<decltype(p.modifier())>;
    return tile::Modifier<Scores, Coord, S, Math>(coord, p.modifier(), scale);
  }
}

/// Says whether nothing is done to the scores of a full tile, and their coordinates are not made.
/// Where sequences have lengths of their own the compiler would read these ahead of the branch, as
/// soon as S is made, which took 1 to 2 % of the time (H200, bench/log/tuning-sequences.md). For
/// rows of a cache that does not pay.
template <class Traits>
inline constexpr bool kSkipsFull =
    !Problem<Traits>::kUniform && !kIsForwardOnly<typename Traits::SequencesType> &&
    !Traits::kListsBlocks && kIsIdentity<typename Traits::ScoreModType>;

/// Makes dropout(P) of P, a left operand of 16 bits, with kMasksP. V of the tile has arrived, and
/// with it the columns. Scope    all lanes of a warp.
template <class Traits, class Probabilities, class Sampler>
ATTILE_DEVICE void drop_probabilities(Probabilities& p_left, const ForwardMemory<Traits>& smem,
                                      int v_stage, const tile::TileCoord& coord,
                                      const Sampler& sampler) {
  tile::drop_operand(p_left, coord, sampler, [&](int i) {
    if constexpr (Traits::kDropoutColumns) {
      return smem.dropout_columns(v_stage)[i];
    } else {
      return sampler.column(coord.batch, coord.head, sampler.col_group(coord.col0) + i);
    }
  });
  if constexpr (Traits::kDropoutColumns) arch::warp_barrier();  // all lanes have read the columns
}

}  // namespace attile::sm90
