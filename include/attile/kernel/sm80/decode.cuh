// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/async_copy.cuh>
#include <attile/arch/attributes.h>
#include <attile/arch/grid_dependency.cuh>
#include <attile/arch/shared_memory.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/math.h>
#include <attile/core/vec.h>
#include <attile/kernel/decode/decode_params.cuh>
#include <attile/kernel/decode/merge_parts.cuh>
#include <attile/kernel/decode/split_schedule.cuh>
#include <attile/kernel/forward/forward_kernel.cuh>
#include <attile/kernel/sm80/decode_traits.cuh>
#include <attile/tile/dropout.cuh>
#include <attile/tile/mma_tile.cuh>
#include <attile/tile/multiply.cuh>
#include <attile/tile/online_softmax.h>
#include <attile/tile/panel_tile.cuh>
#include <attile/tile/scores.cuh>

#include <cstdint>
#include <type_traits>

// Decode: few rows of queries against many keys, which is as fast as K and V are read. A block has
// parts of row tiles (SplitSchedule), one after another. Its key groups share the keys: each has
// the next kGroupKeys of every Bc keys, loads them for itself, and no group waits for another one
// until the part ends. A warp has 16 rows. Where a row tile has no more, all warps share the keys,
// too, and each keeps S, P, O, m and l of these rows over its own; else the warps of a group share
// the rows. For a block of four warps in two groups, by the keys of a step and the rows:
//
//       at most 16 rows                      17 to 32 rows
//       keys 0   16   32   48                keys  0       32
//           |w 0 |w 1 |w 2 |w 3 |         rows  0 |  w 0   |  w 2   |
//                                         rows 16 |  w 1   |  w 3   |
//           '--group 0'--group 1'                 'group 0-'group 1-'
//
// At the end of a part the states of the warps that have the same rows are merged, and become O and
// LSE, or the state of the part.
//
// Loads run ahead of the products, by kStages - 1 tiles and into the next part (KeyValueStream): a
// block whose part ends has the next one's first tiles in flight. The copies of a tile of K and V
// are one commit group of cp.async; with the first tile of a part come the block's rows of Q, for
// which there are two stages.
//
// Barriers
//   of a group (a warp barrier where it is one warp): a tile has arrived before others of the group
//     read it; all have read it before the next one replaces it
//   of the block: Q has arrived before other groups read it; states are written before others read
//     them; they are read before the next part's are written, and Q before the next but one

namespace attile::sm80 {

/// Loads Q of the block's parts, and K and V of this thread's key group, ahead of the products.
/// Scope    all threads of the block take the same steps; those of a group together.
template <class Traits>
class KeyValueStream {
  static constexpr int kStages = Traits::kStages;
  using T = typename Traits::ElementType;

 public:
  ATTILE_DEVICE KeyValueStream(const DecodeParams<Traits>& p, const SplitSchedule<Traits>& schedule,
                               unsigned char* shared)
      : p_(p), schedule_(schedule), shared_(shared) {
    has_part_ = schedule_.next(part_);
    tile_ = part_.at.kv_tiles.first;
    load_ahead();
  }

  /// Begins the block's next part, whose tiles are loaded then if they are not yet.
  ATTILE_DEVICE void begin_part() {
    ++parts_begun_;
    load_ahead();
  }
  /// Waits until this thread's copies of the next tile have landed, and of the part's Q with the
  /// first one. A barrier is wanted before others' copies are read.
  ATTILE_DEVICE void await_tile() const {
    if (loaded_ - used_ == kStages) {
      arch::async_copy_wait<kStages - 1>();
    } else {
      arch::async_copy_wait<0>();
    }
  }
  /// Frees the stage of a tile behind its last read. Scope    all threads of the group.
  ATTILE_DEVICE void release_tile() {
    barrier_of_group();  // all have read the tile before the next one replaces it
    ++used_;
    load_ahead();
  }

  /// These refer to the part's Q, and to the next tile of K and V.
  ATTILE_DEVICE typename Traits::QTile q() const { return q_stage(parts_begun_ - 1); }
  ATTILE_DEVICE typename Traits::KTile k() const { return {stage(used_)}; }
  ATTILE_DEVICE typename Traits::VTile v() const { return {stage(used_) + Traits::KTile::kBytes}; }

  ATTILE_DEVICE static int group() { return arch::thread_index() / Traits::kGroupThreads; }
  ATTILE_DEVICE static void barrier_of_group() {
    if constexpr (Traits::kGroupWarps == 1) {
      arch::warp_barrier();
    } else {
      arch::barrier(1 + group(), Traits::kGroupThreads);
    }
  }

 private:
  /// Loads tiles while a stage is free, of this part and of the next one, whose stage of Q the part
  /// before this one has left.
  ATTILE_DEVICE void load_ahead() {
    while (has_part_ && parts_loaded_ <= parts_begun_ && loaded_ - used_ < kStages) {
      const TileRange tiles = part_.at.kv_tiles;
      if (tile_ < tiles.last) {
        if (tile_ == tiles.first) load_q(q_stage(parts_loaded_));
        const int key = tile_ * Traits::kBc + group() * Traits::kGroupKeys;
        const int thread = arch::thread_index() % Traits::kGroupThreads;
        const typename Traits::KTile k_smem{stage(loaded_)};
        const typename Traits::VTile v_smem{stage(loaded_) + Traits::KTile::kBytes};
        tile::load_async<Traits::kGroupThreads>(k_smem, p_.k_of(part_.at), key, thread);
        tile::load_async<Traits::kGroupThreads>(v_smem, p_.v_of(part_.at), key, thread);
        arch::async_copy_commit();
        ++loaded_;
        ++tile_;
      }
      if (tile_ >= tiles.last) {
        ++parts_loaded_;
        has_part_ = schedule_.next(part_);
        tile_ = part_.at.kv_tiles.first;
      }
    }
  }

  /// Loads the packed rows of a part; rows and columns that there are not become 0.
  ATTILE_DEVICE void load_q(const typename Traits::QTile& q_smem) const {
    using Layout = typename Traits::QTile::Layout;
    constexpr int kUnit = Layout::kUnitElements;
    const RowOrigin origin = p_.q_origin(part_.at);
    const auto row_of = [&](int r) {
      const int packed_row = part_.at.row0 + r;
      return p_.q.tensor.row(origin.batch, part_.at.head + packed_row % p_.packed_heads,
                             std::int64_t{origin.row} + packed_row / p_.packed_heads);
    };
    for (int i = arch::thread_index(); i < Traits::kBr * Layout::kUnits; i += Traits::kThreads) {
      const int r = i / Layout::kUnits, col = i % Layout::kUnits * kUnit;
      const bool there = r < part_.rows && col < p_.head_dim;
      const T* const from = row_of(r < part_.rows ? r : 0) + (there ? col : 0);
      if (p_.q.vectors != 0) {
        arch::async_copy_16(
            arch::shared_address(q_smem.data) + Layout::offset(r, i % Layout::kUnits), from, there);
      } else {
        for (int e = 0; e < kUnit; ++e) {
          q_smem.at(r, col + e) = there && col + e < p_.head_dim ? from[e] : from_float<T>(0.0f);
        }
      }
    }
  }

  ATTILE_DEVICE typename Traits::QTile q_stage(int part) const {
    return {shared_ + part % Traits::kQStages * Traits::QTile::kBytes};
  }
  ATTILE_DEVICE unsigned char* stage(int number) const {
    return shared_ + Traits::kQStages * Traits::QTile::kBytes + group() * Traits::kGroupBytes +
           number % kStages * Traits::kStageBytes;
  }

  const DecodeParams<Traits>& p_;
  SplitSchedule<Traits> schedule_;  // of the loads
  unsigned char* shared_;
  SplitPart part_;  // the part whose tiles are loaded
  bool has_part_;
  int tile_;  // of that part: the next one to load
  int parts_loaded_ = 0, parts_begun_ = 0;
  int loaded_ = 0, used_ = 0;  // tiles
};

/// Says which rows and keys a warp has, and how many states the block has of a row: one for each
/// warp where all share the keys, else one for each key group.
template <class Traits, bool kSharesKeys>
struct WarpShare {
  static constexpr int kStates = kSharesKeys ? Traits::kWarps : Traits::kKeyGroups;
  /// The rows of a state, and of the registers of all warps from one state to the next.
  static constexpr int kRows = kSharesKeys ? Traits::kWarpRows : Traits::kBr;
  static constexpr int kKeys = Traits::kBc / kStates;
  using Scores = typename Traits::template ScoreRegisters<kKeys>;

  /// Returns the state that this warp's rows belong to.
  ATTILE_DEVICE static int state() { return Scores::warp_row() / kRows; }
  /// Returns the warp's first row in the row tile, and its first key in the tile of its key group.
  ATTILE_DEVICE static int first_row() { return Scores::warp_row() % kRows; }
  ATTILE_DEVICE static int first_key() { return state() * kKeys % Traits::kGroupKeys; }

  /// Returns the coordinates of the warp's scores in a step of Bc keys from `key` on. Rows count
  /// from the state's first one in the registers of all warps.
  ATTILE_DEVICE static auto coord(const DecodeParams<Traits>& p, const WorkTile& at, int key) {
    const int row0 = at.row0 - state() * kRows;
    const int col0 = key + state() * kKeys;
    const Extent lengths = p.extent(at);
    if constexpr (Traits::kPacksHeads) {
      return tile::PackedHeadsCoord{at.sequence,    at.head,      0, col0, lengths, -row0,
                                   p.packed_heads, lengths.q_len};
    } else {
      return tile::TileCoord{at.sequence, at.head, row0, col0, lengths};
    }
  }
};

/// Merges the states of a part's rows, and puts out each row.
/// Scope    all threads of the block.
/// Barriers the last one in it is one of the block behind all reads of shared memory.
template <class Traits, class Share>
ATTILE_DEVICE void merge_warps(
    const typename Traits::OutputRegisters& o_frag,
    const tile::OnlineSoftmax<Traits::OutputRegisters::kRegRows>& softmax,
    const PartOutput<Traits>& output, int rows, float scale_log2, unsigned char* shared) {
  using Outputs = typename Traits::OutputRegisters;
  constexpr int kColumns = Traits::kMergeColumns;
  constexpr int kPitch = Traits::kMergePitch;
  float* const m = reinterpret_cast<float*>(shared + Traits::kStatesOffset);
  float* const l = m + Outputs::kRows;
  float* const o = reinterpret_cast<float*>(shared + Traits::kMergeOffset);
  ATTILE_UNROLL
  for (int r = 0; r < Outputs::kRegRows; ++r) {
    const float sum = Outputs::sum_lanes(softmax.l[r]);
    if (Outputs::lane_of_row() == 0) {
      m[Outputs::row(r)] = softmax.m[r];
      l[Outputs::row(r)] = sum;
    }
  }
  ATTILE_UNROLL
  for (int col0 = 0; col0 < Traits::kVColumns; col0 += kColumns) {
    ATTILE_UNROLL
    for (int r = 0; r < Outputs::kRegRows; ++r) {
      ATTILE_UNROLL
      for (int c = 0; c < Outputs::kRegCols; c += 2) {
        const int col = Outputs::col_offset(c) - col0;
        if (col < 0 || col >= kColumns) continue;
        arch::store(o + Outputs::row(r) * kPitch + col + Outputs::col(0),
                    Vec<float, 2>{o_frag.x[r][c], o_frag.x[r][c + 1]});
      }
    }
    arch::barrier();  // all warps have written their states before they are read
    constexpr int kVectors = kColumns / 4;
    for (int i = arch::thread_index(); i < rows * kVectors; i += Traits::kThreads) {
      const int row = i / kVectors, col = i % kVectors * 4;
      if (col0 + col >= Traits::kDv) continue;
      const auto at = [&](int state) { return state * Share::kRows + row; };
      output.put(
          row, col0 + col,
          merge_states(
              Share::kStates, scale_log2, [&](int state) { return m[at(state)]; },
              [&](int state) { return l[at(state)]; },
              [&](int state) {
                return arch::load<4>(static_cast<const float*>(o + at(state) * kPitch + col));
              }));
    }
    arch::barrier();  // they are read before the next columns, or the next part's, are written
  }
}

/// Computes O and LSE of a part, or its state, by the forward pass of FlashAttention-2 (arXiv
/// 2307.08691, Algorithm 1; the lines named are its) over each state's keys.
/// Scope    all threads of the block.
template <class Traits, bool kSharesKeys>
ATTILE_DEVICE void compute_part(const DecodeParams<Traits>& p, const SplitPart& part,
                                KeyValueStream<Traits>& stream, unsigned char* shared) {
  using T = typename Traits::ElementType;
  using Share = WarpShare<Traits, kSharesKeys>;
  using Scores = typename Share::Scores;
  using Outputs = typename Traits::OutputRegisters;
  const float scale_log2 = tile::score_scale_log2<typename Traits::ScoreModType>(p.scale);
  const TileRange tiles = part.at.kv_tiles;
  const bool has_rows = Share::first_row() < part.rows;
  Outputs o_frag;  // line 5
  tile::OnlineSoftmax<Outputs::kRegRows> softmax;
  o_frag.clear();
  softmax.reset();

  ATTILE_UNROLL_BY(1)
  for (int tile = tiles.first; tile < tiles.last; ++tile) {  // line 6
    stream.await_tile();                                     // line 7
    if (tile == tiles.first) {
      arch::barrier();  // Q has arrived before all groups read it, and this tile
    } else {
      stream.barrier_of_group();  // the tile has arrived before others of the group read it
    }
    if (has_rows) {
      const auto coord = Share::coord(p, part.at, tile * Traits::kBc);
      Scores s_frag;
      s_frag.clear();
      const tile::SharedLeft q_left(stream.q(), Share::first_row());
      const tile::SharedRightTransposed k_right(stream.k().from_row(Share::first_key()));
      tile::multiply<T, Traits::kProducts>(s_frag, q_left, k_right);  // line 8
      if (tiles.full(tile)) {
        tile::modify_and_mask<false>(s_frag, coord, p.policies, p.scale, tile::MathOf<T>());
      } else {
        tile::modify_and_mask<true>(s_frag, coord, p.policies, p.scale, tile::MathOf<T>());
      }
      softmax.step_exactly(s_frag, o_frag, scale_log2);  // line 9
      if constexpr (Traits::DropoutType::kEnabled) tile::drop(s_frag, coord, p.sampler());
      const tile::RegisterLeft<T, Scores> p_left(s_frag);
      const tile::SharedRight v_right(stream.v().from_row(Share::first_key()));
      tile::multiply<T, Traits::kProducts>(o_frag, p_left, v_right);  // line 10
    }
    stream.release_tile();
  }
  const PartOutput<Traits> output(p, part, scale_log2);
  merge_warps<Traits, Share>(o_frag, softmax, output, part.rows, scale_log2, shared);
  output.end();  // lines 12 to 15, behind the last barrier of merge_warps
}

/// Computes the parts of row tiles that a block has.
/// Scope    all threads of the block. `shared`: Traits::kSharedBytes, aligned to 128 bytes.
template <class Traits>
ATTILE_DEVICE void forward_block(const DecodeParams<Traits>& p, int block, unsigned char* shared) {
  // A step of generation is a chain of short kernels: this one begins while the one before ends,
  // and reads nothing that could be its result until it has ended. The next one may do the same.
  arch::await_dependencies();
  arch::launch_dependents();
  SplitSchedule<Traits> schedule(p, block, shared);
  KeyValueStream<Traits> stream(p, schedule, shared);
  for (SplitPart part; schedule.next(part);) {
    stream.begin_part();
    if (Traits::kGroupWarps == 1 || part.rows <= Traits::kWarpRows) {
      compute_part<Traits, true>(p, part, stream, shared);
    } else if constexpr (Traits::kGroupWarps > 1) {
      compute_part<Traits, false>(p, part, stream, shared);
    }
  }
}

}  // namespace attile::sm80
