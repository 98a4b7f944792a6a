// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/launch.cuh>
#include <attile/arch/mbarrier.cuh>
#include <attile/arch/warpgroup.cuh>
#include <attile/core/block_sparse.h>
#include <attile/core/dropout.h>
#include <attile/core/math.h>
#include <attile/core/score_mod.h>
#include <attile/kernel/backward/backward_step.cuh>
#include <attile/kernel/backward/dq_mode.h>
#include <attile/kernel/backward/gradient_sums.cuh>
#include <attile/kernel/problem/kernel_traits.h>
#include <attile/kernel/sm90/element_tiles.cuh>
#include <attile/kernel/sm90/modifier_words.cuh>
#include <attile/kernel/sm90/tuning.h>
#include <attile/tile/mma_operands.cuh>
#include <attile/tile/mma_tile.cuh>
#include <attile/tile/modifier_math.h>
#include <attile/tile/panel_tile.cuh>
#include <attile/tile/pipeline.cuh>
#include <attile/tile/two_sums.cuh>
#include <attile/tile/warpgroup.cuh>

#include <cstddef>
#include <type_traits>

namespace attile::sm90 {

template <class Traits>
struct TmaBackwardParams;

/// Holds what a stage of Q has beside the tile: LSE and delta of its rows, and in `header` the
/// query head, the first row, and what hides some of its scores (QStage::edge). A head below 0 says
/// that the tile before was the last.
template <int Rows>
struct QueryStatistics {
  static constexpr int kRowBytes = Rows * sizeof(float);
  static constexpr std::size_t kBytes = 2 * kRowBytes + 16;

  unsigned char* data;

  ATTILE_DEVICE float* lse() const { return reinterpret_cast<float*>(data); }
  ATTILE_DEVICE float* delta() const { return lse() + Rows; }
  ATTILE_DEVICE int* header() const { return reinterpret_cast<int*>(delta() + Rows); }
};

/// Holds every type and constant of one backward pass for compute capability 9.0 (backward.cuh).
/// Br, Bc  rows of a tile of Q, and of K and V: Bc is 64 for each of the 1 to 3 consumer
///         warpgroups, Br 64 or Bc. Above 128 columns both are 64.
/// D, Dv   the largest head_dim and head_dim_v that the pass takes, up to 256; smaller ones are
///         padded inside. Above 128, dK and dV of 64 rows of K and V take the registers of two
///         warpgroups, and each warpgroup makes other products: see product_per_warpgroup.cuh.
/// Registers of a thread for accumulators and operands. D = 128 or 64: dK and dV 128 or 64, S, dP
/// and dQ 32 each, P and dS as operands 16 each. D = 256, one warpgroup each: dV 128, S 32, P 16;
/// dK 128, dP 32, dS 16; dQ 32 twice.
/// Shared memory in KB. D = 128, 64 x 128, 2 stages: K and V 64, Q and dO 64, dS 32, dQ 32. D = 64,
/// 128 x 128: 32, 64, 64, 32, and with elements of 16 bits 32 more. D = 256: 64, 128, dS 16, P 16.
/// D = 192 and Dv = 128 with 3 stages, and P of 3 steps: 40, 120, 16, 48.
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
  static_assert(kMode != DqMode::kTwoPass,
                "attile::sm90::BackwardTraits: dQ is accumulated or added up in order; kTwoPass is "
                "the portable family's");

  using Params = TmaBackwardParams<BackwardTraits>;
  static constexpr const char* kFamily = "sm90";
  static constexpr int kLeastArchitecture = 900;
  /// How dQ is added up: in any order, or in the order of the kv tiles.
  static constexpr DqMode kDqMode = kMode;
  /// Whether one consumer warpgroup makes S, P and dV, one dP, dS and dK, and one dQ. Else each
  /// makes all products of its 64 rows of K and V.
  static constexpr bool kProductPerWarpgroup = max(D, Dv) > 128;
  /// Consumer warpgroups. A block has one more warpgroup, the producer.
  static constexpr int kConsumers = kProductPerWarpgroup ? 3 : Bc / kWarpgroupRows;
  /// Threads of all consumer warpgroups, and of the block.
  static constexpr int kConsumerThreads = kConsumers * arch::kWarpgroupSize;
  static constexpr int kThreads = kConsumerThreads + arch::kWarpgroupSize;
  /// Blocks that run on a multiprocessor at the same time.
  static constexpr int kBlocksPerSm = 1;
  /// What the score modifier reads: with kColumns threads read it for the columns of their scores.
  static constexpr ModifierWords kWords = TuningType::kWords;
  static constexpr bool kReadsColumns = kWords == ModifierWords::kColumns;
  static constexpr bool kAddsColumns = kReadsColumns && !kNeedsScores<typename P::ScoreModType>;
  /// Whether a step has no score modifier, or one that adds what it reads for columns, and a mask
  /// that is an interval of each row: its pointwise work then leaves registers for more.
  static constexpr bool kFastPath = kIsFastPath<P, kAddsColumns>;
  /// Whether the score modifier has a gradient, and whether that is made of S and dS, not of dS.
  static constexpr bool kModifierGradient = kHasGradient<typename P::ScoreModType>;
  static constexpr bool kGradientOfScores =
      kModifierGradient && kNeedsScores<typename P::ScoreModType>;
  /// Whether P, and the factor of dS beside it, are made before dP is there.
  static constexpr bool kPBeforeDp = kFastPath || !kGradientOfScores;
  /// Whether a modifier computes something beside what it reads, and that is read ahead.
  static constexpr bool kComputesAndReads =
      kNeedsScores<typename P::ScoreModType> &&
      (kWords != ModifierWords::kNone || TuningType::kElementStages > 0);
  /// Whether dP is not even begun before P is made: above 64 columns such a modifier, or one beside
  /// dropout, leaves no registers for it.
  static constexpr bool kDpBehindP = kPBeforeDp && !kFastPath && !kProductPerWarpgroup &&
                                     (P::DropoutType::kEnabled || kComputesAndReads) &&
                                     max(D, Dv) > 64;
  /// Whether P gets the sign of dropout's decision (tile::SignedP), which the factor of dS then
  /// has, too.
  static constexpr bool kSignsP = GroupSampler<typename P::DropoutType::Sampler> && kPBeforeDp &&
                                  !kProductPerWarpgroup && kNeverFalls<typename P::ScoreModType> &&
                                  !kModifierGradient;
  /// Whether the decisions are made beside the product of S, and kept in a register, and not where
  /// P is made: faster above 64 columns, and slower below (H200, bench/log/tuning-policies.md).
  static constexpr bool kKeepsSigns = kSignsP && max(D, Dv) > 64;
  /// Whether a warp of the producer writes the score modifier's words beside tiles of Q.
  static constexpr bool kWritesWords = kWords == ModifierWords::kDiagonals;
  /// Stages of the pipeline of the score modifier's elements, and whether a warp of their own loads
  /// these, of which TMA cannot copy those at a sequence's end.
  static constexpr int kElementStages = TuningType::kElementStages;
  static constexpr bool kCopiesElements = kElementStages > 0 && !P::SequencesType::kUniform;
  /// Registers of a producer thread. Warps that add staged dQ in order (kBulkDq), of which there
  /// are some on the fast path only, need more than 24, which the consumers then lack. With block
  /// lists the search for the block that adds before (DqOrder::nearest_seen) takes 40, and words,
  /// or up to 128 columns a warp for elements, as many as there are.
  static constexpr int kProducerRegisters = [] {
    constexpr bool kInOrder = kMode == DqMode::kInOrder;
    constexpr bool kLooks = kInOrder && BlockListMask<typename P::MaskType>;
    if (kProductPerWarpgroup) return kWritesWords ? 32 : 24;
    if (kLooks || kWritesWords || kCopiesElements) return 40;
    return kConsumers == 3 || (kInOrder && kFastPath) ? 32 : 24;
  }();
  /// Registers of a consumer thread, without kProductPerWarpgroup: what the producer leaves.
  static constexpr int kConsumerRegisters = consumer_registers(kConsumers, kProducerRegisters);
  /// Stages of the pipelines of Q and of dO.
  static constexpr int kStages = TuningType::kStages;
  /// Whether producer warp 3 writes the zeros of dq_accum (DqOrder). Up to 128 columns three
  /// consumers leave no warp for that: it would be the third one that adds staged dQ.
  static constexpr bool kZeroFillsInPass =
      kMode == DqMode::kAccumulate && (kProductPerWarpgroup || kConsumers < 3);
  /// Block lists make kv blocks uneven, wherever they are in a head: the longest of the last ones
  /// begin first.
  static constexpr bool kSortsLastKvBlocks =
      kMode == DqMode::kAccumulate && BlockListMask<typename P::MaskType>;
  /// In an in-order pass half of the kv heads ascend (kv_block_of) where at least so many query
  /// heads read a kv head; 0: none ever does. A block of an ascending head waits before its first
  /// step until the block before it has added its dQ. With kProductPerWarpgroup that takes long,
  /// which only long blocks make up for. Off the fast path, or with words of columns, there are no
  /// registers for it, and block lists do not say which blocks are long.
  static constexpr bool kMayAscend = kMode == DqMode::kInOrder &&
                                     !kRowsAlike<typename P::MaskType> &&
                                     !BlockListMask<typename P::MaskType> && kIsFastPath<P>;
  static constexpr int kAlternatesFrom = !kMayAscend ? 0 : kProductPerWarpgroup ? 2 : 1;
  /// Where sequences are packed, and at least so many query heads read a kv head, all kv heads of a
  /// sequence that is not long ascend, and blocks go through the query heads of one tile of rows
  /// after another (goes_rows_first); 0: none ever does.
  static constexpr int kRowsFirstFrom =
      kMayAscend && kIsPacked<typename P::SequencesType> && kIgnoresHead<typename P::MaskType> ? 3
                                                                                               : 0;

  /// Warpgroups that divide the columns of dQ among them: all where dQ has only 64 rows, else 1,
  /// as they divide its rows.
  static constexpr int kDqWarpgroupsN = Br == Bc ? 1 : kConsumers;
  /// Columns of a panel of K, of which each warpgroup makes dQ of whole ones: 32 where two would
  /// make dQ of 128 columns for a D of up to 64.
  static constexpr int kKPanelColumns = kDqWarpgroupsN == 2 && D <= 64 ? 32 : 64;
  /// Columns of Q, K, dK and dQ in shared memory and registers: D, rounded up to whole parts of dQ.
  static constexpr int kQkColumns =
      round_up(D, kProductPerWarpgroup  ? 64
                  : kDqWarpgroupsN == 1 ? 16
                                        : kKPanelColumns * kDqWarpgroupsN);
  /// Columns of V, dO and dV there: Dv, rounded up to the depth of one wgmma.
  static constexpr int kVColumns = round_up(Dv, 16);
  /// The tiles of K and V that a block keeps, and those of Q and dO that it goes through.
  using KTile = tile::PanelTile<Bc, kQkColumns, T, kKPanelColumns / 8>;
  using VTile = tile::PanelTile<Bc, kVColumns, T>;
  using QTile = tile::PanelTile<Br, kQkColumns, T>;
  using DoTile = tile::PanelTile<Br, kVColumns, T>;
  /// dS^T in shared memory, where dQ = dS K reads it. dK reads it from registers.
  using DsTile = tile::PanelTile<Bc, Br, T>;
  using KPipeline = tile::Pipeline<KTile, 1>;
  using VPipeline = tile::Pipeline<VTile, 1>;
  using QPipeline = tile::Pipeline<QTile, kStages>;
  using DoPipeline = tile::Pipeline<DoTile, kStages>;
  /// What a stage of Q has beside the tile.
  using Statistics = QueryStatistics<Br>;
  /// Rows of Q for which a warpgroup makes S and dP at a time, a part of a tile: dK and dV leave no
  /// registers for more, nor with kProductPerWarpgroup the second sum of S (kTwoSums).
  static constexpr int kPartRows = kProductPerWarpgroup && !kFastPath ? 32 : 64;
  /// Parts of a tile.
  static constexpr int kParts = Br / kPartRows;
  /// The score modifier's elements of a part, and their pipeline. Consumers read them when they
  /// make P.
  static_assert(!kCopiesElements || kProductPerWarpgroup || kConsumers < 3,
                "attile::sm90::BackwardTraits: with Bc = 192 no producer warp is left for the "
                "elements of sequences with lengths of their own; choose Bc = 64 or 128");
  static_assert(kElementStages == 0 || (kPBeforeDp && kWords == ModifierWords::kNone),
                "attile::sm90::BackwardTraits: tiles of a modifier's elements are for a modifier "
                "whose gradient does not need the scores, and not with words");
  using ElementTile =
      tile::PanelTile<kPartRows, Bc, typename ElementTypeOf<typename P::ScoreModType, T>::type>;
  using ElementPipeline = tile::Pipeline<ElementTile, max(kElementStages, 1)>;
  static_assert(!kReadsColumns || (!kModifierGradient && max(D, Dv) <= (kFastPath ? 64 : 128) &&
                                   (kFastPath || kNeedsScores<typename P::ScoreModType>)),
                "attile::sm90::BackwardTraits: a modifier that reads columns has no gradient; one "
                "with a derivative of 1 is for up to 64 columns and a mask that is an interval of "
                "each row, another one for up to 128");
  static_assert(!kWritesWords || kPBeforeDp,
                "attile::sm90::BackwardTraits: a modifier's words are for one whose gradient does "
                "not need the scores");
  using WordTile = WordTileOf<kWords, typename P::ScoreModType, tile::MathOf<T>>;
  using Word = typename WordTile::Word;
  /// The bytes of words that a stage of Q has beside the tile.
  static constexpr std::size_t kWordBytes =
      kWritesWords ? word_count<kWords>(Br, Bc) * sizeof(Word) : 0;
  /// Whether a score modifier and dropout share the registers of a thread.
  static constexpr bool kModifierAndDropout =
      P::DropoutType::kEnabled && !kIsIdentity<typename P::ScoreModType>;
  /// Registers of a thread of each consumer warpgroup, with kProductPerWarpgroup, in the order of
  /// Role: dQ, dV, dK. With the producer's they are the 512 of four warpgroups that a
  /// multiprocessor has.
  static constexpr int kDvRoleRegisters =
      kFastPath
          ? 192
          : (kModifierAndDropout || kModifierGradient || kWords != ModifierWords::kNone ? 200
                                                                                        : 208);
  static constexpr int kDqRoleRegisters = 96;
  static constexpr int kRoleRegisters[] = {
      kDqRoleRegisters, kDvRoleRegisters,
      512 - kProducerRegisters - kDqRoleRegisters - kDvRoleRegisters};
  /// Rows that register tiles count through all consumer warpgroups, 64 for each; also with
  /// kProductPerWarpgroup, where all warpgroups have the same 64 rows of K and V.
  static constexpr int kRegisterRows = kConsumers * kWarpgroupRows;
  /// Whether V, the left operand of dP^T, is in registers, where there are enough: wgmma then reads
  /// an eighth less of shared memory.
  static constexpr bool kVInRegisters = kFastPath && kQkColumns + kVColumns <= 128;
  /// S^T and P^T, or dP^T and dS^T, of a part in registers.
  using ScoreRegisters = tile::MmaTile<kRegisterRows, kPartRows, kConsumers * 4>;
  /// Whether the accumulator of S begins at -LSE / 2, so that it is at most half as large where P
  /// is not 0, and so is the error of the sum: for depths above tile::kOneSumDepth.
  static constexpr bool kBeginsAtHalf = kFastPath && kQkColumns > tile::kOneSumDepth;
  /// Whether P is made by one multiplication and addition for each score, and not two. Above, LSE /
  /// 2 would take the same way: D = 128 then spills 4 bytes, and is no faster
  /// (bench/log/tuning-sm90.md).
  static constexpr bool kLog2Lse = kFastPath && !kBeginsAtHalf && !kProductPerWarpgroup;
  static_assert(!kReadsColumns || !kFastPath || kLog2Lse,
                "attile::sm90::BackwardTraits: a modifier's words of columns are for tiles of Bc "
                "64 or 128");
  /// Whether instead S is made in two sums (tile::TwoSums). At D = 128 there are no registers for
  /// the second one, which takes 32: the compiler spills, and serialises products (C7512,
  /// bench/log/tuning-sm90.md).
  static constexpr bool kTwoSums =
      kProductPerWarpgroup && !kFastPath && kQkColumns > tile::kOneSumDepth;
  /// V as the left operand of dP^T, in registers or in shared memory.
  using VLeft = std::conditional_t<kVInRegisters, tile::LoadedLeft<VTile>, VTile>;
  /// How the gradient of a score modifier is added to.
  using Gradient = GradientOf<tile::TransposedRegisters<ScoreRegisters>, typename P::ScoreModType,
                              kWords == ModifierWords::kDiagonals>;
  /// dK and dV in registers, over all tiles of Q that a block goes through.
  using DkRegisters = tile::SumTile<kRegisterRows, kQkColumns, kConsumers * 4>;
  using DvRegisters = tile::SumTile<kRegisterRows, kVColumns, kConsumers * 4>;

  /// One warpgroup's rows of dK and dV, staged in shared memory for their store.
  using DkTile = tile::PanelTile<kWarpgroupRows, kQkColumns, T>;
  using DvTile = tile::PanelTile<kWarpgroupRows, kVColumns, T>;

  /// Columns of dq_accum.
  static constexpr int kDqCols = kQkColumns;
  /// Parts of 64 columns in which dQ of a tile is made one after another; 1 where it is made whole.
  static constexpr int kDqParts = kProductPerWarpgroup ? kQkColumns / 64 : 1;
  /// Threads that hold dQ of a tile in their registers.
  static constexpr int kDqThreads = kProductPerWarpgroup ? arch::kWarpgroupSize : kConsumerThreads;
  /// Threads whose values of a tile of dq_accum lie together: each warpgroup's do (dq_accum.cuh).
  static constexpr int kDqContiguousThreads = arch::kWarpgroupSize;
  /// dQ of a tile, or of a part of it, in registers.
  using DqRegisters =
      std::conditional_t<kProductPerWarpgroup, tile::MmaTile<Br, 64, 4>,
                         tile::MmaTile<kRegisterRows, kQkColumns / kDqWarpgroupsN, kConsumers * 4>>;
  /// Returns the row from which a thread's warpgroup counts its rows in DqRegisters, and the first
  /// column of the tile that they hold.
  ATTILE_DEVICE static TileOrigin dq_origin(int thread) {
    if constexpr (kDqWarpgroupsN == 1) return {};
    const int warpgroup = thread / arch::kWarpgroupSize;
    return {warpgroup * kWarpgroupRows, warpgroup * DqRegisters::kCols};
  }

  /// Where V, Q, dO and dS begin in shared memory; K begins at 0. Units: bytes, as for all offsets.
  static constexpr std::size_t kVOffset = KPipeline::kBytes;
  static constexpr std::size_t kQOffset = kVOffset + VPipeline::kBytes;
  static constexpr std::size_t kDoOffset = kQOffset + QPipeline::kBytes;
  static constexpr std::size_t kDsOffset = kDoOffset + DoPipeline::kBytes;
  /// Tiles of dS^T: that of this step, and that of the step before, of which dQ is made.
  static constexpr int kDsTiles = 2;
  /// With kProductPerWarpgroup, P of parts of tiles in fp32, in the order of registers: its offset,
  /// the number of parts that there is room for, and its bytes.
  static constexpr std::size_t kPOffset = kDsOffset + kDsTiles * DsTile::kBytes;
  static constexpr int kPBuffers = max(TuningType::kPSteps * kParts, 1);
  static constexpr std::size_t kPBytes =
      kProductPerWarpgroup ? sizeof(float) * kPartRows * Bc * kPBuffers : 0;
  /// The offset of the modifier's elements.
  static constexpr std::size_t kElementOffset = kPOffset + kPBytes;
  /// dQ of a tile in fp32, staged with kBulkDq: its offset and bytes.
  static constexpr std::size_t kDqOffset = kElementOffset + kElementStages * ElementTile::kBytes;
  static constexpr std::size_t kDqBytes = sizeof(float) * Br * kQkColumns;
  /// Bytes of the query head and the first row of a tile of dS (BackwardMemory::dq_rows).
  static constexpr std::size_t kDqRowsBytes = 4 * sizeof(int);
  /// Pairs of barriers between those of the pipelines and the two pairs of the semaphore warps
  /// (`dq_acquired`, `dq_added`, or with kBulkDq in order `dq_share_acquired`): of the slots of dS
  /// and P, or of the steps and of staged dQ.
  static constexpr int kBarrierPairs = kProductPerWarpgroup ? kDsTiles + kPBuffers : 4;
  static_assert(kProductPerWarpgroup || 1 + 2 * kConsumers <= 2 * kBarrierPairs,
                "that of the steps, and two for each consumer's staged dQ");
  /// All barriers: of pipelines, slots and semaphore warps, of the zero fill, and of the elements.
  static constexpr int kElementBarrier = 4 + 4 * kStages + 2 * (kBarrierPairs + 2) + 1;
  static constexpr int kBarriers = kElementBarrier + 2 * kElementStages;
  /// Their bytes: what follows them is aligned to 16.
  static constexpr std::size_t kBarrierBytes =
      round_up<std::size_t>(kBarriers * sizeof(arch::Mbarrier), 16);
  /// Bytes of the sums of a score modifier's gradient, of all warps that make dS.
  static constexpr std::size_t kGradientBytes = (kProductPerWarpgroup ? 1 : kConsumers) *
                                                (arch::kWarpgroupSize / arch::kWarpSize) *
                                                Gradient::kWarpBytes;
  /// Bytes of what follows the tiles: statistics, words, the rows of dS, barriers, and those sums.
  static constexpr std::size_t kSmallBytes = kStages * (Statistics::kBytes + kWordBytes) +
                                             (kDsTiles + 1) * kDqRowsBytes + kBarrierBytes +
                                             kGradientBytes;
  /// Whether consumers stage dQ in shared memory, and producer warps add it to dq_accum by TMA. In
  /// order that costs registers, and one more warp, which three consumers do not leave.
  static constexpr bool kBulkDq = !kProductPerWarpgroup &&
                                  (kMode == DqMode::kAccumulate || (kFastPath && kConsumers < 3)) &&
                                  kDqOffset + kDqBytes + kSmallBytes <= arch::kMaxSharedBytes;
  /// Whether instead consumers add dQ from registers in order, while two producer warps acquire and
  /// release the semaphore for them.
  static constexpr bool kDqSemaphoreWarps = !kBulkDq && kMode == DqMode::kInOrder;
  /// Shares of a tile's dQ: a producer warp adds what a consumer warpgroup has staged.
  static constexpr int kDqShares = kBulkDq ? kConsumers : 1;
  /// Whether the pass signals that dQ of a kv block has been added (DqOrder::signal_ready).
  static constexpr bool kSignalsDqReady = kMode == DqMode::kAccumulate;
  static_assert(
      !(kBulkDq && kSignalsDqReady) || kZeroFillsInPass,
      "attile::sm90::BackwardTraits: with Bc = 192 no producer warp is left for the zero fill, by "
      "which the warps that add staged dQ wait for preprocessing; choose Bc = 64 or 128");
  /// Where statistics, words, the rows of dS, the barriers and the sums of a score modifier's
  /// gradient begin, and the shared memory of a block.
  static constexpr std::size_t kStatOffset = kDqOffset + (kBulkDq ? kDqBytes : 0);
  static constexpr std::size_t kWordOffset = kStatOffset + kStages * Statistics::kBytes;
  static constexpr std::size_t kDqRowsOffset = kWordOffset + kStages * kWordBytes;
  static constexpr std::size_t kBarrierOffset = kDqRowsOffset + (kDsTiles + 1) * kDqRowsBytes;
  static constexpr std::size_t kGradientOffset = kBarrierOffset + kBarrierBytes;
  static constexpr std::size_t kKvSharedBytes = kGradientOffset + kGradientBytes;
  /// Where dK and dV are staged for their store: over K and V, but with kProductPerWarpgroup over Q
  /// and dO, because other warpgroups still read K and V.
  static constexpr std::size_t kDkOffset = kProductPerWarpgroup ? kQOffset : 0;
  static constexpr std::size_t kDvOffset = kProductPerWarpgroup ? kDoOffset : kVOffset;
  /// Shared memory of a block of the kernel that writes dQ.
  static constexpr std::size_t kDqSharedBytes = QTile::kBytes;
  static_assert(
      kKvSharedBytes <= arch::kMaxSharedBytes,
      "attile::sm90::BackwardTraits: the tiles of K, V, Q, dO and dS take more than the "
      "232448 bytes of shared memory that a block can have; choose a smaller Br or Bc, or "
      "fewer stages or steps of P");
};

}  // namespace attile::sm90
