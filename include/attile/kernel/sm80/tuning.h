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

/// Says how a kernel reads the data of a score modifier: as the modifier's tiles do, each thread
/// for its scores; a word for each column, where its values say that there is nothing else
/// (reads_columns); or elements of 16 bits by asynchronous copies of tiles, which takes_elements
/// says of the values.
enum class ModifierReads { kAny, kColumns, kElements };

template <int Br, int Bc, int D, class E, class P, int Dv, class TuningType>
struct ForwardTraits;
template <int Br, int Bc, int D, class E, class P, int Dv, DqMode kMode, class TuningType>
struct BackwardTraits;
template <int Br, int Bc, int D, class E, class P, int Dv, class TuningType>
struct DecodeTraits;

/// Holds what changes the speed and, but for Products, not the result. It is a type and not a
/// value, for the reason that portable::Tuning gives.
/// WarpCount       warps of a block; each has Br / (WarpCount / WarpsN) rows of Q, a multiple of
///                 16. More rows of a warp mean fewer reads of K and V from shared memory, and more
///                 registers. 0: Br / 32 where D and Dv leave the registers for 32 rows of whole
///                 columns, else, and for fp32, Br / 16.
/// WarpsN          warps of a row: each has 1 / WarpsN of the keys for S and P, and of the columns
///                 of O, and P goes from one to the other through shared memory. Two are faster
///                 above 128 columns, where a block can have that memory: more than 99 KB for tiles
///                 of 64 x 64.
/// ResidentBlocks  blocks of a multiprocessor that the compiler leaves registers for. 0: as many as
///                 can have all registers that a thread can use.
/// Fp32Products    how fp32 is multiplied.
/// Reads           how a score modifier's data are read.
template <int WarpCount = 0, int WarpsN = 1, int ResidentBlocks = 0,
          Products Fp32Products = Products::k3xTf32, ModifierReads Reads = ModifierReads::kAny>
struct Tuning {
  static_assert(WarpCount >= 0 && WarpCount <= 32, "attile::sm80::Tuning: up to 32 warps");
  static_assert(ResidentBlocks >= 0, "attile::sm80::Tuning: a negative number of blocks");
  static_assert(WarpsN >= 1, "attile::sm80::Tuning: a row has at least one warp");

  static constexpr int kWarps = WarpCount;
  static constexpr int kBlocksPerSm = ResidentBlocks;
  static constexpr Products kProducts = Fp32Products;
  static constexpr int kWarpsN = WarpsN;
  static constexpr ModifierReads kReads = Reads;

  /// The family that attile::ForwardTraits takes by this tuning.
  template <int Br, int Bc, int D, class E, class P, int Dv>
  using Forward = ForwardTraits<Br, Bc, D, E, P, Dv, Tuning>;
};

/// Returns the warps of a block with Br rows of Q, as Tuning says.
constexpr int warps_of(int tuned, int br, int dim, int element_bytes) {
  if (tuned > 0) return tuned;
  return br % 32 == 0 && dim <= 128 && element_bytes == 2 ? br / 32 : br / 16;
}

/// Returns the resident blocks of that many warps, as Tuning says: 255 registers a thread at most,
/// and 64 K registers on a multiprocessor.
constexpr int blocks_of(int tuned, int warps) {
  if (tuned > 0) return tuned;
  return warps < 8 ? 8 / warps : 1;
}

/// Holds what changes the speed of a decode kernel and, but for the order of sums and for Products,
/// not the result.
/// Warps      warps of a block.
/// KeyGroups  groups of warps, each of which has 1 / KeyGroups of the keys of a step, and its own
///            loads. The warps of a group divide its keys among them where a row tile has at most
///            16 rows, and else the rows.
/// Stages     tiles of K and V of a group in shared memory: all but one are in flight.
/// ResidentBlocks  blocks of a multiprocessor that the compiler leaves registers for.
/// Fp32Products    how fp32 is multiplied.
/// QStages    2: rows of Q are loaded while the part before is computed. 1: after it, into memory
///            that also merges states, which may leave room for another block.
/// Pairs      whether the two warps of a group, where they do not divide the keys, share 32 rows
///            (DecodeTraits::kPairs). For K and V in fp8, where the device cannot convert it.
template <int Warps = 8, int KeyGroups = Warps, int Stages = 3, int ResidentBlocks = 1,
          Products Fp32Products = Products::k3xTf32, int QStages = 2, bool Pairs = false>
struct DecodeTuning {
  static_assert(Warps >= 1 && Warps <= 32 && KeyGroups >= 1 && Warps % KeyGroups == 0,
                "attile::sm80::DecodeTuning: up to 32 warps, as many in each key group");
  static_assert(KeyGroups < 15 || KeyGroups == Warps,
                "attile::sm80::DecodeTuning: groups of several warps have a named barrier each, of "
                "which a block has 16, and uses 0 and 15 for all its warps");
  static_assert(Stages >= 1, "attile::sm80::DecodeTuning: at least one stage");
  static_assert(QStages == 1 || QStages == 2, "attile::sm80::DecodeTuning: 1 or 2 stages of Q");

  static constexpr int kWarps = Warps;
  static constexpr int kKeyGroups = KeyGroups;
  static constexpr int kStages = Stages;
  static constexpr int kQStages = QStages;
  static constexpr bool kPairs = Pairs;
  static constexpr int kBlocksPerSm = ResidentBlocks;
  static constexpr Products kProducts = Fp32Products;

  /// The family that attile::DecodeTraits takes by this tuning.
  template <int Br, int Bc, int D, class E, class P, int Dv>
  using Decode = DecodeTraits<Br, Bc, D, E, P, Dv, DecodeTuning>;
};

/// Holds what changes the speed of a backward pass and not the result, but for the order of sums
/// and for Products. 0: each warp has 16 rows, and no more of dK and dV than registers hold.
/// Warps    warps of a block; each has Bc / (Warps / WarpsN) rows of dK and dV, a multiple of 16.
/// WarpsN   warps of a row of dK and dV; each has 1 / WarpsN of the columns.
/// DqWarpsN warps of a row of dQ; each has Br / (Warps / DqWarpsN) rows, a multiple of 16.
/// Stages   tiles of Q and dO in shared memory: with 2 the next are in flight for a whole step.
/// Fp32Products  how fp32 is multiplied.
/// Reads    how a score modifier's data are read.
template <int Warps = 0, int WarpsN = 0, int DqWarpsN = 0, int ResidentBlocks = 1, int Stages = 1,
          Products Fp32Products = Products::k3xTf32, ModifierReads Reads = ModifierReads::kAny>
struct BackwardTuning {
  static_assert(Warps >= 0 && Warps <= 32, "attile::sm80::BackwardTuning: at most 32 warps");
  static_assert(ResidentBlocks >= 1, "attile::sm80::BackwardTuning: at least 1 block");
  static_assert(Stages == 1 || Stages == 2, "attile::sm80::BackwardTuning: 1 or 2 stages");

  static constexpr int kBlocksPerSm = ResidentBlocks;
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

  /// The family that attile::BackwardTraits takes by this tuning.
  template <int Br, int Bc, int D, class E, class P, int Dv, DqMode kMode>
  using Backward = BackwardTraits<Br, Bc, D, E, P, Dv, kMode, BackwardTuning>;
};

}  // namespace attile::sm80
