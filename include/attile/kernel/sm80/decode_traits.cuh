// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/launch.cuh>
#include <attile/core/earlier_keys.h>
#include <attile/core/fp8.h>
#include <attile/core/math.h>
#include <attile/kernel/decode/decode_params.cuh>
#include <attile/kernel/problem/kernel_traits.h>
#include <attile/kernel/sm80/tuning.h>
#include <attile/tile/mma_tile.cuh>
#include <attile/tile/online_softmax.h>
#include <attile/tile/panel_tile.cuh>
#include <attile/tile/row_warps.cuh>

#include <concepts>
#include <cstddef>
#include <type_traits>

namespace attile::sm80 {

/// Returns the floats from row to row of the memory in which so many columns of O are merged: 8
/// more keep the rows of a half warp's stores in different banks.
ATTILE_HOST_DEVICE constexpr int merge_pitch(int columns) { return columns + 8; }
/// Returns the columns of O that there is memory for when all warps of a block have 16 rows to
/// merge: all, or of equal shares the largest that keep it within 12 KB, or 16.
constexpr int merge_columns(int columns, int warps) {
  int times = 1;
  const auto at_a_time = [&] { return round_up(ceil_div(columns, times), 16); };
  while (at_a_time() > 16 && warps * 16 * merge_pitch(at_a_time()) > 3 * 1024) ++times;
  return at_a_time();
}

/// Holds every constant of a decode kernel for the matrix instructions of compute capability 8.0.
/// Br      packed rows of a row tile: 16 for each warp of a key group.
/// Bc      keys of a step of the block: a multiple of 16 for each warp.
/// D, Dv   the largest head_dim and head_dim_v it takes, up to 256; smaller ones are padded inside.
template <int Br, int Bc, int D, class E, class P, int Dv, class TuningType>
struct DecodeTraits : KernelTraits<Direction::kForward, Br, Bc, D, E, P, Dv> {
  using T = typename E::Q;
  using K = typename E::K;
  using V = typename E::V;
  static_assert(D >= 1 && D <= 256, "attile::sm80::DecodeTraits: D must be 1 to 256");
  static_assert(Dv >= 1 && Dv <= 256, "attile::sm80::DecodeTraits: Dv must be 1 to 256");
  static_assert(!Fp8<typename E::Q>,
                "attile::sm80::DecodeTraits: decode takes queries of 16 bits, or fp32; those in "
                "fp8 are for forward");
  static_assert(!BlockListMask<typename P::MaskType>,
                "attile::sm80::DecodeTraits: block lists name blocks of many rows: forward takes "
                "them, decode does not");

  using Params = DecodeParams<DecodeTraits>;
  static constexpr const char* kFamily = "sm80 decode";
  static constexpr int kLeastArchitecture = 800;
  static constexpr bool kPersistent = true;
  static constexpr bool kSplits = true;
  static constexpr bool kAwaitsDependencies = true;
  /// Whether a block warms up (forward_block): where it has registers left for that.
  static constexpr bool kWarmsUp = sizeof(T) == 2 && max(D, Dv) <= 128 &&
                                   kIsIdentity<typename P::ScoreModType> &&
                                   !P::DropoutType::kEnabled;
  /// Whether the query heads of a kv head share row tiles.
  static constexpr bool kPacksHeads = !P::DropoutType::kEnabled;
  static constexpr int kWarps = TuningType::kWarps;
  static constexpr int kKeyGroups = TuningType::kKeyGroups;
  static constexpr int kStages = TuningType::kStages;
  static constexpr int kGroupWarps = kWarps / kKeyGroups;
  static constexpr int kGroupThreads = kGroupWarps * 32;
  static constexpr int kGroupKeys = Bc / kKeyGroups;
  static_assert(Br == 16 * kGroupWarps,
                "attile::sm80::DecodeTraits: Br must be 16 for each warp of a key group");
  static_assert(Bc % (16 * kWarps) == 0,
                "attile::sm80::DecodeTraits: Bc must be a multiple of 16 for each warp");
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kBlocksPerSm = TuningType::kBlocksPerSm;
  static constexpr Products kProducts = TuningType::kProducts;

  /// Is the number of rows that a warp has.
  static constexpr int kWarpRows = 16;
  // S, P and O of all warps are one tile, one warp's 16 rows after another's (WarpShare).
  static constexpr int kQkColumns = round_up(D, tile::kTileColumns<K>);
  static constexpr int kVColumns = round_up(Dv, tile::kTileColumns<V>);
  template <int kWarpKeys>
  using ScoreRegisters = tile::MmaTile<kWarps * kWarpRows, kWarpKeys, kWarps>;
  using OutputRegisters =
      tile::MmaTile<kWarps * kWarpRows, kVColumns, kWarps, 1, tile::kLaneColumnsOf<V>>;
  /// Whether products with K and V in fp8 are of fp16 although queries are bf16. fp16 has all
  /// numbers of fp8, which the device converts to it by one instruction for two, and to bf16 by
  /// three more. A row of Q becomes fp16 times a power of two (tile::scale_to_half), and P has a
  /// factor, so that neither loses what bf16 has.
  static constexpr bool kScalesQueries = std::same_as<T, __nv_bfloat16> && Fp8<K> && Fp8<V>;
  /// With it P is below 2^15, and so in the range of fp16, even where m * scale_log2 is rounded.
  using Factor = tile::FactorOfP<kScalesQueries ? 14 : 0>;
  using Product = std::conditional_t<kScalesQueries, __half, T>;  ///< of the products' operands
  /// Whether two warps share 32 rows in parts whose keys are not divided: each makes S of half of
  /// the keys and O of half of the columns, and so converts half of K and V in fp8. P goes through
  /// shared memory.
  static constexpr bool kPairs = TuningType::kPairs;
  static_assert(!kPairs || (kGroupWarps == 2 && Fp8<K> && Fp8<V>),
                "attile::sm80::DecodeTraits: pairs are the two warps of a key group, and for K and "
                "V in fp8");
  static constexpr int kPairWarps = kPairs ? 2 : 1;
  using PairScores = tile::MmaTile<kWarps * kWarpRows, kGroupKeys, kWarps, kPairWarps>;
  using PairOutputs =
      tile::MmaTile<kWarps * kWarpRows, kVColumns, kWarps, kPairWarps, tile::kLaneColumnsOf<V>>;
  using PairWarps = tile::RowWarps<kWarps, kPairWarps, PairOutputs::kRegRows>;
  using PTile = tile::PanelTile<kWarps * kWarpRows, kGroupKeys, Product>;
  using QTile = tile::PanelTile<Br, kQkColumns, T>;
  using ScaledQTile = tile::PanelTile<Br, kQkColumns, Product>;  ///< in the place of a QTile
  using KTile = tile::PanelTile<kGroupKeys, kQkColumns, K>;
  using VTile = tile::PanelTile<kGroupKeys, kVColumns, V>;

  /// Whether the warps of the one key group are a warpgroup whose operands wgmma takes.
  static constexpr bool kIsWarpgroup = kGroupWarps == 4 && kKeyGroups == 1 && sizeof(T) == 2 &&
                                       std::same_as<T, K> && std::same_as<T, V>;

  static constexpr int kMergeColumns = merge_columns(kVColumns, kWarps);
  static constexpr int kQStages = TuningType::kQStages;
  /// Whether states are merged in the memory of Q. They are in that of P of pairs.
  static constexpr bool kMergesInQ = kQStages == 1;
  static constexpr std::size_t kPBytes = kPairs ? PTile::kBytes : 0;
  static constexpr std::size_t kMergedBytes = kPBytes + (kMergesInQ ? QTile::kBytes : 0);
  static constexpr int kMergeFloats = max(kWarps * kWarpRows * merge_pitch(kMergeColumns),
                                          static_cast<int>(kMergedBytes / sizeof(float)));
  static constexpr int kStatesAtOnce = min(kWarps, 4);  ///< merge_states
  /// Returns how many columns of O are merged at once, a multiple of kMergeColumns, where all
  /// states together have so many rows.
  ATTILE_DEVICE static int columns_at_once(int state_rows) {
    const int fit = (kMergeFloats / state_rows - merge_pitch(0)) / kMergeColumns * kMergeColumns;
    return min(fit, round_up(kVColumns, kMergeColumns));
  }

  // Shared memory is laid out in this order.
  static constexpr std::size_t kMergeBytes = sizeof(float) * kMergeFloats;
  static constexpr std::size_t kQBytes =
      kMergesInQ ? round_up(kMergeBytes, std::size_t{1024}) : kQStages * QTile::kBytes;
  static constexpr std::size_t kStageBytes = KTile::kBytes + VTile::kBytes;  // of a group
  static constexpr std::size_t kGroupBytes = kStages * kStageBytes;
  static constexpr std::size_t kStatesOffset = kQBytes + kKeyGroups * kGroupBytes;
  /// Of a state's row: m, l, and where there are earlier keys their LSE.
  static constexpr int kStateFloats = kIsEarlierKeys<typename P::SinkType> ? 3 : 2;
  static constexpr std::size_t kFactorsOffset =
      kStatesOffset + kStateFloats * kWarps * kWarpRows * sizeof(float);
  static constexpr std::size_t kFactorsEnd =
      kFactorsOffset + (kScalesQueries ? Br * sizeof(float) : 0);
  static constexpr std::size_t kMergeOffset = kMergesInQ ? 0 : kFactorsEnd;
  static constexpr std::size_t kPOffset = kMergesInQ ? QTile::kBytes : kMergeOffset;
  static constexpr std::size_t kSharedBytes = kFactorsEnd + (kMergesInQ ? 0 : kMergeBytes);
  static_assert(kSharedBytes <= arch::kMaxSharedBytes,
                "attile::sm80::DecodeTraits: the stages of K and V, Q and what merges O take more "
                "than the 232448 bytes of shared memory that a block can have; choose fewer stages "
                "or a smaller Bc");
};

}  // namespace attile::sm80
