// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/math.h>
#include <attile/kernel/backward/dq_mode.h>

namespace attile::sm90 {

template <int Br, int Bc, int D, class E, class P, int Dv, class TuningType>
struct ForwardTraits;

template <int Br, int Bc, int D, class E, class P, int Dv, DqMode kMode, class TuningType>
struct BackwardTraits;

/// The rows of a tile that one consumer warpgroup computes: of Q, or in a backward pass of K and V.
inline constexpr int kWarpgroupRows = 64;

/// Returns the registers that setmaxnreg can give to each of so many consumer warpgroups, beside
/// a producer warpgroup that has `producer`. Units: registers of a thread.
constexpr int consumer_registers(int consumers, int producer) {
  const int at_start = min(65536 / ((consumers + 1) * 128) / 8 * 8, 256);
  return min((at_start * (consumers + 1) - producer) / consumers / 8 * 8, 256);
}

/// Says which words of a score modifier are read apart from its tiles: none, or one for each column
/// or each diagonal. The modifier has to say of its values that it reads nothing else
/// (reads_columns, reads_diagonals). A warp of the producer writes them beside tiles, but for those
/// of columns in a backward pass: its kv block has the same ones in all steps, and threads read
/// them.
enum class ModifierWords { kNone, kColumns, kDiagonals };

/// Holds what changes a forward kernel's speed and not its result, beside its tiles.
///   sm90::Tuning<sm90::TuningValues{.stages = 4, .teams = 2}>
struct TuningValues {
  /// Stages of the pipelines of K and of V.
  int stages = 2;
  /// Whether a tile has rows of several query heads of one kv head, for which K and V are read
  /// once. It is meant for a q_len that would leave tiles nearly empty.
  bool packs_heads = false;
  /// Whether as many blocks are launched as run at the same time, and each computes several work
  /// tiles: the next one is loaded while one ends. Else each work tile has its block.
  bool persistent = true;
  /// Stages of the pipelines of the score modifier's elements, which are of 16 bits
  /// (ElementTensor): TMA copies tiles of them, and where sequences have lengths of their own a
  /// warp those at their ends. With 0 threads read them.
  int element_stages = 0;
  /// Whether blocks take their work tiles by a counter in scratch memory, as they do where
  /// sequences have lengths of their own (dynamic_schedule.cuh). It is meant for masks under which
  /// tiles of rows see very different numbers of keys.
  bool counts = false;
  /// What a stage of K has beside the tile, of what the score modifier reads.
  ModifierWords words = ModifierWords::kNone;
  /// With V in fp8 and promoted sums (Fp8Sums): into how many parts the columns of P V are cut, one
  /// of which is in registers beside O. With one P V is made beside the maximum of the next scores;
  /// with more all but the last part are made before it.
  int output_parts = 1;
  /// Whether consumers begin S one after another.
  bool orders = false;
  /// Whether a consumer makes S beside P V of the tile before. Without it S, and sums of P V, are
  /// not in registers at the same time.
  bool overlaps = true;
  /// Whether a consumer waits for V of a tile behind the tile's exponentials, and not ahead of
  /// them, which is faster where V comes late: in fp8 of three consumers, or wide.
  bool waits_late = false;
  /// With scratch memory V in fp8 is transposed ahead of the kernel (transpose_v.cuh) where at
  /// least so many rows of query heads share a kv head; 0: never.
  int transposed_from_rows = 0;
  /// Groups of consumers of a block, each with Br rows, pipelines and work tiles of its own, 1 or 2
  /// (forward.cuh).
  int teams = 1;
};

/// Is the type that TuningValues become: see Tuning, which names it.
template <int Stages, bool PacksHeads, bool Persistent, int ElementStages, bool Counts,
          ModifierWords Words, int OutputParts, bool Orders, bool Overlaps, bool WaitsLate,
          int TransposedFromRows, int Teams>
struct TuningOf {
  static_assert(Stages >= 2,
                "attile::sm90::Tuning: at least 2 stages, as a warpgroup waits for the next V "
                "before it frees the last one");

  static constexpr int kStages = Stages;
  static constexpr bool kPacksHeads = PacksHeads;
  static constexpr bool kPersistent = Persistent;
  static constexpr int kElementStages = ElementStages;
  static constexpr bool kCounts = Counts;
  static constexpr int kOutputParts = OutputParts;
  static constexpr bool kOrders = Orders;
  static constexpr bool kOverlaps = Overlaps;
  static constexpr bool kWaitsLate = WaitsLate;
  static constexpr ModifierWords kWords = Words;
  static constexpr int kTransposedFromRows = TransposedFromRows;
  static constexpr int kTeams = Teams;

  /// The traits that attile::ForwardTraits takes with this tuning.
  template <int Br, int Bc, int D, class E, class P, int Dv>
  using Forward = ForwardTraits<Br, Bc, D, E, P, Dv, TuningOf>;
};

/// Names the tuning of a forward kernel. It is a type, and the value is taken apart here, for the
/// reason that portable::Tuning gives.
template <TuningValues kValues = TuningValues{}>
using Tuning =
    TuningOf<kValues.stages, kValues.packs_heads, kValues.persistent, kValues.element_stages,
             kValues.counts, kValues.words, kValues.output_parts, kValues.orders, kValues.overlaps,
             kValues.waits_late, kValues.transposed_from_rows, kValues.teams>;

/// Holds what changes a backward pass's speed, and its result only by the order of sums.
///   sm90::BackwardTuning<sm90::BackwardTuningValues{.stages = 3}>
struct BackwardTuningValues {
  /// Stages of the pipelines of Q and of dO, at least 2: a warpgroup waits for the next tiles
  /// before it frees these.
  int stages = 2;
  /// Tiles of P in shared memory, above 128 columns: the warpgroup that makes P hands them to the
  /// one that makes dS; 0: one part of a tile (kPartRows rows).
  int p_steps = 1;
  /// Stages of the pipeline of the score modifier's elements, as in TuningValues; each has those of
  /// such a part.
  int element_stages = 0;
  /// As in TuningValues, beside tiles of Q.
  ModifierWords words = ModifierWords::kNone;
};

/// Is the type that BackwardTuningValues become: see BackwardTuning, which names it.
template <int Stages, int PSteps, int ElementStages, ModifierWords Words>
struct BackwardTuningOf {
  static_assert(Stages >= 2, "attile::sm90::BackwardTuning: at least 2 stages");
  static_assert(PSteps >= 0, "attile::sm90::BackwardTuning: tiles of P are 0 or more");

  static constexpr int kStages = Stages;
  static constexpr int kPSteps = PSteps;
  static constexpr int kElementStages = ElementStages;
  static constexpr ModifierWords kWords = Words;

  /// The traits that attile::BackwardTraits takes with this tuning.
  template <int Br, int Bc, int D, class E, class P, int Dv, DqMode kMode>
  using Backward = BackwardTraits<Br, Bc, D, E, P, Dv, kMode, BackwardTuningOf>;
};

/// Names the tuning of a backward pass, as Tuning does that of a forward kernel.
template <BackwardTuningValues kValues = BackwardTuningValues{}>
using BackwardTuning =
    BackwardTuningOf<kValues.stages, kValues.p_steps, kValues.element_stages, kValues.words>;

}  // namespace attile::sm90
