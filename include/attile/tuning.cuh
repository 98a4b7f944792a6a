// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/args.h>
#include <attile/core/block_sparse.h>
#include <attile/core/fp8.h>
#include <attile/core/mask.h>
#include <attile/core/prepared_mask.h>
#include <attile/core/score_mod.h>
#include <attile/core/tile_modifier.h>
#include <attile/default_tiles.h>
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

// These structs name, as `type`, the traits of a family's kernels for arguments, with the default
// tiles (default_tiles.h).

template <class Args, int D, int Dv, int Br, int Bc, class Tuning>
using ForwardOf = typename Tuning::template Forward<Br, Bc, D, typename Args::Elements,
                                                    typename Args::Policies, Dv>;

template <class Args, int D, int Dv, int kSharedKb>
struct PortableForward {
  static constexpr Tiles kTiles =
      fitted<typename Args::MaskType>(portable_forward_tiles(max(D, Dv), kSharedKb));
  using type =
      ForwardOf<Args, D, Dv, kTiles.br, kTiles.bc,
                portable::Tuning<portable::TuningValues{.threads = kTiles.threads,
                                                        .blocks_per_sm = kTiles.blocks_per_sm,
                                                        .prefetch = kTiles.prefetch}>>;
};

template <class Args, int D, int Dv, DqMode kMode, int kSharedKb>
struct PortableBackward {
  static constexpr Tiles kTiles =
      fitted<typename Args::MaskType>(portable_backward_tiles(max(D, Dv), kSharedKb));
  using type = portable::BackwardTraits<
      kTiles.br, kTiles.bc, D, typename Args::Elements, typename Args::Policies, Dv, kMode,
      portable::Tuning<portable::TuningValues{.threads = kTiles.threads,
                                              .blocks_per_sm = kTiles.blocks_per_sm}>>;
};

/// Says which words of a score modifier an sm90 kernel with a set of tiles reads.
constexpr sm90::ModifierWords words_of(TileSet set) {
  if (has_columns(set)) return sm90::ModifierWords::kColumns;
  return has_diagonals(set) ? sm90::ModifierWords::kDiagonals : sm90::ModifierWords::kNone;
}

/// Says how an sm80 kernel with a set of tiles reads a score modifier's data.
constexpr sm80::ModifierReads reads_of(TileSet set) {
  if (has_columns(set)) return sm80::ModifierReads::kColumns;
  return has_elements(set) ? sm80::ModifierReads::kElements : sm80::ModifierReads::kAny;
}

template <class Args, int D, int Dv, int kSharedKb, TileSet kTileSet>
struct Sm80Forward {
  using S = typename Args::ScoreModType;
  static constexpr bool kSameLengths =
      Args::SequencesType::kUniform && !Fp8<typename Args::Elements::K>;
  /// What other modifiers have to compute or to read takes registers, or longer (softcap at 1k).
  static constexpr bool kTall = !kNeedsScores<S> && !kHasElements<S, StandardMath> && kSameLengths;
  static constexpr bool kWide = has_wide_tiles<Args>(kTileSet);
  static constexpr Sm80ForwardTiles kTiles = fitted<typename Args::MaskType>(
      sizeof(typename Args::ElementType) == 4 ? sm80_fp32_forward_tiles(max(D, Dv))
      : kTileSet != TileSet::kAny || (kWide && kSameLengths && max(D, Dv) <= 128)
          ? sm80_modifier_forward_tiles(max(D, Dv), kSharedKb, kTileSet, kWide, !kNeedsScores<S>)
          : sm80_forward_tiles(max(D, Dv), kSharedKb, kPlainScores<Args>,
                               Fp8<typename Args::Elements::K>,
                               Args::Elements::kFp8Queries&& kSharedKb >= 163, kTall));
  using type = ForwardOf<Args, D, Dv, kTiles.br, kTiles.bc,
                         sm80::Tuning<sm80::TuningValues{.warps = kTiles.warps,
                                                         .warps_n = kTiles.warps_n,
                                                         .blocks_per_sm = kTiles.blocks_per_sm,
                                                         .reads = reads_of(kTileSet)}>>;
};

/// Says whether later rows see more keys: under a causal mask, also beside another one.
template <class M>
inline constexpr bool kIsCausal = std::is_same_v<M, Causal>;
template <class A, class B>
inline constexpr bool kIsCausal<And<A, B>> = kIsCausal<A> || kIsCausal<B>;

/// Says whether two teams have registers for a mask: for one that reads no memory, and for sorted
/// documents, which take 0.85 to 0.98 of the time of three consumers (H200,
/// bench/log/tuning-policies.md). With a window beside documents they spill.
template <class M>
inline constexpr bool kFitsTeams =
    !kHasTileMask<MaskInTiles<M>> || std::is_same_v<M, SortedDocument> ||
    std::is_same_v<M, And<Causal, SortedDocument>>;

template <class Args, int D, int Dv, TileSet kTileSet>
struct Sm90Forward {
  using Seqs = typename Args::SequencesType;
  /// The new rows of a cache see many more keys than lie at the edge of `Causal`.
  static constexpr bool kLongKeys =
      kIsForwardOnly<Seqs> && std::is_same_v<typename Args::MaskType, Causal>;
  static constexpr bool kEdges = !kRowsAlike<typename Args::MaskType> && !kLongKeys &&
                                 !is_long(kTileSet) && kTileSet != TileSet::kPackedHeads;
  using M = typename Args::MaskType;
  using S = typename Args::ScoreModType;
  using E = typename Args::Elements;
  /// Whether it is one of the sets with a counter and two teams, for sequences that are not long.
  static constexpr bool kShortSet =
      kTileSet == TileSet::kAny || kTileSet == TileSet::kColumns || kTileSet == TileSet::kDiagonals;
  /// Whether a modifier, if there is one, adds to scores alone, and takes few registers.
  static constexpr bool kAdds = !kNeedsScores<S> && !Args::DropoutType::kEnabled;
  /// Whether sequences are packed, and two teams faster than three consumers: under `Causal` they
  /// take 0.60 to 0.96 of the time, with `Alibi` 0.91. Where all rows see all keys they take 0.58
  /// to 0.98 up to 1k and 1.04 to 1.09 from 2k on: documents of dense tensors have them, which are
  /// mostly short (H200, bench/log/tuning-sequences.md). Of `Padded` sequences they spill.
  static constexpr bool kPackedTeams =
      kIsPacked<Seqs> && (std::is_same_v<M, Causal> ||
                          (std::is_same_v<M, NoMask> && kPlainScores<Args> && kIsInBatches<Seqs>));
  /// What two teams have registers for.
  static constexpr bool kTeams =
      kAdds && kShortSet && (Seqs::kUniform || kPackedTeams) && !E::kFp8Queries &&
      (kIsIdentity<S> ? kFitsTeams<M> : !kHasTileMask<MaskInTiles<M>> && !BlockListMask<M>);
  /// Up to 64 columns they also are faster for few keys, where scores have no modifier.
  static constexpr bool kFewKeys =
      kTeams && kIsIdentity<S> && std::is_same_v<M, NoMask> && max(D, Dv) <= 64;
  static constexpr sm90::ModifierWords kWords = words_of(kTileSet);
  /// Whether a modifier computes something beside what it adds, and that is read ahead: it has no
  /// registers for the large tiles, which spill.
  static constexpr bool kComputesAndReads =
      kNeedsScores<S> && (kWords != sm90::ModifierWords::kNone || has_elements(kTileSet));
  static constexpr bool kSmallBc = kEdges || kFewKeys || (kComputesAndReads && max(D, Dv) <= 96);
  /// With dropout, or beside words, long rows take 0.91 to 0.97 of the time in the tiles of rows
  /// that see all keys, above 96 columns, where those are others (H200,
  /// bench/log/tuning-policies.md).
  static constexpr TileSet kFastSet = [] {
    if (Args::DropoutType::kEnabled && kTileSet == TileSet::kLong) return TileSet::kAny;
    if (!kComputesAndReads || !is_long(kTileSet)) return kTileSet;
    return has_diagonals(kTileSet) ? TileSet::kDiagonals : TileSet::kColumns;
  }();
  /// What comes with K takes few registers, and no branch.
  static constexpr bool kFast =
      kHasFastTiles<Args> ||
      (kWords != sm90::ModifierWords::kNone && IntervalMask<MaskInTiles<typename Args::MaskType>>);
  static constexpr bool kMasked = kHasMaskedTiles<Args> && kTileSet != TileSet::kPackedHeads;
  static constexpr bool kBare =
      (std::is_same_v<M, NoMask> || std::is_same_v<M, Causal>)&&kPlainScores<Args> &&
      Seqs::kUniform && kTileSet != TileSet::kPackedHeads;
  /// Whether blocks that take the next tile when they are free pay under a causal mask: at D = 128
  /// they are 1.08 times as fast at 1k, and 1.02 to 1.04 above, at D = 64, 96 and 192 1.04 at 1k
  /// and nothing for many rows, at D = 256 0.97 at 4k (bench/log/tuning-sm90.md). With a modifier,
  /// or another mask, they are faster for many rows, too (bench/log/tuning-policies.md; above 128
  /// columns that was not measured).
  static constexpr bool kCausalCounts =
      kIsCausal<M> && E::kInputsEqual && (kBare || (kAdds && max(D, Dv) <= 128)) &&
      ((kShortSet && max(D, Dv) <= 192) ||
       (is_long(kTileSet) && !has_elements(kTileSet) && max(D, Dv) <= 128 &&
        (max(D, Dv) > 96 || !kIsIdentity<S>)));
  /// With dropout `KeyPadding` keeps the warp that would count for dropout's columns.
  static constexpr bool kUnevenCounts =
      kUnevenRows<M> && kShortSet &&
      !(std::is_same_v<M, KeyPadding> && Args::DropoutType::kEnabled);
  static constexpr bool kCounts = (kUnevenCounts || kCausalCounts) && Seqs::kUniform && !E::kAllFp8;
  static constexpr Sm90Tiles kTiles =
      E::kAllFp8 ? fitted<M>(sm90_fp8_forward_tiles(D, Dv, E::kFp8Sums == Fp8Sums::kPromoted,
                                                    kFast && !Args::DropoutType::kEnabled, kBare))
      : BlockListMask<M>
          ? fitted<M>(sm90_listed_forward_tiles(D, Dv, kFast, Args::DropoutType::kEnabled,
                                                fitting_rows<M>(192), kTeams))
      : has_elements(kTileSet)
          ? sm90_element_forward_tiles(max(D, Dv), kSmallBc, Seqs::kUniform, kComputesAndReads)
      : kFast   ? sm90_fast_forward_tiles(D, Dv, kSmallBc, kFastSet, kTeams)
      : kMasked ? sm90_masked_forward_tiles(max(D, Dv), kHasTileMask<M>, kTeams)
                : sm90_general_forward_tiles(max(D, Dv));
  using type =
      ForwardOf<Args, D, Dv, kTiles.br, kTiles.bc,
                sm90::Tuning<sm90::TuningValues{.stages = kTiles.stages,
                                                .packs_heads = kTileSet == TileSet::kPackedHeads,
                                                .element_stages = kTiles.element_stages,
                                                .counts = kCounts,
                                                .words = kWords,
                                                .output_parts = kTiles.output_parts,
                                                .overlaps = kTiles.overlaps,
                                                .waits_late = kTiles.waits_late,
                                                .transposed_from_rows = kTiles.transposed_from_rows,
                                                .teams = kTiles.teams}>>;
};

/// Says whether the sm90 backward pass makes P of S, and of what a modifier reads, alone, before dP
/// is there (BackwardTraits::kPBeforeDp).
template <class Args>
inline constexpr bool kMakesPBeforeDp =
    !kHasGradient<typename Args::ScoreModType> || !kNeedsScores<typename Args::ScoreModType>;
/// Says whether there is one with tiles of a modifier's elements, or with words of diagonals.
/// Beside dropout such a one takes 0.72 to 0.86 of the time of one that reads for each score, at D
/// = 96 and 128 (H200, bench/log/tuning-policies.md).
template <class Args>
inline constexpr bool kHasBackwardElementTiles = kHasElementTiles<Args>&& kMakesPBeforeDp<Args>;
template <class Args>
inline constexpr bool kHasBackwardDiagonals =
    kHasDiagonalTiles<typename Args::ScoreModType, StandardMath>&& kMakesPBeforeDp<Args> &&
    !BlockListMask<typename Args::MaskType>;

/// Says whether there is an sm90 backward pass whose threads read what a modifier has for each
/// column ahead. Where its derivative is 1 that takes up to 64 columns 0.91 of the time of the one
/// that reads for each score, and at 128 1.00 (H200, bench/log/tuning-policies.md).
template <class Args, int D, int Dv>
inline constexpr bool kHasBackwardColumns = [] {
  using S = typename Args::ScoreModType;
  constexpr bool kFits =
      kNeedsScores<S> ? max(D, Dv) <= 128
                      : max(D, Dv) <= 64 && IntervalMask<MaskInTiles<typename Args::MaskType>>;
  return kFits && kHasColumnTiles<S, StandardMath> && !kHasGradient<S> &&
         !BlockListMask<typename Args::MaskType>;
}();

template <class Args, int D, int Dv, DqMode kMode, TileSet kTileSet>
struct Sm90Backward {
  using S = typename Args::ScoreModType;
  static constexpr bool kColumns = has_columns(kTileSet), kDiagonals = has_diagonals(kTileSet);
  static constexpr bool kHasLongSteps =
      Args::DropoutType::kEnabled && !kIsIdentity<S> &&
      (kNeedsScores<S> || !(kHasElements<S, StandardMath> || kColumns));
  static constexpr Sm90BackwardTiles kTiles = fitted<typename Args::MaskType>(
      kTileSet == TileSet::kAny || kColumns
          ? sm90_backward_tiles(D, Dv, kHasLongSteps)
          : sm90_element_backward_tiles(D, Dv, kHasLongSteps&& kNeedsScores<S>));
  using Tuning = sm90::BackwardTuning<sm90::BackwardTuningValues{
      .stages = kTiles.stages,
      .p_steps = kTiles.p_steps,
      .element_stages = kDiagonals ? 0 : kTiles.element_stages,
      .words = words_of(kTileSet)}>;
  using type =
      sm90::BackwardTraits<min(kTiles.br, kTiles.bc), kTiles.bc, D, typename Args::Elements,
                           typename Args::Policies, Dv, kMode, Tuning>;
};

template <class Args, int D, int Dv, DqMode kMode, int kSharedKb, TileSet kTileSet>
struct Sm80Backward {
  using S = typename Args::ScoreModType;
  /// The elements of a modifier that only adds them, a mask that is asked for each score, and
  /// dropout beside ALiBi, or beside any modifier above 64 columns, would spill.
  static constexpr bool kDropoutFits =
      !Args::DropoutType::kEnabled || kIsIdentity<S> || (max(D, Dv) <= 64 && kNeedsScores<S>);
  static constexpr bool kLarger = kMode == DqMode::kAccumulate && kDropoutFits &&
                                  IntervalMask<MaskInTiles<typename Args::MaskType>> &&
                                  Args::SequencesType::kUniform &&
                                  (kNeedsScores<S> || !kHasElements<S, StandardMath>);
  static constexpr Sm80BackwardTiles kTiles = fitted<typename Args::MaskType>(
      sizeof(typename Args::ElementType) == 4 ? sm80_fp32_backward_tiles(max(D, Dv), kSharedKb)
      : kTileSet != TileSet::kAny
          ? sm80_modifier_backward_tiles(max(D, Dv), kSharedKb, kTileSet)
          : sm80_backward_tiles(max(D, Dv), kSharedKb, kPlainScores<Args>, kLarger));
  using type = sm80::BackwardTraits<
      kTiles.br, kTiles.bc, D, typename Args::Elements, typename Args::Policies, Dv, kMode,
      sm80::BackwardTuning<sm80::BackwardTuningValues{.warps = kTiles.warps,
                                                      .warps_n = kTiles.warps_n,
                                                      .dq_warps_n = kTiles.dq_warps_n,
                                                      .blocks_per_sm = kTiles.blocks_per_sm,
                                                      .stages = kTiles.stages,
                                                      .reads = reads_of(kTileSet)}>>;
};

/// Says whether there are sm80 kernels with a set of tiles, beside those of kAny: up to 128
/// columns, and backward without what would take registers beside the modifier.
template <class Args, int D, int Dv, int kSharedKb, TileSet kTileSet>
inline constexpr bool kHasSm80Set = [] {
  using S = typename Args::ScoreModType;
  constexpr bool kReads = has_elements(kTileSet)
                              ? kHasElementTiles<Args>
                              : has_columns(kTileSet) && kHasColumnTiles<S, StandardMath>;
  constexpr bool kTakes = kReads && sizeof(typename Args::ElementType) == 2 &&
                          !Fp8<typename Args::Elements::K> && Args::SequencesType::kUniform &&
                          !BlockListMask<typename Args::MaskType> && max(D, Dv) <= 128;
  if constexpr (Args::kIsForward) {
    return kTakes && (max(D, Dv) <= 64 || kSharedKb >= 163 || !has_elements(kTileSet));
  } else {
    return kTakes && !kNeedsScores<S> && !kHasGradient<S> && !Args::DropoutType::kEnabled &&
           IntervalMask<MaskInTiles<typename Args::MaskType>>;
  }
}();

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
template <class Args, int D, int Dv = D, int kSharedKb = kCommonSharedKb,
          detail::TileSet kTileSet = detail::TileSet::kAny>
using DefaultForwardTraits = typename detail::Sm80Forward<Args, D, Dv, kSharedKb, kTileSet>::type;
template <class Args, int D, int Dv = D, DqMode kMode = DqMode::kAccumulate,
          int kSharedKb = kCommonSharedKb, detail::TileSet kTileSet = detail::TileSet::kAny>
using DefaultBackwardTraits =
    typename detail::Sm80Backward<Args, D, Dv, kMode, kSharedKb, kTileSet>::type;

}  // namespace sm80

namespace sm90 {

using detail::TileSet;

/// Says whether a kernel's blocks have several teams (Tuning).
template <class Traits>
inline constexpr bool kHasTeams = [] {
  if constexpr (requires { Traits::kTeams; }) return Traits::kTeams > 1;
  return false;
}();
/// Returns the length from which on a mask takes the kernel of TileSet::kLong: `NoMask` the kv_len,
/// instead of a kernel with teams, and `Causal` the q_len. The larger Bc of kLong gains where a
/// mask's edge is a small part of what rows see, and loses as much elsewhere
/// (bench/log/tuning-sm90.md; other masks are not measured). `teams`: instead of one with teams.
template <class Mask>
constexpr int long_sequence(int dim, bool teams = false) {
  if (std::is_same_v<Mask, NoMask>) return 1280;
  return dim > 64 ? 4096 : teams ? 2048 : 1536;
}
/// Says whether a call's rows are so long: by that, or under `Causal` because there are four times
/// as many keys as queries, where D = 128 takes 0.80 to 1.00 of the time of the other tiles
/// (bench/log/tuning-decode.md; up to 64 columns are not measured).
template <class Args>
bool has_long_rows(const Args& args, int dim, bool teams = false) {
  using Mask = typename Args::MaskType;
  constexpr bool kByKeys = std::is_same_v<Mask, NoMask>;
  const bool is_long = (kByKeys ? args.kv_len : args.q_len) >= long_sequence<Mask>(dim, teams);
  return is_long || (!kByKeys && dim > 64 && args.kv_len / 4 >= args.q_len);
}

/// Names the sm90 kernels for these arguments with the default tiles.
template <class Args, int D, int Dv = D, TileSet kTileSet = TileSet::kAny>
using DefaultForwardTraits = typename detail::Sm90Forward<Args, D, Dv, kTileSet>::type;
template <class Args, int D, int Dv = D, DqMode kMode = DqMode::kAccumulate,
          TileSet kTileSet = TileSet::kAny>
using DefaultBackwardTraits = typename detail::Sm90Backward<Args, D, Dv, kMode, kTileSet>::type;

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
    detail::Sm80Backward<Args, D, Dv, kMode, kSharedKb, detail::TileSet::kAny>,
    detail::PortableBackward<Args, D, Dv, kMode, kCommonSharedKb>>::type;

}  // namespace attile
