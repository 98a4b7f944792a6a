// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/args.h>
#include <attile/core/block_sparse.h>
#include <attile/core/fp8.h>
#include <attile/core/mask.h>
#include <attile/core/score_mod.h>
#include <attile/kernel/portable/backward_traits.cuh>
#include <attile/kernel/portable/forward_traits.cuh>
#include <attile/kernel/sm80/backward_traits.cuh>
#include <attile/kernel/sm80/forward_traits.cuh>
#include <attile/kernel/sm90/backward_traits.cuh>
#include <attile/kernel/sm90/forward_traits.cuh>

#include <type_traits>
#include <utility>

namespace attile {

/// Names the tuning, and with it the family, of a backward pass whose caller gives tiles but no
/// family.
template <DqMode kMode>
using DefaultBackwardTuning =
    std::conditional_t<kMode == DqMode::kTwoPass, portable::Tuning<>, sm80::BackwardTuning<>>;

namespace detail {

/// Holds the tiles of one kernel. Units: rows of Q, rows of K and V, threads, blocks.
struct Tiles {
  int br, bc, threads, blocks_per_sm;
  bool prefetch = false;
};

// docs/tuning.md gives the measured speed of each row, "Portable tiles", and what spills, "sm80:
// matrix instructions".

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
/// Says the same for sm80, where dropout takes registers, too.
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

/// Holds the tiles of the sm80 forward kernel, and its tuning (sm80::Tuning).
struct Sm80ForwardTiles {
  int br, bc, warps, warps_n, blocks_per_sm;
};

/// Returns the tiles of the sm80 forward kernel. A warp has 32 rows where that spills nothing: up
/// to 128 columns of O where scores are plain (kPlainScores); above, with half of the columns,
/// where shared memory has room for P. As many blocks share a multiprocessor as its shared memory,
/// 1 KB more than a block's, has room for. Elements of fp8 take registers on their way to a
/// product: `converts` says that K or V has them, and `converts_queries` that Q has them, too,
/// where the device has no instruction for their products (arch::mma_m16n8k32).
constexpr Sm80ForwardTiles sm80_forward_tiles(int dim, int shared_kb, bool plain, bool converts,
                                              bool converts_queries) {
  if (dim <= 128) {
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

/// Names a set of tiles of the sm90 forward kernel: the default, the one for several query heads in
/// a tile, the one for long sequences, or the one with tiles of a score modifier's elements.
enum class TileSet { kAny, kPackedHeads, kLong, kElements };

/// Holds the tiles of an sm90 kernel, and its tuning (sm90::Tuning, sm90::BackwardTuning).
struct Sm90Tiles {
  int br, bc, stages, element_stages = 0, output_parts = 1;
  bool overlaps = true;
};

/// Says whether TMA may copy the elements of a score modifier: those of 16 bits.
template <class Args>
inline constexpr bool kHasElementTiles = [] {
  using S = typename Args::ScoreModType;
  if constexpr (kHasElements<S, StandardMath> && requires(const S& mod) { mod.elements(); }) {
    using Element = std::remove_cvref_t<decltype(*std::declval<const S&>().elements().data)>;
    return Args::SequencesType::kUniform && !BlockListMask<typename Args::MaskType> &&
           !Args::Elements::kAllFp8 && sizeof(typename Args::ElementType) == 2 &&
           sizeof(Element) == 2;
  }
  return false;
}();

/// Returns the tiles of the sm90 forward kernel that has tiles of a modifier's elements, too.
/// `small_bc`: see below.
constexpr Sm90Tiles sm90_element_forward_tiles(int dim, bool small_bc) {
  if (dim <= 64) return small_bc ? Sm90Tiles{192, 64, 4, 2} : Sm90Tiles{192, 128, 2, 1};
  if (dim <= 96) return {192, 64, 3, 2};
  if (dim <= 128) return {128, 128, 2, 1};
  return dim <= 192 ? Sm90Tiles{128, 80, 2, 1} : Sm90Tiles{128, 48, 2, 1};
}

/// Returns the tiles of the sm90 forward kernel on the fast path. `small_bc`: where much of what
/// rows see lies at a mask's edge, a small Bc computes fewer scores in vain, and with many stages
/// warpgroups that see more or fewer keys wait less for each other.
constexpr Sm90Tiles sm90_fast_forward_tiles(int d, int dv, bool small_bc, TileSet tile_set) {
  const int dim = max(d, dv);
  if (dim <= 96) {
    const int rows_of_tile =
        tile_set == TileSet::kPackedHeads ? 128 : 192;  // packed, 192 spill up to 36 bytes
    if (dim <= 64) return small_bc ? Sm90Tiles{192, 64, 5} : Sm90Tiles{rows_of_tile, 128, 3};
    return small_bc ? Sm90Tiles{192, 64, 4} : Sm90Tiles{rows_of_tile, 96, 3};
  }
  if (dim <= 128 && small_bc) return {192, 64, 4};
  if (dim <= 128)
    return tile_set == TileSet::kLong ? Sm90Tiles{192, 80, 3} : Sm90Tiles{128, 128, 2};
  if (dim <= 192 && dv <= 128) return small_bc ? Sm90Tiles{128, 64, 4} : Sm90Tiles{128, 112, 2};
  if (dim <= 192) return small_bc ? Sm90Tiles{128, 64, 3} : Sm90Tiles{128, 96, 2};
  return {128, 64, 2};
}

/// Returns the same off the fast path: that takes registers, and a smaller Bc avoids
/// spills.
constexpr Sm90Tiles sm90_general_forward_tiles(int dim) {
  if (dim <= 96) return {128, 96, 3};
  if (dim <= 128) return {128, 80, 2};
  return {128, dim <= 192 ? 48 : 32, 2};
}

/// Returns the tiles where Q, K and V are in fp8. Products take half the time of those of 16 bits,
/// and the softmax the same, so that the work of a step which does not depend on Bc counts for
/// more: Bc is the largest that spills nothing. A promoted P V takes registers beside S and O;
/// above 128 columns of O it takes those of S. `fast`: on the fast path without dropout; `bare`:
/// also without a modifier, with a mask that takes no registers, and for sequences of one length.
constexpr Sm90Tiles sm90_fp8_forward_tiles(int d, int dv, bool promotes, bool fast, bool bare) {
  if (dv <= 64) {
    if (!bare) return {128, 128, 2};
    return promotes ? Sm90Tiles{192, 96, 3} : Sm90Tiles{192, 160, 2};
  }
  if (dv <= 128) {
    if (!fast) return {128, 64, 3, 0, 2};
    if (d > 128) return {128, 128, 2, 0, 2};
    return promotes ? Sm90Tiles{128, 160, 2, 0, 2} : Sm90Tiles{128, bare ? 224 : 160, 2};
  }
  if (!promotes) return {128, fast ? 96 : 32, 2};
  if (!fast) return {128, 64, 2, 0, dv <= 192 ? 3 : 4, false};
  return dv <= 192 ? Sm90Tiles{128, 96, 2, 0, 2, false} : Sm90Tiles{128, 128, 2, 0, 2, false};
}

/// Returns the tiles with a mask of block lists, before they are fitted to its blocks. All rows of
/// a tile see the same blocks, so that a tile is as for a dense problem; but 192 rows would not
/// fit.
constexpr Sm90Tiles sm90_listed_forward_tiles(int d, int dv, bool fast, bool drops) {
  const int dim = max(d, dv);
  if (!fast) return sm90_general_forward_tiles(dim);
  if (dim <= 64) return {128, 128, 3};
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

/// Holds the tiles of the sm90 backward kernel, and their tuning (sm90::BackwardTuning).
struct Sm90BackwardTiles {
  int br, bc, stages, p_steps;
};
/// Returns the tiles of the sm90 backward kernel. A step with a modifier and dropout is so long
/// that 128 rows, which go in two parts, take more instructions than the caches have: with 64 rows
/// D = 64 is 1.17 times as fast at 1k, and the same at 4k (H200, docs/tuning.md).
constexpr Sm90BackwardTiles sm90_backward_tiles(int dim, int dim_v, bool has_long_steps) {
  const int larger = max(dim, dim_v);
  if (larger <= 128) return {larger <= 96 && !has_long_steps ? 128 : 64, 128, 2, 1};
  if (dim <= 192 && dim_v <= 128) return {64, 64, 3, 3};
  return {64, 64, 2, 1};
}

/// Holds the tiles of the sm80 backward kernels, and their tuning (sm80::BackwardTuning).
struct Sm80BackwardTiles {
  int br, bc, warps, warps_n, dq_warps_n, blocks_per_sm, stages;
};

/// Returns the tiles of the sm80 backward kernels for 16-bit types.
constexpr Sm80BackwardTiles sm80_backward_tiles(int dim, int shared_kb, bool plain) {
  const bool large = shared_kb >= 227;
  if (dim <= 64)
    return plain ? Sm80BackwardTiles{32, 128, 4, 1, 4, 2, 1}
                 : Sm80BackwardTiles{32, 64, 4, 1, 2, 2, 1};
  if (dim <= 128) {
    if (!plain) return {32, 64, 4, 2, 2, 2, 1};
    return large ? Sm80BackwardTiles{64, 128, 8, 2, 4, 1, 2}
                 : Sm80BackwardTiles{64, 64, 4, 2, 2, 2, 1};
  }
  if (shared_kb < 163) return {32, 32, 4, 2, 2, 1, 1};
  if (!plain) return {32, 64, 8, 2, 4, 1, 1};
  return {large ? 128 : 64, 64, 8, 4, 4, 1, 1};
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

template <class Args, int D, int Dv, int Br, int Bc, class Tuning>
using ForwardOf = typename Tuning::template Forward<Br, Bc, D, typename Args::Elements,
                                                    typename Args::Policies, Dv>;

template <class Args, int D, int Dv, int kSharedKb>
struct PortableForward {
  static constexpr Tiles kTiles =
      fitted<typename Args::MaskType>(portable_forward_tiles(max(D, Dv), kSharedKb));
  using type = ForwardOf<Args, D, Dv, kTiles.br, kTiles.bc,
                         portable::Tuning<kTiles.threads, kTiles.blocks_per_sm, kTiles.prefetch>>;
};

template <class Args, int D, int Dv, DqMode kMode, int kSharedKb>
struct PortableBackward {
  static constexpr Tiles kTiles =
      fitted<typename Args::MaskType>(portable_backward_tiles(max(D, Dv), kSharedKb));
  using type = portable::BackwardTraits<kTiles.br, kTiles.bc, D, typename Args::Elements,
                                        typename Args::Policies, Dv, kMode,
                                        portable::Tuning<kTiles.threads, kTiles.blocks_per_sm>>;
};

template <class Args, int D, int Dv, int kSharedKb>
struct Sm80Forward {
  static constexpr Sm80ForwardTiles kTiles = fitted<typename Args::MaskType>(
      sizeof(typename Args::ElementType) == 4
          ? sm80_fp32_forward_tiles(max(D, Dv))
          : sm80_forward_tiles(max(D, Dv), kSharedKb, kPlainScores<Args>,
                               Fp8<typename Args::Elements::K>,
                               Args::Elements::kFp8Queries&& kSharedKb >= 163));
  using type = ForwardOf<Args, D, Dv, kTiles.br, kTiles.bc,
                         sm80::Tuning<kTiles.warps, kTiles.warps_n, kTiles.blocks_per_sm>>;
};

template <class Args, int D, int Dv, TileSet kTileSet>
struct Sm90Forward {
  /// The new rows of a cache see many more keys than lie at the edge of `Causal`.
  static constexpr bool kLongKeys = kIsForwardOnly<typename Args::SequencesType> &&
                                    std::is_same_v<typename Args::MaskType, Causal>;
  static constexpr bool kEdges = !kRowsAlike<typename Args::MaskType> && !kLongKeys &&
                                 (kTileSet == TileSet::kAny || kTileSet == TileSet::kElements);
  /// With dropout three consumers, which have a small Bc up to 128 columns, hide its work better.
  static constexpr bool kThreeConsumers = Args::DropoutType::kEnabled && max(D, Dv) > 96 &&
                                          max(D, Dv) <= 128 && kTileSet != TileSet::kPackedHeads;
  static constexpr bool kSmallBc = kEdges || kThreeConsumers;
  static constexpr bool kFast = kHasFastTiles<Args>;
  using M = typename Args::MaskType;
  using E = typename Args::Elements;
  static constexpr bool kBare =
      (std::is_same_v<M, NoMask> || std::is_same_v<M, Causal>)&&kPlainScores<Args> &&
      Args::SequencesType::kUniform && kTileSet != TileSet::kPackedHeads;
  static constexpr Sm90Tiles kTiles =
      E::kAllFp8 ? fitted<M>(sm90_fp8_forward_tiles(D, Dv, E::kFp8Sums == Fp8Sums::kPromoted,
                                                    kFast && !Args::DropoutType::kEnabled, kBare))
      : BlockListMask<M>
          ? fitted<M>(sm90_listed_forward_tiles(D, Dv, kFast, Args::DropoutType::kEnabled))
      : kTileSet == TileSet::kElements ? sm90_element_forward_tiles(max(D, Dv), kEdges)
      : kFast                          ? sm90_fast_forward_tiles(D, Dv, kSmallBc, kTileSet)
                                       : sm90_general_forward_tiles(max(D, Dv));
  using type = ForwardOf<
      Args, D, Dv, kTiles.br, kTiles.bc,
      sm90::Tuning<kTiles.stages, kTileSet == TileSet::kPackedHeads, true, kTiles.element_stages,
                   false, kTiles.output_parts, false, kTiles.overlaps>>;
};

template <class Args, int D, int Dv, DqMode kMode>
struct Sm90Backward {
  using S = typename Args::ScoreModType;
  static constexpr bool kHasLongSteps =
      Args::DropoutType::kEnabled && !kIsIdentity<S> && !kHasElements<S, StandardMath>;
  static constexpr Sm90BackwardTiles kTiles =
      fitted<typename Args::MaskType>(sm90_backward_tiles(D, Dv, kHasLongSteps));
  using type = sm90::BackwardTraits<min(kTiles.br, kTiles.bc), kTiles.bc, D,
                                    typename Args::Elements, typename Args::Policies, Dv, kMode,
                                    sm90::BackwardTuning<kTiles.stages, kTiles.p_steps>>;
};

template <class Args, int D, int Dv, DqMode kMode, int kSharedKb>
struct Sm80Backward {
  static constexpr Sm80BackwardTiles kTiles = fitted<typename Args::MaskType>(
      sizeof(typename Args::ElementType) == 4
          ? sm80_fp32_backward_tiles(max(D, Dv), kSharedKb)
          : sm80_backward_tiles(max(D, Dv), kSharedKb, kPlainScores<Args>));
  using type =
      sm80::BackwardTraits<kTiles.br, kTiles.bc, D, typename Args::Elements,
                           typename Args::Policies, Dv, kMode,
                           sm80::BackwardTuning<kTiles.warps, kTiles.warps_n, kTiles.dq_warps_n,
                                                kTiles.blocks_per_sm, kTiles.stages>>;
};

}  // namespace detail

/// Is the shared memory of a block that every device since compute capability 8.0 allows. Units:
/// KB.
inline constexpr int kCommonSharedKb = 99;

namespace portable {

/// Names the portable kernels for these arguments with the default tiles. kSharedKb: 99 fits every
/// device since compute capability 8.0; with 227 the tiles may be larger, for 9.0 and 10.0.
template <class Args, int D, int Dv = D, int kSharedKb = kCommonSharedKb>
using DefaultForwardTraits = typename detail::PortableForward<Args, D, Dv, kSharedKb>::type;
template <class Args, int D, int Dv = D, DqMode kMode = DqMode::kAccumulate,
          int kSharedKb = kCommonSharedKb>
using DefaultBackwardTraits =
    typename detail::PortableBackward<Args, D, Dv, kMode, kSharedKb>::type;

}  // namespace portable

namespace sm80 {

/// Names the sm80 kernels for these arguments with the default tiles for devices on which a block
/// can have kSharedKb: 227 (compute capability 9.0 and 10.0), 163 (8.0) or 99 (8.6, 8.9 and 12.0).
template <class Args, int D, int Dv = D, int kSharedKb = kCommonSharedKb>
using DefaultForwardTraits = typename detail::Sm80Forward<Args, D, Dv, kSharedKb>::type;
template <class Args, int D, int Dv = D, DqMode kMode = DqMode::kAccumulate,
          int kSharedKb = kCommonSharedKb>
using DefaultBackwardTraits = typename detail::Sm80Backward<Args, D, Dv, kMode, kSharedKb>::type;

}  // namespace sm80

namespace sm90 {

using detail::TileSet;

/// Returns the q_len from which on `Causal` takes the kernel of TileSet::kLong, whose larger Bc
/// gains where a mask's edge is a small part of what rows see, and loses as much elsewhere
/// (docs/tuning.md; other masks are not measured).
constexpr int long_sequence(int dim) { return dim <= 64 ? 1536 : 4096; }

/// Names the sm90 kernels for these arguments with the default tiles.
template <class Args, int D, int Dv = D, TileSet kTileSet = TileSet::kAny>
using DefaultForwardTraits = typename detail::Sm90Forward<Args, D, Dv, kTileSet>::type;
template <class Args, int D, int Dv = D, DqMode kMode = DqMode::kAccumulate>
using DefaultBackwardTraits = typename detail::Sm90Backward<Args, D, Dv, kMode>::type;

}  // namespace sm90

namespace detail {

/// Says whether there are sm80 kernels for a DqMode whose tiles of K, V, Q and dO fit.
template <class T, DqMode kMode, int kDim, int kSharedKb>
inline constexpr bool kSm80Backward = kMode != DqMode::kTwoPass &&
                                      (sizeof(T) == 2 || kDim <= 128 || kSharedKb >= 163);

}  // namespace detail

/// Names the kernels, of those before sm90, that the one-call `backward` runs for these arguments
/// on a device with compute capability 8.0 or later on which a block can have kSharedKb of shared
/// memory.
template <class Args, int D, int Dv = D, DqMode kMode = DqMode::kAccumulate,
          int kSharedKb = kCommonSharedKb>
using DefaultBackwardTraits = typename std::conditional_t<
    detail::kSm80Backward<typename Args::ElementType, kMode, max(D, Dv), kSharedKb>,
    detail::Sm80Backward<Args, D, Dv, kMode, kSharedKb>,
    detail::PortableBackward<Args, D, Dv, kMode, kCommonSharedKb>>::type;

}  // namespace attile
