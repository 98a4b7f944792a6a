// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/opaque.h>
#include <attile/core/args.h>
#include <attile/core/config.h>
#include <attile/core/math.h>
#include <attile/core/schedule.h>
#include <attile/core/sequences.h>
#include <attile/core/work_tile.h>
#include <attile/kernel/backward/dq_mode.h>
#include <attile/kernel/backward/kv_head_schedule.h>
#include <attile/kernel/backward/log2_lse.cuh>
#include <attile/kernel/problem/problem.cuh>
#include <attile/tile/copy.cuh>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace attile {

/// Is the number of parts of the sinks' gradient that a tile of query rows has: one for each warp's
/// rows of the preprocessing kernel.
template <class Traits>
inline constexpr int kSinkParts = ceil_div(Traits::kBr, 32);

/// Points to the parts of the sinks' gradient (sink_gradient.cuh): kSinkParts for each slot of a
/// tile of query rows. It is empty without sinks.
template <bool kThere>
struct SinkParts {
  float* sink_parts = nullptr;
};
template <>
struct SinkParts<false> {};

/// Is the number of ints that a work tile takes in a list (list_tile).
inline constexpr int kListedInts = 8;

/// Holds the numbers of slots (TileSlots) of packed sequences, and the lists of tiles that
/// preprocessing makes of them (list_tile). It is empty where sequences are not packed.
template <bool kThere>
struct PackedSlots {
  int all_q_slots = 0, all_kv_slots = 0;
  int* kv_block_list = nullptr;  ///< the kv block of each block of the pass
  int* q_tile_list = nullptr;    ///< the tile of query rows of each block of the kernel after it
  int* listed_flag = nullptr;    ///< kSignalsDqReady: see DqOrder
};
template <>
struct PackedSlots<false> {};

/// Returns whether the pass itself writes the zeros of the sum of dQ of a sequence: where the
/// blocks of a kv head run together, each zero-fill chunk is worth its atomics, and L2 has room for
/// what some hundred blocks write ahead. On an H200 it is 4 % faster with 8 MB of sum for a kv
/// head, and 3 % slower with 16 MB, in chunks of 32 and 64 KB (bench/log/tuning-sm90.md); others
/// are not measured.
template <class Traits>
ATTILE_HOST_DEVICE constexpr bool zero_fills_in_pass(int group_heads, Extent lengths) {
  if (!Traits::kZeroFillsInPass || group_heads == 0 || lengths.kv_len == 0) return false;
  const std::int64_t rows = round_up(lengths.q_len, Traits::kBr);
  const std::int64_t sum = group_heads * rows * Traits::kDqCols * std::int64_t{sizeof(float)};
  const int kv_tiles = ceil_div(lengths.kv_len, Traits::kBc);
  const std::int64_t chunk = sum / kv_tiles;
  return sum <= 8 << 20 && kv_tiles <= 128 && 16 << 10 <= chunk && chunk <= 128 << 10;
}

/// Holds the one argument of the kernels of a backward pass: the problem, its gradients, and the
/// parts of the workspace. Scratch rows are the rows of all slots of tiles of query rows, of each
/// query head.
template <class Traits>
struct BackwardParams : Problem<Traits>,
                        SinkParts<Traits::SinkType::kEnabled>,
                        PackedSlots<kIsPacked<typename Traits::SequencesType>>,
                        LastKvBlocks<Traits::kSortsLastKvBlocks> {
  static constexpr bool kPackedSequences = kIsPacked<typename Traits::SequencesType>;
  using typename Problem<Traits>::T;
  using typename Problem<Traits>::MaskType;
  /// Whether some scores of a tile may be hidden, and with block lists by what.
  using Edge = std::conditional_t<Problem<Traits>::kListsBlocks, ListedEdge::Kind, bool>;

  tile::TensorParam<const T> dout;
  tile::TensorParam<T> dq, dk, dv;
  RowTensor<const float> l;  ///< null, or the l of FlashAttention-1: LSE = m + ln(l), m is `lse`
  RowTensor<const float> dlse;
  float* row_lse = nullptr;        ///< LSE of each scratch row (kLog2Lse); +inf where P must be 0
  float* delta = nullptr;          ///< rowsum(dO * O) - dLSE of each; 0 past the sequence's rows
  float* dq_accum = nullptr;       ///< the fp32 sum: kDqCols per scratch row; null with kTwoPass
  int* dq_semaphores = nullptr;    ///< kInOrder: see DqOrder and `begun_counter`
  int* zero_fill_flags = nullptr;  ///< see DqOrder; null where preprocessing writes all zeros
  int* dq_ready_flags = nullptr;   ///< kSignalsDqReady: see DqOrder
  int q_tiles, kv_tiles;           ///< the tiles of q_len rows, and of kv_len keys
  HeadRounds rounds;               ///< the rounds of kv heads: see kv_block_of
  float half_inverse_scale;        ///< 0.5 / scale: converts an LSE to half of it in raw scores
  Log2Lse log2_lse;                ///< with kLog2Lse
  int ascending_from;              ///< kAlternatesFrom: the first kv block of heads that ascend

  /// Takes arguments that passed `check_arguments`; `complete` does the rest. Without a workspace
  /// the result cannot be launched with. `l_of_rows`: FlashAttention-1's l; `args.lse` is then m.
  BackwardParams(const typename Traits::Args& args, void* workspace, const float* l_of_rows);

  /// Adds what a family needs and can fail; returns why its kernels do not take the arguments.
  [[nodiscard]] Check complete([[maybe_unused]] const typename Traits::Args& args) {
    if constexpr (requires { Traits::check_reads(args.score_mod); }) {
      return Traits::check_reads(args.score_mod);
    } else {
      return {};
    }
  }

  /// Returns the slots of kv tiles.
  ATTILE_HOST_DEVICE auto kv_slots() const {
    return KvSlots<Traits>(this->policies.sequences, this->batch, this->bounds.kv_len);
  }
  /// Returns the number of slots of tiles of query rows, of all sequences and heads.
  ATTILE_HOST_DEVICE std::int64_t q_tile_count() const {
    if constexpr (kPackedSequences) return std::int64_t{this->all_q_slots} * this->q_heads;
    return static_cast<std::int64_t>(this->batch) * this->q_heads * q_tiles;
  }
  /// Returns the index of a work tile's tile of rows among those.
  ATTILE_HOST_DEVICE std::int64_t q_tile_number(const WorkTile& at) const {
    const int tile = at.row0 / Traits::kBr;
    if constexpr (kPackedSequences) {  // a head has no more tiles than slots
      const int row = row_number(this->policies.sequences, at.q_origin);
      const std::int64_t first = row / Traits::kBr + at.sequence;
      return first * this->q_heads + at.head * q_tiles_of(at) + tile;
    }
    return (static_cast<std::int64_t>(at.sequence) * this->q_heads + at.head) * q_tiles + tile;
  }
  /// Returns the index of a work tile's kv tile among the slots of kv tiles of all kv heads.
  ATTILE_HOST_DEVICE int kv_tile_number(const WorkTile& kv) const {
    if constexpr (kPackedSequences) {
      const int row = row_number(this->policies.sequences, kv.kv_origin);
      const int first = row / Traits::kBc + kv.sequence;
      return first * this->kv_heads + kv.kv_head * kv_tiles_of(kv) + kv.kv_tile();
    }
    return (kv.sequence * this->kv_heads + kv.kv_head) * kv_tiles + kv.kv_tile();
  }
  /// Returns the index of the first of the sinks' parts of a tile of rows: they are (batch, heads,
  /// tiles), or where sequences are packed (heads, slots). See SinkSums.
  ATTILE_HOST_DEVICE std::int64_t sink_part(const WorkTile& at) const {
    if constexpr (kPackedSequences) {
      const int slot = this->q_slots().first(at.sequence) + at.row0 / Traits::kBr;
      return (std::int64_t{at.head} * this->all_q_slots + slot) * kSinkParts<Traits>;
    }
    return q_tile_number(at) * kSinkParts<Traits>;
  }
  /// Returns that of the `number`-th tile of Problem::row_tile, where packed sequences have none.
  ATTILE_HOST_DEVICE std::int64_t sink_part_of_none(int number) const {
    const int head = number % this->q_heads, slot = number / this->q_heads;
    return (std::int64_t{head} * this->all_q_slots + slot) * kSinkParts<Traits>;
  }
  /// Returns the scratch rows of each query head of a sequence, or where sequences are packed of
  /// its own rows: whole tiles, so that the loop reads without a bound.
  ATTILE_HOST_DEVICE std::int64_t scratch_rows(const WorkTile& at) const {
    return static_cast<std::int64_t>(kPackedSequences ? q_tiles_of(at) : q_tiles) * Traits::kBr;
  }
  /// Returns the scratch rows of the query heads of one kv head.
  ATTILE_HOST_DEVICE std::int64_t group_scratch_rows(const WorkTile& at) const {
    return this->group_heads * scratch_rows(at);
  }
  /// Returns whether a sequence has keys of a work tile's kv tile. Those past its end have no
  /// flags, as rows past its end (`has_rows`) have no scratch rows.
  ATTILE_HOST_DEVICE bool has_keys(const WorkTile& kv) const {
    return this->kUniform || kv.kv_tile() * Traits::kBc < this->extent(kv).kv_len;
  }
  /// Return the number of tiles of query rows, and of kv tiles, of a work tile's sequence.
  ATTILE_HOST_DEVICE int q_tiles_of(const WorkTile& at) const {
    return this->kUniform ? q_tiles : ceil_div(this->extent(at).q_len, Traits::kBr);
  }
  ATTILE_HOST_DEVICE int kv_tiles_of(const WorkTile& at) const {
    return this->kUniform ? kv_tiles : ceil_div(this->extent(at).kv_len, Traits::kBc);
  }
  /// Returns one past the last query head of a kv head. `kv`: a work tile of the pass over keys.
  ATTILE_HOST_DEVICE int head_end(const WorkTile& kv) const { return kv.head + this->group_heads; }
  /// Returns the scratch row that a work tile's rows begin with.
  ATTILE_HOST_DEVICE std::int64_t scratch_row(const WorkTile& at) const {
    if constexpr (kPackedSequences) return q_tile_number(at) * Traits::kBr;
    return (at.sequence * this->q_heads + at.head) * scratch_rows(at) + at.row0;
  }
  /// Returns whether the pass writes the zeros of a work tile's sequence.
  ATTILE_HOST_DEVICE bool pass_fills(const WorkTile& at) const {
    if (zero_fill_flags == nullptr) return false;
    return this->kUniform || zero_fills_in_pass<Traits>(this->group_heads, this->extent(at));
  }
  /// Returns the steps of a loop over the tiles of query rows of a work tile's head that see any
  /// key of a kv tile: those tiles, or with a mask of block lists as many steps as the keys' block
  /// lists tiles (`listed_q_tile`).
  ATTILE_HOST_DEVICE TileRange q_tiles_seeing(const WorkTile& at, int kv_tile) const {
    const Extent lengths = this->extent(at);
    const Extent here{arch::opaque(lengths.q_len), arch::opaque(lengths.kv_len)};
    if (!this->kUniform && kv_tile * Traits::kBc >= here.kv_len) return {};  // past its last key
    if constexpr (this->kListsBlocks) {
      return listed_rows(at, kv_tile).steps(MaskType::kQBlock / Traits::kBr);
    }
    return row_tiles(this->policies.mask, at.sequence, at.head, kv_tile * Traits::kBc, Traits::kBc,
                     Traits::kBr, here);
  }
  /// Returns the tile of query rows of a step of q_tiles_seeing, with a mask of block lists. It may
  /// be behind the last row (`exists`), and is left out then: it has no scratch rows.
  ATTILE_HOST_DEVICE int listed_q_tile(const WorkTile& at, int kv_tile, const TileRange& steps,
                                       int step) const {
    return listed_rows(at, kv_tile).tile(MaskType::kQBlock / Traits::kBr, steps, step);
  }
  ATTILE_HOST_DEVICE bool exists(const WorkTile& at, int q_tile) const {
    return q_tile * Traits::kBr < this->extent(at).q_len;
  }
  /// Returns what may hide scores of a listed tile. `is_full`: whether its block is listed as full.
  ATTILE_HOST_DEVICE ListedEdge::Kind listed_edge(const WorkTile& at, int kv_tile, int q_tile,
                                                  bool is_full) const {
    const Extent e = this->extent(at);
    const bool is_cut =
        (q_tile + 1) * Traits::kBr > e.q_len || (kv_tile + 1) * Traits::kBc > e.kv_len;
    return !is_full ? ListedEdge::kMask : is_cut ? ListedEdge::kExtent : ListedEdge::kNone;
  }
  /// Returns whether any row of a work tile sees a key of a kv tile, by what q_tiles_seeing says.
  ATTILE_HOST_DEVICE bool sees(const WorkTile& at, int kv_tile) const {
    if constexpr (this->kListsBlocks) {
      if (!this->kUniform && kv_tile * Traits::kBc >= this->extent(at).kv_len) return false;
      return listed_rows(at, kv_tile).has(at.row0 / MaskType::kQBlock);
    } else {
      return q_tiles_seeing(at, kv_tile).contains(at.row0 / Traits::kBr);
    }
  }
  /// Calls f(masked, q_tile, is_full) for each tile of query rows of a work tile's head that sees
  /// its kv tile, as `visit` does. `is_full`: whether its block is listed as full.
  template <class F>
  ATTILE_DEVICE void visit_rows(const WorkTile& at, const F& f) const {
    const TileRange steps = q_tiles_seeing(at, at.kv_tile());
    if constexpr (this->kListsBlocks) {
      for (int step = steps.first; step < steps.last; ++step) {
        const int q_tile = listed_q_tile(at, at.kv_tile(), steps, step);
        if (!exists(at, q_tile)) continue;
        const bool is_full = steps.full(step);
        if (listed_edge(at, at.kv_tile(), q_tile, is_full) != ListedEdge::kNone) {
          f(std::true_type{}, q_tile, is_full);
        } else {
          f(std::false_type{}, q_tile, is_full);
        }
      }
    } else {
      visit(steps, [&](auto masked, int q_tile) { f(masked, q_tile, false); });
    }
  }
  /// Returns whether the kv tiles of a kv block's kv head ascend (`kv_block_of`).
  ATTILE_HOST_DEVICE bool ascends(int kv_block) const {
    return Traits::kAlternatesFrom > 0 &&
           kv_block >= (kPackedSequences ? kv_blocks() : ascending_from);
  }
  /// Returns whether its block goes through the query heads of one tile of rows after another
  /// (QTileLoop).
  ATTILE_HOST_DEVICE bool rows_first(int kv_block) const {
    return Traits::kRowsFirstFrom > 0 && kv_block >= 2 * kv_blocks();
  }
  /// Returns the query head behind `head` in its group, and behind the last one the first.
  ATTILE_HOST_DEVICE int next_in_group(int head) const {
    return (head + 1) % this->group_heads == 0 ? head + 1 - this->group_heads : head + 1;
  }
  /// Returns the counter of the blocks of the pass over K/V blocks that have begun.
  ATTILE_HOST_DEVICE int* begun_counter() const {
    return dq_semaphores + Traits::kDqShares * q_tile_count();
  }
  /// Returns the number of slots of kv tiles, of all kv heads: the blocks of that pass.
  ATTILE_HOST_DEVICE int kv_blocks() const {
    if constexpr (kPackedSequences) return this->all_kv_slots * this->kv_heads;
    return this->batch * this->kv_heads * kv_tiles;
  }
  /// Returns the fp32 sum of dQ of a work tile's rows; the family chooses the layout of a tile.
  ATTILE_DEVICE float* dq_accum_of(const WorkTile& at) const {
    return dq_accum + scratch_row(at) * Traits::kDqCols;
  }

 private:
  /// Returns the blocks of rows that see a kv tile, with a mask of block lists.
  ATTILE_HOST_DEVICE BlockList listed_rows(const WorkTile& at, int kv_tile) const {
    static_assert(MaskType::kQBlock % Traits::kBr == 0 && MaskType::kKvBlock % Traits::kBc == 0,
                  "attile: with a mask of block lists, Br and Bc must divide the sizes of a block");
    return this->policies.mask.listed_rows(at.sequence, at.head,
                                           kv_tile / (MaskType::kKvBlock / Traits::kBc));
  }
};

/// Holds the bytes of the caller's scratch memory, and the offset of each part of it.
/// Units   bytes. For each scratch row (scratch_rows): statistics 8; the sum of dQ 4 for each
///         column of a tile (D rounded up to 4, or with matrix instructions to whole pieces of the
///         warps of a row), not with kTwoPass. DqOrder needs: semaphores 4 * kDqShares for each
///         tile of query rows and 4 more, with kInOrder; zero_fill_flags 8 for each kv tile of each
///         kv head, with kZeroFillsInPass; ready_flags 4 * kDqShares for each of those kv tiles,
///         with kSignalsDqReady. The gradient of sinks: 4 * kSinkParts for each tile of query rows.
///         Where sequences are packed, lists: 32 for each of those tiles of either kind, and 4;
///         with kSortsLastKvBlocks 4 for each of sorted_kv_blocks.
///         A tile that only a bound lets be counts as one.
/// Semaphores and zero_fill_flags begin at the same offset, as no pass has both.
struct BackwardWorkspace {
  std::size_t row_lse, delta, dq_accum, semaphores, ready_flags, sink_parts, lists, bytes;
};

/// Return the numbers of slots of tiles of query rows, and of kv tiles, of one head.
template <class Traits>
std::int64_t q_slot_count(const typename Traits::Args& args) {
  return QSlots<Traits>(args.sequences, args.batch, args.q_len).count();
}
template <class Traits>
std::int64_t kv_slot_count(const typename Traits::Args& args) {
  return KvSlots<Traits>(args.sequences, args.batch, args.kv_len).count();
}

/// Returns the parts of the scratch memory that a pass over `args` needs.
template <class Traits>
BackwardWorkspace backward_workspace(const typename Traits::Args& args) {
  const auto q_tiles = static_cast<std::size_t>(q_slot_count<Traits>(args) * args.q_heads);
  const auto kv_blocks = static_cast<std::size_t>(kv_slot_count<Traits>(args) * args.kv_heads);
  const std::size_t stats = sizeof(float) * Traits::kBr * q_tiles;
  const std::size_t sums = Traits::kDqMode != DqMode::kTwoPass ? stats * Traits::kDqCols : 0;
  const std::size_t semaphores =
      Traits::kDqMode == DqMode::kInOrder ? sizeof(int) * (Traits::kDqShares * q_tiles + 1) : 0;
  const std::size_t zero_fill = Traits::kZeroFillsInPass ? 2 * sizeof(int) * kv_blocks : 0;
  static_assert(
      !(Traits::kZeroFillsInPass && Traits::kDqMode == DqMode::kInOrder),
      "attile::BackwardWorkspace: semaphores and zero_fill_flags begin at the same offset");
  std::size_t ready = 0;
  if constexpr (Traits::kSignalsDqReady) ready = sizeof(int) * Traits::kDqShares * kv_blocks;
  const std::size_t aligned_stats = round_up<std::size_t>(stats, 16);
  const std::size_t behind = 2 * aligned_stats + sums;
  const std::size_t ready_at = behind + semaphores + zero_fill;
  const std::size_t sinks =
      Traits::SinkType::kEnabled ? sizeof(float) * q_tiles * kSinkParts<Traits> : 0;
  const std::size_t lists_at = round_up<std::size_t>(ready_at + ready + sinks, 16);
  std::size_t lists = 0;
  if constexpr (kIsPacked<typename Traits::SequencesType>) {
    lists = sizeof(int) * (kListedInts * (kv_blocks + q_tiles) + 1);
  } else if constexpr (Traits::kSortsLastKvBlocks) {
    lists = sizeof(int) * sorted_kv_blocks(kv_blocks, ceil_div(args.kv_len, Traits::kBc));
  }
  const std::size_t bytes = max<std::size_t>(lists_at + lists, 16);
  return {0, aligned_stats, 2 * aligned_stats, behind, ready_at, ready_at + ready, lists_at, bytes};
}

template <class Traits>
BackwardParams<Traits>::BackwardParams(const typename Traits::Args& args, void* workspace,
                                       const float* l_of_rows)
    : Problem<Traits>(args),
      dout(tile::tensor_param(args.dout, this->head_dim_v)),
      dq(tile::tensor_param(args.dq, this->head_dim)),
      dk(tile::tensor_param(args.dk, this->head_dim)),
      dv(tile::tensor_param(args.dv, this->head_dim_v)),
      l(per_row(args, l_of_rows)),
      dlse(per_row(args, args.dlse)),
      q_tiles(ceil_div(args.q_len, Traits::kBr)),
      kv_tiles(ceil_div(args.kv_len, Traits::kBc)),
      half_inverse_scale(0.5f / this->scale),
      log2_lse(kIsIdentity<typename Traits::ScoreModType> ? this->scale : 1.0f) {
  const int descending = this->batch * descending_heads<Traits>(this->kv_heads, this->group_heads);
  ascending_from = descending * kv_tiles;
  const std::int64_t heads = std::int64_t{this->batch} * this->kv_heads;
  rounds = {descending, heads_in_flight<Traits>(heads, this->group_heads, q_tiles, kv_tiles)};
  if constexpr (kPackedSequences) {
    this->all_q_slots = static_cast<int>(q_slot_count<Traits>(args));
    this->all_kv_slots = static_cast<int>(kv_slot_count<Traits>(args));
  }
  if (workspace == nullptr) return;
  const BackwardWorkspace parts = backward_workspace<Traits>(args);
  const auto part = [&](std::size_t offset) -> void* {
    return static_cast<unsigned char*>(workspace) + offset;
  };
  row_lse = static_cast<float*>(part(parts.row_lse));
  delta = static_cast<float*>(part(parts.delta));
  if (Traits::kDqMode != DqMode::kTwoPass) dq_accum = static_cast<float*>(part(parts.dq_accum));
  if (Traits::kDqMode == DqMode::kInOrder)
    dq_semaphores = static_cast<int*>(part(parts.semaphores));
  if (Traits::kSignalsDqReady) dq_ready_flags = static_cast<int*>(part(parts.ready_flags));
  // Of sequences with lengths of their own the device decides for each (pass_fills).
  const bool may_fill = Problem<Traits>::kUniform
                            ? zero_fills_in_pass<Traits>(this->group_heads, this->bounds)
                            : Traits::kZeroFillsInPass;
  if (may_fill && kv_blocks() > 0) {
    zero_fill_flags = static_cast<int*>(part(parts.semaphores));
  }
  if constexpr (Traits::SinkType::kEnabled) {
    this->sink_parts = static_cast<float*>(part(parts.sink_parts));
  }
  if constexpr (Traits::kSortsLastKvBlocks) {
    const auto sorted = static_cast<int>(sorted_kv_blocks(kv_blocks(), kv_tiles));
    this->sorted_from = kv_blocks() - sorted;
    this->sorted_blocks = static_cast<int*>(part(parts.lists));
  }
  if constexpr (kPackedSequences) {
    this->kv_block_list = static_cast<int*>(part(parts.lists));
    this->q_tile_list = this->kv_block_list + std::int64_t{kListedInts} * kv_blocks();
    this->listed_flag = this->q_tile_list + kListedInts * q_tile_count();
  }
}

/// Returns the parameter for arguments that passed `check_arguments`; `complete` does the rest.
template <class Traits>
typename Traits::Params backward_params(const typename Traits::Args& args, void* workspace,
                                        const float* l = nullptr) {
  return typename Traits::Params(args, workspace, l);
}

}  // namespace attile
