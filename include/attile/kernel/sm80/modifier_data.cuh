// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/async_copy.cuh>
#include <attile/arch/opaque.h>
#include <attile/arch/thread.cuh>
#include <attile/core/check.h>
#include <attile/core/config.h>
#include <attile/core/index.h>
#include <attile/core/math.h>
#include <attile/core/status.h>
#include <attile/core/tensor.h>
#include <attile/core/tile_modifier.h>
#include <attile/core/work_tile.h>
#include <attile/kernel/problem/element_copies.cuh>
#include <attile/kernel/sm80/tuning.h>
#include <attile/tile/matrix.cuh>
#include <attile/tile/modifier_math.h>
#include <attile/tile/modifier_words.cuh>
#include <attile/tile/modify.cuh>
#include <attile/tile/panel_tile.cuh>

#include <cstddef>
#include <type_traits>

// What a score modifier reads of memory for a tile of scores, in shared memory (ModifierReads).

namespace attile::sm80 {

/// Refuses a score modifier whose values do not let a kernel read its data as kReads says.
template <ModifierReads kReads, class S>
Check check_reads(const S& mod) {
  if constexpr (kReads == ModifierReads::kColumns) {
    if (!mod.reads_columns()) {
      return refuse(
          "this sm80 kernel reads a score modifier's data once for each column, and reads_columns "
          "says that they differ between rows");
    }
  }
  if constexpr (kReads == ModifierReads::kElements) {
    const auto x = mod.elements();
    const Tensor tensor{x.data, x.batch_stride, x.head_stride, x.row_stride};
    constexpr int kUnit = 16 / sizeof *x.data;
    if (x.row_stride == 0 || tile::tensor_param(tensor, kUnit, x.col_stride).vectors == 0) {
      return refuse(
          "this sm80 kernel copies the score modifier's elements 16 bytes at a time: their address "
          "and strides must be multiples of 16 bytes, columns contiguous, and rows not one");
    }
  }
  return {};
}

/// Loads what a score modifier reads for the steps of a forward pass, and applies the modifier. The
/// kernel calls, in this order: `load` before the first step, and in each step, with the product
/// S = Q K^T between the last two of them, `load_next`, `read`, and `store` of what `read` has
/// returned; a barrier later `apply`. Each kind of ModifierReads has a use for some of them.
/// Scope    all threads of the block.
/// This one is of kAny, and has nothing to load: a modifier's tiles read for themselves.
template <class Traits, ModifierReads kReads>
class ForwardData {
  using Scores = typename Traits::ScoreRegisters;

 public:
  static constexpr std::size_t kBytes = 0;  ///< of shared memory
  /// Groups of asynchronous copies that `load_next` commits, behind that of V.
  static constexpr int kGroups = 0;

  ATTILE_DEVICE ForwardData(const typename Traits::Params& p, unsigned char*) : p_(p) {}
  ATTILE_DEVICE void load(const WorkTile&, int) const {}
  ATTILE_DEVICE void load_next(const WorkTile&, int, int) const {}
  struct Words {
    ATTILE_DEVICE void store() const {}
  };
  ATTILE_DEVICE Words read(const WorkTile&, int) const { return {}; }
  /// Sets S' = score_mod(scale * S).
  template <class Coord>
  ATTILE_DEVICE void apply(Scores& s_frag, const Coord& coord, float scale, int) const {
    using S = typename Traits::ScoreModType;
    using Math = tile::MathOf<typename Traits::ElementType>;
    tile::Modifier<Scores, Coord, S, Math>(coord, p_.policies.score_mod, scale)
        .template apply<true>(s_frag);
  }

 private:
  const typename Traits::Params& p_;
};

/// Reads a word for each column, which arrives while S is computed, and writes it to shared memory.
template <class Traits>
class ForwardData<Traits, ModifierReads::kColumns> {
  using Scores = typename Traits::ScoreRegisters;
  using Math = tile::MathOf<typename Traits::ElementType>;
  using ColumnTile = ColumnTileOf<typename Traits::ScoreModType, Math>;
  using Tile = typename ColumnTile::type;
  using Word = typename ColumnTile::Word;
  static constexpr int kWarpCols = ceil_div(Traits::kBc, Traits::kWarps);

 public:
  static constexpr std::size_t kBytes = sizeof(Word) * kWarpCols * Traits::kWarps;
  static constexpr int kGroups = 0;

  ATTILE_DEVICE ForwardData(const typename Traits::Params& p, unsigned char* shared)
      : p_(p), words_(reinterpret_cast<Word*>(shared)) {}

  ATTILE_DEVICE void load(const WorkTile&, int) const {}
  ATTILE_DEVICE void load_next(const WorkTile&, int, int) const {}

  /// Holds a warp's part of the words while they are on their way.
  struct Words {
    tile::ColumnWords<Tile, kWarpCols> mine;
    Word* shared;  ///< of all warps
    ATTILE_DEVICE void store() const { mine.store(shared + warp_col()); }
  };
  /// Begins to read the words of a kv tile.
  /// Barriers one before `store`, when others still read those of the step before, and one behind
  ///          it, before `apply`.
  ATTILE_DEVICE Words read(const WorkTile& at, int kv_tile) const {
    const Extent extent = p_.extent(at);
    const Tile tile = p_.policies.score_mod.column_tile(
        ScoreBlock{{at.sequence, at.head, 0, 0}, extent, 1, extent.kv_len, p_.scale}, Math());
    return {{tile, kv_tile * Traits::kBc + warp_col(), extent.kv_len}, words_};
  }
  /// Sets S' = score_mod(scale * S).
  template <class Coord>
  ATTILE_DEVICE void apply(Scores& s_frag, const Coord& coord, float scale, int) const {
    const ScoreIndex first = coord.nearest_inside(coord.at(Scores::row(0), 0));
    const ScoreBlock block{first, coord.extent, Scores::kWarpRows, Traits::kBc, scale};
    tile::ColumnModifier<Scores, Tile, Word>{p_.policies.score_mod.column_tile(block, Math()),
                                             words_, coord.extent.q_len - 1 - first.row}
        .template apply<true>(s_frag);
  }

 private:
  /// Returns the first column whose word the warp reads, computed anew: a register that is kept
  /// would be one that spills.
  ATTILE_DEVICE static int warp_col() {
    return arch::opaque(arch::thread_index()) / arch::kWarpSize * kWarpCols;
  }

  const typename Traits::Params& p_;
  Word* words_;
};

/// Copies tiles of elements of 16 bits to one of two stages while the step before is computed.
template <class Traits>
class ForwardData<Traits, ModifierReads::kElements> {
  using Scores = typename Traits::ScoreRegisters;
  using S = typename Traits::ScoreModType;
  using Element = typename ElementTypeOf<S, void>::type;
  static_assert(sizeof(Element) == 2,
                "attile::sm80: asynchronous copies of a modifier's elements are of 16 bits");
  using Tile = tile::PanelTile<Traits::kBr, Traits::kBc, Element>;

 public:
  static constexpr std::size_t kBytes = 2 * Tile::kBytes;
  static constexpr int kGroups = 1;

  ATTILE_DEVICE ForwardData(const typename Traits::Params& p, unsigned char* shared)
      : p_(p), shared_(shared) {}

  /// Begins to load the elements of a step.
  ATTILE_DEVICE void load(const WorkTile& at, int step) const {
    const int col0 = p_.kv_tile(at, step) * Traits::kBc;
    tile::load_async<Traits::kThreads>(stage(step), elements_of(p_, at, col0), at.row0);
  }
  /// Begins to load those of `step`, where that is before `last`, the end of the loop, and commits
  /// a group of their own.
  ATTILE_DEVICE void load_next(const WorkTile& at, int step, int last) const {
    if (step < last) load(at, step);
    arch::async_copy_commit();
  }
  struct Words {
    ATTILE_DEVICE void store() const {}
  };
  ATTILE_DEVICE Words read(const WorkTile&, int) const { return {}; }

  /// Sets S' = score_mod(scale * S).
  template <class Coord>
  ATTILE_DEVICE void apply(Scores& s_frag, const Coord& coord, float scale, int step) const {
    const tile::Modifier<Scores, Coord, S, tile::MathOf<typename Traits::ElementType>> modifier(
        coord, p_.policies.score_mod, scale);
    const tile::ElementReader<Scores, Tile> reader(stage(step));
    tile::ElementModifier<decltype(modifier), decltype(reader)>{modifier, reader}
        .template apply<true>(s_frag);
  }

 private:
  ATTILE_DEVICE Tile stage(int step) const { return {shared_ + step % 2 * Tile::kBytes}; }

  const typename Traits::Params& p_;
  unsigned char* shared_;
};

}  // namespace attile::sm80
