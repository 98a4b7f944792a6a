// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/args.h>
#include <attile/core/block_sparse.h>
#include <attile/core/fp8.h>
#include <attile/core/mask.h>
#include <attile/core/math.h>
#include <attile/core/score_mod.h>
#include <attile/core/tile_mask.h>
#include <attile/core/tile_modifier.h>

#include <type_traits>
#include <utility>

// The tiles of the default kernels by the number of columns, the policies and the shared memory, of
// which tuning.cuh makes traits.

namespace attile {

namespace detail {

/// Holds the tiles of one kernel. Units: rows of Q, rows of K and V, threads, blocks.
struct Tiles {
  int br, bc, threads, blocks_per_sm;
  bool prefetch = false;
};

// bench/log/tuning-portable.md gives the measured speed of each row, and tuning-sm80.md beside it
// what spills.

/// Returns the tiles of the portable forward kernel for the larger of D and Dv, and for the shared
/// memory that a block may take. Units: KB of 1024 bytes.
constexpr Tiles portable_forward_tiles(int dim, int shared_kb) {
  const bool large = shared_kb >= 227;
  if (dim <= 64) return {128, 64, 128, 2};
  if (dim <= 128) return large ? Tiles{128, 64, 256, 1, true} : Tiles{64, 64, 128, 2};
  return large ? Tiles{64, 64, 256, 1} : Tiles{32, 32, 128, 1};
}

/// Returns the tiles of the portable backward kernels, likewise.
constexpr Tiles portable_backward_tiles(int dim, int shared_kb) {
  const bool large = shared_kb >= 227;
  if (dim <= 64) return large ? Tiles{64, 64, 128, 2} : Tiles{32, 64, 64, 2};
  if (dim <= 128) return large ? Tiles{64, 96, 256, 1} : Tiles{32, 48, 128, 2};
  return {16, 24, 128, 1};
}

/// Says whether scores take the fast path: they go through the softmax as they are, except for two
/// comparisons each at a mask's edge. Everything else takes registers, but in sm90 for dropout.
template <class Args>
inline constexpr bool kFastPathScores =
    IntervalMask<MaskInTiles<typename Args::MaskType>>&& kIsIdentity<typename Args::ScoreModType>;
/// Says whether there is no dropout either, which takes registers in sm80.
template <class Args>
inline constexpr bool kPlainScores = kFastPathScores<Args> && !Args::DropoutType::kEnabled;
/// Says whether the sm90 forward kernel has registers for the tiles of the fast path: with a
/// modifier, too, if that says what scores have in common, and has no element for each of them.
template <class Args>
inline constexpr bool kHasFastTiles =
    IntervalMask<MaskInTiles<typename Args::MaskType>> &&
    (kIsIdentity<typename Args::ScoreModType> ||
     (detail::kHasTiles<typename Args::ScoreModType, StandardMath> &&
      !kMayHide<typename Args::ScoreModType>));

/// Holds the tiles of the sm80 forward kernel, and its tuning (sm80::TuningValues).
struct Sm80ForwardTiles {
  int br, bc, warps, warps_n, blocks_per_sm;
};

/// Returns the tiles of the sm80 forward kernel. A warp has 32 rows where that spills nothing: up
/// to 128 columns of O where scores are plain (kPlainScores); above, with half of the columns,
/// where shared memory has room for P. As many blocks share a multiprocessor as its shared memory,
/// 1 KB more than a block's, has room for. Elements of fp8 take registers on their way to a
/// product: `converts` says that K or V has them, and `converts_queries` that Q has them, too,
/// where the device has no instruction for their products (arch::mma_m16n8k32). `tall`: 32 rows a
/// warp where scores are not plain, too, up to 64 columns: 0.86 to 0.98 of the time with dropout or
/// a mask that is asked for each score (H200, bench/log/tuning-sm80.md).
constexpr Sm80ForwardTiles sm80_forward_tiles(int dim, int shared_kb, bool plain, bool converts,
                                              bool converts_queries, bool tall) {
  if (dim <= 128) {
    if (!plain && tall && dim <= 64) return {128, 64, 4, 1, 2};
    if (!plain || (converts_queries && dim > 64)) return {64, 64, 4, 1, 2};
    if (dim <= 64) return {128, converts ? 64 : 128, 4, 1, 2};
    return {128, shared_kb < 163 || (converts && shared_kb >= 227) ? 32 : 64, 4, 1, 2};
  }
  if (shared_kb >= 227 && converts_queries) return {64, 64, 8, 2, 1};
  if (shared_kb >= 227) return {64, 64, 4, 2, 2};
  if (shared_kb >= 163 && plain) return {128, 64, 8, 2, 1};
  return {64, plain ? 64 : 32, 4, 1, 2};
}

/// Returns the same for fp32, with 16 rows a warp.
constexpr Sm80ForwardTiles sm80_fp32_forward_tiles(int dim) {
  return {64, dim <= 64 ? 64 : dim <= 128 ? 32 : 16, 4, 1, 2};
}

/// Says whether only the mask takes registers in the sm90 forward kernel, and few: what it says of
/// a row is at most two words. More are spilled with the tiles for these masks.
template <class Args>
inline constexpr bool kHasMaskedTiles =
    kIsIdentity<typename Args::ScoreModType> && !Args::DropoutType::kEnabled &&
    sizeof(mask_of_tile(std::declval<const typename Args::MaskType&>(), ScoreIndex(), Extent())
               .row(0)) <= 8;

/// Names which of several kernels for the same types is meant, each with tiles of its own: the
/// default, the one for several query heads in a tile, the one for long sequences, the one with
/// tiles of a score modifier's elements, or the one with what a score modifier reads for each
/// column, or for each diagonal; the last three also for long sequences. sm90 forward has all,
/// backward those that kHasBackwardColumns and the like name; sm80 has kAny, kElements and kColumns
/// (sm80::ModifierReads).
enum class TileSet {
  kAny,
  kPackedHeads,
  kLong,
  kElements,
  kColumns,
  kDiagonals,
  kLongElements,
  kLongColumns,
  kLongDiagonals,
};

constexpr bool has_elements(TileSet set) {
  return set == TileSet::kElements || set == TileSet::kLongElements;
}
constexpr bool has_columns(TileSet set) {
  return set == TileSet::kColumns || set == TileSet::kLongColumns;
}
constexpr bool has_diagonals(TileSet set) {
  return set == TileSet::kDiagonals || set == TileSet::kLongDiagonals;
}
constexpr bool is_long(TileSet set) {
  return set == TileSet::kLong || set == TileSet::kLongElements || set == TileSet::kLongColumns ||
         set == TileSet::kLongDiagonals;
}

/// Holds the tiles of the sm90 forward kernel, and its tuning (sm90::TuningValues).
struct Sm90Tiles {
  int br, bc, stages, element_stages = 0, output_parts = 1;
  bool overlaps = true, waits_late = false;
  int transposed_from_rows = 0;
  int teams = 1;
};

/// Says whether TMA, or asynchronous copies, may copy the elements of a score modifier: those of 16
/// bits beside inputs of 16 bits, without block lists, where keys do not lie in pages.
template <class Args>
inline constexpr bool kHasElementTiles = [] {
  using S = typename Args::ScoreModType;
  if constexpr (kHasElements<S, StandardMath> && kHasElementTensor<S>) {
    using Element = typename ElementTypeOf<S, void>::type;
    return !kIsPaged<typename Args::SequencesType> && !BlockListMask<typename Args::MaskType> &&
           !Args::Elements::kAllFp8 && sizeof(typename Args::ElementType) == 2 &&
           sizeof(Element) == 2;
  }
  return false;
}();

/// Says whether the sm80 forward kernel has registers for more keys than off the fast path: a
/// modifier reads nothing for its scores, or words of columns beside their product (`set`).
template <class Args>
constexpr bool has_wide_tiles(TileSet set) {
  using S = typename Args::ScoreModType;
  using Tile = decltype(modifier_of_tile(std::declval<const S&>(), ScoreBlock(), StandardMath()));
  return !Args::DropoutType::kEnabled && IntervalMask<MaskInTiles<typename Args::MaskType>> &&
         (has_columns(set) || (!kIsIdentity<S> && !kReadsMemory<Tile>));
}

/// Returns the tiles of the sm80 forward kernel, up to 128 columns, with 32 rows a warp and as many
/// keys as spill nothing: of a modifier that adds to scores, and of all whose data it reads by
/// columns, or copies (H200, bench/log/tuning-policies.md). `wide`: see has_wide_tiles.
constexpr Sm80ForwardTiles sm80_modifier_forward_tiles(int dim, int shared_kb, TileSet set,
                                                       bool wide, bool adds) {
  const bool large = shared_kb >= 163;
  if (dim <= 64) {
    if (has_elements(set)) return {large ? 128 : 64, 64, 4, 1, 2};
    if (!wide || !adds) return {128, 64, 4, 1, 2};
    if (has_columns(set)) return {128, shared_kb >= 227 ? 80 : 96, 4, 1, 2};
    return {128, shared_kb == 163 ? 128 : 96, 4, 1, 2};
  }
  return {128, wide && large ? 48 : 32, 4, 1, 2};
}

/// Returns the tiles of the sm90 forward kernel that has tiles of a modifier's elements, too.
/// `small_bc`: see below. `uniform`: whether all sequences have one length. Else the producer takes
/// registers (H200, 2026-11-27, bench/log/tuning-policies.md). `computes`: the modifier does more
/// than to add its elements.
constexpr Sm90Tiles sm90_element_forward_tiles(int dim, bool small_bc, bool uniform,
                                               bool computes) {
  if (dim <= 64 && !uniform && !computes) {
    return small_bc ? Sm90Tiles{192, 96, 3, 2} : Sm90Tiles{128, 128, 3, 2};
  }
  if (dim <= 64) {
    return small_bc || !uniform ? Sm90Tiles{192, 64, 4, 2} : Sm90Tiles{192, 128, 2, 1};
  }
  if (dim <= 96) return {192, 64, 3, 2};
  if (dim <= 128 && computes) return small_bc ? Sm90Tiles{128, 64, 3, 2} : Sm90Tiles{128, 96, 2, 2};
  if (dim <= 128) return {128, 128, 2, 1};
  return dim <= 192 ? Sm90Tiles{128, 80, 2, 1} : Sm90Tiles{128, 48, 2, 1};
}

/// The tiles of two teams of two consumers, up to 64 columns. Four consumers do more beside each
/// other than three, and a team's rows wait for no other rows; but they have registers for 64 keys
/// alone, and for few masks that read memory (kFitsTeams). With a mask's edge, or few keys, that is
/// 1.00 to 1.3 times as fast (H200, bench/log/tuning-sm90.md).
inline constexpr Sm90Tiles kTwoTeams{.br = 128, .bc = 64, .stages = 4, .teams = 2};

/// Returns the tiles of the sm90 forward kernel on the fast path. `small_bc`: where much of what
/// rows see lies at a mask's edge, a small Bc computes fewer scores in vain, and with many stages
/// warpgroups that see more or fewer keys wait less for each other. Words of diagonals take the
/// place of one above 96 columns. `teams`: two teams have registers enough, up to 64 columns.
constexpr Sm90Tiles sm90_fast_forward_tiles(int d, int dv, bool small_bc, TileSet tile_set,
                                            bool teams = false) {
  const int dim = max(d, dv);
  if (dim <= 64 && small_bc && teams) return kTwoTeams;
  if (dim <= 96) {
    const int rows_of_tile =
        tile_set == TileSet::kPackedHeads ? 128 : 192;  // packed, 192 spill up to 36 bytes
    if (dim <= 64) return small_bc ? Sm90Tiles{192, 64, 5} : Sm90Tiles{rows_of_tile, 128, 3};
    return small_bc ? Sm90Tiles{192, 64, 4} : Sm90Tiles{rows_of_tile, 96, 3};
  }
  if (dim <= 128 && small_bc) return {192, 64, has_diagonals(tile_set) ? 3 : 4};
  if (dim <= 128) return is_long(tile_set) ? Sm90Tiles{192, 80, 3} : Sm90Tiles{128, 128, 2};
  if (dim <= 192 && dv <= 128) {
    if (small_bc) return {128, 64, has_diagonals(tile_set) ? 3 : 4};
    return {128, 112, 2};
  }
  if (dim <= 192) return small_bc ? Sm90Tiles{128, 64, 3} : Sm90Tiles{128, 96, 2};
  return {128, 64, 2};
}

/// Returns the same off the fast path: that takes registers, and a smaller Bc avoids spills.
constexpr Sm90Tiles sm90_general_forward_tiles(int dim) {
  if (dim <= 96) return {128, 96, 3};
  if (dim <= 128) return {128, 80, 2};
  return {128, dim <= 192 ? 48 : 32, 2};
}

/// Returns the same where kHasMaskedTiles. `reads`: the mask has tiles of its own, which read
/// memory. `teams`: see sm90_fast_forward_tiles.
constexpr Sm90Tiles sm90_masked_forward_tiles(int dim, bool reads, bool teams) {
  if (dim <= 64) return teams ? kTwoTeams : Sm90Tiles{192, 64, 5};
  if (dim <= 96) return {192, 64, 4};
  if (dim <= 128) return {128, reads ? 96 : 128, 2};
  return sm90_general_forward_tiles(dim);
}

/// The rows that share a kv head from which on V in fp8 of more than 128 columns is transposed
/// ahead, with promoted sums and without (bench/log/tuning-fp8.md).
inline constexpr int kTransposedPromotedRows = 8192, kTransposedUnpromotedRows = 4096;

/// Returns the tiles where Q, K and V are in fp8. Products take half the time of those of 16 bits,
/// and the softmax the same, so that the work of a step which does not depend on Bc counts for
/// more: Bc is the largest that spills nothing, but for unpromoted sums of 65 to 128 columns, of
/// which three consumers are faster than a larger Bc of two. A promoted P V takes registers beside
/// S and O; above 128 columns of O it takes those of S. `fast`: on the fast path without dropout;
/// `bare`: also without a modifier, with a mask that takes no registers, and for sequences of one
/// length.
constexpr Sm90Tiles sm90_fp8_forward_tiles(int d, int dv, bool promotes, bool fast, bool bare) {
  if (dv <= 64) {
    if (!bare) return {128, 128, 2};
    return promotes ? Sm90Tiles{.br = 192, .bc = 128, .stages = 2, .output_parts = 2}
                    : Sm90Tiles{192, 160, 2};
  }
  if (dv <= 128) {
    if (!fast) return {.br = 128, .bc = 64, .stages = 3, .output_parts = 2};
    if (d > 128) return {.br = 128, .bc = 128, .stages = 2, .output_parts = 2};
    if (promotes) return {.br = 128, .bc = 160, .stages = 2, .output_parts = 2};
    return bare ? Sm90Tiles{.br = 192, .bc = 96, .stages = 2, .waits_late = true}
                : Sm90Tiles{128, 160, 2};
  }
  Sm90Tiles tiles{.br = 128, .bc = fast ? 96 : 32, .stages = 2, .waits_late = fast};
  if (!promotes) {
    tiles.transposed_from_rows = kTransposedUnpromotedRows;
    return tiles;
  }
  tiles.overlaps = false;
  if (!fast) {
    int parts = dv <= 192 ? 3 : 4;
    while (round_up(dv, 32) % (16 * parts) != 0) ++parts;  // each a multiple of 16 columns
    // With 64 keys and dropout 256 columns spill.
    tiles.bc = dv <= 192 ? 64 : 32;
    tiles.output_parts = parts;
    return tiles;
  }
  tiles.bc = dv <= 192 ? 96 : 128;
  tiles.output_parts = 2;
  tiles.transposed_from_rows = kTransposedPromotedRows;
  return tiles;
}

/// Returns the tiles with a mask of block lists, before they are fitted to its blocks of `rows`
/// rows. All rows of a tile see the same blocks, so that a tile is as for a dense problem where it
/// fits. `teams`: see sm90_fast_forward_tiles.
constexpr Sm90Tiles sm90_listed_forward_tiles(int d, int dv, bool fast, bool drops, int rows,
                                              bool teams) {
  const int dim = max(d, dv);
  if (!fast) return sm90_general_forward_tiles(dim);
  if (dim <= 64 && teams && rows % 192 != 0) return {.br = 128, .bc = 64, .stages = 3, .teams = 2};
  if (dim <= 64) return {192, 128, 3};
  if (dim <= 128) return drops ? Sm90Tiles{128, 64, 4} : Sm90Tiles{128, 128, 2};
  return sm90_fast_forward_tiles(d, dv, true, TileSet::kAny);
}

/// Returns tiles that divide the blocks of a mask of block lists, no larger than those given.
template <class M>
constexpr auto fitted(auto tiles) {
  tiles.br = fitting_rows<M>(tiles.br);
  tiles.bc = fitting_columns<M>(tiles.bc);
  return tiles;
}

/// Holds the tiles of the sm90 backward kernel, and their tuning (sm90::BackwardTuningValues).
struct Sm90BackwardTiles {
  int br, bc, stages, p_steps, element_stages = 0;
};
/// Returns the tiles of the sm90 backward kernel. A step with a modifier and dropout is so long
/// that 128 rows, which go in two parts, take more instructions than the caches have: with 64 rows
/// D = 64 takes 0.94 of the time at 1k under a causal mask, and 1.00 to 1.02 else; with a third
/// stage 0.97 to 1.02 of two (H200, bench/log/tuning-policies.md).
constexpr Sm90BackwardTiles sm90_backward_tiles(int dim, int dim_v, bool has_long_steps) {
  const int larger = max(dim, dim_v);
  if (larger <= 64 && has_long_steps) return {64, 128, 3, 1};
  if (larger <= 128) return {larger <= 96 && !has_long_steps ? 128 : 64, 128, 2, 1};
  if (dim <= 192 && dim_v <= 128) return {64, 64, 3, 3};
  return {64, 64, 2, 1};
}

/// Returns the same with tiles of a modifier's elements, or in their place words of diagonals and
/// sums of a gradient, for which above 192 columns half of P leaves room.
constexpr Sm90BackwardTiles sm90_element_backward_tiles(int dim, int dim_v, bool has_long_steps) {
  const int larger = max(dim, dim_v);
  if (larger <= 64 && has_long_steps) return {64, 128, 3, 1, 2};
  if (larger <= 96) return {128, 128, 2, 1, larger <= 80 ? 2 : 1};
  if (larger <= 128) return {64, 128, 2, 1, 2};
  if (dim <= 192 && dim_v <= 128) return {64, 64, 3, 2, 4};
  return min(dim, dim_v) <= 192 ? Sm90BackwardTiles{64, 64, 2, 1, 4}
                                : Sm90BackwardTiles{64, 64, 2, 0, 2};
}

/// Holds the tiles of the sm80 backward kernels, and their tuning (sm80::BackwardTuningValues).
struct Sm80BackwardTiles {
  int br, bc, warps, warps_n, dq_warps_n, blocks_per_sm, stages;
};

/// Returns the tiles of the sm80 backward kernels for 16-bit types. `larger`: up to 128 columns
/// scores that are not plain have the tiles of plain ones, too, which take 0.74 to 0.99 of the time
/// of the others (H200, bench/log/tuning-sm80.md); not in order, which was not measured, nor where
/// they spill.
constexpr Sm80BackwardTiles sm80_backward_tiles(int dim, int shared_kb, bool plain, bool larger) {
  const bool large = shared_kb >= 227;
  if (dim <= 64) {
    return plain || larger ? Sm80BackwardTiles{32, 128, 4, 1, 4, 2, 1}
                           : Sm80BackwardTiles{32, 64, 4, 1, 2, 2, 1};
  }
  if (dim <= 128) {
    if (!plain && !larger) return {32, 64, 4, 2, 2, 2, 1};
    return plain && large ? Sm80BackwardTiles{64, 128, 8, 2, 4, 1, 2}
                          : Sm80BackwardTiles{64, 64, 4, 2, 2, 2, 1};
  }
  if (shared_kb < 163) return {32, 32, 4, 2, 2, 1, 1};
  if (!plain) return {32, 64, 8, 2, 4, 1, 1};
  return {large ? 128 : 64, 64, 8, 4, 4, 1, 1};
}

/// Returns the same, up to 128 columns, where a modifier's data are read by columns, or copied. Two
/// blocks share a multiprocessor, but on 99 KB above 64 columns.
constexpr Sm80BackwardTiles sm80_modifier_backward_tiles(int dim, int shared_kb, TileSet set) {
  if (dim <= 64) {
    if (has_elements(set) && shared_kb < 163) return {32, 64, 4, 1, 2, 2, 1};
    return {32, 128, 4, 1, 4, 2, 1};
  }
  return {has_elements(set) ? 32 : 64, 64, 4, 2, 2, 2, 1};
}

/// Returns the same for fp32; above 128 they need 163 KB.
constexpr Sm80BackwardTiles sm80_fp32_backward_tiles(int dim, int shared_kb) {
  if (dim <= 64) return {64, 64, 4, 2, 2, 2, 1};
  if (dim <= 128) {
    return shared_kb >= 163 ? Sm80BackwardTiles{64, 64, 8, 2, 2, 1, 1}
                            : Sm80BackwardTiles{32, 32, 4, 2, 2, 2, 1};
  }
  return shared_kb >= 227 ? Sm80BackwardTiles{64, 32, 8, 4, 2, 1, 1}
                          : Sm80BackwardTiles{32, 32, 4, 2, 2, 1, 1};
}

}  // namespace detail

}  // namespace attile
