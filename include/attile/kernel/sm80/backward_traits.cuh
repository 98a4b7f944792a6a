// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/launch.cuh>
#include <attile/core/math.h>
#include <attile/core/score_mod.h>
#include <attile/kernel/backward/dq_mode.h>
#include <attile/kernel/backward/gradient_sums.cuh>
#include <attile/kernel/problem/kernel_traits.h>
#include <attile/kernel/sm80/modifier_data.cuh>
#include <attile/kernel/sm80/tuning.h>
#include <attile/tile/mma_tile.cuh>
#include <attile/tile/panel_tile.cuh>
#include <attile/tile/two_sums.cuh>

#include <numeric>

namespace attile::sm80 {

/// Holds every constant of a backward pass with the matrix instructions of compute capability 8.0.
/// Br, Bc  rows of Q and of K, V in a tile, multiples of 16; see BackwardTuningValues.
/// D, Dv   the largest head_dim and head_dim_v it takes, up to 256; smaller ones are padded inside.
/// E, P    Elements and PolicyBundle, as for KernelTraits.
template <int Br, int Bc, int D, class E, class P, int Dv, DqMode kMode = DqMode::kAccumulate,
          class TuningType = BackwardTuning<>>
struct BackwardTraits : KernelTraits<Direction::kBackward, Br, Bc, D, E, P, Dv> {
  using T = typename E::Q;
  static_assert(Br >= 1 && Br % 16 == 0 && Bc >= 1 && Bc % 16 == 0,
                "attile::sm80::BackwardTraits: Br and Bc must be multiples of 16");
  static_assert(D >= 1 && D <= 256, "attile::sm80::BackwardTraits: D must be 1 to 256");
  static_assert(Dv >= 1 && Dv <= 256, "attile::sm80::BackwardTraits: Dv must be 1 to 256");
  static_assert(kMode != DqMode::kTwoPass,
                "attile::sm80::BackwardTraits: dQ is accumulated or added up in order; kTwoPass is "
                "the portable family's");

  using Params = BackwardParams<BackwardTraits>;
  static constexpr const char* kFamily = "sm80";
  static constexpr int kLeastArchitecture = 800;
  static constexpr DqMode kDqMode = kMode;
  static constexpr int kWarpsN = TuningType::warps_n(max(D, Dv));
  static constexpr int kWarps = TuningType::warps(Bc, max(D, Dv));
  static_assert(kWarps >= 1 && kWarps <= 32,
                "attile::sm80::BackwardTraits: a block has 1 to 32 warps; choose a smaller Bc");
  static_assert(kWarps % kWarpsN == 0 && Bc % (16 * (kWarps / kWarpsN)) == 0,
                "attile::sm80::BackwardTraits: Bc must be a multiple of 16 rows of dK and dV for "
                "each of warps / warps_n groups of warps");
  static_assert(Br % (16 * kWarpsN) == 0,
                "attile::sm80::BackwardTraits: Br must be a multiple of 16 for each of the warps_n "
                "warps of a row");
  static constexpr int kThreads = kWarps * 32;
  /// False (KernelTraits), because the mapping of blocks to kv blocks takes a register that spills.
  static constexpr bool kHeadsInFlight = false;
  static constexpr int kDqThreads = kThreads;  ///< threads of the kernel that writes dQ
  /// Threads whose values of the fp32 sum of dQ are contiguous in device memory (dq_accum_offset).
  static constexpr int kDqContiguousThreads = kDqThreads;
  static constexpr int kBlocksPerSm = TuningType::kBlocksPerSm;
  static constexpr int kStages = TuningType::kStages;
  static constexpr Products kProducts = TuningType::kProducts;
  static_assert(
      sizeof(T) == 4 || kProducts == Products::k3xTf32,
      "attile::sm80::BackwardTraits: Products::k1xTf32 is of fp32, which has three products else; "
      "16-bit types have one");

  // Tiles whose rows several warps share have a multiple of 16 columns for each of them.
  static constexpr int kColumns = tile::kTileColumns<T>;
  static constexpr int kDqWarpsN = TuningType::dq_warps_n(Br, Bc, max(D, Dv));
  static_assert(kWarps % kDqWarpsN == 0 && Br % (16 * (kWarps / kDqWarpsN)) == 0,
                "attile::sm80::BackwardTraits: Br must be a multiple of 16 rows of dQ for each of "
                "warps / dq_warps_n groups of warps");
  static constexpr int kQkColumns =
      round_up(D, std::lcm(kColumns, 16 * std::lcm(kWarpsN, kDqWarpsN)));
  static constexpr int kVColumns = round_up(Dv, std::lcm(kColumns, 16 * kWarpsN));
  /// Whether the sums of S begin at -LSE / 2. Tensor cores truncate sums towards zero at every
  /// instruction: sums that begin there are half as large, and err to either side in turn. It costs
  /// instructions alone, where a second sum (tile::TwoSums) costs registers. It is false where a
  /// modifier stands between S and LSE, which need not be near each other then, and in fp32, where
  /// every 16 products are added with rounding.
  static constexpr bool kBeginsAtHalf =
      sizeof(T) == 2 && kIsIdentity<typename P::ScoreModType> && kQkColumns > tile::kOneSumDepth;
  using QTile = tile::PanelTile<Br, kQkColumns, T>;
  using DoTile = tile::PanelTile<Br, kVColumns, T>;
  using KTile = tile::PanelTile<Bc, kQkColumns, T>;
  using VTile = tile::PanelTile<Bc, kVColumns, T>;
  /// The tile of P^T and of dS^T. The lanes hold S^T in the layout of a left operand, so that
  /// dV = P^T dO and dK = dS^T Q take it from the registers. P^T is in shared memory only where a
  /// warp lacks a part of its rows.
  using PTile = tile::PanelTile<Bc, Br, T>;
  using ScoreRegisters = tile::MmaTile<Bc, Br, kWarps, kWarpsN>;
  using DkRegisters = tile::MmaTile<Bc, KTile::kCols, kWarps, kWarpsN>;
  using DvRegisters = tile::MmaTile<Bc, VTile::kCols, kWarps, kWarpsN>;
  /// dQ is computed in kDqParts parts of its kDqCols columns, each of at most 64 values a thread,
  /// 32 in fp32 and in order: dK and dV leave no registers for more.
  static constexpr int kDqValues = sizeof(T) == 4 || kMode == DqMode::kInOrder ? 32 : 64;
  static_assert(
      Br * 16 * kDqWarpsN <= kThreads * kDqValues,
      "attile::sm80::BackwardTraits: a warp has at most 128 rows of dQ, 64 in fp32 and in "
      "order, of Br / (warps / dq_warps_n); choose a smaller Br or more warps");
  static constexpr int kDqCols = KTile::kCols;
  static constexpr int kDqParts = [] {
    int parts = ceil_div(Br * kDqCols, kThreads * kDqValues);
    while (parts < kDqCols && kDqCols % (parts * kDqWarpsN * 16) != 0) ++parts;
    return parts;
  }();
  using DqRegisters = tile::MmaTile<Br, kDqCols / kDqParts, kWarps, kDqWarpsN>;
  /// Returns the origin that a thread's DqRegisters count from: here that of the tile.
  ATTILE_DEVICE static TileOrigin dq_origin(int) { return {}; }

  /// Bytes of one statistic, LSE or delta, of a tile of rows.
  static constexpr std::size_t kStatBytes = sizeof(float) * Br;
  static constexpr ModifierReads kReads = TuningType::kReads;
  static Check check_reads(const typename P::ScoreModType& mod) {
    return sm80::check_reads<kReads>(mod);
  }
  static_assert(kReads == ModifierReads::kAny || (!kNeedsScores<typename P::ScoreModType> &&
                                                  !kHasGradient<typename P::ScoreModType>),
                "attile::sm80::BackwardTraits: ModifierReads are of a modifier that adds to scores "
                "and has no gradient");
  using ReadElements =
      std::conditional_t<kReads == ModifierReads::kAny, tile::NoElements, tile::AppliedElements>;
  using ElementTile =
      tile::PanelTile<Br, Bc, typename ElementTypeOf<typename P::ScoreModType, T>::type>;
  static constexpr std::size_t kElementBytes =
      kReads == ModifierReads::kElements ? ElementTile::kBytes : 0;
  static constexpr std::size_t kStageBytes =
      QTile::kBytes + DoTile::kBytes + 2 * kStatBytes + kElementBytes;
  /// How the gradient of a score modifier is added to, and where its sums begin in shared memory.
  using Gradient = GradientOf<tile::TransposedRegisters<ScoreRegisters>, typename P::ScoreModType>;
  static constexpr std::size_t kGradientOffset =
      KTile::kBytes + VTile::kBytes + kStages * kStageBytes + (kWarpsN > 1 ? 2 : 1) * PTile::kBytes;
  static constexpr std::size_t kKvSharedBytes = kGradientOffset + kWarps * Gradient::kWarpBytes;
  /// Shared memory of the kernel that writes dQ.
  static constexpr std::size_t kDqSharedBytes = QTile::kBytes;
  static_assert(kKvSharedBytes <= arch::kMaxSharedBytes,
                "attile::sm80::BackwardTraits: the tiles of K, V, Q, dO and dS take more than the "
                "232448 bytes of shared memory that a block can have; choose a smaller Br or Bc");
};

}  // namespace attile::sm80
