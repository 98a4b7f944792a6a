// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/launch.cuh>
#include <attile/arch/mbarrier.cuh>
#include <attile/arch/warpgroup.cuh>
#include <attile/core/math.h>
#include <attile/kernel/problem/kernel_traits.h>
#include <attile/kernel/sm90/tuning.h>
#include <attile/tile/mma_tile.cuh>
#include <attile/tile/panel_tile.cuh>
#include <attile/tile/pipeline.cuh>

#include <cstddef>

namespace attile::sm90 {

template <class Traits>
struct ForwardParams;

/// Every constant of one forward kernel for compute capability 9.0.
/// Br, Bc  rows of Q and of K, V in a tile: Br 64 for each warpgroup that computes, of which there
///         are 1 to 3, Bc a multiple of 16.
/// D, Dv   the largest head_dim and head_dim_v it takes, up to 256; smaller ones are padded inside.
template <int Br, int Bc, int D, class E, class P, int Dv, class TuningType = Tuning<>>
struct ForwardTraits : KernelTraits<Direction::kForward, Br, Bc, D, E, P, Dv> {
  using T = typename E::Q;
  static_assert(sizeof(T) == 2,
                "attile::sm90::ForwardTraits: fp16 and bf16; fp32 is for the other families");
  static_assert(Br == 64 || Br == 128 || Br == 192,
                "attile::sm90::ForwardTraits: Br must be 64, 128 or 192");
  static_assert(Bc >= 16 && Bc % 16 == 0 && Bc <= 256,
                "attile::sm90::ForwardTraits: Bc must be a multiple of 16, up to 256");
  static_assert(D >= 1 && D <= 256, "attile::sm90::ForwardTraits: D must be 1 to 256");
  static_assert(Dv >= 1 && Dv <= 256, "attile::sm90::ForwardTraits: Dv must be 1 to 256");

  static_assert(!TuningType::kPacked || P::SequencesType::kUniform,
                "attile::sm90::ForwardTraits: query heads share a tile only where all sequences "
                "have the same lengths, Uniform");

  using Params = sm90::ForwardParams<ForwardTraits>;
  static constexpr const char* kFamily = "sm90";
  static constexpr int kLeastArchitecture = 900;
  /// Warpgroups that compute; one more brings their tiles.
  static constexpr int kConsumers = Br / kWarpgroupRows;
  static constexpr int kThreads = (kConsumers + 1) * arch::kWarpgroupSize;
  static constexpr int kBlocksPerSm = 1;
  static constexpr bool kPersistent = TuningType::kPersistent;
  static constexpr int kProducerRegisters = kConsumers == 3 ? 32 : 40;
  static constexpr int kConsumerRegisters = consumer_registers(kConsumers, kProducerRegisters);
  /// P <= 2^8 keeps its relative precision in every type. Units: log2.
  static constexpr int kRescaleThreshold = 8;
  static constexpr int kStages = TuningType::kStages;
  static constexpr bool kPacked = TuningType::kPacked;

  using QTile = tile::PanelTile<kWarpgroupRows, round_up(D, 16), T>;
  using KTile = tile::PanelTile<Bc, round_up(D, 16), T>;
  using VTile = tile::PanelTile<Bc, round_up(Dv, 16), T>;
  using KPipeline = tile::Pipeline<KTile, kStages>;
  using VPipeline = tile::Pipeline<VTile, kStages>;
  using ScoreRegisters = tile::MmaTile<Br, Bc, kConsumers * 4>;
  using OutputRegisters = tile::MmaTile<Br, VTile::kCols, kConsumers * 4>;

  /// Of ConsumerRows, which warpgroups keep until O of the rows before has left.
  static constexpr int kRowSlots = 4;
  static constexpr std::size_t kRowsBytes = kRowSlots * 48;
  /// Where things lie in shared memory. Units: bytes.
  static constexpr std::size_t kPitch = 1024;  // of eight rows of a panel
  static constexpr std::size_t kVOffset = round_up(KPipeline::kBytes, kPitch);
  static constexpr std::size_t kOOffset = kVOffset + round_up(VPipeline::kBytes, kPitch);

 private:
  static constexpr std::size_t kRest = arch::kMaxSharedBytes - kOOffset - kConsumers * kRowsBytes -
                                       sizeof(arch::Mbarrier) * 2 * (kConsumers * 2 + 2 * kStages);
  static constexpr std::size_t kOutputBytes =
      kConsumers * kWarpgroupRows * VTile::kCols * sizeof(T);
  static constexpr bool kWholeOutput = kConsumers * QTile::kBytes + kOutputBytes <= kRest;

 public:
  /// Where there is room, Q of the next tile comes beside this one.
  static constexpr int kQStages = 2 * kConsumers * QTile::kBytes + kOutputBytes <= kRest ? 2 : 1;
  using QPipeline = tile::Pipeline<QTile, kQStages>;
  static_assert(kRowSlots >= kQStages + 2,
                "attile::sm90::ForwardTraits: rows are kept for the tiles that Q is there for, for "
                "the one before and for the one that is sent for");
  /// O leaves by way of shared memory: all columns at once, or half of them.
  using OTile = tile::PanelTile<kWarpgroupRows,
                                kWholeOutput ? VTile::kCols : round_up(VTile::kCols / 2, 16), T>;
  static constexpr std::size_t kQOffset = kOOffset + kConsumers * OTile::kBytes;
  static constexpr std::size_t kRowsOffset = kQOffset + kConsumers * QPipeline::kBytes;
  static constexpr std::size_t kBarrierOffset = kRowsOffset + kConsumers * kRowsBytes;
  static constexpr int kPipelineBarriers = 2 * (kConsumers * kQStages + 2 * kStages);
  /// Whether tiles of V and Q may end with another sequence's rows, which become zeros on the way:
  /// a landing for V and one for each warpgroup's Q.
  static constexpr bool kHasTails = !P::SequencesType::kUniform;
  static constexpr int kTailBarriers = kHasTails ? 1 + kConsumers : 0;
  static constexpr std::size_t kSharedBytes =
      kBarrierOffset + sizeof(arch::Mbarrier) * (kPipelineBarriers + kTailBarriers);
  static_assert(
      kSharedBytes <= arch::kMaxSharedBytes,
      "attile::sm90::ForwardTraits: the tiles of Q, K, V and O take more than the "
      "232448 bytes of shared memory that a block can have; choose a smaller Br or Bc, or "
      "fewer stages");
};

}  // namespace attile::sm90
