// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/launch.cuh>
#include <attile/arch/mbarrier.cuh>
#include <attile/arch/thread.cuh>
#include <attile/arch/warpgroup.cuh>
#include <attile/core/block_sparse.h>
#include <attile/core/dropout.h>
#include <attile/core/fp8.h>
#include <attile/core/math.h>
#include <attile/core/philox.h>
#include <attile/core/score_mod.h>
#include <attile/core/work_tile.h>
#include <attile/kernel/problem/kernel_traits.h>
#include <attile/kernel/sm90/element_tiles.cuh>
#include <attile/kernel/sm90/modifier_words.cuh>
#include <attile/kernel/sm90/tuning.h>
#include <attile/tile/mma_tile.cuh>
#include <attile/tile/modifier_math.h>
#include <attile/tile/panel_tile.cuh>
#include <attile/tile/pipeline.cuh>

#include <cstddef>
#include <type_traits>

namespace attile::sm90 {

template <class Traits>
struct TmaForwardParams;

/// Holds what the scheduler of a team needs from one work tile to the next: the team's number among
/// those of all blocks, and how many work tiles the team has had.
struct ScheduleNumbers {
  int team, tiles;
};

/// Holds every type and constant of one forward kernel for compute capability 9.0 (forward.cuh).
/// Br, Bc  rows of a tile of Q, and of K and V: Br is 64 for each of the 1 to 3 consumer
///         warpgroups, 1 or 2 of each team, Bc a multiple of 16.
/// D, Dv   the largest head_dim and head_dim_v that the kernel takes, up to 256; smaller ones are
///         padded inside.
/// E, P    Elements and PolicyBundle, as for KernelTraits.
template <int Br, int Bc, int D, class E, class P, int Dv, class TuningType = Tuning<>>
struct ForwardTraits : KernelTraits<Direction::kForward, Br, Bc, D, E, P, Dv> {
  using T = typename E::Operand;
  static_assert(sizeof(T) == 2,
                "attile::sm90::ForwardTraits: fp16, bf16 and fp8; fp32 is for the other families");
  static_assert(E::kInputsEqual || E::kFp8Queries,
                "attile::sm90::ForwardTraits: Q, K and V of one element type, or Q and K in fp8; K "
                "and V in fp8 with Q of 16 bits are for the other families");
  static_assert(Br == 64 || Br == 128 || Br == 192,
                "attile::sm90::ForwardTraits: Br must be 64, 128 or 192");
  static_assert(Bc >= 16 && Bc % 16 == 0 && Bc <= 256,
                "attile::sm90::ForwardTraits: Bc must be a multiple of 16, up to 256");
  static_assert(Bc % 32 == 0 || !E::kAllFp8,
                "attile::sm90::ForwardTraits: with V in fp8 Bc must be a multiple of 32");
  static_assert(D >= 1 && D <= 256, "attile::sm90::ForwardTraits: D must be 1 to 256");
  static_assert(Dv >= 1 && Dv <= 256, "attile::sm90::ForwardTraits: Dv must be 1 to 256");

  static_assert(
      TuningType::kTeams == 1 ||
          (TuningType::kTeams == 2 && Br <= 128 && !TuningType::kPacksHeads &&
           TuningType::kElementStages == 0 && !TuningType::kOrders && !P::DropoutType::kEnabled &&
           !E::kFp8Queries && !kIsPaged<typename P::SequencesType>),
      "attile::sm90::ForwardTraits: two teams are for up to 128 rows of one head each, inputs of "
      "16 bits, keys that do not lie in pages, and consumers that take no turns; without dropout, "
      "and without tiles of a score modifier's elements");
  static_assert(!TuningType::kPacksHeads || P::SequencesType::kUniform,
                "attile::sm90::ForwardTraits: query heads share a tile only where all sequences "
                "have the same lengths, Uniform");

  static_assert(!TuningType::kPacksHeads || !BlockListMask<typename P::MaskType>,
                "attile::sm90::ForwardTraits: query heads do not share a tile with a mask of block "
                "lists, of which each has its own");

  using Params = TmaForwardParams<ForwardTraits>;
  static constexpr const char* kFamily = "sm90";
  static constexpr int kLeastArchitecture = 900;
  /// Teams of a block, and the consumer warpgroups of each. A block has one more warpgroup, the
  /// producer, which is that of all teams.
  static constexpr int kTeams = TuningType::kTeams;
  static constexpr int kConsumers = Br / kWarpgroupRows;
  /// Threads of a block.
  static constexpr int kThreads = (kTeams * kConsumers + 1) * arch::kWarpgroupSize;
  /// Blocks that run on a multiprocessor at the same time.
  static constexpr int kBlocksPerSm = 1;
  /// Whether a block computes several work tiles, one after another.
  static constexpr bool kPersistent = TuningType::kPersistent;
  /// Stages of the pipelines of the score modifier's elements.
  static constexpr int kElementStages = TuningType::kElementStages;
  /// Whether a warp loads these, of which TMA cannot copy those at a sequence's end.
  static constexpr bool kCopiesElements = kElementStages > 0 && !P::SequencesType::kUniform;
  /// Registers of a producer thread, and of a consumer thread, which gets what is left. Who copies
  /// elements would spill with 32.
  static constexpr int kProducerRegisters = kTeams * kConsumers < 3 || kCopiesElements ? 40 : 32;
  static constexpr int kConsumerRegisters =
      consumer_registers(kTeams * kConsumers, kProducerRegisters);
  /// Whether V is in fp8, and is transposed on the way (transpose_v): P is in e4m3 then.
  static constexpr bool kFp8Values = E::kAllFp8;
  /// Whether each product P V has a sum of its own, which is added to O in fp32 (Fp8Sums). Its
  /// columns are made in kOutputParts parts, one after another, so that it takes fewer registers.
  static constexpr bool kPromotes = kFp8Values && E::kFp8Sums == Fp8Sums::kPromoted;
  static constexpr int kOutputParts = kPromotes ? TuningType::kOutputParts : 1;
  /// Whether a consumer makes S beside P V of the tile before.
  static constexpr bool kOverlaps = TuningType::kOverlaps;
  static constexpr bool kWaitsLate = TuningType::kWaitsLate;
  /// How far below a row's maximum m lies: P is 2^kMaximumOffset there. In e4m3 that keeps more of
  /// a row's small P. Units: log2.
  static constexpr float kMaximumOffset = kFp8Values ? fp8_probability_log2(E::kFp8Sums) : 0;
  /// How far a score may exceed m before O is rescaled. P is then at most 2^8, which keeps its
  /// relative precision in 16 bits, or in e4m3 2^8.85, which rounds to 448, its largest number.
  /// Units: log2.
  static constexpr float kRescaleThreshold = kFp8Values ? 8.85f : 8.0f;
  /// Whether a stage of K says which tile it has (ForwardMemory::kv_tile): the thread that loads K
  /// reads that in block lists, which took the consumers time (bench/log/tuning-policies.md).
  static constexpr bool kListsBlocks = BlockListMask<typename P::MaskType>;
  /// Stages of the pipelines of K and of V.
  static constexpr int kStages = TuningType::kStages;
  /// Whether a tile has rows of several query heads of one kv head (HeadPacking).
  static constexpr bool kPacksHeads = TuningType::kPacksHeads;

  /// One warpgroup's tile of Q, and the tiles of K and V that all warpgroups read. V in fp8 is
  /// there as its transpose, made from a LoadedVTile.
  template <int Rows, int Cols, class X>
  using Tile = tile::PanelTile<Rows, round_up(Cols, tile::kTileColumns<X>), X>;
  using QTile = Tile<kWarpgroupRows, D, typename E::Q>;
  using KTile = Tile<Bc, D, typename E::K>;
  using LoadedVTile = Tile<Bc, Dv, typename E::V>;
  /// The columns of V, and of O, with those that pad it.
  static constexpr int kOutputCols = LoadedVTile::kCols;
  using VTile =
      std::conditional_t<kFp8Values, tile::PanelTile<kOutputCols, Bc, typename E::V>, LoadedVTile>;
  /// The type of P as the left operand of P V.
  using ProbabilityType = std::conditional_t<kFp8Values, __nv_fp8_e4m3, T>;
  /// Whether dropout masks P as an operand (tile::drop_operand), and not score by score
  /// (tile::drop_scores): up to 64 columns that takes 0.91 to 0.97 of the time. Above it pays where
  /// consumers are not ordered, 0.95 to 0.99 (H200, 2026-11-26, bench/log/tuning-policies.md).
  static constexpr bool kMasksP = GroupSampler<typename P::DropoutType::Sampler> && !kFp8Values &&
                                  !kPacksHeads && max(D, Dv) <= 128;
  /// Whether consumers make S one after another (ForwardConsumer). With dropout that is
  /// faster up to 64 columns, and above without masks of P (bench/log/tuning-policies.md). Plain
  /// scores gain nothing.
  static constexpr bool kOrdersConsumers = kConsumers > 1 && ((P::DropoutType::kEnabled &&
                                                               !(kMasksP && max(D, Dv) > 64)) ||
                                                              TuningType::kOrders);
  /// Whether tiles of K and V are visited from the last to the first: where later columns have the
  /// larger scores m hardly ever grows, and O is not rescaled. With kFromDiagonal those behind the
  /// diagonal of a work tile's last row are visited after that, from the first to the last.
  static constexpr bool kDescends =
      (kFavorsLateColumns<typename P::ScoreModType> ||
       kFavorsDiagonal<typename P::ScoreModType>)&&!BlockListMask<typename P::MaskType>;
  static constexpr bool kFromDiagonal = kFavorsDiagonal<typename P::ScoreModType> &&
                                        kRowsAlike<typename P::MaskType> &&
                                        P::SequencesType::kUniform;
  /// Whether one producer warp, the scheduler, makes the work tiles and hands them to the other
  /// producer threads (dynamic_schedule.cuh); else each works them out by itself (StaticSchedule).
  static constexpr bool kHasScheduler = !P::SequencesType::kUniform || TuningType::kCounts;
  /// Whether the thread that loads K loads V, too: a block has two warps for each team, and with
  /// lengths of their own one for elements.
  static constexpr bool kLoadsKvTogether = kTeams > 1 || kCopiesElements;
  /// The most tiles of K that a consumer skips while it holds V of the tile before them. With more,
  /// consumers could wait for each other for ever (docs/deadlock.md, rule 2).
  static constexpr int kMaxSkipped = kOrdersConsumers || kLoadsKvTogether ? kStages - 1 : kStages;
  /// One warpgroup's tile of the score modifier's elements, and its pipeline.
  static_assert(kElementStages == 0 ||
                    (!kIsPaged<typename P::SequencesType> && !kPacksHeads && !kFp8Values),
                "attile::sm90::ForwardTraits: tiles of a modifier's elements are for rows of one "
                "head, V of 16 bits and keys that do not lie in pages");
  using ElementTile = tile::PanelTile<kWarpgroupRows, Bc,
                                      typename ElementTypeOf<typename P::ScoreModType, T>::type>;
  using ElementPipeline = tile::Pipeline<ElementTile, max(kElementStages, 1)>;
  static constexpr std::size_t kElementBytes = kElementStages * ElementTile::kBytes;
  /// What a stage of K has beside the tile: a word for each column, or for each diagonal of the
  /// work tile's rows.
  static constexpr ModifierWords kWords = TuningType::kWords;
  static_assert(
      kWords == ModifierWords::kNone || (!kIsPaged<typename P::SequencesType> && !kPacksHeads &&
                                         kElementStages == 0 && !E::kFp8Queries),
      "attile::sm90::ForwardTraits: a score modifier's words are for rows of one head, inputs of "
      "16 bits and keys that do not lie in pages, and not with tiles of a modifier's elements");
  using WordTile = WordTileOf<kWords, typename P::ScoreModType, tile::MathOf<T>>;
  using Word = typename WordTile::Word;
  static constexpr std::size_t kWordBytes = word_count<kWords>(Br, Bc) * sizeof(Word);
  using KPipeline = tile::Pipeline<KTile, kStages>;
  using VPipeline = tile::Pipeline<VTile, kStages>;
  /// Whether consumers read the number of a listed tile only where the mask or the last key may
  /// hide scores, behind its S: the scheduler says of a work tile whether any full block has such a
  /// tile (uncut_keys). A shuffle of the number in each step stood between the products of S, which
  /// with teams took 1 to 1.5 % of the time (H200, bench/log/tuning-policies.md).
  static constexpr bool kReadsTilesLate = kListsBlocks && kHasScheduler && kTeams > 1 &&
                                          kIsIdentity<typename P::ScoreModType> &&
                                          !P::DropoutType::kEnabled;
  static constexpr bool kReadsTilesEarly = kListsBlocks && !kReadsTilesLate;
  /// Whether the warp that makes the work tiles of a team and loads Q has no register left, as
  /// sequences have lengths of their own: it keeps ScheduleNumbers in shared memory.
  static constexpr bool kKeepsNumbers = kTeams > 1 && !P::SequencesType::kUniform;
  /// Whether that warp works out the states of pipelines from the number of its work tiles, to
  /// spare registers: for that reason, or because the mask reads memory.
  static constexpr bool kSparesProducer =
      kKeepsNumbers ||
      (kTeams > 1 && kHasScheduler && kHasTileMask<MaskInTiles<typename P::MaskType>>);
  /// Whether a stage of V has beside the tile what dropout's decisions about its columns have in
  /// common, which a warp of the producer makes that has nothing else to do.
  static constexpr bool kDropoutColumns = kMasksP && !kHasScheduler && kElementStages == 0 &&
                                          kWords == ModifierWords::kNone && !kWaitsLate;
  /// Its bytes: a PhiloxColumn for each group of columns (GroupSampler).
  static constexpr std::size_t kDropoutBytes = kDropoutColumns ? Bc / 4 * sizeof(PhiloxColumn) : 0;
  static_assert(!TuningType::kCounts || (kElementStages == 0 && !kPacksHeads),
                "attile::sm90::ForwardTraits: work tiles are counted for rows of one head, and not "
                "with tiles of a modifier's elements");
  /// The pipeline of tiles of V in fp8 before they are transposed: two where there is room for them
  /// beside Q, half of O, and 4 KB for rows, barriers and alignment, so that one is loaded while
  /// another one is transposed.
  static constexpr int kLoadedVStages =
      !kFp8Values ? 0
      : KPipeline::kBytes + VPipeline::kBytes + 2 * LoadedVTile::kBytes +
                  kConsumers * kWarpgroupRows * (D + kOutputCols) + 4096 <=
              arch::kMaxSharedBytes
          ? 2
          : 1;
  /// Whether V in fp8 may also lie by columns, so that its keys are only put into order.
  static constexpr bool kTakesColumns = kFp8Values && P::SequencesType::kUniform;
  /// Whether V in fp8 may also be transposed ahead, and from how many rows on (Tuning).
  static constexpr int kTransposedFromRows = TuningType::kTransposedFromRows;
  static constexpr bool kTransposesAhead =
      kTransposedFromRows > 0 && kTakesColumns && !kHasScheduler;
  /// The warps that transpose V: two, or one beside a scheduler.
  static constexpr int kTransposers = kHasScheduler ? 1 : 2;
  /// The pieces of V that each of them loads at once, by the registers that it has.
  static constexpr int kTransposedPieces = kProducerRegisters >= 40 ? 4 : 2;
  /// The same where V lies by columns: with more than 1 wide kernels spill, and some with dropout.
  static constexpr int kReorderedPieces =
      kOutputCols > 128 || P::DropoutType::kEnabled ? 1 : kTransposedPieces;
  using LoadedVPipeline = tile::Pipeline<LoadedVTile, max(kLoadedVStages, 1)>;
  static_assert(LoadedVPipeline::kTileBytes == VPipeline::kTileBytes,
                "a copy of V by columns brings as many bytes as one by rows");
  /// S, sums of P V, and O, in registers: each warpgroup holds its 64 rows of the block's Br.
  using ScoreRegisters = tile::MmaTile<Br, Bc, kConsumers * 4>;
  static_assert(kOutputCols % (16 * kOutputParts) == 0,
                "attile::sm90::ForwardTraits: each part of O has a multiple of 16 columns");
  using SumRegisters = tile::MmaTile<Br, kOutputCols / kOutputParts, kConsumers * 4>;
  using OutputRegisters =
      tile::MmaTile<Br, kOutputCols, kConsumers * 4, 1, tile::kLaneColumnsOf<typename E::V>>;

  /// ConsumerRows that are kept for each warpgroup, and their bytes (ForwardMemory::rows).
  /// More are in use than there are stages of Q: a warpgroup still stores O of some rows when Q of
  /// the next ones may be loaded.
  static constexpr int kRowBuffers = 4;
  static constexpr std::size_t kRowsBytes = kRowBuffers * (E::kFp8Queries ? 64 : 48);
  /// The alignment of K, V, the elements, O and Q: the bytes of eight rows of a panel.
  static constexpr std::size_t kTileAlignment = 1024;
  /// Where V, the elements and O begin in shared memory; K begins at 0. Units: bytes, as for all
  /// offsets.
  static constexpr std::size_t kVOffset = round_up(KPipeline::kBytes, kTileAlignment);
  static constexpr std::size_t kLoadedVOffset =
      kVOffset + round_up(VPipeline::kBytes, kTileAlignment);
  static constexpr std::size_t kElementOffset =
      kLoadedVOffset + kLoadedVStages * round_up(LoadedVTile::kBytes, kTileAlignment);
  static constexpr std::size_t kOOffset =
      kElementOffset + kConsumers * round_up(kElementBytes, kTileAlignment);
  /// Whether O goes through shared memory: that in fp32 is stored from registers.
  static constexpr bool kStagesOutput = sizeof(typename E::O) == 2;

 private:
  /// The most bytes of dynamic shared memory that a team can have.
  static constexpr std::size_t kMostTeamBytes =
      arch::kMaxSharedBytes / kTeams / kTileAlignment * kTileAlignment;
  /// Bytes that all else leaves for O and Q, with barriers for two stages of Q. What comes behind
  /// the pipelines' barriers is not counted; that all fits is what the assertion about kSharedBytes
  /// says.
  static constexpr std::size_t kRest =
      kMostTeamBytes - kOOffset - kConsumers * kRowsBytes - kStages * (kWordBytes + kDropoutBytes) -
      sizeof(arch::Mbarrier) * 2 *
          (kConsumers * (2 + kElementStages) + 2 * kStages + kLoadedVStages);
  /// Bytes of all columns of O, and whether they fit beside one stage of Q.
  static constexpr std::size_t kOutputBytes =
      kStagesOutput ? kConsumers * kWarpgroupRows * kOutputCols * sizeof(T) : 0;
  static constexpr bool kWholeOutput = kConsumers * QTile::kBytes + kOutputBytes <= kRest;

 public:
  /// Stages of each warpgroup's pipeline of Q: 2 where there is room, so that Q of the next work
  /// tile is loaded beside this one.
  static constexpr int kQStages = 2 * kConsumers * QTile::kBytes + kOutputBytes <= kRest ? 2 : 1;
  using QPipeline = tile::Pipeline<QTile, kQStages>;
  static_assert(kRowBuffers >= kQStages + 1,
                "attile::sm90::ForwardTraits: rows are kept for the tile that is loaded next, and "
                "for the kQStages tiles before it, whose O may not have been stored");
  /// One warpgroup's rows of O, staged in shared memory for their store: all columns at once where
  /// there is room, else half of them.
  using OTile =
      tile::PanelTile<kWarpgroupRows, kWholeOutput ? kOutputCols : round_up(kOutputCols / 2, 16),
                      std::conditional_t<kStagesOutput, typename E::O, T>>;
  /// Where Q, the slots of ConsumerRows, the words and the barriers begin in shared memory.
  static constexpr std::size_t kQOffset =
      kOOffset + (kStagesOutput ? kConsumers * OTile::kBytes : 0);
  static_assert(kQOffset % kTileAlignment == 0, "Q is swizzled as the other tiles are");
  static constexpr std::size_t kRowsOffset = kQOffset + kConsumers * QPipeline::kBytes;
  static constexpr std::size_t kWordOffset = kRowsOffset + kConsumers * kRowsBytes;
  static constexpr std::size_t kDropoutOffset = kWordOffset + kStages * kWordBytes;
  static constexpr std::size_t kBarrierOffset = kDropoutOffset + kStages * kDropoutBytes;
  /// How many lanes of a warp load K, and V: one, but all where keys lie in pages.
  static constexpr int kKvLanes = kIsPaged<typename P::SequencesType> ? arch::kWarpSize : 1;
  /// How many of them load K: all with teams and words, which they write beside it.
  static constexpr bool kWordsByKeyLanes = kTeams > 1 && kWords != ModifierWords::kNone;
  static constexpr int kKeyLanes = kWordsByKeyLanes ? arch::kWarpSize : kKvLanes;
  /// How many load Q of a work tile that the scheduler has made, or in its place write words, and
  /// how many copy elements.
  static constexpr int kOtherReaders =
      kWords != ModifierWords::kNone
          ? arch::kWarpSize
          : kConsumers + (kCopiesElements ? static_cast<int>(arch::kWarpSize) : 0);
  /// The threads that read each work tile of the scheduler, which are the arrivals of
  /// work_tile_empty, and the barriers of it. V in fp8 is loaded by the threads that load K.
  static constexpr int kKvReaders = (kFp8Values || kLoadsKvTogether ? 1 : 2) * kKvLanes;
  static constexpr int kScheduleReaders = kTeams > 1 ? kKeyLanes : kKvReaders + kOtherReaders;
  static constexpr int kScheduleBarriers = kHasScheduler ? 2 : 0;
  /// Barriers of the pipelines: two for each stage of each Q, of K, of V and of the elements.
  static constexpr int kPipelineBarriers =
      2 * (kConsumers * (kQStages + kElementStages) + 2 * kStages + kLoadedVStages);
  /// Where the ends of V (ForwardMemory::is_end_of_v), the scheduler's work tile, the numbers of
  /// listed tiles and those of the scheduler begin, and the bytes of dynamic shared memory of a
  /// block.
  static constexpr std::size_t kEndOfVOffset =
      kBarrierOffset + sizeof(arch::Mbarrier) * (kPipelineBarriers + kScheduleBarriers);
  static constexpr std::size_t kWorkTileOffset =
      round_up<std::size_t>(kEndOfVOffset + sizeof(int) * kLoadedVStages, 16);
  static constexpr std::size_t kKvTileOffset = kHasScheduler
                                                   ? kWorkTileOffset + sizeof(WorkTile)
                                                   : kEndOfVOffset + sizeof(int) * kLoadedVStages;
  static constexpr std::size_t kNumbersOffset =
      kKvTileOffset + (kListsBlocks ? sizeof(int) * 2 * kStages : 0);
  static constexpr std::size_t kTeamBytes =
      kNumbersOffset + (kKeepsNumbers ? sizeof(ScheduleNumbers) : 0);
  static constexpr std::size_t kSharedBytes =
      kTeams == 1 ? kTeamBytes : kTeams * round_up(kTeamBytes, kTileAlignment);
  static_assert(
      kSharedBytes <= arch::kMaxSharedBytes,
      "attile::sm90::ForwardTraits: the tiles of Q, K, V and O take more than the "
      "232448 bytes of shared memory that a block can have; choose a smaller Br or Bc, or "
      "fewer stages");
};

}  // namespace attile::sm90
