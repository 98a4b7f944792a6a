// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/launch.cuh>
#include <attile/arch/mbarrier.cuh>
#include <attile/arch/warpgroup.cuh>
#include <attile/core/math.h>
#include <attile/core/score_mod.h>
#include <attile/kernel/backward/backward_step.cuh>
#include <attile/kernel/backward/dq_mode.h>
#include <attile/kernel/problem/kernel_traits.h>
#include <attile/kernel/sm90/tuning.h>
#include <attile/tile/mma_tile.cuh>
#include <attile/tile/panel_tile.cuh>
#include <attile/tile/pipeline.cuh>
#include <attile/tile/two_sums.cuh>
#include <attile/tile/warpgroup.cuh>

#include <cstddef>
#include <type_traits>

namespace attile::sm90 {

template <class Traits>
struct BackwardParams;

/// What belongs to a tile of Q in shared memory: LSE and delta of its rows, which tile it is, and
/// whether it needs the mask. Behind the last tile comes one that says so.
template <int Rows>
struct QueryStatistics {
  static constexpr int kRowBytes = Rows * sizeof(float);
  static constexpr std::size_t kBytes = 2 * kRowBytes + 16;

  unsigned char* data;

  ATTILE_DEVICE float* lse() const { return reinterpret_cast<float*>(data); }
  ATTILE_DEVICE float* delta() const { return lse() + Rows; }
  ATTILE_DEVICE int* step() const { return reinterpret_cast<int*>(delta() + Rows); }
};

/// Whether the kernels give the gradient of a modifier that learns: above 128 columns no warpgroup
/// has both S and dS.
template <class S, int D, int Dv>
inline constexpr bool kMakesGradientOf = !kHasGradient<S> || max(D, Dv) <= 128;

/// Every constant of one backward pass for compute capability 9.0.
/// Br, Bc  rows of Q and of K, V in a tile: Bc 64 for each warpgroup that computes, of which there
///         are 1 to 3; Br 64, or as many as Bc.
/// D, Dv   the largest head_dim and head_dim_v it takes, up to 256; smaller ones are padded inside.
///         Above 128 dK and dV of 64 rows of K and V are what two warpgroups have registers for,
///         and each product is one warpgroup's: see backward_roles.cuh.
/// Registers of a thread for sums: D = 128 or 64: dK and dV 128 or 64, S, dP and dQ 32 each, P and
/// dS as operands 16 each; D = 256: dV 128, S 32, P 16; dK 128, dP 32, dS 16; dQ 32 twice.
/// Shared memory, in KB, with 2 stages: D = 128, 64 x 128: K, V 64, Q, dO 64, dS 32, dQ 32; D = 64,
/// 128 x 128: 32, 64, 64, 32; D = 256: 64, 128, dS 16, P 16; D = 192, Dv = 128 with 3, and P of 3
/// steps: 40, 120, 16, 48.
template <int Br, int Bc, int D, class E, class P, int Dv, DqMode kMode = DqMode::kAccumulate,
          class TuningType = BackwardTuning<>>
struct BackwardTraits : KernelTraits<Direction::kBackward, Br, Bc, D, E, P, Dv> {
  using T = typename E::Q;
  static_assert(sizeof(T) == 2,
                "attile::sm90::BackwardTraits: fp16 and bf16; fp32 is for the other families");
  static_assert(Bc == 64 || Bc == 128 || Bc == 192,
                "attile::sm90::BackwardTraits: Bc must be 64, 128 or 192");
  static_assert(Br == 64 || Br == Bc, "attile::sm90::BackwardTraits: Br must be 64 or Bc");
  static_assert(D >= 1 && D <= 256, "attile::sm90::BackwardTraits: D must be 1 to 256");
  static_assert(Dv >= 1 && Dv <= 256, "attile::sm90::BackwardTraits: Dv must be 1 to 256");
  static_assert(max(D, Dv) <= 128 || (Br == 64 && Bc == 64),
                "attile::sm90::BackwardTraits: above 128 columns Br and Bc must be 64");
  static_assert(kMakesGradientOf<typename P::ScoreModType, D, Dv>,
                "attile::sm90::BackwardTraits: with a score modifier that learns D and Dv must be "
                "at most 128; above, take the family sm80");
  static_assert(kMode != DqMode::kTwoPass,
                "attile::sm90::BackwardTraits: dQ is accumulated or added up in order; kTwoPass is "
                "the portable family's");

  using Params = sm90::BackwardParams<BackwardTraits>;
  static constexpr const char* kFamily = "sm90";
  static constexpr int kLeastArchitecture = 900;
  static constexpr DqMode kDqMode = kMode;
  /// Whether each product is one warpgroup's (backward_roles.cuh).
  static constexpr bool kProductPerWarpgroup = max(D, Dv) > 128;
  /// Warpgroups that compute; one more brings their tiles.
  static constexpr int kConsumers = kProductPerWarpgroup ? 3 : Bc / kWarpgroupRows;
  static constexpr int kConsumerThreads = kConsumers * arch::kWarpgroupSize;
  static constexpr int kThreads = kConsumerThreads + arch::kWarpgroupSize;
  static constexpr int kBlocksPerSm = 1;
  static constexpr bool kFastPath = kIsFastPath<P>;
  /// Senders that await their turn take more than 24 registers, which the others then miss: where a
  /// step is not plain there are none.
  static constexpr int kProducerRegisters =
      !kProductPerWarpgroup && (kConsumers == 3 || (kMode == DqMode::kInOrder && kFastPath)) ? 32
                                                                                             : 24;
  static constexpr int kConsumerRegisters = consumer_registers(kConsumers, kProducerRegisters);
  static constexpr int kStages = TuningType::kStages;
  /// By a warp of the loader's that has nothing else to do.
  static constexpr bool kZeroFillsInPass =
      kMode == DqMode::kAccumulate && (kProductPerWarpgroup || kConsumers < 3);
  /// kProductPerWarpgroup a turn takes long, and blocks of a head that ascends wait for it before
  /// they begin, which only long ones make up for. A step that is not plain lacks the registers for
  /// it.
  static constexpr int kAlternatesFrom =
      kMode != DqMode::kInOrder || kRowsAlike<typename P::MaskType> || !kFastPath
          ? 0
          : (kProductPerWarpgroup ? 2 : 1);

  /// Warpgroups share dQ by its rows or, where it has 64, by its columns.
  static constexpr int kDqWarpsN = Br == Bc ? 1 : kConsumers;
  static constexpr int kQkColumns = round_up(D, kProductPerWarpgroup ? 64
                                                : kDqWarpsN == 1     ? 16
                                                                     : 64 * kDqWarpsN);
  static constexpr int kVColumns = round_up(Dv, 16);
  using KTile = tile::PanelTile<Bc, kQkColumns, T>;
  using VTile = tile::PanelTile<Bc, kVColumns, T>;
  using QTile = tile::PanelTile<Br, kQkColumns, T>;
  using DoTile = tile::PanelTile<Br, kVColumns, T>;
  /// dS^T, for dQ = dS K. For dK registers have it.
  using DsTile = tile::PanelTile<Bc, Br, T>;
  using KPipeline = tile::Pipeline<KTile, 1>;
  using VPipeline = tile::Pipeline<VTile, 1>;
  using QPipeline = tile::Pipeline<QTile, kStages>;
  using DoPipeline = tile::Pipeline<DoTile, kStages>;
  using Statistics = QueryStatistics<Br>;
  /// A warpgroup makes S and dP for as many rows of Q at a time: dK and dV leave no registers for
  /// more, nor does the second sum of S, kProductPerWarpgroup.
  static constexpr int kPartRows = kProductPerWarpgroup && !kFastPath ? 32 : 64;
  static constexpr int kParts = Br / kPartRows;
  /// Registers of the warpgroups by their Role, kProductPerWarpgroup: with the loader's 24 all
  /// there are.
  static constexpr int kRoleRegisters[] = {96, kFastPath ? 192 : 208, kFastPath ? 200 : 184};
  /// Rows of registers count on from warpgroup to warpgroup, kProductPerWarpgroup too, where all
  /// have the same ones.
  static constexpr int kRows = kConsumers * kWarpgroupRows;
  /// Whether V, the left operand of dP, is in registers, where those are enough: an eighth less is
  /// read of shared memory.
  static constexpr bool kVInRegisters = kFastPath && kQkColumns + kVColumns <= 128;
  using ScoreRegisters = tile::MmaTile<kRows, kPartRows, kConsumers * 4>;
  /// Whether S is made in one sum that begins at -LSE / 2, so that it is at most half as large
  /// where P is not 0: its error is, too.
  static constexpr bool kBeginsAtHalf = kFastPath && kQkColumns > tile::kOneSumDepth;
  /// Or in two. At D = 128 the second one's 32 registers are not there: up to 250 bytes of spills,
  /// and products that wait for each other (C7512).
  static constexpr bool kTwoSums =
      kProductPerWarpgroup && !kFastPath && kQkColumns > tile::kOneSumDepth;
  using VLeft = std::conditional_t<kVInRegisters, tile::LoadedLeft<VTile>, VTile>;
  using DkRegisters = tile::SumTile<kRows, kQkColumns, kConsumers * 4>;
  using DvRegisters = tile::SumTile<kRows, kVColumns, kConsumers * 4>;

  /// A warpgroup's rows of them on their way out.
  using DkTile = tile::PanelTile<kWarpgroupRows, kQkColumns, T>;
  using DvTile = tile::PanelTile<kWarpgroupRows, kVColumns, T>;

  static constexpr int kDqCols = kQkColumns;
  static constexpr int kDqParts = kProductPerWarpgroup ? kQkColumns / 64 : 1;
  static constexpr int kDqThreads = kProductPerWarpgroup ? arch::kWarpgroupSize : kConsumerThreads;
  /// Threads whose part of a tile of the sum of dQ is contiguous.
  static constexpr int kDqContiguousThreads = arch::kWarpgroupSize;
  using DqRegisters =
      std::conditional_t<kProductPerWarpgroup, tile::MmaTile<Br, 64, 4>,
                         tile::MmaTile<kRows, kQkColumns / kDqWarpsN, kConsumers * 4>>;
  /// What DqRegisters count from, of a thread.
  ATTILE_DEVICE static TileOrigin dq_origin(int thread) {
    if constexpr (kDqWarpsN == 1) return {};
    const int warpgroup = thread / arch::kWarpgroupSize;
    return {warpgroup * kWarpgroupRows, warpgroup * DqRegisters::kCols};
  }

  /// Where things lie in shared memory. Units: bytes.
  static constexpr std::size_t kVOffset = KPipeline::kBytes;
  static constexpr std::size_t kQOffset = kVOffset + VPipeline::kBytes;
  static constexpr std::size_t kDoOffset = kQOffset + QPipeline::kBytes;
  static constexpr std::size_t kDsOffset = kDoOffset + DoPipeline::kBytes;
  static constexpr int kDsTiles = 2;  // of this step and of the one before
  /// P as it lies in registers, of the parts of a tile in turn, kProductPerWarpgroup.
  static constexpr std::size_t kPOffset = kDsOffset + kDsTiles * DsTile::kBytes;
  static constexpr int kPBuffers = TuningType::kPSteps * kParts;
  static constexpr std::size_t kPBytes =
      kProductPerWarpgroup ? sizeof(float) * Br * Bc * TuningType::kPSteps : 0;
  static constexpr std::size_t kDqOffset = kPOffset + kPBytes;
  static constexpr std::size_t kDqBytes = sizeof(float) * Br * kQkColumns;
  static constexpr std::size_t kDqRowsBytes = 4 * sizeof(int);
  /// Pairs of barriers behind those of the rings, before the two of the turns.
  static constexpr int kBarrierPairs = kProductPerWarpgroup ? kDsTiles + kPBuffers : 4;
  /// One more where tiles end with another sequence's rows.
  static constexpr bool kHasTails = !P::SequencesType::kUniform;
  static constexpr int kBarriers = 4 + 4 * kStages + 2 * (kBarrierPairs + 2) + 1 + kHasTails;
  static constexpr std::size_t kSmallBytes = kStages * Statistics::kBytes +
                                             (kDsTiles + 1) * kDqRowsBytes +
                                             kBarriers * sizeof(arch::Mbarrier);
  /// Whether dQ goes to its sum by way of shared memory, by copies that add.
  static constexpr bool kBulkDq =
      !kProductPerWarpgroup &&
      (kFastPath || kMode == DqMode::kAccumulate) &&  // in order it costs registers
      kDqOffset + kDqBytes + kSmallBytes <= arch::kMaxSharedBytes;
  /// Or by those who made it, kInOrder in the turn that two warps of the loader's keep.
  static constexpr bool kDqSemaphoreWarps = !kBulkDq && kMode == DqMode::kInOrder;
  /// Warps of the loader's that send dQ: of every tile what one warpgroup has staged or, kInOrder,
  /// of every other tile all of it, so that one sends while the other one passes its turn.
  static constexpr int kSenders = kMode == DqMode::kInOrder ? 2 : kConsumers;
  static constexpr bool kSignalsDqReady = kMode == DqMode::kAccumulate;
  static constexpr int kDqReadyFlags = kBulkDq ? kSenders : 1;  ///< of them
  static constexpr std::size_t kStatOffset = kDqOffset + (kBulkDq ? kDqBytes : 0);
  static constexpr std::size_t kDqRowsOffset = kStatOffset + kStages * Statistics::kBytes;
  static constexpr std::size_t kBarrierOffset = kDqRowsOffset + (kDsTiles + 1) * kDqRowsBytes;
  static constexpr std::size_t kKvSharedBytes = kBarrierOffset + kBarriers * sizeof(arch::Mbarrier);
  /// Where dK and dV leave from: kProductPerWarpgroup not the places of K and V, which other
  /// warpgroups still read.
  static constexpr std::size_t kDkOffset = kProductPerWarpgroup ? kQOffset : 0;
  static constexpr std::size_t kDvOffset = kProductPerWarpgroup ? kDoOffset : kVOffset;
  /// Of the kernel that writes dQ.
  static constexpr std::size_t kDqSharedBytes = QTile::kBytes;
  static_assert(
      kKvSharedBytes <= arch::kMaxSharedBytes,
      "attile::sm90::BackwardTraits: the tiles of K, V, Q, dO and dS take more than the "
      "232448 bytes of shared memory that a block can have; choose a smaller Br or Bc, or "
      "fewer stages or steps of P");
};

}  // namespace attile::sm90
