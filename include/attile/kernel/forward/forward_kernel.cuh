// SPDX-License-Identifier: MIT
#pragma once

#include <attile/arch/attributes.h>
#include <attile/arch/device.cuh>
#include <attile/arch/launch.cuh>
#include <attile/arch/math.h>
#include <attile/arch/memory.cuh>
#include <attile/arch/thread.cuh>
#include <attile/core/args.h>
#include <attile/core/config.h>
#include <attile/core/device_policy.h>
#include <attile/core/earlier_keys.h>
#include <attile/core/element.h>
#include <attile/core/math.h>
#include <attile/core/vec.h>
#include <attile/kernel/forward/forward_params.cuh>
#include <attile/kernel/problem/problem.cuh>
#include <attile/tile/online_softmax.h>
#include <attile/tile/row_sinks.cuh>

#include <cstdint>

// The grid, the kernel entry point and the store of LSE are common to all families of forward
// kernels.

namespace attile {

/// Returns the kernel's one parameter, for arguments that passed `check`: what can fail has
/// succeeded there.
template <class Traits>
typename Traits::Params forward_params(const typename Traits::Args& args) {
  const auto as_read = without_unread_strides(args);
  typename Traits::Params params(as_read);
  static_cast<void>(params.complete(as_read));
  return params;
}

/// Runs the `forward_block` of the traits' own namespace; it is the kernel of every family.
template <class Traits>
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(Traits::kThreads, Traits::kBlocksPerSm)
    forward_kernel(const ATTILE_GRID_CONSTANT typename Traits::Params p);

/// Returns the blocks of the grid: one for each tile; or, for kernels that are kPersistent, as many
/// as run at the same time, and no more than the arguments allow, each for several tiles. There are
/// none where no sequence can have rows.
template <class Traits>
std::int64_t forward_block_count(const typename Traits::Args& args) {
  if (longest_lengths(args).q_len == 0) return 0;
  const std::int64_t tiles = Traits::Params::tile_count(args);
  if constexpr (!Traits::kPersistent) {
    return tiles;
  } else {
    int at_once = arch::multiprocessors() * Traits::kBlocksPerSm;
    if (args.max_blocks > 0) at_once = min(at_once, args.max_blocks);
    return min<std::int64_t>(tiles, at_once);
  }
}

/// Gives the results of earlier keys of the rows that this thread holds, of which there are some
/// beyond the sequence's last one.
template <class Registers, class Traits, class Coord>
struct RowsOfEarlierKeys {
  static constexpr bool kEnabled = true;

  const ForwardParams<Traits>& p;
  Coord coord;
  float scale_log2;

  ATTILE_DEVICE float logit(int r) const {
    const int row = Registers::row(r);
    const bool exists = Registers::has_row(r) && coord.has_row(row);
    return exists ? p.sink_of(coord.at(row, 0)) : -kInf;
  }
  ATTILE_DEVICE void add_value(Registers& output, int r, float weight) const {
    const int col0 = Registers::col(0), cols = p.head_dim_v - col0;
    const auto* const value = p.query_row(p.policies.sink.o, coord.at(Registers::row(r), 0)) + col0;
    ATTILE_UNROLL
    for (int c = 0; c < Registers::kRegCols; ++c) {
      const int col = Registers::col_offset(c);
      if (col >= cols) continue;
      output.x[r][c] = arch::fma(to_float(value[col]), weight, output.x[r][c]);
    }
  }
};

/// Returns the sinks of the rows that this thread holds, for OnlineSoftmax::finish.
/// `coord()`: the coordinates of the rows; it is not called where there are no sinks.
template <class Registers, class Traits, class MakeCoord>
ATTILE_DEVICE auto row_sinks(const ForwardParams<Traits>& p, float scale_log2,
                             const MakeCoord& coord) {
  if constexpr (kIsEarlierKeys<typename Traits::SinkType>) {
    return RowsOfEarlierKeys<Registers, Traits, decltype(coord())>{p, coord(), scale_log2};
  } else if constexpr (Traits::SinkType::kEnabled) {
    return tile::RowSinks<Registers, typename Traits::SinkType, decltype(coord())>{
        p.policies.sink, coord(), scale_log2};
  } else {
    return tile::NoSinks{};
  }
}

/// Stores O of the rows that this thread holds as fp32, from registers: the lanes of a row write
/// whole sectors of 32 bytes, unlike with 16-bit elements.  [FlashAttention-2, Alg. 1, line 14]
template <class Traits, class Coord, class Registers>
ATTILE_DEVICE void store_fp32_output(const ForwardParams<Traits>& p, const Coord& coord,
                                     const Registers& o_frag) {
  const int col0 = Registers::col(0), cols = p.head_dim_v - col0;
  ATTILE_UNROLL
  for (int r = 0; r < Registers::kRegRows; ++r) {
    const int row = Registers::row(r);
    if (!coord.has_row(row)) continue;
    float* const out = p.query_row(p.o.tensor, coord.at(row, 0)) + col0;
    ATTILE_UNROLL
    for (int c = 0; c < Registers::kRegCols; c += 2) {
      const float first = o_frag.x[r][Registers::reg_col(c)];
      const float second = o_frag.x[r][Registers::reg_col(c + 1)];
      const int col = Registers::col_offset(Registers::reg_col(c));
      if (p.o.vectors != 0 && col < cols) {
        arch::store(out + col, Vec<float, 2>{first, second});
      } else {
        if (col < cols) out[col] = first;
        if (col + 1 < cols) out[col + 1] = second;
      }
    }
  }
}

/// Stores LSE of the rows that this thread holds, where it is wanted. The kLanesOfRow lanes that
/// share rows hold the same ones, and each writes a different share of them. `tile`: their work
/// tile, which says where the sequence's rows begin; null: the sequences policy does.
/// [FlashAttention-2, Alg. 1, lines 13 and 15]
template <class Registers, class Traits, class Coord>
ATTILE_DEVICE void store_lse(const ForwardParams<Traits>& p, const Coord& coord,
                             const tile::OnlineSoftmax<Registers::kRegRows>& softmax,
                             float scale_log2, const WorkTile* tile = nullptr) {
  constexpr int kLanes = Registers::kLanesOfRow;
  const int lane = Registers::lane_of_row();
  if constexpr (kIsEarlierKeys<typename Traits::SinkType>) {
    arch::warp_barrier();  // LSE may replace that of earlier keys, which the lanes of a row read
  }
  if (p.lse.data == nullptr || lane >= kLanes) return;
  ATTILE_UNROLL
  for (int first = 0; first < Registers::kRegRows; first += kLanes) {
    tile::OnlineSoftmax<1> mine{};
    ATTILE_UNROLL
    for (int r = first; r < min(first + kLanes, Registers::kRegRows); ++r) {
      if (r == first + lane) mine = {{softmax.m[r]}, {softmax.l[r]}};
    }
    const int r = first + lane;
    if (r >= Registers::kRegRows || !Registers::has_row(r)) continue;
    const int row = Registers::row(r);
    if (!coord.has_row(row)) continue;
    const ScoreIndex index = coord.at(row, 0);
    float lse = mine.lse(0, scale_log2);
    if constexpr (Traits::SinkType::kEnabled) lse = mine.lse(0, scale_log2, p.sink_of(index));
    if (tile != nullptr) {
      const RowOrigin origin = tile->q_origin;
      p.lse.row(origin.batch, index.head, origin.row)[index.row] = lse;
    } else {
      p.first_row(p.lse, index.batch, index.head)[index.row] = lse;
    }
  }
}

/// Runs the `forward_block` of the traits' own namespace.
template <class Traits>
ATTILE_KERNEL void ATTILE_LAUNCH_BOUNDS(Traits::kThreads, Traits::kBlocksPerSm)
    forward_kernel(const ATTILE_GRID_CONSTANT typename Traits::Params p) {
  detail::require_device_policies<typename Traits::Policies>();
  forward_block<Traits>(p, arch::block_index(), arch::dynamic_shared());
}

}  // namespace attile
