// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/launch.cuh>
#include <attile/core/math.h>
#include <attile/core/score_mod.h>
#include <attile/core/tile_modifier.h>
#include <attile/kernel/problem/kernel_traits.h>
#include <attile/kernel/sm80/modifier_data.cuh>
#include <attile/kernel/sm80/tuning.h>
#include <attile/tile/mma_tile.cuh>
#include <attile/tile/modifier_math.h>
#include <attile/tile/panel_tile.cuh>
#include <attile/tile/row_warps.cuh>

#include <numeric>
#include <type_traits>
#include <utility>

namespace attile::sm80 {

/// Holds every constant of a forward kernel for the matrix instructions of compute capability 8.0.
/// The kWarpsN warps of a row hold the same rows, each a part of their columns; they are a group of
/// warps, and with kWarpsN = 1 each warp is one.
/// Br, Bc  rows of Q and of K, V in a tile: Br a multiple of 16 for each group of warps, Bc of 16
///         for each of the warps of a row.
/// D, Dv   the largest head_dim and head_dim_v it takes, up to 256; smaller ones are padded inside.
/// E, P    Elements and PolicyBundle, as for KernelTraits.
template <int Br, int Bc, int D, class E, class P, int Dv, class TuningType = Tuning<>>
struct ForwardTraits : KernelTraits<Direction::kForward, Br, Bc, D, E, P, Dv> {
  using T = typename E::Operand;
  using Q = typename E::Q;
  using K = typename E::K;
  using V = typename E::V;
  using O = typename E::O;
  static_assert(Br >= 16 && Br % 16 == 0,
                "attile::sm80::ForwardTraits: Br must be a multiple of 16");
  static_assert(Bc >= 1 && Bc % 16 == 0,
                "attile::sm80::ForwardTraits: Bc must be a multiple of 16");
  static_assert(D >= 1 && D <= 256, "attile::sm80::ForwardTraits: D must be 1 to 256");
  static_assert(Dv >= 1 && Dv <= 256, "attile::sm80::ForwardTraits: Dv must be 1 to 256");

  using Params = ForwardParams<ForwardTraits>;
  static constexpr const char* kFamily = "sm80";
  static constexpr int kLeastArchitecture = 800;
  static constexpr int kWarpsN = TuningType::kWarpsN;
  static constexpr int kWarps = warps_of(TuningType::kWarps, kWarpsN, Br, max(D, Dv), sizeof(T));
  static_assert(kWarps >= 1 && kWarps <= 32,
                "attile::sm80::ForwardTraits: a block has 1 to 32 warps; choose a smaller Br");
  static_assert(
      kWarps % kWarpsN == 0,
      "attile::sm80::ForwardTraits: the warps must be a multiple of the warps_n warps of a "
      "row");
  /// At least 1, so that too few warps have no error but the one above.
  static constexpr int kGroupsOfWarps = max(kWarps / kWarpsN, 1);
  static_assert(Br % (16 * kGroupsOfWarps) == 0,
                "attile::sm80::ForwardTraits: Br must be a multiple of 16 rows for each warp, or "
                "group of warps that share rows");
  static_assert(Br % kWarps == 0,
                "attile::sm80::ForwardTraits: Br must be a multiple of the warps, which write as "
                "many rows of O each");
  static_assert(Bc % (16 * kWarpsN) == 0,
                "attile::sm80::ForwardTraits: Bc must be a multiple of 16 for each of the warps_n "
                "warps of a row");
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kBlocksPerSm = blocks_of(TuningType::kBlocksPerSm, kWarps);
  static constexpr Products kProducts = TuningType::kProducts;
  static_assert(
      sizeof(T) == 4 || kProducts == Products::k3xTf32,
      "attile::sm80::ForwardTraits: Products::k1xTf32 is of fp32, which has three products else; "
      "16-bit types have one");
  /// How far a score may exceed m before O is rescaled. P is then at most 2^8, which keeps its
  /// relative precision in every type. It is an int, as a template argument of OnlineSoftmax::step;
  /// sm90's, which has fractions, is a float. Units: log2.
  static constexpr int kRescaleThreshold = 8;

  static constexpr int kQkColumns = round_up(D, tile::kTileColumns<K>);
  static constexpr int kVColumns = round_up(Dv, std::lcm(tile::kTileColumns<V>, 16 * kWarpsN));
  using QTile = tile::PanelTile<Br, kQkColumns, Q>;
  using KTile = tile::PanelTile<Bc, kQkColumns, K>;
  using VTile = tile::PanelTile<Bc, kVColumns, V>;
  /// Whether O is staged in shared memory before it is stored: not O in fp32 of other inputs,
  /// which would take more memory than Q has, and is stored from registers.
  static constexpr bool kStagesOutput = sizeof(O) == sizeof(T);
  using OTile = tile::PanelTile<Br, kVColumns, std::conditional_t<kStagesOutput, O, T>>;
  using PTile = tile::PanelTile<Br, Bc, T>;
  using ScoreRegisters = tile::MmaTile<Br, Bc, kWarps, kWarpsN>;
  using OutputRegisters = tile::MmaTile<Br, OTile::kCols, kWarps, kWarpsN, tile::kLaneColumnsOf<V>>;
  using RowWarps = tile::RowWarps<kWarps, kWarpsN, ScoreRegisters::kRegRows>;

  // Shared memory is laid out in this order: Q, K, V, P, the room of RowWarps, and Data. O
  // overwrites Q, which is not needed any more by then; a warp with whole rows of P keeps them in
  // registers.
  static constexpr std::size_t kQoBytes =
      kStagesOutput ? max(QTile::kBytes, OTile::kBytes) : QTile::kBytes;
  static constexpr std::size_t kPBytes = kWarpsN > 1 ? PTile::kBytes : 0;
  static constexpr ModifierReads kReads = TuningType::kReads;
  static Check check_reads(const typename P::ScoreModType& mod) {
    return sm80::check_reads<kReads>(mod);
  }
  /// Whether one copy of the modifier's code serves tiles with and without the mask's edge, which
  /// takes fewer registers: where it reads no memory for them, it is asked about columns behind the
  /// last, too.
  static constexpr bool kModifiesOnce = [] {
    using S = typename P::ScoreModType;
    using Tile =
        decltype(modifier_of_tile(std::declval<const S&>(), ScoreBlock(), tile::FastMath()));
    return kReads != ModifierReads::kAny || (!kIsIdentity<S> && !kReadsMemory<Tile>);
  }();
  using Data = ForwardData<ForwardTraits, kReads>;  ///< of the score modifier
  static constexpr std::size_t kDataOffset =
      kQoBytes + KTile::kBytes + VTile::kBytes + kPBytes + RowWarps::kBytes;
  static constexpr std::size_t kSharedBytes = kDataOffset + Data::kBytes;
  static_assert(
      kSharedBytes <= arch::kMaxSharedBytes,
      "attile::sm80::ForwardTraits: the tiles of Q (or O), K and V, of P where warps share rows, "
      "take more than the 232448 bytes of shared memory that a block can have; choose a smaller Br "
      "or Bc");
};

}  // namespace attile::sm80
