// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/opaque.h>
#include <attile/core/args.h>
#include <attile/core/check.h>
#include <attile/core/config.h>
#include <attile/core/mask.h>
#include <attile/core/math.h>
#include <attile/core/schedule.h>
#include <attile/kernel/backward/dq_mode.h>
#include <attile/kernel/problem/problem.cuh>
#include <attile/kernel/problem/work_tile.h>
#include <attile/tile/copy.cuh>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace attile {

/// Is the number of parts of the sinks' gradient that a tile of query rows has: one for each warp's
/// rows of the preprocessing kernel.
template <class Traits>
inline constexpr int kSinkParts = ceil_div(Traits::kBr, 32);

/// Points to the parts of the sinks' gradient (sink_gradient.cuh): kSinkParts for each tile of
/// query rows. It is empty without sinks.
template <bool kThere>
struct SinkParts {
  float* sink_parts = nullptr;
};
template <>
struct SinkParts<false> {};

/// Holds the one argument of the kernels of a backward pass: the problem, its gradients, and the
/// parts of the workspace. Scratch rows are the rows of each query head of each sequence, rounded
/// up to whole tiles of the longest sequence, or of packed sequences to their own whole tiles.
template <class Traits>
struct BackwardParams : Problem<Traits>, SinkParts<Traits::SinkType::kEnabled> {
  using typename Problem<Traits>::T;
  using typename Problem<Traits>::MaskType;
  /// Whether some scores of a tile may be hidden, and with block lists by what.
  using Edge = std::conditional_t<Problem<Traits>::kListsBlocks, ListedEdge::Kind, bool>;

  tile::TensorParam<const T> dout;
  tile::TensorParam<T> dq, dk, dv;
  RowTensor<const float> l;  ///< null, or the l of FlashAttention-1: LSE = m + ln(l), m is `lse`
  RowTensor<const float> dlse;
  float* row_lse = nullptr;        ///< LSE of each scratch row; +inf where P must be 0
  float* delta = nullptr;          ///< rowsum(dO * O) - dLSE of each; 0 past the sequence's rows
  float* dq_accum = nullptr;       ///< the fp32 sum: kDqCols per scratch row; null with kTwoPass
  int* dq_semaphores = nullptr;    ///< kInOrder: see DqOrder and `begun_counter`
  int* zero_fill_flags = nullptr;  ///< see DqOrder; null where preprocessing writes all zeros
  int* dq_ready_flags = nullptr;   ///< kSignalsDqReady: see DqOrder
  int q_tiles, kv_tiles;           ///< the tiles of each sequence and head
  HeadRounds rounds;               ///< the rounds of kv heads: see kv_block_of
  float half_inverse_scale;        ///< 0.5 / scale: converts an LSE to half of it in raw scores
  int ascending_from;              ///< kAlternatesFrom: the first kv block of heads that ascend

  /// Takes arguments that passed `check_arguments`; `complete` does the rest. Without a workspace
  /// the result cannot be launched with. `l_of_rows`: FlashAttention-1's l; `args.lse` is then m.
  BackwardParams(const typename Traits::Args& args, void* workspace, const float* l_of_rows);

  /// Adds what a family needs and can fail; returns why its kernels do not take the arguments.
  [[nodiscard]] Check complete(const typename Traits::Args&) { return {}; }

  /// Returns the number of tiles of query rows of all sequences and heads.
  ATTILE_HOST_DEVICE std::int64_t q_tile_count() const {
    return static_cast<std::int64_t>(this->batch) * this->q_heads * q_tiles;
  }
  /// Returns the index of a work tile's tile of rows among those.
  ATTILE_HOST_DEVICE std::int64_t q_tile_number(const WorkTile& at) const {
    return (static_cast<std::int64_t>(at.sequence) * this->q_heads + at.head) * q_tiles +
           at.row0 / Traits::kBr;
  }
  /// Returns the scratch rows of each query head: whole tiles, so that the loop reads without a
  /// bound.
  ATTILE_HOST_DEVICE std::int64_t scratch_rows() const {
    return static_cast<std::int64_t>(q_tiles) * Traits::kBr;
  }
  /// Returns the scratch rows of the query heads of one kv head.
  ATTILE_HOST_DEVICE std::int64_t group_scratch_rows() const {
    return this->group_heads * scratch_rows();
  }
  /// Returns whether a sequence has keys of a work tile's kv tile. Those past its end have no
  /// flags, as rows past its end (`has_rows`) have no scratch rows.
  ATTILE_HOST_DEVICE bool has_keys(const WorkTile& key) const {
    return this->kUniform || key.kv_tile() * Traits::kBc < this->extent(key).kv_len;
  }
  /// Returns the number of kv tiles of a work tile's sequence.
  ATTILE_HOST_DEVICE int kv_tiles_of(const WorkTile& at) const {
    return this->kUniform ? kv_tiles : ceil_div(this->extent(at).kv_len, Traits::kBc);
  }
  /// Returns one past the last query head of a kv head. `key`: a work tile of the pass over keys.
  ATTILE_HOST_DEVICE int head_end(const WorkTile& key) const {
    return key.head + this->group_heads;
  }
  /// Returns the scratch row that a work tile's rows begin with. The tiles of packed sequence b
  /// begin at tile first_row / Br + b, of which no other sequence's tiles are: its rows fill at
  /// most one tile more than rows / Br, so that sequences without common rows have no common tiles.
  ATTILE_HOST_DEVICE std::int64_t scratch_row(const WorkTile& at) const {
    if constexpr (kIsPacked<typename Traits::SequencesType>) {
      const std::int64_t before =
          this->policies.sequences.q_origin(at.sequence).row / Traits::kBr + at.sequence;
      const int tiles = ceil_div(this->extent(at).q_len, Traits::kBr);
      return (before * this->q_heads + std::int64_t{at.head} * tiles) * Traits::kBr + at.row0;
    } else {
      return (at.sequence * this->q_heads + at.head) * scratch_rows() + at.row0;
    }
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
    return Traits::kAlternatesFrom > 0 && kv_block >= ascending_from;
  }
  /// Returns the counter of the blocks of the pass over K/V blocks that have begun.
  ATTILE_HOST_DEVICE int* begun_counter() const { return dq_semaphores + q_tile_count(); }
  /// Returns the number of kv tiles of all kv heads, which is that of the blocks of that pass.
  ATTILE_HOST_DEVICE int kv_blocks() const { return this->batch * this->kv_heads * kv_tiles; }
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
///         warps of a row), not with kTwoPass. DqOrder needs: semaphores 4 for each tile of query
///         rows and 4 more, with kInOrder; zero_fill_flags 8 for each kv tile of each kv head, with
///         kZeroFillsInPass; ready_flags 4 * kDqReadyFlags for each of those kv tiles, with
///         kSignalsDqReady. The gradient of sinks: 4 * kSinkParts for each tile of query rows.
/// Semaphores and zero_fill_flags begin at the same offset, as no pass has both.
struct BackwardWorkspace {
  std::size_t row_lse, delta, dq_accum, semaphores, ready_flags, sink_parts, bytes;
};

/// Returns the scratch rows of one query head of all sequences. Packed ones need a tile more than
/// the tensors' rows fill for each sequence but one, whatever their lengths are.
template <class Traits>
std::size_t scratch_rows(const typename Traits::Args& args) {
  const std::size_t batch = args.batch;
  if (!kIsPacked<typename Traits::SequencesType> || batch == 0 || args.q_len == 0) {
    return batch * round_up(args.q_len, Traits::kBr);
  }
  const int rows = args.sequences.q_shape(args.batch, args.q_len).rows;
  return (ceil_div(rows, Traits::kBr) + batch - 1) * Traits::kBr;
}

/// Returns the parts of the scratch memory that a pass over `args` needs.
template <class Traits>
BackwardWorkspace backward_workspace(const typename Traits::Args& args) {
  const std::size_t batch_heads = static_cast<std::size_t>(args.batch) * args.q_heads;
  const std::size_t stats = sizeof(float) * args.q_heads * scratch_rows<Traits>(args);
  const std::size_t sums = Traits::kDqMode != DqMode::kTwoPass ? stats * Traits::kDqCols : 0;
  const std::size_t semaphores =
      Traits::kDqMode == DqMode::kInOrder
          ? sizeof(int) * (batch_heads * ceil_div(args.q_len, Traits::kBr) + 1)
          : 0;
  const std::size_t kv_blocks =
      static_cast<std::size_t>(args.batch) * args.kv_heads * ceil_div(args.kv_len, Traits::kBc);
  const std::size_t zero_fill = Traits::kZeroFillsInPass ? 2 * sizeof(int) * kv_blocks : 0;
  static_assert(
      !(Traits::kZeroFillsInPass && Traits::kDqMode == DqMode::kInOrder),
      "attile::BackwardWorkspace: semaphores and zero_fill_flags begin at the same place");
  std::size_t ready = 0;
  if constexpr (Traits::kSignalsDqReady) ready = sizeof(int) * Traits::kDqReadyFlags * kv_blocks;
  const std::size_t aligned_stats = round_up<std::size_t>(stats, 16);
  const std::size_t behind = 2 * aligned_stats + sums;
  const std::size_t ready_at = behind + semaphores + zero_fill;
  const std::size_t q_tiles = batch_heads * ceil_div(args.q_len, Traits::kBr);
  const std::size_t sinks =
      Traits::SinkType::kEnabled ? sizeof(float) * q_tiles * kSinkParts<Traits> : 0;
  const std::size_t bytes = max<std::size_t>(ready_at + ready + sinks, 16);
  return {0, aligned_stats, 2 * aligned_stats, behind, ready_at, ready_at + ready, bytes};
}

/// Returns whether the pass itself writes the zeros of the sum of dQ: where the blocks of a kv head
/// run together, each zero-fill chunk is worth its atomics, and L2 has room for what some hundred
/// blocks write ahead. On an H200 it is 4 % faster with 8 MB of sum for a kv head, and 3 % slower
/// with 16 MB, in chunks of 32 and 64 KB (docs/tuning.md); others are not measured. Where sequences
/// have lengths of their own, the host does not know that, and blocks past the end write nothing.
template <class Traits>
bool zero_fills_in_pass(const typename Traits::Args& args) {
  if (!Traits::kZeroFillsInPass || !Traits::SequencesType::kUniform) return false;
  if (args.kv_heads == 0 || args.kv_len == 0) return false;
  const std::int64_t rows = round_up(args.q_len, Traits::kBr);
  const std::int64_t heads = args.q_heads / args.kv_heads;
  const std::int64_t sum = heads * rows * Traits::kDqCols * std::int64_t{sizeof(float)};
  const int kv_tiles = ceil_div(args.kv_len, Traits::kBc);
  const std::int64_t chunk = sum / kv_tiles;
  return sum <= 8 << 20 && kv_tiles <= 128 && 16 << 10 <= chunk && chunk <= 128 << 10;
}

/// Returns whether half of the kv heads ascend: see kv_block_of.
template <class Traits>
bool alternates(const typename Traits::Args& args) {
  return Traits::kAlternatesFrom > 0 && args.kv_heads > 0 &&
         args.q_heads / args.kv_heads >= Traits::kAlternatesFrom;
}

/// Returns how many kv heads begin a tile each before one of them begins its next one. Only speed
/// depends on it. With kInOrder a block waits for a step of the one before it, so that one block of
/// a head can begin in each step, while as many blocks end in a step as the device runs at a time,
/// over the steps of a block. The result is twice that, since dQ is in flight for longer than a
/// step; where heads alternate, it is at least what fills a device.
/// In other modes it is one, because blocks of one head share what L2 holds. But where blocks are
/// few, and a mask makes them uneven, it is what fills a device, so that the longest begin first.
template <class Traits>
int heads_in_flight(const typename Traits::Args& args) {
  if (args.kv_heads == 0 || args.q_len == 0 || args.kv_len == 0) return 1;
  constexpr int kDeviceBlocks = 128;
  const std::int64_t batch_heads = std::int64_t{args.batch} * args.kv_heads;
  std::int64_t heads = 1;
  if constexpr (Traits::kDqMode == DqMode::kInOrder) {
    constexpr std::int64_t kMostBlocks = 256;
    heads = ceil_div(kMostBlocks, std::int64_t{args.q_heads / args.kv_heads} *
                                      ceil_div(args.q_len, Traits::kBr));
    if (alternates<Traits>(args)) {
      const int tiles = ceil_div(args.kv_len, Traits::kBc);
      heads = max<std::int64_t>(heads, ceil_div(kDeviceBlocks, tiles));
    }
  } else if constexpr (Traits::kHeadsInFlight && !kRowsAlike<typename Traits::MaskType>) {
    const int tiles = ceil_div(args.kv_len, Traits::kBc);
    if (batch_heads * tiles <= 8 * kDeviceBlocks) heads = kDeviceBlocks / tiles;
  }
  return static_cast<int>(max<std::int64_t>(min(heads, batch_heads), 1));
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
      half_inverse_scale(0.5f / this->scale) {
  const int kv_heads = this->kv_heads;
  const int descending = this->batch * (alternates<Traits>(args) ? (kv_heads + 1) / 2 : kv_heads);
  ascending_from = descending * kv_tiles;
  rounds = {descending, heads_in_flight<Traits>(args)};
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
  if (zero_fills_in_pass<Traits>(args) && kv_blocks() > 0) {
    zero_fill_flags = static_cast<int*>(part(parts.semaphores));
  }
  if constexpr (Traits::SinkType::kEnabled) {
    this->sink_parts = static_cast<float*>(part(parts.sink_parts));
  }
}

/// Returns the parameter for arguments that passed `check_arguments`; `complete` does the rest.
template <class Traits>
typename Traits::Params backward_params(const typename Traits::Args& args, void* workspace,
                                        const float* l = nullptr) {
  return typename Traits::Params(args, workspace, l);
}

}  // namespace attile
