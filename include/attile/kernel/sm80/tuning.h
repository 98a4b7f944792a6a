// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/args.h>
#include <attile/kernel/backward/dq_mode.h>
#include <attile/tile/products.h>

namespace attile::sm80 {

/// Says how fp32 is multiplied. k1xTf32 has TF32's accuracy, 10 bits of mantissa, and is never a
/// default: S, LSE, O and the gradients have the errors that result from rounding Q, K, V, P, dO
/// and dS to TF32 where they are multiplied. Sums, the softmax and delta stay fp32.
using tile::Products;

/// Says how a kernel reads the data of a score modifier. All but kAny ask something of the
/// modifier's values (check_reads).
enum class ModifierReads {
  kAny,       ///< each thread for its scores, as the modifier's tiles do (core/tile_modifier.h)
  kColumns,   ///< a word for each column, where the modifier reads nothing else
  kElements,  ///< elements of 16 bits, by asynchronous copies of tiles
};

template <int Br, int Bc, int D, class E, class P, int Dv, class TuningType>
struct ForwardTraits;
template <int Br, int Bc, int D, class E, class P, int Dv, DqMode kMode, class TuningType>
struct BackwardTraits;
template <int Br, int Bc, int D, class E, class P, int Dv, class TuningType>
struct DecodeTraits;

/// Holds what changes a forward kernel's speed and, but for products, not its result, beside its
/// tiles.
///   sm80::Tuning<sm80::TuningValues{.warps = 4, .blocks_per_sm = 2}>
struct TuningValues {
  /// Warps of a block, all of them; each has Br / (warps / warps_n) rows of Q, a multiple of 16.
  /// More rows of a warp mean fewer reads of K and V from shared memory, and more registers. 0
  /// leaves the number to the library: it gives a warp 32 rows where D and Dv, divided by warps_n,
  /// leave the registers for that, else, and for fp32, 16.
  int warps = 0;
  /// Warps of a row: each has 1 / warps_n of the keys for S and P, and of the columns of O, and P
  /// goes from one to the other through shared memory. Two are faster above 128 columns, where a
  /// block can have that memory: more than 99 KB for tiles of 64 x 64.
  int warps_n = 1;
  /// Blocks of a multiprocessor that the compiler leaves registers for. 0 leaves the number to the
  /// library: as many as can have all registers that a thread can use.
  int blocks_per_sm = 0;
  /// How fp32 is multiplied; 16-bit types have the default.
  Products products = Products::k3xTf32;
  /// How a score modifier's data are read.
  ModifierReads reads = ModifierReads::kAny;
};

/// Is the type that TuningValues become: see Tuning, which names it.
template <int Warps, int WarpsN, int BlocksPerSm, Products Fp32Products, ModifierReads Reads>
struct TuningOf {
  static_assert(Warps >= 0 && Warps <= 32,
                "attile::sm80::Tuning: warps are 1 to 32, or 0, which leaves them to the library");
  static_assert(WarpsN >= 1, "attile::sm80::Tuning: warps_n, the warps of a row, is at least 1");
  static_assert(BlocksPerSm >= 0,
                "attile::sm80::Tuning: blocks_per_sm is at least 1, or 0, which leaves it to the "
                "library");

  static constexpr int kWarps = Warps;
  static constexpr int kWarpsN = WarpsN;
  static constexpr int kBlocksPerSm = BlocksPerSm;
  static constexpr Products kProducts = Fp32Products;
  static constexpr ModifierReads kReads = Reads;

  /// The traits that attile::ForwardTraits takes with this tuning.
  template <int Br, int Bc, int D, class E, class P, int Dv>
  using Forward = ForwardTraits<Br, Bc, D, E, P, Dv, TuningOf>;
};

/// Names the tuning of a forward kernel. It is a type, and the value is taken apart here, for the
/// reason that portable::Tuning gives.
template <TuningValues kValues = TuningValues{}>
using Tuning = TuningOf<kValues.warps, kValues.warps_n, kValues.blocks_per_sm, kValues.products,
                        kValues.reads>;

/// Returns the warps of a block with Br rows of Q, as TuningValues says.
constexpr int warps_of(int tuned, int warps_n, int br, int dim, int element_bytes) {
  if (tuned > 0) return tuned;
  const bool has_32_rows = br % 32 == 0 && dim <= 128 * warps_n && element_bytes == 2;
  return br / (has_32_rows ? 32 : 16) * warps_n;
}

/// Returns the resident blocks of that many warps, as TuningValues says: 255 registers a thread at
/// most, and 64 K registers on a multiprocessor.
constexpr int blocks_of(int tuned, int warps) {
  if (tuned > 0) return tuned;
  return warps < 8 ? 8 / warps : 1;
}

/// Holds what changes the speed of a decode kernel and, but for the order of sums and for products,
/// not its result, beside its tiles.
///   sm80::DecodeTuning<sm80::DecodeTuningValues{.warps = 4, .stages = 2}>
struct DecodeTuningValues {
  /// Warps of a block.
  int warps = 8;
  /// Groups of warps, each of which has 1 / key_groups of the keys of a step, and its own loads.
  /// The warps of a group divide its keys among them where a row tile has at most 16 rows, and else
  /// the rows. 0: as many as warps.
  int key_groups = 0;
  /// Tiles of K and V of a group in shared memory: all but one are in flight.
  int stages = 3;
  /// Blocks of a multiprocessor that the compiler leaves registers for.
  int blocks_per_sm = 1;
  /// How fp32 is multiplied; 16-bit types have the default.
  Products products = Products::k3xTf32;
  /// Tiles of Q in shared memory. 2: rows of Q are loaded while the part before is computed. 1:
  /// after it, into memory that also merges states, which may leave room for another block.
  int q_stages = 2;
  /// Whether the two warps of a group, where they do not divide the keys, share 32 rows
  /// (DecodeTraits::kPairs). For K and V in fp8, where the device cannot convert it.
  bool pairs = false;
};

/// Is the type that DecodeTuningValues become: see DecodeTuning, which names it.
template <int Warps, int KeyGroups, int Stages, int BlocksPerSm, Products Fp32Products, int QStages,
          bool Pairs>
struct DecodeTuningOf {
  static_assert(Warps >= 1 && Warps <= 32, "attile::sm80::DecodeTuning: warps are 1 to 32");
  static_assert(KeyGroups >= 1 && Warps % KeyGroups == 0,
                "attile::sm80::DecodeTuning: warps must be a multiple of key_groups");
  static_assert(KeyGroups < 15 || KeyGroups == Warps,
                "attile::sm80::DecodeTuning: groups of several warps have a named barrier each, of "
                "which a block has 16, and uses 0 and 15 for all its warps");
  static_assert(Stages >= 1, "attile::sm80::DecodeTuning: stages is at least 1");
  static_assert(BlocksPerSm >= 1, "attile::sm80::DecodeTuning: blocks_per_sm is at least 1");
  static_assert(QStages == 1 || QStages == 2, "attile::sm80::DecodeTuning: q_stages is 1 or 2");

  static constexpr int kWarps = Warps;
  static constexpr int kKeyGroups = KeyGroups;
  static constexpr int kStages = Stages;
  static constexpr int kBlocksPerSm = BlocksPerSm;
  static constexpr Products kProducts = Fp32Products;
  static constexpr int kQStages = QStages;
  static constexpr bool kPairs = Pairs;

  /// The traits that attile::DecodeTraits takes with this tuning.
  template <int Br, int Bc, int D, class E, class P, int Dv>
  using Decode = DecodeTraits<Br, Bc, D, E, P, Dv, DecodeTuningOf>;
};

/// Names the tuning of a decode kernel, as Tuning does that of a forward kernel.
template <DecodeTuningValues kValues = DecodeTuningValues{}>
using DecodeTuning =
    DecodeTuningOf<kValues.warps, kValues.key_groups == 0 ? kValues.warps : kValues.key_groups,
                   kValues.stages, kValues.blocks_per_sm, kValues.products, kValues.q_stages,
                   kValues.pairs>;

/// Holds what changes a backward pass's speed and, but for the order of sums and for products, not
/// its result, beside its tiles.
///   sm80::BackwardTuning<sm80::BackwardTuningValues{.warps = 4, .stages = 2}>
struct BackwardTuningValues {
  /// Warps of a block; each has Bc / (warps / warps_n) rows of dK and dV, a multiple of 16. 0
  /// leaves the number to the library: each warp has 16 rows.
  int warps = 0;
  /// Warps of a row of dK and dV; each has 1 / warps_n of the columns. 0 leaves the number to the
  /// library: 2 above 128 columns, as registers hold no more of dK and dV, and else 1.
  int warps_n = 0;
  /// Warps of a row of dQ; each has Br / (warps / dq_warps_n) rows, a multiple of 16. 0 leaves the
  /// number to the library: as few as there are rows for.
  int dq_warps_n = 0;
  /// Blocks of a multiprocessor that the compiler leaves registers for.
  int blocks_per_sm = 1;
  /// Tiles of Q and dO in shared memory, 1 or 2: with 2 the next are in flight for a whole step.
  int stages = 1;
  /// How fp32 is multiplied; 16-bit types have the default.
  Products products = Products::k3xTf32;
  /// How a score modifier's data are read.
  ModifierReads reads = ModifierReads::kAny;
};

/// Is the type that BackwardTuningValues become: see BackwardTuning, which names it.
template <int Warps, int WarpsN, int DqWarpsN, int BlocksPerSm, int Stages, Products Fp32Products,
          ModifierReads Reads>
struct BackwardTuningOf {
  static_assert(Warps >= 0 && Warps <= 32,
                "attile::sm80::BackwardTuning: warps are 1 to 32, or 0, which leaves them to the "
                "library");
  static_assert(WarpsN >= 0 && DqWarpsN >= 0,
                "attile::sm80::BackwardTuning: warps_n and dq_warps_n, the warps of a row, are at "
                "least 1, or 0, which leaves them to the library");
  static_assert(BlocksPerSm >= 1, "attile::sm80::BackwardTuning: blocks_per_sm is at least 1");
  static_assert(Stages == 1 || Stages == 2, "attile::sm80::BackwardTuning: stages is 1 or 2");

  static constexpr int kBlocksPerSm = BlocksPerSm;
  static constexpr int kStages = Stages;
  static constexpr Products kProducts = Fp32Products;
  static constexpr ModifierReads kReads = Reads;

  static constexpr int warps_n(int dim) { return WarpsN > 0 ? WarpsN : dim > 128 ? 2 : 1; }
  static constexpr int warps(int bc, int dim) { return Warps > 0 ? Warps : bc / 16 * warps_n(dim); }
  static constexpr int dq_warps_n(int br, int bc, int dim) {
    if (DqWarpsN > 0) return DqWarpsN;
    int groups = warps(bc, dim);
    while (groups > 1 && (warps(bc, dim) % groups != 0 || br % (16 * groups) != 0)) --groups;
    return warps(bc, dim) / groups;
  }

  /// The traits that attile::BackwardTraits takes with this tuning.
  template <int Br, int Bc, int D, class E, class P, int Dv, DqMode kMode>
  using Backward = BackwardTraits<Br, Bc, D, E, P, Dv, kMode, BackwardTuningOf>;
};

/// Names the tuning of a backward pass, as Tuning does that of a forward kernel.
template <BackwardTuningValues kValues = BackwardTuningValues{}>
using BackwardTuning =
    BackwardTuningOf<kValues.warps, kValues.warps_n, kValues.dq_warps_n, kValues.blocks_per_sm,
                     kValues.stages, kValues.products, kValues.reads>;

}  // namespace attile::sm80
