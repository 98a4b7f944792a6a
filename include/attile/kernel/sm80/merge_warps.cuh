// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/arch/memory.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/config.h>
#include <attile/core/math.h>
#include <attile/core/vec.h>
#include <attile/core/work_tile.h>
#include <attile/kernel/decode/decode_params.cuh>
#include <attile/kernel/decode/merge_parts.cuh>
#include <attile/kernel/decode/split_part.cuh>
#include <attile/kernel/sm80/decode_traits.cuh>
#include <attile/tile/online_softmax.h>
#include <attile/tile/tile_coord.cuh>

// How the warps of a block share the rows and the keys of a part (decode.cuh), and how their states
// become those of its rows.

namespace attile::sm80 {

/// Says which rows and keys a warp has, and how many states the block has of a row.
/// kDividesKeys  all warps have the same 16 rows and divide the keys of a step, so that each has a
///               state of its own; else the warps of a group divide the rows and have the same
///               keys, so that a row has a state in each group.
/// With Traits::kPairs the two warps of a group have the same rows and keys, and divide the
/// columns. Registers number the rows of all warps, one warp's after another's: row i of state s is
/// register row s * kRows + i.
template <class Traits, bool kDividesKeys>
struct WarpShare {
  static constexpr bool kDivides = kDividesKeys;
  static constexpr bool kInPairs = Traits::kPairs && !kDividesKeys;
  static constexpr int kStates = kDividesKeys ? Traits::kWarps : Traits::kKeyGroups;
  static constexpr int kRows = kDividesKeys ? Traits::kWarpRows : Traits::kBr;  ///< of a state
  static constexpr int kKeys = Traits::kBc / kStates;                           ///< of a step
  using Scores = std::conditional_t<kInPairs, typename Traits::PairScores,
                                    typename Traits::template ScoreRegisters<kKeys>>;
  using Outputs =
      std::conditional_t<kInPairs, typename Traits::PairOutputs, typename Traits::OutputRegisters>;

  /// Returns the state that this warp's rows belong to.
  ATTILE_DEVICE static int state() { return Scores::warp_row() / kRows; }
  /// Returns the warp's first row in the row tile, and its first key in the tile of its key group.
  ATTILE_DEVICE static int first_row() { return Scores::warp_row() % kRows; }
  ATTILE_DEVICE static int first_key() {
    return state() * kKeys % Traits::kGroupKeys + Scores::warp_col();
  }

  /// Returns the coordinates of the warp's scores in a step of Bc keys from `key` on. Registers
  /// number the rows of all states, so that the rows of those before this one are subtracted.
  ATTILE_DEVICE static auto coord(const DecodeParams<Traits>& p, const SplitPart& part, int key) {
    const WorkTile& at = part.at;
    const int row0 = part.packed_row0 - state() * kRows;
    const int col0 = key + state() * kKeys;
    const Extent lengths = p.extent(at);
    if constexpr (Traits::kPacksHeads) {
      return tile::RowsAlone{tile::PackedHeadsCoord{at.sequence, at.head, 0, col0, lengths, -row0,
                                                    p.packed_heads, lengths.q_len}};
    } else {
      return tile::RowsAlone{tile::TileCoord{at.sequence, at.head, row0, col0, lengths}};
    }
  }
};

/// Holds m and l of a warp's rows, and with Traits::kPairs of the other 16 rows of its pair.
template <class Traits>
struct WarpSoftmax : tile::OnlineSoftmax<Traits::OutputRegisters::kRegRows> {};
template <class Traits>
  requires(Traits::kPairs)
struct WarpSoftmax<Traits> : tile::OnlineSoftmax<Traits::OutputRegisters::kRegRows> {
  using Softmax = tile::OnlineSoftmax<Traits::OutputRegisters::kRegRows>;
  Softmax more;

  ATTILE_DEVICE void reset() {
    Softmax::reset();
    more.reset();
  }
};

/// Holds the state of a pair's rows: the same registers with other rows and columns.
template <class Traits>
struct PairState {
  using Outputs = typename Traits::OutputRegisters;
  using PairOutputs = typename Traits::PairOutputs;
  PairOutputs o;
  tile::OnlineSoftmax<PairOutputs::kRegRows> softmax;

  ATTILE_DEVICE void take(Outputs& warp_o, WarpSoftmax<Traits>& warp) {
    copy(warp_o, warp, [](float& mine, float of_warp) { mine = of_warp; });
  }
  ATTILE_DEVICE void give(Outputs& warp_o, WarpSoftmax<Traits>& warp) {
    copy(warp_o, warp, [](float mine, float& of_warp) { of_warp = mine; });
  }

 private:
  template <class Copy>
  ATTILE_DEVICE void copy(Outputs& warp_o, WarpSoftmax<Traits>& warp, const Copy& each) {
    constexpr int kRows = Outputs::kRegRows, kCols = PairOutputs::kRegCols;
    ATTILE_UNROLL
    for (int r = 0; r < 2 * kRows; ++r) {
      // An instruction's four sums lie beside each other in both.
      ATTILE_UNROLL
      for (int c = 0; c < kCols; ++c) each(o.x[r][c], warp_o.x[r % kRows][r / kRows * kCols + c]);
      each(softmax.m[r], r < kRows ? warp.m[r] : warp.more.m[r - kRows]);
      each(softmax.l[r], r < kRows ? warp.l[r] : warp.more.l[r - kRows]);
    }
  }
};

/// Gives each warp of a pair the 16 rows that it has where there are no pairs: it gives the other
/// one half of its O, and gets half of that one's.
/// Scope    all threads of the block.
/// Barriers it begins with one of the block; one after, before its memory is written again.
template <class Traits>
ATTILE_DEVICE void part_pairs(typename Traits::OutputRegisters& o_frag,
                              WarpSoftmax<Traits>& softmax, unsigned char* shared) {
  using Outputs = typename Traits::OutputRegisters;
  constexpr int kRows = Outputs::kRegRows, kHalf = Outputs::kRegCols / 2;
  constexpr int kCount = kRows * (kHalf + 1);  // of O and l
  constexpr int kAtOnce = min(kCount, Traits::kMergeFloats / Traits::kThreads);
  const typename Traits::PairWarps pair(shared);
  const int thread = arch::thread_index();
  const bool is_second = thread / arch::kWarpSize % 2 != 0;
  float* const room = reinterpret_cast<float*>(shared + Traits::kMergeOffset);
  // Of the first 16 rows of the pair, or of the second 16.
  const auto element = [&](int i, bool of_second) -> float& {
    const int r = i % kRows, c = i / kRows;
    if (c == kHalf) return of_second ? softmax.more.l[r] : softmax.l[r];
    return o_frag.x[r][(of_second ? kHalf : 0) + c];
  };
  arch::barrier();  // Q and P have been read before they are replaced
  ATTILE_UNROLL
  for (int first = 0; first < kCount; first += kAtOnce) {
    if (first > 0) pair.barrier();  // they have been read before the next ones replace them
    ATTILE_UNROLL
    for (int i = first; i < min(first + kAtOnce, kCount); ++i) {
      room[(i - first) * Traits::kThreads + thread] =
          is_second ? element(i, false) : element(i, true);
    }
    pair.barrier();  // both have written before either of them reads
    ATTILE_UNROLL
    for (int i = first; i < min(first + kAtOnce, kCount); ++i) {
      const float theirs = room[(i - first) * Traits::kThreads + (thread ^ arch::kWarpSize)];
      if (i / kRows == kHalf) {
        element(i, false) = (is_second ? element(i, true) : element(i, false)) + theirs;
      } else {
        element(i, false) = is_second ? theirs : element(i, false);
        element(i, true) = is_second ? element(i, true) : theirs;
      }
    }
  }
  ATTILE_UNROLL
  for (int r = 0; r < kRows; ++r) softmax.m[r] = is_second ? softmax.more.m[r] : softmax.m[r];
}

/// Merges the states of a part's rows, and writes each row.
/// Scope    all threads of the block.
/// Barriers it ends with one of the block.
template <class Traits>
ATTILE_DEVICE void merge_warps(
    const typename Traits::OutputRegisters& o_frag,
    const tile::OnlineSoftmax<Traits::OutputRegisters::kRegRows>& softmax,
    const PartOutput<Traits>& output, int rows, bool divides_keys, float scale_log2,
    unsigned char* shared) {
  using Outputs = typename Traits::OutputRegisters;
  using RowState = typename PartOutput<Traits>::RowState;
  using ByKeys = WarpShare<Traits, true>;
  using ByRows = WarpShare<Traits, false>;
  const int states = divides_keys ? ByKeys::kStates : ByRows::kStates;
  const int state_rows = divides_keys ? ByKeys::kRows : ByRows::kRows;
  const int warp_row = Outputs::warp_row();
  const int state = divides_keys ? warp_row / ByKeys::kRows : warp_row / ByRows::kRows;
  float* const m = reinterpret_cast<float*>(shared + Traits::kStatesOffset);
  float* const l = m + Outputs::kRows;
  float* const o = reinterpret_cast<float*>(shared + Traits::kMergeOffset);
  output.begin();
  ATTILE_UNROLL
  for (int r = 0; r < Outputs::kRegRows; ++r) {
    const float sum = Outputs::sum_lanes(softmax.l[r]);
    if (Outputs::lane_of_row() == 0) {
      m[Outputs::row(r)] = softmax.m[r];
      l[Outputs::row(r)] = sum;
    }
  }
  // Few rows leave memory for more columns, and want fewer barriers.
  const int columns = Traits::columns_at_once(states * rows);
  const int pitch = merge_pitch(columns);
  if constexpr (Traits::kMergesInQ || Traits::kPairs) {
    arch::barrier();  // what this memory had has been read before O replaces it
  }
  constexpr int kChunk = Traits::kMergeColumns;
  ATTILE_UNROLL_BY(1)
  for (int col0 = 0; col0 < Traits::kVColumns; col0 += columns) {
    ATTILE_UNROLL
    for (int chunk = 0; chunk < Traits::kVColumns; chunk += kChunk) {
      if (chunk < col0 || chunk >= col0 + columns) continue;
      ATTILE_UNROLL
      for (int r = 0; r < Outputs::kRegRows; ++r) {
        const int row = Outputs::row(r) - state * state_rows;
        if (row >= rows) continue;
        float* const to = o + (state * rows + row) * pitch - col0 + Outputs::col(0);
        ATTILE_UNROLL
        for (int c = 0; c < Outputs::kRegCols; c += 2) {
          const int first = Outputs::reg_col(c), second = Outputs::reg_col(c + 1);
          const int col = Outputs::col_offset(first);
          if (col < chunk || col >= chunk + kChunk) continue;
          arch::store(to + col, Vec<float, 2>{o_frag.x[r][first], o_frag.x[r][second]});
        }
      }
    }
    arch::barrier();  // all warps have written their states before they are read
    const int vectors = min(columns, Traits::kVColumns - col0) / RowState::kColumns;
    for (int i = arch::thread_index(); i < rows * vectors; i += Traits::kThreads) {
      const int row = i / vectors, col = i % vectors * RowState::kColumns;
      if (col0 + col >= Traits::kDv) continue;
      int of_all = row;
      const float* from = o + row * pitch + col;
      const auto sum = merge_states<Traits::kStatesAtOnce, RowState>(
          0, states, scale_log2, [&](bool there, RowState& state) {
            if (there) {
              state.m = m[of_all], state.l = l[of_all];
              state.load_o(from);
            }
            of_all += state_rows;
            from += rows * pitch;
          });
      output.put(row, col0 + col, sum);
    }
    arch::barrier();  // they are read before the next columns, or the next part's, are written
  }
}

}  // namespace attile::sm80
