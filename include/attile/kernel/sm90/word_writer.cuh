// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/index.h>
#include <attile/core/tile_modifier.h>
#include <attile/core/work_tile.h>
#include <attile/kernel/sm90/forward_memory.cuh>
#include <attile/kernel/sm90/forward_params.cuh>
#include <attile/tile/modifier_math.h>
#include <attile/tile/modifier_words.cuh>

namespace attile::sm90 {

/// Writes the score modifier's words of a work tile's columns or diagonals beside tiles of K.
/// Scope    all lanes of a warp, with kWords.
template <class Traits>
class WordWriter {
 public:
  ATTILE_DEVICE WordWriter(const TmaForwardParams<Traits>& p, const WorkTile& at)
      : extent_(p.extent(at)), word_tile_(word_tile(p, at)) {}

  /// Asks the modifier, waits for the stage of K, calls loads_key(), and writes the words. Those of
  /// columns are read before the stage is waited for.
  template <class F>
  ATTILE_DEVICE void write(const ForwardMemory<Traits>& smem,
                           const typename Traits::KPipeline::State& state, int row0, int col0,
                           const F& loads_key) const {
    const auto pipeline = smem.k();
    if constexpr (Traits::kWords == ModifierWords::kColumns) {
      const tile::ColumnWords<Tile, Traits::kBc> words(word_tile_, col0, extent_.kv_len);
      pipeline.await_empty(state);
      loads_key();
      words.store(smem.words(state.stage));
    } else {
      pipeline.await_empty(state);
      loads_key();
      tile::store_diagonals<Traits::kBr, Traits::kBc>(smem.words(state.stage), word_tile_, row0,
                                                      col0, extent_);
    }
    if (arch::thread_index() % arch::kWarpSize == 0) pipeline.producer_commit(state);
  }

 private:
  using Tile = typename Traits::WordTile::type;

  ATTILE_DEVICE static Tile word_tile(const TmaForwardParams<Traits>& p, const WorkTile& at) {
    const tile::MathOf<typename Traits::T> math;
    const Extent extent = p.extent(at);
    const ScoreBlock block{{at.sequence, at.head, 0, 0}, extent, 1, extent.kv_len, p.scale};
    if constexpr (Traits::kWords == ModifierWords::kColumns) {
      return p.policies.score_mod.column_tile(block, math);
    } else {
      return p.policies.score_mod.diagonal_tile(block, math);
    }
  }

  Extent extent_;
  Tile word_tile_;
};

}  // namespace attile::sm90
